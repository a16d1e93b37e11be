"""Values that several tests of the suite use."""

from typing import Any

H0, H1 = 0xA91AB0C1027B9366, 0x03DF829571605C60
"""The names of the worked example's blocks, for the tokens 1 2 and 3 4 (rt.04, section 3)."""

TO_ZERO = [875894274, 2066721699]
"""Two tokens of a first block whose message FNV-1a takes to 0, found by running it backwards."""
PARENT_TO_ZERO = 0x3608874253B96BD5
"""A parent whose 8 bytes alone do; zero bytes after them change nothing."""

NOT_INTEGERS: tuple[Any, ...] = (True, 1.0, "1", None)
"""Values that are no token, no parent and no count, however much some look like one."""
