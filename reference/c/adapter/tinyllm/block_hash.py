"""Names for KV blocks by the C program, presented as `tinyllm.block_hash`. A whole chain is one
call."""

from array import array
from collections.abc import Iterable, Sequence

from tinyllm.c_bridge import U32, failure, ffi, lib, whole
from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
"""The state FNV-1a 64 starts from."""
FNV_PRIME = 0x100000001B3
"""What FNV-1a 64 multiplies by after each byte, modulo 2**64."""


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    number = whole(state, "a state")
    try:
        view = memoryview(data).cast("B")
        with ffi.from_buffer(view) as memory:
            return int(lib.bridge_fnv1a64(memory, len(view), number))
    except (TypeError, OverflowError):
        raise InvalidArgumentError("data is bytes-like, a state has 64 bits") from None


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    data = _tokens(tokens)
    (name,) = _chain(parent, data, 1, len(data))
    return name


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    if (size := whole(block_tokens, "block_tokens")) == 0:
        raise InvalidArgumentError("block_tokens must be at least 1")
    n_blocks = len(tokens) // size
    return _chain(parent, _tokens(tokens[: n_blocks * size]), n_blocks, size if n_blocks else 1)


def _chain(parent: int, tokens: "array[int]", n_blocks: int, size: int) -> list[int]:
    names, before = ffi.new("uint64_t[]", n_blocks), whole(parent, "a parent")
    try:
        with ffi.from_buffer("uint32_t[]", tokens) as memory:
            status = lib.bridge_hash_chain(before, memory, n_blocks, size, names)
    except OverflowError:
        raise InvalidArgumentError(f"a parent has 64 bits, not {parent!r}") from None
    if status:
        raise failure(status)
    return ffi.unpack(names, n_blocks) if n_blocks else []


def _tokens(tokens: Iterable[int]) -> "array[int]":
    """Return the token ids as numbers of 32 bits in a row."""
    if isinstance(tokens, array) and tokens.typecode == "I":
        return tokens
    try:
        ids = list(tokens)
        if bool not in map(type, ids):
            return array("I", ids)
    except (TypeError, OverflowError):
        pass
    raise InvalidArgumentError(f"a token is an integer in 0..{U32}, and no bool")
