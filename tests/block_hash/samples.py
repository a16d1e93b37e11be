"""Messages that FNV-1a takes to 0, found by running it backwards."""


TO_ZERO = [875894274, 2066721699]
"""Two tokens of a first block."""
PARENT_TO_ZERO = 0x3608874253B96BD5
"""A parent whose 8 bytes alone do; zero bytes after them change nothing."""
