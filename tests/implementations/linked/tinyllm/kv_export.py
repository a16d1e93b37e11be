"""The export envelope, written in place.

Where the reference joins parts, this one has a single writer that fills a buffer from front to
back: ``export_blocks`` gives it a new buffer, ``export_into`` the caller's own, after everything
that could be refused has been. Import checks the CRC before it believes a single field, so damage
of any kind is called damage. CRC-32C is the plain loop over a table of 256 entries.
"""

import operator
import struct
from collections.abc import Iterable
from itertools import product

import numpy as np

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig

_HEADER = struct.Struct("<4s2H5I")
_ENTRY = struct.Struct("<QI")  # a block's name and fill; its payload follows


def _shifted(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 * (byte & 1))
    return byte


_TABLE = tuple(_shifted(byte) for byte in range(256))


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    register = _count(crc, "crc", 2**32 - 1) ^ 0xFFFFFFFF
    for byte in _view(data):
        register = _TABLE[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def export_bytes(config: PoolConfig, n: int) -> int:
    return 32 + _count(n, "a number of blocks") * (_ENTRY.size + _payload_bytes(config))


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    blocks = _exportable(pool, ids)
    out = bytearray(export_bytes(pool.config, len(blocks)))
    _write(pool, blocks, memoryview(out))
    return bytes(out)


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    blocks, out = _exportable(pool, ids), _view(buffer)
    if out.readonly:
        raise InvalidArgumentError("a read-only buffer cannot take an envelope")
    needed = export_bytes(pool.config, len(blocks))
    if len(out) < needed:
        raise BufferTooSmallError(needed)
    _write(pool, blocks, out)
    return needed


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    view, config = _view(data), pool.config
    entries = _entries(config, view)
    ids = pool.alloc(len(entries))
    for id, (name, fill, at) in zip(ids, entries, strict=True):
        for layer, side in product(range(config.n_layers), (0, 1)):
            slab = pool.block(id, layer, side)
            values = np.frombuffer(view, "<f2", slab.size, at).reshape(slab.shape)
            slab[:, :fill] = values[:, :fill]
            slab[:, fill:] = 0
            at += slab.nbytes
        pool.set_fill(id, fill)
        try:
            if name:
                pool.register(id, name)
        except HashBusyError:
            continue  # somebody has this block already: ours stays a private copy
    return ids


def _write(pool: KvPool, blocks: list[int], out: memoryview) -> None:
    config = pool.config
    _HEADER.pack_into(out, 0, b"TLKV", 1, 1, len(blocks), *_shape(config))
    at = _HEADER.size
    for block in blocks:
        fill = pool.fill(block)
        _ENTRY.pack_into(out, at, pool.hash_of(block), fill)
        at += _ENTRY.size
        for layer, is_v in product(range(config.n_layers), (False, True)):
            stored = pool.block(block, layer, is_v)
            sent = np.zeros(stored.shape, "<f2")
            sent[:, :fill] = stored[:, :fill]
            out[at : at + sent.nbytes] = sent.tobytes()
            at += sent.nbytes
    struct.pack_into("<I", out, at, crc32c(out[:at]))


def _entries(config: PoolConfig, view: memoryview) -> list[tuple[int, int, int]]:
    """Check a whole envelope; return each block's name, its fill and where its payload starts."""
    if len(view) < 32:
        raise EnvelopeError(f"no envelope is as short as {len(view)} bytes")
    if crc32c(view[:-4]) != int.from_bytes(view[-4:], "little"):
        raise EnvelopeError("the checksum does not match")
    magic, version, dtype, n, tokens, layers, heads, dim = _HEADER.unpack_from(view)
    if (magic, version, dtype) != (b"TLKV", 1, 1):
        raise EnvelopeError(f"not an f16 envelope of version 1: {magic!r}, {version}, {dtype}")
    stride = _ENTRY.size + 4 * tokens * layers * heads * dim
    if len(view) != 32 + n * stride:
        raise EnvelopeError(f"{n} blocks as described do not make {len(view)} bytes")
    if (tokens, layers, heads, dim) != _shape(config):
        raise ShapeMismatchError(f"the pool's shape is {_shape(config)}")
    entries = []
    for at in range(_HEADER.size, len(view) - 4, stride):
        name, fill = _ENTRY.unpack_from(view, at)
        if not 1 <= fill <= tokens or (name and fill < tokens):
            raise EnvelopeError(f"a block of name {name:#x} cannot have fill {fill}")
        entries.append((name, fill, at + _ENTRY.size))
    return entries


def _exportable(pool: KvPool, ids: Iterable[int]) -> list[int]:
    blocks = list(ids)
    for block in blocks:
        if pool.fill(block) == 0:
            raise InvalidArgumentError(f"block {block} has nothing to export")
    return blocks


def _shape(config: PoolConfig) -> tuple[int, int, int, int]:
    at = operator.index
    return (at(config.block_tokens), at(config.n_layers), at(config.n_kv_heads),
            at(config.head_dim))


def _payload_bytes(config: PoolConfig) -> int:
    tokens, layers, heads, dim = _shape(config)
    return 4 * tokens * layers * heads * dim


def _count(value: int, what: str, most: int | None = None) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or (most is not None and number > most):
        raise InvalidArgumentError(f"{what} cannot be {value!r}")
    return number


def _view(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"a {type(data).__name__} is no run of bytes") from None
