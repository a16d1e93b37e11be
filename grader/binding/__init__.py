"""Which file stands behind a module's name, and how a program in another language becomes one."""
