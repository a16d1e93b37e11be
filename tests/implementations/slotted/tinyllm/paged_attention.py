"""K and V in blocks, as windows.

A ``_Window`` is the part of a block that belongs to a run of positions; it knows how to be filled
and how to be read. Reading joins the windows' parts end to end. Attention looks at one query at a
time, each over its own past, as decoding does.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import numpy as np

from tinyllm.attention import attend
from tinyllm.contiguous import exact_float16
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    if k.ndim != 3 or k[:0].shape != (0, pool.config.n_kv_heads, pool.config.head_dim):
        raise InvalidArgumentError(f"K of shape {k.shape}")
    if v.shape != k.shape:
        raise InvalidArgumentError(f"K of shape {k.shape}, but V of shape {v.shape}")
    sides = (exact_float16(k), exact_float16(v))
    windows = _windows(pool, table, layer, start, k.shape[0])
    for window in windows:
        window.demand_own()
    for window in windows:
        window.fill(*sides)


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    nothing = np.empty((pool.config.n_kv_heads, 0, pool.config.head_dim), np.float16)
    windows = _windows(pool, table, layer, 0, n)
    return (np.concatenate([nothing, *(w.k for w in windows)], axis=1),
            np.concatenate([nothing, *(w.v for w in windows)], axis=1))


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    k, v = gather_kv(pool, table, layer, start + len(q))
    seen = [attend(q[i : i + 1], k[:, : start + i + 1], v[:, : start + i + 1], start + i)
            for i in range(len(q))]
    return np.concatenate(seen)


class PagedKv:
    __slots__ = ("pool", "table")

    def __init__(self, pool: KvPool, table: Sequence[int]) -> None:
        self.pool = pool
        self.table = table

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        write_kv(self.pool, self.table, layer, start, k, v)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        return gather_kv(self.pool, self.table, layer, n)


class _Window:
    """Slots of one block that hold positions in a row, ``first`` being the row of the first one."""

    __slots__ = ("block", "first", "k", "pool", "v")

    def __init__(self, pool: KvPool, block: int, layer: int, slots: range, first: int) -> None:
        self.pool, self.block, self.first = pool, block, first
        self.k = pool.block(block, layer, False)[:, slots.start : slots.stop]
        self.v = pool.block(block, layer, True)[:, slots.start : slots.stop]

    def demand_own(self) -> None:
        if (self.pool.ref_count(self.block), self.pool.hash_of(self.block)) != (1, 0):
            raise InvalidArgumentError(f"block {self.block} cannot be written: copy it first")

    def fill(self, k: np.ndarray, v: np.ndarray) -> None:
        for view, values in ((self.k, k), (self.v, v)):
            for slot in range(view.shape[1]):
                view[:, slot] = values[self.first + slot]


def _windows(pool: KvPool, table: Sequence[int], layer: int, start: int, n: int) -> list[_Window]:
    """Return a window for each block that has some of the positions start..start+n-1."""
    if isinstance(start, bool) or isinstance(n, bool):
        raise InvalidArgumentError("a bool is no position")
    try:
        begin, end = index(start), index(start) + index(n)
    except TypeError:
        raise InvalidArgumentError(f"positions {start!r} and {n!r}") from None
    size = pool.config.block_tokens
    if begin < 0 or end < begin or end > len(table) * size:
        raise InvalidArgumentError(f"positions {begin}..{end - 1} in {len(table)} blocks")
    if begin == end:
        return []
    windows = []
    for place in range(begin // size, (end - 1) // size + 1):
        base = place * size
        slots = range(max(begin - base, 0), min(end - base, size))
        windows.append(_Window(pool, table[place], layer, slots, base + slots.start - begin))
    return windows
