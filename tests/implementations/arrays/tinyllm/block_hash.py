"""Block names from numpy's own memory layout.

The tokens become a little-endian uint32 array whose bytes are the message, where the reference
takes each token apart by hand. A chain is one such array of shape [blocks, bytes of a block], and
the state after the parent's 8 bytes is carried on into each row.
"""

from collections.abc import Iterable, Sequence
from operator import index

import numpy as np

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    try:
        octets = memoryview(data).cast("B").tobytes()
    except TypeError as error:
        raise InvalidArgumentError(str(error)) from None
    return _run(_within(state, _MASK), octets)


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    return _name(_within(parent, _MASK), _little_endian(tokens).tobytes())


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    if (size := _within(block_tokens, None)) == 0:
        raise InvalidArgumentError("a block holds at least one token")
    name = _within(parent, _MASK)
    ids = _little_endian(tokens)
    n_blocks = len(ids) // size
    rows = ids[: n_blocks * size].reshape(n_blocks, -1) if n_blocks else ()
    return [name := _name(name, row.tobytes()) for row in rows]


def _name(parent: int, octets: bytes) -> int:
    state = _run(FNV_OFFSET, np.array(parent, "<u8").tobytes())
    return _run(state, octets) or 1


def _run(state: int, octets: bytes) -> int:
    for octet in octets:
        state = ((state ^ octet) * FNV_PRIME) & _MASK
    return state


def _little_endian(tokens: Iterable[int]) -> np.ndarray:
    # numpy would round a float and read True as 1, so each token is looked at first.
    return np.fromiter((_within(token, 0xFFFFFFFF) for token in tokens), dtype="<u4")


def _within(value: int, limit: int | None) -> int:
    try:
        number = index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or number < 0 or (limit is not None and number > limit):
        raise InvalidArgumentError(f"{value!r} is not an integer in 0..{limit or ''}")
    return number
