"""Values that the suites of several modules use."""

from typing import Any

H0, H1 = 0xA91AB0C1027B9366, 0x03DF829571605C60
"""The names of the worked example's blocks, for the tokens 1 2 and 3 4 (rt.04, section 3)."""

NOT_COUNTS: tuple[Any, ...] = (1.0, "1", None)
"""Values that are not a count of anything."""

NOT_INTEGERS: tuple[Any, ...] = (True, False, 1.0, "1", None)
"""Values that are no id, no count, no token and no hash, however much some look like one."""
