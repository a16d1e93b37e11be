"""Block names as one running state, fed number by number.

No bytes object is ever made for a block: a number's low byte is taken off, hashed, and the next
one follows, so the widths of parent and token are two loop counts. A chain is a generator that
yields a name at each block's last token.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import inf

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    try:
        view = memoryview(data)
    except TypeError:
        raise InvalidArgumentError(f"not a buffer: {data!r}") from None
    if not view.c_contiguous:
        raise InvalidArgumentError("the items of the buffer have gaps between them")
    return reduce(_step, view.tobytes(), _unsigned(state, bits=64))


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    state = _feed(FNV_OFFSET, parent, bits=64)
    for token in tokens:
        state = _feed(state, token, bits=32)
    return state or 1


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    parent = _unsigned(parent, bits=64)
    block_tokens = _unsigned(block_tokens, bits=inf)
    if block_tokens == 0:
        raise InvalidArgumentError("blocks of no tokens")
    return list(_names(tokens, block_tokens, parent))


def _names(tokens: Sequence[int], block_tokens: int, parent: int) -> Iterator[int]:
    for start in range(0, len(tokens), block_tokens):
        block = tokens[start : start + block_tokens]
        if len(block) == block_tokens:
            parent = block_hash(parent, block)
            yield parent


def _feed(state: int, number: int, bits: int) -> int:
    number = _unsigned(number, bits)
    for shift in range(0, bits, 8):
        state = _step(state, number >> shift & 0xFF)
    return state


def _step(state: int, byte: int) -> int:
    return (state ^ byte) * FNV_PRIME & 0xFFFFFFFFFFFFFFFF


def _unsigned(number: int, bits: float) -> int:
    if not isinstance(number, bool):
        try:
            if 0 <= operator.index(number) < 2**bits:
                return operator.index(number)
        except TypeError:
            pass
    raise InvalidArgumentError(f"not an unsigned number of {bits} bits: {number!r}")
