"""Messages that FNV-1a takes to 0, found by running it backwards; and the format's hashes, written
out plainly."""

from collections.abc import Sequence

TO_ZERO = [875894274, 2066721699]
"""Two tokens of a first block."""
LATER_TO_ZERO = [4026665324, 1677877486, 891298606, 604861199]
"""Four tokens of a block that follows the block 1 2 3 4."""
PARENT_TO_ZERO = 0x3608874253B96BD5
"""A parent whose 8 bytes alone do; zero bytes after them change nothing."""
OFFSET = 0xCBF29CE484222325


def fnv(data: bytes, state: int = OFFSET) -> int:
    """FNV-1a 64, one byte at a time."""
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def plain(parent: int, tokens: Sequence[int]) -> bytes:
    """Return the message of a block: the parent's 8 bytes, then 4 for each token."""
    return parent.to_bytes(8, "little") + b"".join(t.to_bytes(4, "little") for t in tokens)


def chain_of(tokens: Sequence[int], size: int, parent: int = 0) -> list[int]:
    """Return the hashes of a prompt's full blocks."""
    hashes = []
    for start in range(0, len(tokens) - size + 1, size):
        parent = fnv(plain(parent, tokens[start : start + size])) or 1
        hashes.append(parent)
    return hashes
