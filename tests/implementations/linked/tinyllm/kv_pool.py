"""The KV pool as linked nodes.

Each block is a node object that hangs in one of two rings, free or cached, and in neither while
somebody holds it. Moving a block is unlinking its node; no container of ids exists apart from the
prefix index. The slab is a run of bytes, and a block's K or V is found in it by arithmetic. Blocks
go out highest id first, then the one freed last; an evicted block goes straight to its new holder.
A second name is an ``InvalidArgumentError``, too large a pool a ``PoolMemoryError``.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
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


class PoolStats(NamedTuple):
    free: int
    used: int
    cached: int
    evictions: int


class _Node:
    """A block and its neighbours; alone, it is its own neighbour."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.refs = 0
        self.fill = 0
        self.name = 0  # 0: none
        self.before = self.after = self


class _Ring:
    """A circular doubly linked list of nodes, closed by a head that is no block."""

    def __init__(self) -> None:
        self.head = _Node(-1)
        self.size = 0

    def insert_after(self, place: _Node, node: _Node) -> None:
        node.before, node.after = place, place.after
        place.after.before = node
        place.after = node
        self.size += 1

    def push_front(self, node: _Node) -> None:
        self.insert_after(self.head, node)

    def push_back(self, node: _Node) -> None:
        self.insert_after(self.head.before, node)

    def remove(self, node: _Node) -> _Node:
        node.before.after = node.after
        node.after.before = node.before
        node.before = node.after = node
        self.size -= 1
        return node


class KvPool:
    def __init__(self, config: PoolConfig) -> None:
        if config.dtype != "f16" or config.format != 1:
            raise UnsupportedError(f"no pool of dtype {config.dtype!r}, format {config.format!r}")
        dimensions = (config.n_blocks, config.block_tokens, config.n_layers, config.n_kv_heads,
                      config.head_dim)
        n, tokens, layers, heads, dim = (_integer(d, 1, 2**32 - 1, "a size") for d in dimensions)
        self.config = config
        self._plane = (heads, tokens, dim)
        self._plane_bytes = heads * tokens * dim * 2
        self._block_bytes = layers * 2 * self._plane_bytes
        try:
            self._slab = np.zeros(n * self._block_bytes, np.uint8)
            self._nodes = [_Node(id) for id in range(n)]
        except (MemoryError, OverflowError, ValueError):
            raise PoolMemoryError(f"{n} blocks of {self._block_bytes} bytes: no memory") from None
        self._free, self._cached = _Ring(), _Ring()
        for node in self._nodes:
            self._free.push_front(node)
        self._index: dict[int, _Node] = {}
        self._evictions = 0

    def alloc(self, n: int) -> list[int]:
        room = self._free.size + self._cached.size
        if (n := _integer(n, 0, None, "a number of blocks")) > room:
            raise PoolFullError(f"{n} blocks do not fit: there is room for {room}")
        return [self._take() for _ in range(n)]

    def ref(self, id: int) -> None:
        self._held(id).refs += 1

    def unref(self, id: int) -> None:
        node = self._held(id)
        node.refs -= 1
        if node.refs == 0 and node.name:
            self._cached.push_back(node)
        elif node.refs == 0:
            node.fill = 0
            self._free.push_front(node)

    def cow(self, id: int) -> int:
        node = self._held(id)
        if node.refs == 1 and not node.name:
            return node.id
        copy = self._nodes[self.alloc(1)[0]]
        copy.fill = node.fill
        to, source = copy.id * self._block_bytes, node.id * self._block_bytes
        self._slab[to : to + self._block_bytes] = self._slab[source : source + self._block_bytes]
        self.unref(node.id)
        return copy.id

    def set_fill(self, id: int, n: int) -> None:
        node = self._held(id)
        n = _integer(n, 0, self.config.block_tokens, "a fill")
        if node.name:
            raise InvalidArgumentError(f"block {node.id} is registered and stays as it is")
        node.fill = n

    def fill(self, id: int) -> int:
        return self._node(id).fill

    def ref_count(self, id: int) -> int:
        return self._node(id).refs

    def register(self, id: int, hash: int) -> None:
        node = self._held(id)
        name = _integer(hash, 1, 2**64 - 1, "a name")
        if node.name or node.fill != self.config.block_tokens:
            raise InvalidArgumentError(f"block {node.id} is no full block without a name")
        if name in self._index:
            raise HashBusyError(f"block {self._index[name].id} has this name")
        node.name = name
        self._index[name] = node

    def lookup(self, hash: int) -> int | None:
        node = self._index.get(_integer(hash, 0, 2**64 - 1, "a name"))
        if node is None:
            return None
        if node.refs == 0:
            self._cached.remove(node)
        node.refs += 1
        return node.id

    def hash_of(self, id: int) -> int:
        return self._node(id).name

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        node = self._node(id)
        layer = _integer(layer, 0, self.config.n_layers - 1, "a layer")
        side = _integer(int(is_v) if isinstance(is_v, bool) else is_v, 0, 1, "is_v")
        start = node.id * self._block_bytes + (layer * 2 + side) * self._plane_bytes
        plane = self._slab[start : start + self._plane_bytes]
        return plane.view(np.float16).reshape(self._plane)

    @property
    def block_bytes(self) -> int:
        return self._block_bytes

    def stats(self) -> PoolStats:
        idle = self._free.size + self._cached.size
        used = len(self._nodes) - idle
        return PoolStats(self._free.size, used, self._cached.size, self._evictions)

    def _take(self) -> int:
        """Hand out one block, which the caller has made sure there is."""
        if self._free.size:
            node = self._free.remove(self._free.head.after)
        else:
            node = self._cached.remove(self._cached.head.after)
            del self._index[node.name]
            node.name = 0
            self._evictions += 1
        node.refs, node.fill = 1, 0
        return node.id

    def _node(self, id: int) -> _Node:
        return self._nodes[_integer(id, 0, len(self._nodes) - 1, "a block")]

    def _held(self, id: int) -> _Node:
        node = self._node(id)
        if node.refs == 0:
            raise InvalidArgumentError(f"block {node.id} is held by nobody")
        return node


def _integer(value: int, low: int, high: int | None, what: str) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        raise InvalidArgumentError(f"{what} is {low}..{'' if high is None else high}: {value!r}")
    return number
