"""K and V in blocks: head by head, and as a stream that is poured from one block into the next.

What is to be written is a queue of positions: each block takes as many as it has room for. A gather
fills every head's row from the blocks in turn. Attention of a piece is that of its queries' groups,
one KV head at a time, put together in the order of the query heads.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from operator import index

import numpy as np

from tinyllm.attention import attend
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    halves = []
    for values in (k, v):
        if values.shape != (len(k), pool.config.n_kv_heads, pool.config.head_dim):
            raise InvalidArgumentError(f"{values.shape} is not the shape of K and V here")
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if not (half.astype(np.float64) == values.astype(np.float64)).all():
            raise InvalidArgumentError("not every value is a float16")
        halves.append(half)
    targets = []
    for id, low, high in _stretches(pool, table, start, len(k)):
        if not pool.ref_count(id) == 1 or not pool.hash_of(id) == 0:
            raise InvalidArgumentError(f"block {id} is shared, named or free")
        targets.append((pool.block(id, layer, False)[:, low:high],
                        pool.block(id, layer, True)[:, low:high]))
    waiting = deque(zip(*halves, strict=True))
    for k_view, v_view in targets:
        for slot in range(k_view.shape[1]):
            k_view[:, slot], v_view[:, slot] = waiting.popleft()


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    heads = range(pool.config.n_kv_heads)
    shape = (len(heads), -1, pool.config.head_dim)
    stretches = list(_stretches(pool, table, 0, n))
    rows: list[list[np.ndarray]] = [[], []]
    for side in (0, 1):
        for head in heads:
            rows[side] += [pool.block(id, layer, side)[head, low:high]
                           for id, low, high in stretches]
    if not stretches:
        return np.zeros((len(heads), 0, shape[2]), np.float16), np.zeros(
            (len(heads), 0, shape[2]), np.float16)
    return np.concatenate(rows[0]).reshape(shape), np.concatenate(rows[1]).reshape(shape)


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    k, v = gather_kv(pool, table, layer, start + len(q))
    seen = attend(q, k, v, start)  # judges the shapes
    group = q.shape[1] // len(k)
    for head in range(q.shape[1]):
        kv = slice(head // group, head // group + 1)
        seen[:, head] = attend(q[:, head : head + 1], k[kv], v[kv], start)[:, 0]
    return seen


class PagedKv:
    def __init__(self, pool: KvPool, table: Sequence[int]) -> None:
        self.pool, self.table = pool, table

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        write_kv(self.pool, self.table, layer, start, k, v)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        return gather_kv(self.pool, self.table, layer, n)


def _stretches(pool: KvPool, table: Sequence[int], start: int,
               n: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block, first slot, slot after the last) until n positions from ``start`` are had."""
    at, left, size = _integer(start), _integer(n), pool.config.block_tokens
    if at < 0 or left < 0 or at + left > len(table) * size:
        raise InvalidArgumentError(f"no blocks for {left} positions from {at} on")
    for id in table[at // size :]:
        if left == 0:
            return
        low = at % size
        high = min(low + left, size)
        yield id, low, high
        at, left = at + high - low, left - (high - low)


def _integer(value: int) -> int:
    if isinstance(value, bool):
        raise InvalidArgumentError("a bool is no position")
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no position") from None
