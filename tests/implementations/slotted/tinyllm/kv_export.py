"""The export envelope as a stream that is written and read.

A ``_Reader`` walks the bytes and refuses to run past their end, so each field is read where it is
needed; the rules are checked in the order in which the format lists them. The writer appends to
one bytearray and zeroes what lies past the fill head by head. CRC-32C goes by half bytes, over a
table of 16 entries.
"""

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tinyllm.errors import (
    BufferTooSmallError,
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    ShapeMismatchError,
)
from tinyllm.kv_pool import KvPool, PoolConfig

_POLYNOMIAL = 0x82F63B78


def _divide(nibble: int) -> int:
    for _ in range(4):
        nibble = nibble >> 1 ^ _POLYNOMIAL if nibble & 1 else nibble >> 1
    return nibble


_NIBBLES = [_divide(nibble) for nibble in range(16)]


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    state = ~_unsigned(crc, 32) & 0xFFFFFFFF
    for byte in _raw(data):
        state ^= byte
        state = state >> 4 ^ _NIBBLES[state & 15]
        state = state >> 4 ^ _NIBBLES[state & 15]
    return ~state & 0xFFFFFFFF


def export_bytes(config: PoolConfig, n: int) -> int:
    return 28 + _unsigned(n, None) * (12 + _payload_bytes(_shape(config))) + 4


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    ids = list(ids)
    if not all(pool.fill(id) for id in ids):
        raise InvalidArgumentError("a block without data cannot be exported")
    out = bytearray(b"TLKV")
    for value, size in ((1, 2), (1, 2), (len(ids), 4), *((d, 4) for d in _shape(pool.config))):
        out += operator.index(value).to_bytes(size, "little")
    for id in ids:
        fill = operator.index(pool.fill(id))
        out += operator.index(pool.hash_of(id)).to_bytes(8, "little")
        out += fill.to_bytes(4, "little")
        for head in _heads(pool, id):
            out += head[:fill].astype("<f2").tobytes()
            out += bytes(head[fill:].nbytes)
    return bytes(out + crc32c(out).to_bytes(4, "little"))


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    ids = list(ids)
    view = _raw(buffer)
    if view.readonly:
        raise InvalidArgumentError("the buffer cannot be written to")
    if (needed := export_bytes(pool.config, len(ids))) > view.nbytes:
        raise BufferTooSmallError(needed)
    view[:needed] = export_blocks(pool, ids)
    return needed


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    arrivals = list(_arrivals(_raw(data), _shape(pool.config)))  # to the end: all is checked
    ids = pool.alloc(len(arrivals))
    for id, arrival in zip(ids, arrivals, strict=True):
        for head, values in zip(_heads(pool, id), arrival.heads, strict=True):
            head[: arrival.fill] = values[: arrival.fill]
            head[arrival.fill :] = 0
        pool.set_fill(id, arrival.fill)
        _register(pool, id, arrival.hash)
    return ids


@dataclass(frozen=True, slots=True)
class _Arrival:
    hash: int
    fill: int
    heads: np.ndarray  # float16 [n_layers * 2 * n_kv_heads, block_tokens, head_dim]


class _Reader:
    def __init__(self, view: memoryview) -> None:
        self.view, self.at = view, 0

    def take(self, size: int) -> memoryview:
        if size > len(self.view) - self.at:
            raise EnvelopeError(f"{size} bytes are missing at {self.at}")
        self.at += size
        return self.view[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")


def _arrivals(view: memoryview, shape: tuple[int, ...]) -> Iterator[_Arrival]:
    reader = _Reader(view)
    if bytes(reader.take(4)) != b"TLKV":
        raise EnvelopeError("these bytes are no envelope")
    if (version := reader.number(2)) != 1 or reader.number(2) != 1:
        raise EnvelopeError(f"version {version} or the dtype is unknown")
    n_blocks = reader.number(4)
    tokens, layers, heads, dim = theirs = tuple(reader.number(4) for _ in range(4))
    if len(view) != 32 + n_blocks * (12 + _payload_bytes(theirs)):
        raise EnvelopeError(f"{n_blocks} blocks of {theirs} are not {len(view)} bytes long")
    if crc32c(view[:-4]) != _Reader(view[-4:]).number(4):
        raise EnvelopeError("CRC mismatch")
    if theirs != shape:
        raise ShapeMismatchError(f"{theirs} arrives where {shape} is stored")
    for _ in range(n_blocks):
        hash, fill = reader.number(8), reader.number(4)
        if fill == 0 or fill > tokens:
            raise EnvelopeError(f"n_tokens is {fill}")
        if hash and fill != tokens:
            raise EnvelopeError(f"{hash:#x} names a partial block")
        values = np.frombuffer(reader.take(_payload_bytes(theirs)), "<f2")
        yield _Arrival(hash, fill, values.reshape(layers * 2 * heads, tokens, dim))


def _register(pool: KvPool, id: int, hash: int) -> None:
    if hash == 0:
        return
    try:
        pool.register(id, hash)
    except HashBusyError:
        return


def _heads(pool: KvPool, id: int) -> Iterator[np.ndarray]:
    """Yield the views [block_tokens, head_dim] of a block in the order of the payload."""
    for layer in range(pool.config.n_layers):
        yield from pool.block(id, layer, False)
        yield from pool.block(id, layer, True)


def _shape(config: PoolConfig) -> tuple[int, ...]:
    dimensions = (config.block_tokens, config.n_layers, config.n_kv_heads, config.head_dim)
    return tuple(operator.index(d) for d in dimensions)


def _payload_bytes(shape: tuple[int, ...]) -> int:
    tokens, layers, heads, dim = shape
    return layers * 2 * heads * tokens * dim * 2


def _unsigned(value: int, bits: int | None) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or (bits is not None and number >> bits):
        raise InvalidArgumentError(f"{value!r} is out of range")
    return number


def _raw(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"{type(data).__name__} is not bytes-like") from None
