"""The export envelope by the C program, presented as `tinyllm.kv_export`."""

import math
from collections.abc import Iterable
from typing import Any

from tinyllm.c_bridge import TL_EFULL, U32, ContractError, failure, ffi, lib, numbers, whole
from tinyllm.errors import BufferTooSmallError, InvalidArgumentError
from tinyllm.kv_pool import KvPool, PoolConfig, dimensions_of


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    view, state = _bytes_of(data), whole(crc, "a CRC")
    if state > U32:
        raise InvalidArgumentError(f"a CRC has 32 bits, not {crc!r}")
    with ffi.from_buffer(view) as memory:
        result: int = lib.bridge_crc32c(memory, len(view), state)
    if result < 0:
        raise failure(-result)
    return result


def export_bytes(config: PoolConfig, n: int) -> int:
    if (count := whole(n, "the number of blocks")) > U32:
        dimensions = dimensions_of(config)
        return 32 + count * (12 + 4 * math.prod(int(dimensions[i]) for i in range(1, 5)))
    out = ffi.new("size_t *")
    if status := lib.bridge_export_bytes(dimensions_of(config), count, out):
        raise failure(status)
    return int(out[0])


def export_blocks(pool: KvPool, ids: Iterable[int]) -> bytes:
    blocks = numbers(ids, "an id")
    buffer = bytearray(export_bytes(pool.config, len(blocks)))
    return bytes(buffer[: _export(pool, blocks, buffer)])


def export_into(pool: KvPool, ids: Iterable[int], buffer: bytearray | memoryview) -> int:
    view = _bytes_of(buffer)
    if view.readonly:
        raise InvalidArgumentError("the buffer is read-only")
    return _export(pool, numbers(ids, "an id"), view)


def import_blocks(pool: KvPool, data: bytes | bytearray | memoryview) -> list[int]:
    view = _bytes_of(data)
    ids = ffi.new("uint32_t[]", int(pool.config.n_blocks))
    with ffi.from_buffer(view) as memory:
        status = lib.bridge_import(pool.handle, memory, len(view), ids)
    if status:
        raise failure(status)
    n = int.from_bytes(view[8:12], "little")  # what was accepted has a header that says so
    if n > len(ids):
        raise ContractError(f"an envelope of {n} blocks was accepted, {len(ids)} are there")
    return ffi.unpack(ids, n) if n else []


def _export(pool: KvPool, ids: Any, buffer: Any) -> int:
    written = ffi.new("size_t *")
    with ffi.from_buffer(buffer, require_writable=True) as memory:
        status = lib.bridge_export(pool.handle, ids, len(ids), memory, len(buffer), written)
    if status == TL_EFULL:
        raise BufferTooSmallError(written[0])
    if status:
        raise failure(status)
    return int(written[0])


def _bytes_of(data: Any) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise InvalidArgumentError(f"data must be bytes-like, not {type(data).__name__}") from None
