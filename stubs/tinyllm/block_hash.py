"""Names for KV blocks: FNV-1a 64, chained from block to block (rt.04, section 2.3).

Build the hash, then the name of one block (its parent's name and its token ids, hashed), then the
names of a whole prompt. Equal names mean equal prefixes, for everyone who follows
`formats/kv-block.md`, so the tests hold you to every byte of it.

The chapter is `course/modules/block_hash/chapter.md`. Nothing here needs another module.
"""

from collections.abc import Iterable, Sequence

from tinyllm.errors import InvalidArgumentError

FNV_OFFSET = 0xCBF29CE484222325
"""The state FNV-1a 64 starts from."""
FNV_PRIME = 0x100000001B3
"""What FNV-1a 64 multiplies by after each byte, modulo 2**64."""


def fnv1a64(data: bytes | bytearray | memoryview, state: int = FNV_OFFSET) -> int:
    """Return the FNV-1a 64 hash of ``data``, continued from ``state``.

    ``data`` is any contiguous buffer and counts by its bytes, ``memoryview(data).cast("B")``;
    ``state`` is 0..2**64-1, an earlier result when a long
    message comes in pieces: ``fnv1a64(b, fnv1a64(a)) == fnv1a64(a + b)``. For each byte, XOR it
    into the state, then multiply by ``FNV_PRIME`` modulo 2**64 (Fowler, Noll and Vo).

    Raises ``InvalidArgumentError`` for a state out of range or data that is not a contiguous
    buffer.

    TODO (pass 2): Hash the bytes with FNV-1a 64, from the given state.

    Approach:
      - memoryview(data).cast('B') gives the bytes of any contiguous buffer, and raises
        TypeError else.
      - For each byte: first XOR it into the state, then multiply by the prime.
      - Python's integers do not overflow, so keep the low 64 bits yourself.

    Example:
        >>> hex(fnv1a64(b"a"))
        '0xaf63dc4c8601ec8c'
        >>> fnv1a64(b"bar", fnv1a64(b"foo")) == fnv1a64(b"foobar")
        True
    """
    raise NotImplementedError("block_hash: fnv1a64")


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    """Return the 64-bit name of a block that holds ``tokens`` and follows the block ``parent``.

    The hash runs over ``parent`` as 8 little-endian bytes (0 for the first block of a prompt),
    then over each token id as 4 (rt.04, section 2.3). A result of 0 becomes 1, because 0 means
    "no name". ``parent`` is 0..2**64-1, a token 0..2**32-1.

    Raises ``InvalidArgumentError`` for a parent or a token out of range, or not an integer.

    TODO (pass 2): Name a block: hash the parent's 8 bytes, then 4 bytes for each token id, little-
        endian.

    Approach:
      - Check the parent and every token: integers in range, numpy's too, but no bool.
      - operator.index makes a plain int of numpy's integers too; its to_bytes writes the bytes.
      - The state after one piece of the message is the start of the next piece.
      - Look at the end at what a result of 0 would mean to the pool.

    Example:
        >>> hex(block_hash(0, [1, 2]))
        '0xa91ab0c1027b9366'
        >>> hex(block_hash(0xA91AB0C1027B9366, [3, 4]))
        '0x3df829571605c60'
    """
    raise NotImplementedError("block_hash: block_hash")


def hash_chain(tokens: Sequence[int], block_tokens: int, parent: int = 0) -> list[int]:
    """Return the names of a prompt's full blocks, first to last.

    ``tokens`` is cut into blocks of ``block_tokens`` ids; each block's name is the next one's
    parent, and ``parent`` is the first one's. A partial last block has no name, so the result has
    ``len(tokens) // block_tokens`` entries (none for an empty prompt).

    Raises ``InvalidArgumentError`` for a ``block_tokens`` below 1, and as ``block_hash`` does.

    TODO (pass 2): Name the full blocks of a prompt, each one the parent of the next.

    Approach:
      - How many whole blocks are there? The tokens after them have no name yet.
      - Walk in steps of block_tokens and carry the last name along as the parent.

    Example:
        >>> [hex(name) for name in hash_chain([1, 2, 3, 4, 5], 2)]
        ['0xa91ab0c1027b9366', '0x3df829571605c60']
        >>> hash_chain([1], 2)
        []
    """
    raise NotImplementedError("block_hash: hash_chain")
