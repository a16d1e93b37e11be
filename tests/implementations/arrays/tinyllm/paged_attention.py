"""K and V in blocks by index arrays.

A gather stacks the whole blocks into one array [blocks, H, B, D], brings the heads to the front,
and cuts the end off. A write goes the other way: it lays what is new over a copy of the blocks that
it touches and puts whole blocks back. Attention goes through one KV head at a time.
"""

from collections.abc import Sequence
from operator import index

import numpy as np

from tinyllm.attention import attend
from tinyllm.contiguous import exact_float16
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    config = pool.config
    if k.shape[1:] != (config.n_kv_heads, config.head_dim) or k.shape != v.shape:
        raise InvalidArgumentError(f"wrong shapes: {k.shape}, {v.shape}")
    new = np.stack([exact_float16(k), exact_float16(v)])
    size, first, end = config.block_tokens, _natural(start), _natural(start) + len(k)
    ids = _ids(pool, table, end)
    ids = ids[first // size :] if len(k) else []
    if any(pool.ref_count(id) != 1 or pool.hash_of(id) for id in ids):
        raise InvalidArgumentError(f"some of the blocks {ids} are not only the writer's")
    for side in (0, 1):
        held = _positions(pool, ids, layer, side)
        rows = np.arange(len(k)) + first % size
        held[rows] = new[side]
        for id, values in zip(ids, held.reshape(-1, size, *held.shape[1:]), strict=True):
            pool.block(id, layer, side)[...] = values.swapaxes(0, 1)


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    count = _natural(n)
    ids = _ids(pool, table, count)
    k, v = (np.ascontiguousarray(_positions(pool, ids, layer, side)[:count].swapaxes(0, 1))
            for side in (0, 1))
    return k, v


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    k, v = gather_kv(pool, table, layer, _natural(start) + len(q))
    if q.ndim != 3 or q.shape[1] % len(k):
        raise InvalidArgumentError(f"queries {q.shape} do not fit {len(k)} KV heads")
    groups = np.split(q, len(k), axis=1)
    seen = [attend(group, k[i : i + 1], v[i : i + 1], start) for i, group in enumerate(groups)]
    return np.concatenate(seen, axis=1)


class PagedKv:
    def __init__(self, pool: KvPool, table: Sequence[int]) -> None:
        self.pool = pool
        self.table = table

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        write_kv(self.pool, self.table, layer, start, k, v)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        return gather_kv(self.pool, self.table, layer, n)


def _positions(pool: KvPool, ids: list[int], layer: int, side: int) -> np.ndarray:
    """Return all positions of these blocks, a new array [blocks * B, H, D]."""
    config = pool.config
    shape = (-1, config.n_kv_heads, config.head_dim)
    blocks = [pool.block(id, layer, side).swapaxes(0, 1) for id in ids]
    return np.array(blocks, np.float16).reshape(shape)


def _ids(pool: KvPool, table: Sequence[int], end: int) -> list[int]:
    """Return the ids of the blocks of the first ``end`` positions."""
    size = pool.config.block_tokens
    if len(table) * size < end:
        raise InvalidArgumentError(f"{end} positions do not fit {len(table)} blocks of {size}")
    return list(table[: -(-end // size)])


def _natural(value: int) -> int:
    if isinstance(value, bool | np.bool_):
        raise InvalidArgumentError("a bool is no number of positions")
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no number of positions") from None
    if number < 0:
        raise InvalidArgumentError(f"{number} is below zero")
    return number
