"""The radix cache as objects that compare tokens themselves.

A node a block, its children in a list that is searched with ``==``; no token is ever hashed. Every
node on a path carries the stamp of its last use. Leaves wait in a heap; an entry whose stamp is
old, or whose node may not go just now, is passed over when it comes up. A lock that comes too late,
on a node that was evicted, is kept on that node alone and holds nothing. The root has nothing to
hold, so its locks are not counted.
"""

import heapq
import operator
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from tinyllm.errors import InvalidArgumentError


class Match(NamedTuple):
    blocks: list[int]
    node: Any


class State(Enum):
    ROOT = auto()
    CACHED = auto()
    GONE = auto()


class Node:
    __slots__ = ("children", "id", "locks", "parent", "stamp", "state", "tokens")

    def __init__(self, parent: "Node | None", tokens: tuple[Hashable, ...], id: int) -> None:
        self.parent = parent
        self.tokens = tokens
        self.id = id
        self.children: list[Node] = []
        self.locks = self.stamp = 0
        self.state = State.CACHED if parent else State.ROOT

    def child(self, tokens: tuple[Hashable, ...]) -> "Node | None":
        return next((node for node in self.children if node.tokens == tokens), None)

    def upwards(self) -> Iterator["Node"]:
        """Yield this node and those above it as long as they are cached blocks."""
        node: Node | None = self
        while node is not None and node.state is State.CACHED:
            yield node
            node = node.parent


class RadixCache:
    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = _number(block_tokens)
        if self._block_tokens < 1:
            raise InvalidArgumentError("a block has at least one token")
        self._root = Node(None, (), -1)
        self._stamp = 0
        self._heap: list[tuple[int, int, Node]] = []
        self._locked = self._unlocked = 0

    def match(self, tokens: Sequence[Hashable]) -> Match:
        ids, node = [], self._root
        for part in self._parts(tokens):
            below = node.child(part)
            if below is None:
                break
            node = below
            ids.append(node.id)
        return Match(ids, node)

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        parts = list(self._parts(tokens))
        ids = [_number(id) for id in blocks]
        if len(parts) != len(ids):
            raise InvalidArgumentError(f"for {len(parts)} blocks there are {len(ids)} ids")
        node, stored = self._root, []
        for part, id in zip(parts, ids, strict=True):
            below = node.child(part)
            if below is None:
                below = Node(node, part, id)
                node.children.append(below)
                stored.append(id)
            node = below
        self._unlocked += len(stored)
        self._use(node)
        return stored

    def lock(self, node: Any) -> None:
        if not isinstance(node, Node):
            raise InvalidArgumentError(f"{node!r} is no node")
        if node.state is not State.CACHED:
            node.locks += node.state is State.GONE
            return
        for each in node.upwards():
            if each.locks == 0:
                self._locked += 1
                self._unlocked -= 1
            each.locks += 1
        self._use(node)

    def unlock(self, node: Any) -> None:
        if isinstance(node, Node) and node.state is State.ROOT:
            return
        if not isinstance(node, Node) or node.locks == 0:
            raise InvalidArgumentError("there is no lock to take back")
        if node.state is not State.CACHED:
            node.locks -= 1
            return
        for each in node.upwards():
            each.locks -= 1
            if each.locks == 0:
                self._locked -= 1
                self._unlocked += 1
        self._queue(node)

    def evict(self, n_blocks: int) -> list[int]:
        wanted = _number(n_blocks)
        if wanted < 0:
            raise InvalidArgumentError(f"{wanted} blocks cannot be dropped")
        dropped: list[int] = []
        while self._heap and len(dropped) < wanted:
            stamp, _, node = heapq.heappop(self._heap)
            if stamp != node.stamp or not self._may_go(node):
                continue
            assert node.parent is not None
            node.parent.children.remove(node)
            node.state = State.GONE
            self._unlocked -= 1
            dropped.append(node.id)
            self._queue(node.parent)
        return dropped

    @property
    def evictable_blocks(self) -> int:
        return self._unlocked

    @property
    def locked_blocks(self) -> int:
        return self._locked

    def __len__(self) -> int:
        return self._locked + self._unlocked

    def _parts(self, tokens: Sequence[Hashable]) -> Iterator[tuple[Hashable, ...]]:
        for end in range(self._block_tokens, len(tokens) + 1, self._block_tokens):
            yield tuple(tokens[end - self._block_tokens : end])

    def _use(self, node: Node) -> None:
        self._stamp += 1
        for each in node.upwards():
            each.stamp = self._stamp
        self._queue(node)

    def _may_go(self, node: Node) -> bool:
        return node.state is State.CACHED and not node.children and not node.locks

    def _queue(self, node: Node) -> None:
        if self._may_go(node):
            heapq.heappush(self._heap, (node.stamp, id(node), node))


def _number(value: int) -> int:
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{value} is a bool")
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no integer") from None
