"""The export envelope: KV blocks as bytes that any engine can read (rt.04, section 2.4).

    header   magic "TLKV", version, dtype, n_blocks, block_tokens, n_layers, n_kv_heads, head_dim
    blocks   each: its hash (0 without a name), its fill, its payload with zeros past the fill
    trailer  CRC-32C of everything before it

All numbers are little-endian; `formats/kv-block.md` has every offset. The envelope depends on
nothing but the blocks' data, so two engines write the same bytes for the same blocks.
"""

import math
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig

_HEADER = struct.Struct("<4sHHIIIII")
_BLOCK = struct.Struct("<QI")
_TRAILER = struct.Struct("<I")
_MAGIC, _VERSION, _F16 = b"TLKV", 1, 1


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of ``data``, continued from an earlier result ``crc``.

    Reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF (rt.04, section 2.4):
    ``crc32c(b"123456789") == 0xE3069283``, and ``crc32c(b, crc32c(a)) == crc32c(a + b)``.
    ``data`` is any contiguous buffer and counts by its bytes: ``memoryview(data).cast("B")``.

    Raises ``InvalidArgumentError`` for data that is not a contiguous buffer or a ``crc`` out of
    0..2**32-1.
    """
    view = _bytes_of(data)
    if not 0 <= (state := _index(crc)) <= 0xFFFFFFFF:
        raise InvalidArgumentError(f"crc must be in 0..2**32-1, not {crc!r}")
    state ^= 0xFFFFFFFF
    if len(view) >= 4 * _ROW:
        state, view = _fold(state, view)
    return _crc_bytes(state, view) ^ 0xFFFFFFFF


def export_bytes(config: PoolConfig, n: int) -> int:
    """Return how many bytes the envelope of ``n`` blocks takes: 28 + n * (12 + P) + 4.

    Raises ``InvalidArgumentError`` for a count that is no integer from 0 on.
    """
    if (count := _index(n)) < 0:
        raise InvalidArgumentError(f"the number of blocks must be an integer from 0 on, not {n!r}")
    payload = 4 * math.prod(_shape(config))
    return _HEADER.size + count * (_BLOCK.size + payload) + _TRAILER.size


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    """Return the envelope of these blocks, in this order; no blocks give 32 bytes.

    Cached blocks may be exported, and one block twice. Raises ``InvalidArgumentError`` for an id
    out of range or a block with fill 0, which the reader would refuse.
    """
    config = pool.config
    blocks = list(ids)
    parts = [_HEADER.pack(_MAGIC, _VERSION, _F16, len(blocks), *_shape(config))]
    for block in blocks:
        fill = pool.fill(block)
        if fill == 0:
            raise InvalidArgumentError(f"block {block} holds no data")
        parts.append(_BLOCK.pack(pool.hash_of(block), fill))
        for layer in range(config.n_layers):
            for is_v in (False, True):
                slab = pool.block(block, layer, is_v).astype("<f2")  # a copy
                slab[:, fill:] = 0
                parts.append(slab.tobytes())
    body = b"".join(parts)
    return body + _TRAILER.pack(crc32c(body))


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    """Write the envelope to the front of ``buffer`` and return how many bytes it took.

    Nothing past them is touched. ``buffer`` is any contiguous buffer that can be written to, and
    counts by its bytes. Raises ``BufferTooSmallError``, whose ``needed`` is the size in bytes that
    the buffer must have, and writes nothing; ``InvalidArgumentError`` for a buffer that is not
    contiguous or cannot be written to, and as ``export_blocks`` does.
    """
    view = _bytes_of(buffer)
    if view.readonly:
        raise InvalidArgumentError("the buffer is read-only")
    blocks = list(ids)
    if (needed := export_bytes(pool.config, len(blocks))) > len(view):
        raise BufferTooSmallError(needed)
    view[:needed] = export_blocks(pool, blocks)
    return needed


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    """Read an envelope into new blocks of ``pool`` and return their ids, each held once.

    ``data`` is any contiguous buffer and counts by its bytes; ``InvalidArgumentError`` otherwise.
    Everything is checked before anything is taken (rt.04, section 2.4): ``EnvelopeError`` for
    damaged bytes or a broken rule, ``ShapeMismatchError`` for other dimensions than the pool's,
    ``PoolFullError`` when the blocks do not fit. A full block is registered under its hash;
    where that is held already, the caller gets a private copy. Positions past a fill are zeros.
    """
    records = _read(pool.config, _bytes_of(data))
    ids = pool.alloc(len(records))
    for block, record in zip(ids, records, strict=True):
        slabs = record.payload
        for layer in range(pool.config.n_layers):
            for side in (0, 1):
                view = pool.block(block, layer, side)
                view[:, : record.fill] = slabs[layer, side, :, : record.fill]
                view[:, record.fill :] = 0
        pool.set_fill(block, record.fill)
        if record.hash:
            # The first holder of a hash keeps it; then this block stays a private copy.
            with suppress(HashBusyError):
                pool.register(block, record.hash)
    return ids


class _Record(NamedTuple):
    hash: int
    fill: int
    payload: np.ndarray  # float16 [n_layers, 2, n_kv_heads, block_tokens, head_dim]


def _read(config: PoolConfig, data: memoryview) -> list[_Record]:
    """Check an envelope against every reader rule and return its blocks."""
    if len(data) < _HEADER.size + _TRAILER.size:
        raise EnvelopeError(f"{len(data)} bytes are too few for an envelope")
    magic, version, dtype, n_blocks, *shape = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise EnvelopeError(f"the magic is {magic!r}, not {_MAGIC!r}")
    if version != _VERSION:
        raise EnvelopeError(f"version {version} is not {_VERSION}")
    if dtype != _F16:
        raise EnvelopeError(f"dtype {dtype} is not f16")
    tokens, layers, heads, dim = shape
    payload = 4 * math.prod(shape)
    # Python's integers do not overflow: a header may claim what it likes, it must match the length.
    if len(data) != _HEADER.size + n_blocks * (_BLOCK.size + payload) + _TRAILER.size:
        raise EnvelopeError(f"{len(data)} bytes do not match the header")
    body, (crc,) = data[: -_TRAILER.size], _TRAILER.unpack(data[-_TRAILER.size :])
    if crc32c(body) != crc:
        raise EnvelopeError("the CRC does not match: the bytes are damaged")
    if tuple(shape) != _shape(config):
        raise ShapeMismatchError(f"blocks of {tuple(shape)} do not fit a pool of {_shape(config)}")
    records = []
    for at in range(_HEADER.size, len(body), _BLOCK.size + payload):
        name, fill = _BLOCK.unpack_from(body, at)
        if not 1 <= fill <= tokens:
            raise EnvelopeError(f"a block says {fill} of {tokens} positions")
        if name and fill != tokens:
            raise EnvelopeError("a partial block carries a hash")
        values = np.frombuffer(body, "<f2", payload // 2, at + _BLOCK.size)
        records.append(_Record(name, fill, values.reshape(layers, 2, heads, tokens, dim)))
    return records


def _shape(config: PoolConfig) -> tuple[int, int, int, int]:
    """Return the four dimensions of a block as plain ints, in the header's order."""
    tokens, layers = index(config.block_tokens), index(config.n_layers)
    return tokens, layers, index(config.n_kv_heads), index(config.head_dim)


