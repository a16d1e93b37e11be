"""The KV pool with a queue of free blocks and one ordered dict.

Free blocks wait in a deque, and the one that has been free the longest goes out first. The prefix
index is also the LRU order: a block that becomes cached moves to the dict's end, and eviction
takes the first one that nobody holds (a walk past those in use: short code, not fast code).
Everything else is a list with an entry a block, the contents included. A pool that is too large
is an ``InvalidArgumentError``; a call for a block that is not in use raises a subclass of it.
"""

from collections import deque
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError, UnsupportedError


@dataclass(frozen=True)
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


class NotInUseError(InvalidArgumentError):
    """Nobody holds the block."""


class KvPool:
    def __init__(self, config: PoolConfig) -> None:
        if config.dtype != "f16":
            raise UnsupportedError(f"dtype {config.dtype!r} cannot be stored")
        if config.format != 1:
            raise UnsupportedError(f"format {config.format!r} is not known")
        n = _integer(config.n_blocks)
        plane = [_integer(config.n_kv_heads), _integer(config.block_tokens),
                 _integer(config.head_dim)]
        shape = [n, 2 * _integer(config.n_layers), *plane]
        if min(shape) < 1 or max(*plane, n, shape[1] // 2) >= 1 << 32:
            raise InvalidArgumentError(f"a dimension is out of range: {config}")
        self.config = config
        try:
            slab = np.zeros(shape, dtype="float16")
            self._planes: list[list[np.ndarray]] = [list(block) for block in slab]
        except (MemoryError, ValueError):
            raise InvalidArgumentError(f"too large for this machine: {config}") from None
        self._ref_counts = [0] * n
        self._fills = [0] * n
        self._hashes: list[int | None] = [None] * n
        self._free = deque(range(n))
        self._index: dict[int, int] = {}  # hash -> block; of the cached ones, the oldest first
        self._evictions = 0

    def alloc(self, n: int) -> list[int]:
        count = _integer(n)
        if count < 0:
            raise InvalidArgumentError(f"cannot allocate {count} blocks")
        room = len(self._free) + len(self._cached_blocks())
        if count > room:
            raise PoolFullError(f"{count} blocks wanted, {room} to be had")
        ids = []
        for _ in range(count):
            if len(self._free) == 0:
                self._evict(self._cached_blocks()[0])
            block = self._free.popleft()
            self._ref_counts[block] = 1
            ids.append(block)
        return ids

    def ref(self, id: int) -> None:
        block = self._in_use(id)
        self._ref_counts[block] += 1

    def unref(self, id: int) -> None:
        block = self._in_use(id)
        self._ref_counts[block] -= 1
        if self._ref_counts[block] > 0:
            return
        name = self._hashes[block]
        if name is None:
            self._fills[block] = 0
            self._free.append(block)
        else:
            self._index[name] = self._index.pop(name)

    def cow(self, id: int) -> int:
        block = self._in_use(id)
        if self._hashes[block] is None and self._ref_counts[block] == 1:
            return block
        copy = self.alloc(1)[0]
        for target, source in zip(self._planes[copy], self._planes[block], strict=True):
            target[...] = source
        self._fills[copy] = self._fills[block]
        self.unref(block)
        return copy

    def set_fill(self, id: int, n: int) -> None:
        block = self._in_use(id)
        positions = _integer(n)
        if positions < 0 or positions > self.config.block_tokens:
            raise InvalidArgumentError(f"{positions} positions in a block")
        if self._hashes[block] is not None:
            raise InvalidArgumentError(f"block {block} is registered")
        self._fills[block] = positions

    def fill(self, id: int) -> int:
        return self._fills[self._checked(id)]

    def ref_count(self, id: int) -> int:
        return self._ref_counts[self._checked(id)]

    def register(self, id: int, hash: int) -> None:
        block = self._in_use(id)
        name = _hash(hash)
        if name == 0:
            raise InvalidArgumentError("0 is not a hash")
        if self._fills[block] != self.config.block_tokens:
            raise InvalidArgumentError(f"block {block} is not full")
        if self._hashes[block] is not None:
            raise InvalidArgumentError(f"block {block} is registered")
        if name in self._index:
            raise HashBusyError(f"{name} is the hash of block {self._index[name]}")
        self._hashes[block] = name
        self._index[name] = block

    def lookup(self, hash: int) -> int | None:
        name = _hash(hash)
        if name not in self._index:
            return None
        block = self._index[name]
        self._ref_counts[block] += 1
        return block

    def hash_of(self, id: int) -> int:
        return self._hashes[self._checked(id)] or 0

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        block = self._checked(id)
        level = _integer(layer)
        if level not in range(self.config.n_layers):
            raise InvalidArgumentError(f"no layer {layer}")
        return self._planes[block][2 * level + (1 if is_v else 0)]

    @property
    def block_bytes(self) -> int:
        return sum(plane.nbytes for plane in self._planes[0])

    def stats(self) -> PoolStats:
        cached = len(self._cached_blocks())
        used = len(self._planes) - len(self._free) - cached
        return PoolStats(len(self._free), used, cached, self._evictions)

    def _cached_blocks(self) -> list[int]:
        """Return the cached blocks, oldest first."""
        return [block for block in self._index.values() if self._ref_counts[block] == 0]

    def _evict(self, block: int) -> None:
        name = self._hashes[block]
        assert name is not None
        del self._index[name]
        self._hashes[block] = None
        self._fills[block] = 0
        self._free.append(block)
        self._evictions += 1

    def _checked(self, id: int) -> int:
        block = _integer(id)
        if block < 0 or block >= len(self._planes):
            raise InvalidArgumentError(f"block {block} does not exist")
        return block

    def _in_use(self, id: int) -> int:
        block = self._checked(id)
        if self._ref_counts[block] == 0:
            raise NotInUseError(f"block {block} is not in use")
        return block


def _hash(value: int) -> int:
    number = _integer(value)
    if number < 0 or number.bit_length() > 64:
        raise InvalidArgumentError(f"{number} is not a 64-bit hash")
    return number


def _integer(value: int) -> int:
    if isinstance(value, bool):
        raise InvalidArgumentError("a bool is no integer here")
    try:
        return index(value)
    except TypeError:
        raise InvalidArgumentError(f"an integer is needed, not {value!r}") from None
