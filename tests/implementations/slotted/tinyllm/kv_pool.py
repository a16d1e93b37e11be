"""The KV pool as objects with a named state.

Each block is a slotted object that knows its state and owns its K and its V, two views of one flat
slab. Free blocks go out in shuffled order, and a block that is freed is overwritten with garbage.
Cached blocks carry the stamp of the moment they became cached and wait in a heap; a block that is
revived leaves its entry behind, and old entries are passed over when they come up. A second name
for a block is a ``HashBusyError``.
"""

import heapq
import operator
from dataclasses import dataclass
from enum import Enum, auto
from math import prod
from random import Random
from typing import NamedTuple

import numpy as np

from tinyllm.errors import (
    HashBusyError,
    InvalidArgumentError,
    PoolFullError,
    PoolMemoryError,
    UnsupportedError,
)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    n_blocks: int
    block_tokens: int
    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "f16"
    format: int = 1


class PoolStats(NamedTuple):
    free: int
    used: int
    cached: int
    evictions: int


GARBAGE = 777.0  # what nobody may read: the contents of a free block are unspecified


class State(Enum):
    FREE = auto()
    USED = auto()
    CACHED = auto()


class Block:
    __slots__ = ("fill", "hash", "id", "k", "refs", "stamp", "state", "v")

    def __init__(self, id: int, values: np.ndarray) -> None:
        """``values`` is the block's own part of the slab: float16 [L, 2, H, B, D]."""
        self.id = id
        self.k, self.v = values[:, 0], values[:, 1]
        self.state = State.FREE
        self.refs = self.fill = self.hash = self.stamp = 0


class KvPool:
    def __init__(self, config: PoolConfig) -> None:
        if (config.dtype, config.format) != ("f16", 1):
            raise UnsupportedError(f"cannot hold {config.dtype!r} in format {config.format!r}")
        self.config = config
        n, tokens, layers, heads, dim = (
            _in_range(size, 1, 0xFFFFFFFF)
            for size in (config.n_blocks, config.block_tokens, config.n_layers,
                         config.n_kv_heads, config.head_dim)
        )
        shape = (layers, 2, heads, tokens, dim)
        try:
            slab = np.zeros(n * prod(shape), np.float16)
            parts = slab.reshape(n, *shape)
            self._blocks = [Block(id, parts[id]) for id in range(n)]
        except (MemoryError, ValueError) as error:
            raise PoolMemoryError(f"{n} blocks of {shape}: {error}") from error
        self.block_bytes = parts[0].nbytes
        self._free = list(range(n))
        self._random = Random(n)
        self._n_cached = 0
        self._ages: list[tuple[int, int]] = []  # (stamp, id); the smallest stamp is the oldest
        self._clock = 0
        self._by_hash: dict[int, Block] = {}
        self._evictions = 0

    def alloc(self, n: int) -> list[int]:
        n = _in_range(n, 0)
        if len(self._free) + self._n_cached < n:
            raise PoolFullError(f"{n} > {len(self._free)} free + {self._n_cached} cached")
        ids = []
        for _ in range(n):
            if not self._free:
                self._evict_oldest()
            block = self._blocks[self._any_free()]
            block.state, block.refs, block.fill = State.USED, 1, 0
            ids.append(block.id)
        return ids

    def ref(self, id: int) -> None:
        self._used(id).refs += 1

    def unref(self, id: int) -> None:
        block = self._used(id)
        block.refs -= 1
        if block.refs:
            return
        if block.hash:
            self._cache(block)
        else:
            self._set_free(block)

    def cow(self, id: int) -> int:
        block = self._used(id)
        if block.refs == 1 and not block.hash:
            return block.id
        copy = self._blocks[self.alloc(1)[0]]
        copy.k[:] = block.k
        copy.v[:] = block.v
        copy.fill = block.fill
        self.unref(block.id)
        return copy.id

    def set_fill(self, id: int, n: int) -> None:
        block = self._used(id)
        if block.hash:
            raise InvalidArgumentError(f"{id} is registered: its fill is fixed")
        block.fill = _in_range(n, 0, self.config.block_tokens)

    def fill(self, id: int) -> int:
        return self._block(id).fill

    def ref_count(self, id: int) -> int:
        return self._block(id).refs

    def register(self, id: int, hash: int) -> None:
        block = self._used(id)
        hash = _in_range(hash, 1, 2**64 - 1)
        if block.fill < self.config.block_tokens:
            raise InvalidArgumentError(f"{id} is only filled to {block.fill}")
        if block.hash or hash in self._by_hash:
            raise HashBusyError(f"{id} or {hash:#x} is registered")
        block.hash = hash
        self._by_hash[hash] = block

    def lookup(self, hash: int) -> int | None:
        block = self._by_hash.get(_in_range(hash, 0, 2**64 - 1))
        if block is None:
            return None
        if block.state is State.CACHED:
            block.state = State.USED  # its entry among the ages is now an old one
            self._n_cached -= 1
        block.refs += 1
        return block.id

    def hash_of(self, id: int) -> int:
        return self._block(id).hash

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        block = self._block(id)
        layer = _in_range(layer, 0, self.config.n_layers - 1)
        if not isinstance(is_v, bool):
            is_v = _in_range(is_v, 0, 1)
        slab: np.ndarray = (block.v if is_v else block.k)[layer]
        return slab

    def stats(self) -> PoolStats:
        free, cached = len(self._free), self._n_cached
        return PoolStats(free, len(self._blocks) - free - cached, cached, self._evictions)

    def _cache(self, block: Block) -> None:
        self._clock += 1
        block.state, block.stamp = State.CACHED, self._clock
        self._n_cached += 1
        heapq.heappush(self._ages, (block.stamp, block.id))
        if len(self._ages) > 2 * len(self._blocks):
            self._ages = [age for age in self._ages if self._is_current(age)]
            heapq.heapify(self._ages)

    def _is_current(self, age: tuple[int, int]) -> bool:
        stamp, id = age
        block = self._blocks[id]
        return block.state is State.CACHED and block.stamp == stamp

    def _evict_oldest(self) -> None:
        while not self._is_current(age := heapq.heappop(self._ages)):
            pass
        block = self._blocks[age[1]]
        del self._by_hash[block.hash]
        block.hash = 0
        self._n_cached -= 1
        self._evictions += 1
        self._set_free(block)

    def _set_free(self, block: Block) -> None:
        block.state, block.fill = State.FREE, 0
        block.k[...] = block.v[...] = GARBAGE
        self._free.append(block.id)

    def _any_free(self) -> int:
        at = self._random.randrange(len(self._free))
        self._free[at], self._free[-1] = self._free[-1], self._free[at]
        return self._free.pop()

    def _block(self, id: int) -> Block:
        return self._blocks[_in_range(id, 0, len(self._blocks) - 1)]

    def _used(self, id: int) -> Block:
        block = self._block(id)
        if block.state is not State.USED:
            raise InvalidArgumentError(f"{id} is {block.state.name.lower()}")
        return block


def _in_range(value: int, low: int, high: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no integer") from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise InvalidArgumentError(f"{value!r} is not in {low}..{'' if high is None else high}")
    return number
