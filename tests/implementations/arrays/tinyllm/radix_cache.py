"""The radix cache as a structure of arrays.

Every block has a slot, and each fact about it is an entry of some numpy array; slot 0 is the root.
One dict finds a child by its parent's slot and its tokens. Eviction looks at all slots at once for
the smallest age among the leaves without a lock. A handle is a slot and its generation, so that a
handle of an evicted block is known as such. Ids come out as numpy integers.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np

from tinyllm.errors import InvalidArgumentError

_NEVER = np.iinfo(np.int64).max


class Match(NamedTuple):
    blocks: list[Any]
    node: tuple[int, int]


class RadixCache:
    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = _natural(block_tokens, 1, "block_tokens")
        self._index: dict[tuple[int, tuple[Hashable, ...]], int] = {}
        self._keys: list[tuple[int, tuple[Hashable, ...]]] = []
        self._free: list[int] = []
        self._pins: Counter[int] = Counter()  # locks by the slot of their handle
        self._generation: list[int] = []
        self._tick = 0
        self._parent = self._ids = self._age = self._locks = self._children = _zeros(0)
        self._grow()
        self._free.remove(0)

    def match(self, tokens: Sequence[Hashable]) -> Match:
        slots = self._walk(self._cut(tokens))
        last = slots[-1]
        return Match([self._ids[slot] for slot in slots[1:]], (last, self._generation[last]))

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[Any]:
        keys = self._cut(tokens)
        ids = np.array([_natural(block, None, "a block id") for block in blocks], dtype=np.int64)
        if len(ids) != len(keys):
            raise InvalidArgumentError(f"{len(keys)} blocks of tokens and {len(ids)} ids")
        slots = self._walk(keys)
        known = len(slots) - 1
        for key, block in zip(keys[known:], ids[known:], strict=True):
            slots.append(self._add(slots[-1], key, int(block)))
        self._use(slots[-1])
        return list(ids[known:])

    def lock(self, node: Any) -> None:
        end = self._slot(node)
        self._pins[end] += 1
        for slot in self._path(end):
            self._locks[slot] += 1
        self._use(end)

    def unlock(self, node: Any) -> None:
        end = self._slot(node)
        if self._pins[end] == 0:
            raise InvalidArgumentError("this handle is not locked")
        self._pins[end] -= 1
        for slot in self._path(end):
            self._locks[slot] -= 1

    def evict(self, n_blocks: int) -> list[Any]:
        dropped = []
        for _ in range(min(_natural(n_blocks, 0, "a count"), self.evictable_blocks)):
            may_go = (self._age > 0) & (self._locks == 0) & (self._children == 0)
            may_go[0] = False
            slot = int(np.argmin(np.where(may_go, self._age, _NEVER)))
            del self._index[self._keys[slot]]
            self._children[self._parent[slot]] -= 1
            self._age[slot] = 0
            self._generation[slot] += 1
            self._free.append(slot)
            dropped.append(self._ids[slot])
        return dropped

    @property
    def evictable_blocks(self) -> int:
        return len(self._index) - self.locked_blocks

    @property
    def locked_blocks(self) -> int:
        return int(np.count_nonzero(self._locks[1:]))

    def __len__(self) -> int:
        return len(self._index)

    def _cut(self, tokens: Sequence[Hashable]) -> list[tuple[Hashable, ...]]:
        size = self._block_tokens
        return [tuple(tokens[at * size : at * size + size]) for at in range(len(tokens) // size)]

    def _walk(self, keys: list[tuple[Hashable, ...]]) -> list[int]:
        """Return the slots of the cached part of a prompt, the root's first."""
        slots = [0]
        for key in keys:
            slot = self._index.get((slots[-1], key))
            if slot is None:
                break
            slots.append(slot)
        return slots

    def _path(self, slot: int) -> Iterator[int]:
        while slot:
            yield slot
            slot = int(self._parent[slot])

    def _use(self, end: int) -> None:
        self._tick += 1
        for slot in self._path(end):
            self._age[slot] = self._tick

    def _add(self, parent: int, key: tuple[Hashable, ...], block: int) -> int:
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._keys[slot] = (parent, key)
        self._index[parent, key] = slot
        self._parent[slot], self._ids[slot] = parent, block
        self._children[parent] += 1
        return slot

    def _grow(self) -> None:
        """Double the room."""
        old = len(self._ids)
        more = max(old, 16)
        self._parent, self._ids, self._age, self._locks, self._children = (
            np.concatenate([column, _zeros(more)]) for column in
            (self._parent, self._ids, self._age, self._locks, self._children))
        self._keys += [(0, ())] * more
        self._generation += [0] * more
        self._free += range(old + more - 1, old - 1, -1)

    def _slot(self, node: Any) -> int:
        match node:
            case (int(slot), int(generation)) if 0 <= slot < len(self._generation):
                if self._generation[slot] == generation:
                    return slot
        raise InvalidArgumentError("this is the handle of no cached block")


def _zeros(n: int) -> np.ndarray:
    return np.zeros(n, dtype=np.int64)


def _natural(value: int, low: int | None, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgumentError(f"{what} is an integer, not {value!r}")
    number = index(value)
    if low is not None and number < low:
        raise InvalidArgumentError(f"{what} is at least {low}, not {number}")
    return number
