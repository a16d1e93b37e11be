"""The radix cache with edges of many blocks.

A node has the blocks of the edge that leads to it, and an edge is split where prompts part, where a
lock ends, and where a use ends. A handle is an edge and a depth in blocks; the edge keeps its lower
half when it is split, so a handle finds its place by climbing. Leaves are collected anew for each
eviction: a walk through the tree a call, O(log n) a block after it.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from tinyllm.errors import InvalidArgumentError

Block = tuple[Hashable, ...]


class Match(NamedTuple):
    blocks: list[int]
    node: Any


class Place(NamedTuple):
    """A handle: the first ``depth`` blocks of the path to ``edge``."""

    edge: Edge
    depth: int


class Edge:
    """Some blocks in a row; ``depth`` counts the blocks from the root to its end."""

    def __init__(self, parent: Edge | None, run: list[Block], ids: list[int]) -> None:
        self.parent = parent
        self.run, self.ids = run, ids
        self.depth: int = len(ids) + (parent.depth if parent else 0)
        self.children: dict[Block, Edge] = {}
        self.locks = self.used = 0

    @property
    def start(self) -> int:
        return self.depth - len(self.ids)

    def split(self, depth: int) -> Edge:
        """Move the blocks down to ``depth`` into a new edge above this one, and return it."""
        assert self.parent is not None
        cut = depth - self.start
        upper = Edge(self.parent, self.run[:cut], self.ids[:cut])
        upper.locks, upper.used = self.locks, self.used
        self.parent.children[upper.run[0]] = upper
        self.parent, self.run, self.ids = upper, self.run[cut:], self.ids[cut:]
        upper.children[self.run[0]] = self
        return upper

    def climb(self) -> Iterator[Edge]:
        """Yield this edge and all above it, the root not included."""
        edge = self
        while edge.parent is not None:
            yield edge
            edge = edge.parent


class RadixCache:
    def __init__(self, block_tokens: int) -> None:
        self._size = _integer(block_tokens, 1, "block_tokens")
        self._root = Edge(None, [], [])
        self._total = self._under_lock = self._ticks = 0

    def match(self, tokens: Sequence[Hashable]) -> Match:
        edge, depth, ids = self._follow(self._cut(tokens))
        return Match(ids, Place(edge, depth))

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        run = self._cut(tokens)
        ids = [_integer(id, None, "a block id") for id in blocks]
        if len(run) != len(ids):
            raise InvalidArgumentError(f"{len(run)} whole blocks, {len(ids)} ids")
        edge, depth, _ = self._follow(run)
        end = self._end_of(Place(edge, depth))
        if depth < len(run):
            below = Edge(end, run[depth:], ids[depth:])
            end.children[run[depth]] = below
            self._total += len(below.ids)
            end = below
        self._touch(end)
        return ids[depth:]

    def lock(self, node: Any) -> None:
        end = self._end_of(node)
        for edge in end.climb():
            if edge.locks == 0:
                self._under_lock += len(edge.ids)
            edge.locks += 1
        if end is self._root:
            end.locks += 1
        self._touch(end)

    def unlock(self, node: Any) -> None:
        end = self._end_of(node)
        if end.locks == 0:
            raise InvalidArgumentError("unlock without a lock")
        for edge in end.climb():
            edge.locks -= 1
            if edge.locks == 0:
                self._under_lock -= len(edge.ids)
        if end is self._root:
            end.locks -= 1

    def evict(self, n_blocks: int) -> list[int]:
        left = _integer(n_blocks, 0, "a number of blocks")
        dropped: list[int] = []
        heap = [(edge.used, id(edge), edge) for edge in self._leaves()] if left else []
        heapq.heapify(heap)
        while heap and left > len(dropped):
            _, _, edge = heapq.heappop(heap)
            keep, first = max(0, len(edge.ids) - (left - len(dropped))), edge.run[0]
            dropped += reversed(edge.ids[keep:])
            edge.depth -= len(edge.ids) - keep
            del edge.ids[keep:], edge.run[keep:]
            if keep:
                break
            parent = edge.parent
            assert parent is not None
            del parent.children[first]
            if not parent.children and not parent.locks and parent is not self._root:
                heapq.heappush(heap, (parent.used, id(parent), parent))
        self._total -= len(dropped)
        return dropped

    @property
    def evictable_blocks(self) -> int:
        return self._total - self._under_lock

    @property
    def locked_blocks(self) -> int:
        return self._under_lock

    def __len__(self) -> int:
        return self._total

    def _cut(self, tokens: Sequence[Hashable]) -> list[Block]:
        """Return the whole blocks of ``tokens``."""
        ends = range(self._size, len(tokens) + 1, self._size)
        return [tuple(tokens[end - self._size : end]) for end in ends]

    def _follow(self, run: list[Block]) -> tuple[Edge, int, list[int]]:
        """Return the edge in which ``run`` is cached no further, how far it is, and its ids."""
        edge, depth, ids = self._root, 0, list[int]()
        while depth < len(run) and (below := edge.children.get(run[depth])) is not None:
            edge = below
            for block, id in zip(edge.run, edge.ids, strict=True):
                if depth == len(run) or block != run[depth]:
                    return edge, depth, ids
                ids.append(id)
                depth += 1
        return edge, depth, ids

    def _end_of(self, node: Any) -> Edge:
        """Return the edge that ends exactly where a handle does, split off if need be."""
        if not isinstance(node, Place):
            raise InvalidArgumentError(f"{node!r} is not a handle")
        edge = node.edge
        while edge.start >= node.depth and edge.parent is not None:
            edge = edge.parent
        if edge.depth < node.depth:
            raise InvalidArgumentError("some blocks of this handle are gone")
        return edge if edge.depth == node.depth else edge.split(node.depth)

    def _touch(self, end: Edge) -> None:
        self._ticks += 1
        for edge in end.climb():
            edge.used = self._ticks

    def _leaves(self) -> Iterator[Edge]:
        """Yield the edges that nothing follows and no lock holds."""
        waiting = list(self._root.children.values())
        while waiting:
            edge = waiting.pop()
            waiting += edge.children.values()
            if not edge.children and not edge.locks:
                yield edge


def _integer(value: int, low: int | None, what: str) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (low is not None and number < low):
        raise InvalidArgumentError(f"{what} cannot be {value!r}")
    return number
