"""Text that learner code made, as it may be shown: valid UTF-8 that does nothing to a terminal."""

import re
from typing import Any

# Control characters but tab and newline, what changes the direction of writing, lone surrogates.
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069"
                   "\ud800-\udfff]")


def plain(text: str) -> str:
    """Return ``text`` with such characters escaped, as Python would write them."""
    return _ACTS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_all(value: Any) -> Any:
    """Return plain data with every text in it made `plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {key: plain_all(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_all(part) for part in value]
    return value
