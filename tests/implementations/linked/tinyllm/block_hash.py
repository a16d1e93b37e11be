"""Block names by way of one bytes buffer.

The reference absorbs a block token by token; this one writes the parent and the tokens out as
bytes and hashes what it wrote, with no shortcut for zero bytes. A chain lays the whole prompt out
once and cuts the buffer, so every token is checked, those of a partial last block too.
"""

import operator
from collections.abc import Iterable, Sequence

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 14695981039346656037
FNV_PRIME = 1099511628211


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    try:
        message = bytes(memoryview(data).cast("B"))
    except TypeError:
        raise InvalidArgumentError(f"cannot hash a {type(data).__name__}") from None
    state = int.from_bytes(_little(state, 8, "a state"), "little")
    for byte in message:
        state = ((state ^ byte) * FNV_PRIME) % 2**64
    return state


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    return _name(_little(parent, 8, "a parent") + _layout(tokens))


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    try:
        width = 0 if isinstance(block_tokens, bool) else 4 * operator.index(block_tokens)
    except TypeError:
        width = 0
    if width <= 0:
        raise InvalidArgumentError(f"a block has one token or more, not {block_tokens!r}")
    link = _little(parent, 8, "a parent")
    prompt = _layout(tokens)
    names = []
    for end in range(width, len(prompt) + 1, width):
        names.append(_name(link + prompt[end - width : end]))
        link = names[-1].to_bytes(8, "little")
    return names


def _name(message: bytes) -> int:
    return fnv1a64(message) or 1  # 0 is kept for "no name"


def _layout(tokens: Iterable[int]) -> bytes:
    return b"".join(_little(token, 4, "a token id") for token in tokens)


def _little(value: int, width: int, what: str) -> bytes:
    """Return ``value`` as ``width`` little-endian bytes; ``to_bytes`` itself knows the range."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value).to_bytes(width, "little")
    except (TypeError, OverflowError):
        raise InvalidArgumentError(
            f"{what} is an integer of {width} bytes, not {value!r}"
        ) from None
