"""The export envelope: KV blocks as bytes that any engine can read (rt.04, section 2.4).

Build the checksum, CRC-32C, in pass 2. In pass 3 build the writer, whose bytes depend on nothing
but the blocks' data, and the reader, which trusts nothing that it is sent: it checks everything
first, and takes blocks only then.

`formats/kv-block.md` has every offset and every rule of both; the chapter is
`course/modules/kv_export/chapter.md`. Use the pool through its public methods only.
"""

from collections.abc import Iterable

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, continued from an earlier result ``crc``.

    Reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF (rt.04, section 2.4):
    ``crc32c(b"123456789") == 0xE3069283``, and ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    ``data`` is any contiguous buffer and counts by its bytes: ``memoryview(data).cast("B")``.

    Raises ``InvalidArgumentError`` for data that is not a contiguous buffer or a ``crc`` out of
    0..2**32-1.

    TODO (pass 2): Compute the CRC-32C of the bytes, continued from an earlier result.

    Approach:
      - The state is the result XOR 0xFFFFFFFF, at the start (from crc) as at the end.
      - XOR each byte into the low end of the state, then take eight steps with it.
      - A step: shift right by one; if a 1 fell out, XOR the polynomial.
      - Eight steps depend on one byte only: a table of 256 entries, made once, does them.
      - memoryview(data).cast('B') gives the bytes of any contiguous buffer, and raises
        TypeError else.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
        >>> crc32c(b"456789", crc32c(b"123")) == crc32c(b"123456789")
        True
    """
    raise NotImplementedError("kv_export: crc32c")


def export_bytes(config: PoolConfig, n: int) -> int:
    """Return how many bytes the envelope of ``n`` blocks takes: 28 + n * (12 + P) + 4.

    Raises ``InvalidArgumentError`` for a count that is no integer from 0 on.

    TODO (pass 3): Say how many bytes the envelope of n blocks takes.

    Approach:
      - Header, blocks and trailer: only the blocks' payload depends on the pool's dimensions.
      - Refuse a count that is no integer from 0 on.

    Example:
        >>> export_bytes(PoolConfig(3, 2, 1, 1, 2), 1)
        60
    """
    raise NotImplementedError("kv_export: export_bytes")


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    """Return the envelope of these blocks, in this order; no blocks give 32 bytes.

    Cached blocks may be exported, and one block twice. Raises ``InvalidArgumentError`` for an id
    out of range or a block with fill 0, which the reader would refuse.

    TODO (pass 3): Write the blocks, in this order, as one envelope.

    Approach:
      - struct packs the numbers; '<' in its format means little-endian, without padding.
      - A block without data is refused: the reader would not take it.
      - Zero the positions past the fill in what you write, never in the pool itself.
      - A slab's axes are head, position, value.
      - The trailer covers every byte before it.

    Example:
        >>> pool = KvPool(PoolConfig(3, 2, 1, 1, 2))
        >>> len(export_blocks(pool, []))
        32
        >>> (block,) = pool.alloc(1)
        >>> pool.block(block, 0, False)[...] = [[[1, 2], [3, 4]]]
        >>> pool.set_fill(block, 1)
        >>> export_blocks(pool, [block])[40:48].hex(" ")
        '00 3c 00 40 00 00 00 00'
    """
    raise NotImplementedError("kv_export: export_blocks")


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    """Write the envelope to the front of ``buffer`` and return how many bytes it took.

    Nothing past them is touched. ``buffer`` is any contiguous buffer that can be written to, and
    counts by its bytes. Raises ``BufferTooSmallError``, whose ``needed`` is the size in bytes that
    the buffer must have, and writes nothing; ``InvalidArgumentError`` for a buffer that is not
    contiguous or cannot be written to, and as ``export_blocks`` does.

    TODO (pass 3): Write the envelope to the front of the caller's buffer.

    Approach:
      - Everything that could be refused comes before the first byte is written.
      - A slice of a memoryview writes into the buffer behind it; cast('B') counts it in bytes.

    Example:
        >>> pool = KvPool(PoolConfig(3, 2, 1, 1, 2))
        >>> buffer = bytearray(40)
        >>> export_into(pool, [], buffer)
        32
        >>> bytes(buffer[:4])
        b'TLKV'
    """
    raise NotImplementedError("kv_export: export_into")


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    """Read an envelope into new blocks of ``pool`` and return their ids, each held once.

    ``data`` is any contiguous buffer and counts by its bytes; ``InvalidArgumentError`` otherwise.
    Everything is checked before anything is taken (rt.04, section 2.4): ``EnvelopeError`` for
    damaged bytes or a broken rule, ``ShapeMismatchError`` for other dimensions than the pool's,
    ``PoolFullError`` when the blocks do not fit. A full block is registered under its hash;
    where that is held already, the caller gets a private copy. Positions past a fill are zeros.

    TODO (pass 3): Check an envelope against every rule, then take blocks for it and return their
        ids.

    Approach:
      - Two halves: one checks, and touches no pool; the other one copies, and cannot fail.
      - Does the header's word about the length hold? Ask before you use its numbers.
      - pool.alloc takes all or nothing, so it is the last check and the first act.
      - A hash that is taken is not an error here, and the blocks after it are registered as
        usual.

    Example:
        >>> here, there = KvPool(PoolConfig(3, 2, 1, 1, 2)), KvPool(PoolConfig(5, 2, 1, 1, 2))
        >>> (block,) = here.alloc(1)
        >>> here.set_fill(block, 2)
        >>> here.register(block, 7)
        >>> (copy,) = import_blocks(there, export_blocks(here, [block]))
        >>> there.fill(copy), there.hash_of(copy), there.ref_count(copy)
        (2, 7, 1)
    """
    raise NotImplementedError("kv_export: import_blocks")
