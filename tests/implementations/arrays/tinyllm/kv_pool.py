"""The KV pool as a structure of arrays.

Everything about a block is an entry of some numpy array: references, fill, name, and the two
neighbours in the list of cached blocks, whose ends meet in an extra entry past the last block. No
free list is kept; a free block is one with neither holder nor name, found by a scan, lowest id
first. Contents are uint16 bits, seen as float16 by whoever asks. Ids come out as numpy integers.
The sizes are judged by ``PoolConfig`` already, and a pool of more values than numpy can count is
an ``InvalidArgumentError``; a second name is one too, unless that name is taken.
"""

from dataclasses import dataclass, fields
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.errors import (
    HashBusyError,
    InvalidArgumentError,
    PoolFullError,
    PoolMemoryError,
    UnsupportedError,
)


@dataclass(frozen=True)
class PoolConfig:
    n_blocks: int
    block_tokens: int
    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "f16"
    format: int = 1

    def __post_init__(self) -> None:
        if self.dtype != "f16" or self.format != 1:
            raise UnsupportedError("f16 in format 1 is all there is")
        for field in fields(self)[:5]:
            if not 1 <= _natural(getattr(self, field.name), field.name) < 1 << 32:
                raise InvalidArgumentError(f"{field.name} is not in 1..2**32-1")


BlockId = int | np.int64


class PoolStats(NamedTuple):
    free: int
    used: int
    cached: int
    evictions: int


class KvPool:
    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        n = index(config.n_blocks)
        try:
            self._bits = np.zeros(
                (n, config.n_layers, 2, config.n_kv_heads, config.block_tokens, config.head_dim),
                dtype=np.uint16,
            )
            self._refs = np.zeros(n, dtype=np.int64)
            self._fills = np.zeros(n, dtype=np.int64)
            self._names = np.zeros(n, dtype=np.uint64)
            self._next = np.arange(n + 1)  # a block that points to itself is in no list
            self._prev = np.arange(n + 1)
        except ValueError as error:  # more elements than numpy can count
            raise InvalidArgumentError(f"the pool is too large: {error}") from None
        except MemoryError as error:
            raise PoolMemoryError(str(error)) from None
        self._ends = n  # its next is the oldest cached block, its prev the newest
        self._holders: dict[int, np.int64] = {}  # name -> block
        self._evictions = 0

    def alloc(self, n: int) -> list[BlockId]:
        count = _natural(n, "the count")
        free = self._free_blocks()
        missing = count - len(free)
        if missing > np.count_nonzero((self._refs == 0) & (self._names != 0)):
            raise PoolFullError(f"no room for {count} blocks")
        taken = list(free[:count])
        taken += [self._evict(self._next[self._ends]) for _ in range(missing)]
        self._refs[taken] = 1
        self._fills[taken] = 0
        return taken

    def ref(self, id: BlockId) -> None:
        self._refs[self._held(id)] += 1

    def unref(self, id: BlockId) -> None:
        block = self._held(id)
        self._refs[block] -= 1
        if self._refs[block]:
            return
        if self._names[block]:
            self._link_newest(block)
        else:
            self._fills[block] = 0

    def cow(self, id: BlockId) -> BlockId:
        block = self._held(id)
        if self._refs[block] == 1 and self._names[block] == 0:
            return block
        [copy] = self.alloc(1)
        for state in (self._bits, self._fills):
            state[copy] = state[block]
        self.unref(block)
        return copy

    def set_fill(self, id: BlockId, n: int) -> None:
        block = self._held(id)
        n = _natural(n, "the fill")
        if self._names[block] or n > self.config.block_tokens:
            raise InvalidArgumentError(f"block {block} cannot take fill {n}")
        self._fills[block] = n

    def fill(self, id: BlockId) -> int:
        return int(self._fills[self._block(id)])

    def ref_count(self, id: BlockId) -> int:
        return int(self._refs[self._block(id)])

    def register(self, id: BlockId, hash: int) -> None:
        block = self._held(id)
        name = _name(hash)
        if name == 0 or self._fills[block] != self.config.block_tokens:
            raise InvalidArgumentError(f"block {block} cannot be called {name:#x}")
        if name in self._holders:
            raise HashBusyError(f"{name:#x} is block {self._holders[name]}")
        if self._names[block]:
            raise InvalidArgumentError(f"block {block} is called {self._names[block]:#x}")
        self._names[block] = name
        self._holders[name] = block

    def lookup(self, hash: int) -> BlockId | None:
        block = self._holders.get(_name(hash))
        if block is not None:
            self._unlink(block)  # one that is held points to itself: nothing happens
            self._refs[block] += 1
        return block

    def hash_of(self, id: BlockId) -> int:
        return int(self._names[self._block(id)])

    def block(self, id: BlockId, layer: int, is_v: bool | int) -> np.ndarray:
        layer = _natural(layer, "the layer")
        side = int(is_v) if isinstance(is_v, bool) else _natural(is_v, "is_v")
        if layer >= self.config.n_layers or side > 1:
            raise InvalidArgumentError(f"there is no layer {layer}, side {side}")
        values: np.ndarray = self._bits[self._block(id), layer, side].view(np.float16)
        return values

    @property
    def block_bytes(self) -> int:
        return self._bits.nbytes // len(self._bits)

    def stats(self) -> PoolStats:
        free, used = len(self._free_blocks()), int(np.count_nonzero(self._refs))
        return PoolStats(free, used, len(self._refs) - free - used, self._evictions)

    def _free_blocks(self) -> np.ndarray:
        return np.flatnonzero((self._refs == 0) & (self._names == 0))

    def _evict(self, block: np.int64) -> np.int64:
        self._unlink(block)
        del self._holders[int(self._names[block])]
        self._names[block] = 0
        self._evictions += 1
        return block

    def _link_newest(self, block: np.int64) -> None:
        newest = self._prev[self._ends]
        self._next[newest] = self._prev[self._ends] = block
        self._prev[block], self._next[block] = newest, self._ends

    def _unlink(self, block: np.int64) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before], self._prev[after] = after, before
        self._next[block] = self._prev[block] = block

    def _block(self, id: BlockId) -> np.int64:
        if (number := _natural(id, "a block")) >= len(self._refs):
            raise InvalidArgumentError(f"there is no block {number}")
        return np.int64(number)

    def _held(self, id: BlockId) -> np.int64:
        block = self._block(id)
        if self._refs[block] == 0:
            raise InvalidArgumentError(f"block {block} is not in use")
        return block


def _name(value: int) -> int:
    if (name := _natural(value, "a hash")) >= 1 << 64:
        raise InvalidArgumentError(f"a hash has 64 bits, {name:#x} has more")
    return name


def _natural(value: BlockId, what: str) -> int:
    try:
        number = index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or number < 0:
        raise InvalidArgumentError(f"{what} must be an integer from 0 on, not {value!r}")
    return number
