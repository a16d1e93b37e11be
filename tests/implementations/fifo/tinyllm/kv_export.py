"""The export envelope packed by hand.

Values travel as lists of 16-bit patterns through ``struct``, one list a block, with no byte view
of any array. Import judges the CRC first and the shape next; a length that does not fit comes
after that, because the pool's own shape then says what it should be. CRC-32C is sliced by eight:
eight tables, one step for eight bytes. A read-only buffer is refused with a ``TypeError``.
"""

import struct
from collections.abc import Iterable
from contextlib import suppress
from operator import index

import numpy as np

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig


def _tables() -> list[list[int]]:
    """Table k gives what a byte becomes with k more bytes after it."""
    first = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 if value & 1 == 0 else value >> 1 ^ 0x82F63B78
        first.append(value)
    tables = [first]
    for _ in range(7):
        tables.append([first[value & 0xFF] ^ value >> 8 for value in tables[-1]])
    return tables


_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7 = _tables()


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    state = _number(crc)
    if state >= 1 << 32:
        raise InvalidArgumentError(f"{state} is no CRC-32C")
    message = _bytes(data)
    state ^= 0xFFFFFFFF
    whole = len(message) // 8 * 8
    for low, high in struct.iter_unpack("<II", message[:whole]):
        low ^= state
        state = (
            _T7[low & 0xFF] ^ _T6[low >> 8 & 0xFF] ^ _T5[low >> 16 & 0xFF] ^ _T4[low >> 24]
            ^ _T3[high & 0xFF] ^ _T2[high >> 8 & 0xFF] ^ _T1[high >> 16 & 0xFF] ^ _T0[high >> 24]
        )
    for byte in message[whole:]:
        state = _T0[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def export_bytes(config: PoolConfig, n: int) -> int:
    return struct.calcsize("<4sHHIIIII") + _number(n) * (12 + 2 * _n_values(config)) + 4


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    blocks = list(ids)
    config = pool.config
    data = struct.pack("<4sHHI", b"TLKV", 1, 1, len(blocks))
    data += struct.pack("<IIII", *_shape(config))
    for block in blocks:
        data += _pack_block(pool, block)
    return data + struct.pack("<I", crc32c(data))


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    target = _bytes(buffer)
    data = export_blocks(pool, ids)
    if len(target) < len(data):
        raise BufferTooSmallError(len(data))
    target[: len(data)] = data
    return len(data)


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    config = pool.config
    records = _unpack(config, _bytes(data))
    ids = pool.alloc(len(records))
    for block, (hash, fill, values) in zip(ids, records, strict=True):
        bits = np.array(values, dtype=np.uint16).view(np.float16)
        planes = bits.reshape(2 * config.n_layers, config.n_kv_heads, -1, config.head_dim)
        planes[:, :, fill:] = 0
        for at, plane in enumerate(planes):
            pool.block(block, at // 2, at % 2)[:] = plane
        pool.set_fill(block, fill)
        if hash != 0:
            with suppress(HashBusyError):
                pool.register(block, hash)
    return ids


def _pack_block(pool: KvPool, block: int) -> bytes:
    fill = pool.fill(block)
    if fill == 0:
        raise InvalidArgumentError(f"block {block} has no data")
    bits: list[int] = []
    for layer in range(pool.config.n_layers):
        for is_v in (False, True):
            for head in pool.block(block, layer, is_v).view(np.uint16).tolist():
                for position, vector in enumerate(head):
                    bits += vector if position < fill else [0] * len(vector)
    return struct.pack(f"<QI{len(bits)}H", pool.hash_of(block), fill, *bits)


def _unpack(config: PoolConfig, data: memoryview) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return hash, fill and 16-bit patterns of each block of a good envelope."""
    if len(data) < 32:
        raise EnvelopeError("shorter than an envelope of no blocks")
    (crc,) = struct.unpack("<I", data[-4:])
    if crc32c(data[:-4]) != crc:
        raise EnvelopeError("the CRC-32C is wrong")
    magic, version, dtype, n_blocks = struct.unpack("<4sHHI", data[:12])
    if magic != b"TLKV" or version != 1 or dtype != 1:
        raise EnvelopeError("the header is of another format")
    shape = struct.unpack("<IIII", data[12:28])
    if shape != _shape(config):
        raise ShapeMismatchError(f"{shape} is not {_shape(config)}")
    if len(data) != export_bytes(config, n_blocks):
        raise EnvelopeError("there are more or fewer bytes than blocks")
    records = []
    for hash, fill, *values in struct.iter_unpack(f"<QI{_n_values(config)}H", data[28:-4]):
        if fill not in range(1, config.block_tokens + 1):
            raise EnvelopeError(f"{fill} is not a number of positions")
        if hash != 0 and fill < config.block_tokens:
            raise EnvelopeError("only a full block may have a hash")
        records.append((hash, fill, tuple(values)))
    return records


def _shape(config: PoolConfig) -> tuple[int, int, int, int]:
    tokens, layers = index(config.block_tokens), index(config.n_layers)
    return tokens, layers, index(config.n_kv_heads), index(config.head_dim)


def _n_values(config: PoolConfig) -> int:
    tokens, layers, heads, dim = _shape(config)
    return 2 * layers * heads * tokens * dim


def _number(value: int) -> int:
    try:
        number = index(value)
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise InvalidArgumentError(f"{value!r} is no count")
    return number


def _bytes(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"{data!r} is not bytes") from None
