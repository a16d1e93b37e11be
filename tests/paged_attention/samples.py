"""Pools with old bytes in them, numbers that are all different, and where each of them must be."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from grader.assertions import Wrong, note
from grader.assertions.wording import say
from tests.kv_pool.samples import judge, look, slab, take
from tinyllm.config import ModelConfig
from tinyllm.kv_pool import KvPool, PoolConfig

SIDES = ("K", "V")


def new_pool(n_blocks: int = 4, block_tokens: int = 2, n_layers: int = 1, n_kv_heads: int = 1,
             head_dim: int = 2) -> KvPool:
    """Return a pool, small unless a test says otherwise."""
    return KvPool(PoolConfig(n_blocks, block_tokens, n_layers, n_kv_heads, head_dim))


def pool_for(config: ModelConfig, n_blocks: int, block_tokens: int) -> KvPool:
    """Return a pool with the model's dimensions."""
    return new_pool(n_blocks, block_tokens, config.layers, config.kv_heads, config.head_dim)


def take_in_order(pool: KvPool, *places: int) -> list[int]:
    """Allocate blocks and return those at these places of their sorted ids, in this order: a table
    whose order is not that of its ids, whatever the pool hands out first. All others are given
    back."""
    ids = sorted(take(pool, pool.config.n_blocks))
    for id in ids:
        if ids.index(id) not in places:
            pool.unref(id)
    return [ids[place] for place in places]


def numbers(pool: KvPool, n: int, first: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return K and V of n positions, float32 [n, H, D]: K is first, first + 1, ... and V the same
    numbers below zero. No two of them are equal, and up to 2048 float16 holds each exactly."""
    shape = (n, pool.config.n_kv_heads, pool.config.head_dim)
    k = np.arange(first, first + int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return k, -k


def leave(pool: KvPool, value: float) -> None:
    """Put one number into every slot of every block: what earlier texts left there."""
    note(f"earlier texts left {value} in every slot of every block")
    for view in _slabs(pool):
        view[...] = value


def _slabs(pool: KvPool) -> Iterator[np.ndarray]:
    for id in range(pool.config.n_blocks):
        for layer in range(pool.config.n_layers):
            for side in (0, 1):
                yield slab(pool, id, layer, side)


def _row(values: np.ndarray) -> str:
    return f"[{', '.join(f'{x:g}' for x in values.tolist())}]"


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float16).view(np.uint16)


class Memory:
    """What must be in every slot of a pool: written position by position, by the contract alone."""

    def __init__(self, pool: KvPool) -> None:
        self.pool, self.size = pool, pool.config.block_tokens
        c = pool.config
        shape = (c.n_blocks, c.n_layers, 2, c.n_kv_heads, c.block_tokens, c.head_dim)
        self.slots = np.array(list(_slabs(pool))).reshape(shape)
        self.positions: dict[tuple[int, int], int] = {}  # (block, slot) -> the position written

    def write(self, table: Sequence[int], layer: int, start: int, k: np.ndarray,
              v: np.ndarray) -> None:
        """Say that K and V, [n, H, D], of the positions from ``start`` on are written."""
        for row in range(len(k)):
            block, slot = table[(start + row) // self.size], (start + row) % self.size
            self.positions[block, slot] = start + row
            self.slots[block, layer, 0, :, slot] = k[row]
            self.slots[block, layer, 1, :, slot] = v[row]

    def of(self, table: Sequence[int], layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K and V of positions 0..n-1, float16 [H, n, D]."""
        places = [(table[p // self.size], p % self.size) for p in range(n)]
        shape = (2, 0, *self.slots.shape[3:4], self.slots.shape[5])
        sides = np.empty(shape, np.float16)
        if places:
            sides = np.array([[self.slots[block, layer, side, :, slot] for block, slot in places]
                              for side in (0, 1)])
        k, v = np.ascontiguousarray(sides.transpose(0, 2, 1, 3))
        return k, v

    def judge(self, when: str) -> None:
        """Judge every slot of the pool."""
        for place, view in zip(np.ndindex(self.slots.shape[:3]), _slabs(self.pool), strict=True):
            want = self.slots[place]
            for head, slot in np.argwhere((_bits(view) != _bits(want)).any(axis=-1)):
                block, layer, side = place
                position = self.positions.get((block, int(slot)))
                whose = "not to be written" if position is None else f"position {position}"
                raise Wrong(f"{SIDES[side]} in block {block}, slot {slot} ({whose}; layer {layer}, "
                            f"head {head}) {when}", _row(want[head, slot]),
                            self._told(view[head, slot]))

    def _told(self, row: np.ndarray) -> str:
        """Say what a row is, and where it belongs if it belongs somewhere else."""
        found = np.argwhere((_bits(self.slots) == _bits(row)).all(axis=-1))
        if len(found) != 1 or not row.any():
            return _row(row)
        block, layer, side, head, slot = found[0]
        return (f"{_row(row)}, which belongs into {SIDES[side]} of block {block}, slot {slot} "
                f"(layer {layer}, head {head})")


def same_kv(got: Any, want: tuple[np.ndarray, np.ndarray], what: str) -> None:
    """Judge what a gather returned: two arrays, float16 [H, n, D], and every number in them."""
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Wrong(what, "two arrays, K and V", say(got))
    for side, mine, right in zip(SIDES, got, want, strict=True):
        _same_side(mine, right, f"{side} that {what}")


def _same_side(got: Any, want: np.ndarray, what: str) -> None:
    if not isinstance(got, np.ndarray) or got.dtype != np.float16 or got.shape != want.shape:
        raise Wrong(what, say(want), say(got))
    for head, position in np.argwhere((_bits(got) != _bits(want)).any(axis=-1)):
        row = got[head, position]
        found = np.argwhere((_bits(want) == _bits(row)).all(axis=-1))
        told = _row(row)
        if len(found) == 1:
            told += f", which is that of position {found[0][1]}, head {found[0][0]}"
        raise Wrong(f"{what}, at position {position}, head {head}", _row(want[head, position]),
                    told)


@contextmanager
def untouched(pool: KvPool, when: str) -> Iterator[None]:
    """Judge that what happens inside changes nothing that anyone can see of the pool: counts,
    fills, names, and the bytes of every block, the free ones too."""
    before, memory = look(pool, names=True), Memory(pool)
    yield
    judge(pool, before, when)
    memory.judge(when)


@contextmanager
def books_untouched(pool: KvPool, when: str) -> Iterator[None]:
    """Judge that what happens inside leaves all but the bytes alone."""
    def books() -> Any:
        picture = look(pool, names=True)
        return picture._replace(blocks=[b._replace(contents=None) for b in picture.blocks])

    before = books()
    yield
    judge(pool, before, when)


def cut(n: int, chunk: int) -> Iterable[tuple[int, int]]:
    """Yield the pieces of n positions: the first of each, and the one after its last."""
    for at in range(0, n, chunk):
        yield at, min(at + chunk, n)
