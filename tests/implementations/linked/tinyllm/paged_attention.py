"""K and V in blocks, a position at a time.

Every position is looked up in the table by itself: no block is ever treated as a piece, so there is
no first, middle or last one. Attention rounds the keys up to whole blocks with zeros, which no
query sees, as a kernel with a fixed tile would.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm.attention import attend
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    row = (pool.config.n_kv_heads, pool.config.head_dim)
    if k.ndim != 3 or k.shape[1:] != row or v.shape != k.shape:
        raise InvalidArgumentError(f"a position is {row}, not {k.shape} and {v.shape}")
    cells = list(_cells(pool, table, layer, start, len(k)))
    for block in {cell.block for cell in cells}:
        if pool.ref_count(block) != 1 or pool.hash_of(block) != 0:
            raise InvalidArgumentError(f"others rely on block {block}")
    with np.errstate(over="ignore"):
        rounded = np.stack([k, v]).astype(np.float16)
    if (rounded != np.stack([k, v])).any():
        raise InvalidArgumentError("a value would be rounded")
    for at, cell in enumerate(cells):
        cell.k[:], cell.v[:] = rounded[0, at], rounded[1, at]


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    cells = list(_cells(pool, table, layer, 0, n))
    sides = np.empty((2, pool.config.n_kv_heads, len(cells), pool.config.head_dim), np.float16)
    for at, cell in enumerate(cells):
        sides[0, :, at], sides[1, :, at] = cell.k, cell.v
    return sides[0], sides[1]


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    n = start + len(q)
    k, v = gather_kv(pool, table, layer, n)
    tail = ((0, 0), (0, -n % pool.config.block_tokens), (0, 0))
    return attend(q, np.pad(k, tail), np.pad(v, tail), start)


@dataclass
class PagedKv:
    pool: KvPool
    table: Sequence[int]

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        write_kv(self.pool, self.table, layer, start, k, v)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        return gather_kv(self.pool, self.table, layer, n)


@dataclass(frozen=True)
class _Cell:
    """One position's place: its block, and what is there, views [n_kv_heads, head_dim]."""

    block: int
    k: np.ndarray
    v: np.ndarray


def _cells(pool: KvPool, table: Sequence[int], layer: int, start: int, n: int) -> Iterator[_Cell]:
    size = pool.config.block_tokens
    first, count = _whole(start), _whole(n)
    if first + count > size * len(table):
        raise InvalidArgumentError(f"position {first + count - 1} has no block")
    for position in range(first, first + count):
        block, slot = table[position // size], position % size
        k, v = (pool.block(block, layer, side)[:, slot] for side in (0, 1))
        yield _Cell(block, k, v)


def _whole(value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
        raise InvalidArgumentError(f"{value!r} is no whole number")
    return operator.index(value)
