"""The export envelope as numpy records.

Header and blocks are structured dtypes, so that offsets and byte order are numpy's affair and no
field is packed by hand. Import looks at the blocks' rules before the CRC, and decides which names
are taken before it takes any block: a name that its own evictions set free stays unused. CRC-32C
halves the message again and again, joining all neighbours at once. A read-only buffer is refused
by the buffer itself, with a ``TypeError``.
"""

from collections.abc import Iterable
from functools import cache
from operator import index
from typing import Any

import numpy as np

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig

_DIMENSIONS = ("block_tokens", "n_layers", "n_kv_heads", "head_dim")
_HEADER = np.dtype(
    [("magic", "<u4"), ("version", "<u2"), ("dtype", "<u2"), ("n_blocks", "<u4")]
    + [(name, "<u4") for name in _DIMENSIONS]
)
_MAGIC = int.from_bytes(b"TLKV", "little")


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    if not 0 <= _integer(crc, "crc") < 1 << 32:
        raise InvalidArgumentError(f"a CRC has 32 bits, not {crc!r}")
    registers = _BYTES[np.frombuffer(_octets(data), np.uint8)]
    start = np.array([index(crc) ^ 0xFFFFFFFF], np.uint32)
    n_levels = len(registers).bit_length()
    row = np.zeros(1 << n_levels, np.uint32)  # zeros in front change nothing
    row[len(row) - len(registers) :] = registers
    for level in range(n_levels):
        row = _append_zeros(level, row[0::2]) ^ row[1::2]
        if len(registers) >> level & 1:
            start = _append_zeros(level, start)
    return int(row[0] ^ start[0]) ^ 0xFFFFFFFF


def export_bytes(config: PoolConfig, n: int) -> int:
    if (count := _integer(n, "the number of blocks")) < 0:
        raise InvalidArgumentError(f"no envelope has {n} blocks")
    payload = 4
    for name in _DIMENSIONS:  # not by a record's own size: numpy's end at 2 GiB
        payload *= index(getattr(config, name))
    return _HEADER.itemsize + count * (12 + payload) + 4


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    config, blocks = pool.config, list(ids)
    header = np.zeros((), _HEADER)
    header["magic"], header["version"], header["dtype"] = _MAGIC, 1, 1
    header["n_blocks"] = len(blocks)
    for name in _DIMENSIONS:
        header[name] = getattr(config, name)
    records = np.zeros(len(blocks), _record(config))
    for record, block in zip(records, blocks, strict=True):
        if not (fill := pool.fill(block)):
            raise InvalidArgumentError(f"nothing is in block {block}")
        record["hash"], record["fill"] = pool.hash_of(block), fill
        for (layer, is_v), plane in _planes(record):
            plane[:, :fill] = pool.block(block, layer, is_v)[:, :fill].view(np.uint16)
    body = header.tobytes() + records.tobytes()
    return body + np.array(crc32c(body), "<u4").tobytes()


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    envelope, room = export_blocks(pool, ids), _octets(buffer)
    if len(envelope) > len(room):
        raise BufferTooSmallError(len(envelope))
    room[: len(envelope)] = envelope
    return len(envelope)


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[Any]:
    records = _records(pool.config, _octets(data))
    taken = {pool.hash_of(block) for block in range(pool.config.n_blocks)} | {0}
    ids = pool.alloc(len(records))
    for block, record in zip(ids, records, strict=True):
        fill, name = int(record["fill"]), int(record["hash"])
        for (layer, is_v), plane in _planes(record):
            bits = pool.block(block, layer, is_v).view(np.uint16)
            bits[:, :fill], bits[:, fill:] = plane[:, :fill], 0
        pool.set_fill(block, fill)
        if name not in taken:
            pool.register(block, name)
            taken.add(name)
    return ids


def _record(config: PoolConfig) -> np.dtype:
    tokens, layers, heads, dim = (getattr(config, name) for name in _DIMENSIONS)
    payload = ("payload", "<u2", (layers, 2, heads, tokens, dim))
    return np.dtype([("hash", "<u8"), ("fill", "<u4"), payload])


def _planes(record: Any) -> list[tuple[tuple[int, int], np.ndarray]]:
    payload = record["payload"]
    return [(at, payload[at]) for at in np.ndindex(payload.shape[:2])]


def _records(config: PoolConfig, octets: memoryview) -> np.ndarray:
    """Return an envelope's blocks, after every check."""
    if len(octets) < _HEADER.itemsize + 4:
        raise EnvelopeError("cut off inside the header")
    header = {name: int(np.frombuffer(octets, _HEADER, 1)[name][0]) for name in _HEADER.names or ()}
    if (header["magic"], header["version"], header["dtype"]) != (_MAGIC, 1, 1):
        raise EnvelopeError("not a TLKV envelope of version 1 with f16 values")
    tokens, layers, heads, dim = shape = tuple(header[name] for name in _DIMENSIONS)
    payload = 2 * layers * 2 * heads * tokens * dim
    if len(octets) != _HEADER.itemsize + header["n_blocks"] * (12 + payload) + 4:
        raise EnvelopeError("the length is not what the header says")
    if shape != tuple(getattr(config, name) for name in _DIMENSIONS):
        raise ShapeMismatchError(f"blocks of shape {shape} do not fit into this pool")
    body = octets[:-4]
    records = np.frombuffer(body[_HEADER.itemsize :], _record(config))
    fills, named = records["fill"], records["hash"] != 0
    if np.any((fills < 1) | (fills > tokens) | (named & (fills < tokens))):
        raise EnvelopeError("a block's fill is out of range, or partial under a hash")
    if crc32c(body) != np.frombuffer(octets[-4:], "<u4")[0]:
        raise EnvelopeError("the checksum is wrong")
    return records


# A CRC register is linear in its bits. So the registers that two halves of a message give, each
# from a register of 0, are joined by moving the first past as many zero bytes as the second has;
# and the register that the message starts from is moved past all of it.

_BYTES: np.ndarray = np.arange(256, dtype=np.uint32)
for _ in range(8):
    _BYTES = (_BYTES >> 1) ^ np.where(_BYTES & 1, np.uint32(0x82F63B78), np.uint32(0))


def _append_zeros(level: int, registers: np.ndarray) -> np.ndarray:
    """Move registers past ``2 ** level`` zero bytes, a byte of theirs at a time."""
    moved = np.zeros_like(registers)
    for i, table in enumerate(_zero_tables(level)):
        moved ^= table[registers >> 8 * i & 0xFF]
    return moved


@cache
def _zero_tables(level: int) -> np.ndarray:
    """Tabulate that for each byte of a register: uint32 [4, 256]."""
    if level == 0:
        whole = np.arange(256, dtype=np.uint32)
        return np.stack([_BYTES, whole, whole << 8, whole << 16])
    return _append_zeros(level - 1, _zero_tables(level - 1))


def _integer(value: int, what: str) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{what} must be an integer, not {value!r}")


def _octets(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"bytes are needed, not {type(data).__name__}") from None
