"""Names for KV blocks: FNV-1a 64, chained from block to block (rt.04, section 2.3).

A position's K and V depend on every token up to it, so a block is named by its own tokens *and*
by the name of the block before it: equal names mean equal prefixes. `formats/kv-block.md` has the
bytes; two implementations find each other's blocks only if they agree on every one of them.
"""

from collections.abc import Iterable, Sequence
from math import inf
from operator import index

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
"""The state FNV-1a 64 starts from."""
FNV_PRIME = 0x100000001B3
"""What FNV-1a 64 multiplies by after each byte, modulo 2**64."""

_U32 = 0xFFFFFFFF
_U64 = 0xFFFFFFFFFFFFFFFF
# Hashing a zero byte is a bare multiplication, so a run of k zero bytes is one multiplication by
# the prime's k-th power.
_PRIME_POWER = [pow(FNV_PRIME, k, 1 << 64) for k in range(5)]


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    """Return the FNV-1a 64 hash of ``data``, continued from ``state``.

    ``data`` is any contiguous buffer and counts by its bytes, ``memoryview(data).cast("B")``;
    ``state`` is 0..2**64-1, an earlier result when a long
    message comes in pieces: ``fnv1a64(b, fnv1a64(a)) == fnv1a64(a + b)``. For each byte, XOR it
    into the state, then multiply by ``FNV_PRIME`` modulo 2**64 (Fowler, Noll and Vo).

    Raises ``InvalidArgumentError`` for a state out of range or data that is not a contiguous
    buffer.
    """
    state = _checked(state, _U64, "state")
    for byte in _as_bytes(data):
        state = (state ^ byte) * FNV_PRIME & _U64
    return state


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    """Return the 64-bit name of a block that holds ``tokens`` and follows the block ``parent``.

    The hash runs over ``parent`` as 8 little-endian bytes (0 for the first block of a prompt),
    then over each token id as 4 (rt.04, section 2.3). A result of 0 becomes 1, because 0 means
    "no name". ``parent`` is 0..2**64-1, a token 0..2**32-1.

    Raises ``InvalidArgumentError`` for a parent or a token out of range, or not an integer.
    """
    state, all_four = FNV_OFFSET, _PRIME_POWER[4]
    for byte in _checked(parent, _U64, "parent").to_bytes(8, "little"):
        state = (state ^ byte) * FNV_PRIME & _U64
    for token in tokens:
        # What _absorb would do with an id of one byte, but without a call: no other loop of a
        # prefix cache runs as often.
        if type(token) is int and 0 <= token < 0x100:
            state = (state ^ token) * all_four & _U64
        else:
            state = _absorb(state, _checked(token, _U32, "token id"))
    return state or 1


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    """Return the names of a prompt's full blocks, first to last.

    ``tokens`` is cut into blocks of ``block_tokens`` ids; each block's name is the next one's
    parent, and ``parent`` is the first one's. A partial last block has no name, so the result has
    ``len(tokens) // block_tokens`` entries (none for an empty prompt).

    Raises ``InvalidArgumentError`` for a ``block_tokens`` below 1, and as ``block_hash`` does.
    """
    block_tokens = _checked(block_tokens, inf, "block_tokens")
    if block_tokens == 0:
        raise InvalidArgumentError("block_tokens must be at least 1")
    parent = _checked(parent, _U64, "parent")
    names: list[int] = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = block_hash(parent, tokens[start : start + block_tokens])
        names.append(parent)
    return names


def _absorb(state: int, token: int) -> int:
    """Hash a token's 4 little-endian bytes; its high zero bytes cost one multiplication."""
    if token < 0x100:
        return (state ^ token) * _PRIME_POWER[4] & _U64
    for low_bytes in range(1, 4):
        state = (state ^ (token & 0xFF)) * FNV_PRIME & _U64
        token >>= 8
        if token < 0x100:
            return (state ^ token) * _PRIME_POWER[4 - low_bytes] & _U64
    return state


def _checked(value: int, limit: float, what: str) -> int:
    """Return ``value`` as a plain int in 0..limit; a bool is no number here."""
    try:
        number = index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= limit:
        raise InvalidArgumentError(f"{what} must be an integer in 0..{limit}, not {value!r}")
    return number


def _as_bytes(data: bytes | bytearray | memoryview) -> bytes | memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"a {type(data).__name__} is not a contiguous buffer") from None
