"""Block names packed by ``struct``.

The format string is the specification: ``<Q`` for the parent, ``I`` for each token, and
``struct`` itself refuses what does not fit. Only bools need a look, because to ``struct`` they are
numbers.
"""

import struct
from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x00000100000001B3


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    try:
        text = bytes(memoryview(data).cast("B"))
    except TypeError:
        raise InvalidArgumentError(f"fnv1a64 takes bytes, not {data!r}") from None
    (state,) = struct.unpack("<Q", _pack("<Q", [state]))
    for byte in text:
        state ^= byte
        state = state * FNV_PRIME % (1 << 64)
    return state


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    tokens = list(tokens)
    digest = fnv1a64(_pack(f"<Q{len(tokens)}I", [parent, *tokens]))
    return 1 if digest == 0 else digest


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    if isinstance(block_tokens, bool) or not isinstance(block_tokens, SupportsIndex):
        raise InvalidArgumentError(f"block_tokens is no integer: {block_tokens!r}")
    if (size := index(block_tokens)) < 1:
        raise InvalidArgumentError(f"block_tokens is {size}")
    chain = [parent]
    _pack("<Q", chain)  # a prompt shorter than a block would not look at it otherwise
    rest = list(tokens)
    while len(rest) >= size:
        chain.append(block_hash(chain[-1], rest[:size]))
        rest = rest[size:]
    return chain[1:]


def _pack(layout: str, numbers: list[int]) -> bytes:
    if any(isinstance(number, bool) for number in numbers):
        raise InvalidArgumentError("a bool is no number here")
    try:
        return struct.pack(layout, *numbers)
    except struct.error as error:
        raise InvalidArgumentError(f"{error}: {numbers!r}") from None