# CRC-32C, twice: byte by byte, and folded in rows with numpy for long data. They are held equal.


def _byte_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _byte_table()
_ROW = 2048  # 32-bit words a row


def _crc_bytes(state: int, data: bytes | memoryview) -> int:
    """The plain form: one table look-up a byte, without the initial and the final inversion."""
    for byte in data:
        state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state


def _fold(state: int, data: memoryview) -> tuple[int, memoryview]:
    """The fast form: return the state after all whole rows, and the bytes that are left.

    A CRC is linear, so ``_ROW`` words can be carried side by side, each as if it stood alone:
    moving one past a row is appending ``4 * _ROW`` zero bytes, which two tables do for all words
    at once. At the end the last row's words, now holding everything, go through the plain form.
    """
    low, high = _zero_tables(4 * _ROW)
    n_rows = len(data) // (4 * _ROW)
    rows = np.frombuffer(data, "<u4", n_rows * _ROW).reshape(n_rows, _ROW)
    lanes = rows[0].astype(np.uint32)
    lanes[0] ^= state
    for row in rows[1:]:
        lanes = low[lanes & 0xFFFF] ^ high[lanes >> 16] ^ row
    return _crc_bytes(0, lanes.astype("<u4").tobytes()), data[4 * _ROW * n_rows :]


@cache
def _zero_tables(n_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate "append ``n_bytes`` zero bytes" for the low and the high half of a state."""
    bits = np.array([_crc_bytes(1 << bit, bytes(n_bytes)) for bit in range(32)], dtype=np.uint32)
    halves = []
    for half in (bits[:16], bits[16:]):
        table = np.zeros(1 << 16, dtype=np.uint32)
        for bit, image in enumerate(half):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ image
        halves.append(table)
    return halves[0], halves[1]


def _index(value: int) -> int:
    """Return ``value`` as a plain int; anything but an integer, a bool included, becomes -1."""
    if isinstance(value, bool):
        return -1
    try:
        return index(value)
    except TypeError:
        return -1


def _bytes_of(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"a {type(data).__name__} is not a contiguous buffer") from None
