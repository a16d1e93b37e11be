"""The worked example, and blocks with given bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from grader.assertions import note, same
from tests.kv_export.reading import crc32c
from tests.kv_export.wire import Shape, WireBlock, envelope, le
from tests.kv_pool.samples import checked_ids, slab, take
from tests.samples import H0
from tinyllm.errors import EnvelopeError, KvError, PoolFullError, ShapeMismatchError
from tinyllm.kv_pool import KvPool, PoolConfig

REFUSALS: dict[str, type[KvError]] = {
    "TL_EFORMAT": EnvelopeError,
    "TL_ESHAPE": ShapeMismatchError,
    "TL_EFULL": PoolFullError,
}
"""The error of each status that the format's page names."""

SHAPE = Shape(block_tokens=2, n_layers=1, n_kv_heads=1, head_dim=2)
"""The dimensions of the worked example's block, whose name is H0 (rt.04, section 3)."""

MEMORY = bytes.fromhex("003c004000420044 003800bc00000034")
"""Its K = [[1, 2], [3, 4]] and V = [[0.5, -1], [0, 0.25]]."""

WORKED = bytes.fromhex(
    "544c4b56 0100 0100 01000000 02000000"  # magic, version, dtype, n_blocks, block_tokens
    "01000000 01000000 02000000"  # n_layers, n_kv_heads, head_dim
    "66937b02c1b01aa9 02000000"  # block_hash, n_tokens
    "003c004000420044 003800bc00000034"  # K, V
    "1c540b4f"  # CRC-32C
)
"""Its envelope."""

LONG = bytes((7 * i + (i >> 8)) % 256 for i in range(20000))
"""A message of several rows, whatever a fast CRC takes for a row."""

LONG_CRC = 0xD668DCD3
"""Its CRC-32C."""

REAL = Shape(block_tokens=16, n_layers=32, n_kv_heads=8, head_dim=128)
"""The dimensions of a block of the chapter's model, whose payload takes 2 MiB."""


def pattern(n: int) -> bytes:
    """Return the first ``n`` bytes of the message that `LONG` begins."""
    place = np.arange(n)
    return ((7 * place + (place >> 8)) & 0xFF).astype(np.uint8).tobytes()


def pool_of(shape: Shape, n_blocks: int) -> KvPool:
    """Return an empty pool of this shape."""
    return KvPool(PoolConfig(n_blocks, *shape))


def put(pool: KvPool, blocks: Sequence[WireBlock]) -> list[int]:
    """Allocate these blocks, write their bytes, set their fills and register those with a hash."""
    ids = take(pool, len(blocks))
    for id, block in zip(ids, blocks, strict=True):
        write_bytes(pool, id, block.payload)
        pool.set_fill(id, block.n_tokens)
        if block.hash:
            pool.register(id, block.hash)
    return ids


def worked_pool(n_blocks: int = 3) -> tuple[KvPool, int]:
    """Return a pool that holds the worked example's block, and its id."""
    pool = pool_of(SHAPE, n_blocks)
    (id,) = put(pool, [WireBlock(H0, 2, MEMORY)])
    return pool, id


def write_bytes(pool: KvPool, id: int, memory: bytes) -> None:
    """Write a whole block, bit for bit, in the order of an envelope's payload."""
    note(f"write {memory[:4].hex(' ')} … into block {id}")
    values = np.frombuffer(memory, "<f2")
    for layer in range(pool.config.n_layers):
        for is_v in (False, True):
            view = slab(pool, id, layer, is_v)
            view[...] = values[: view.size].reshape(view.shape)
            values = values[view.size :]


def imported(got: Any, pool: KvPool, n: int) -> list[int]:
    """Return the ids that an import gave, judged to be ``n`` different ones, each held once."""
    ids = checked_ids(got, n, pool.config.n_blocks, "the ids that import_blocks returns")
    for id in ids:
        same(pool.ref_count(id), 1, f"the reference count of imported block {id}")
    return ids


def evicted_in_order(pool: KvPool, ids: Sequence[int], when: str) -> None:
    """Judge that these cached blocks are the next to be evicted, the first one first."""
    take(pool, pool.stats().free)
    for id in ids:
        same(take(pool, 1), [id], f"the next block to be evicted {when}")


def large_envelope() -> bytes:
    """Return the envelope of one full block of a real model: H0 is its hash, `pattern` its payload.

    Its CRC is taken with a table, since the plain one of `wire` would take seconds.
    """
    empty = envelope(REAL, [])
    body = empty[:8] + le(1, 4) + empty[12:28] + le(H0, 8) + le(REAL.block_tokens, 4)
    body += pattern(REAL.payload_bytes)
    return body + le(crc32c(body), 4)
