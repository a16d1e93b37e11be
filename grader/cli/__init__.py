"""The command line: one file a command; `main` declares them all."""
