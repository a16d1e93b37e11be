"""The radix cache without a tree: numbered blocks in one ordered dict.

A block gets a number that is never used again, and one dict finds it by its parent's number and its
tokens. The ordered dict has every block in the order of its last use, and of a path that is used
the end goes in before the beginning, so the first block without a lock is always a leaf (a walk
past the locked ones: short code, not fast code). A handle is the number; the root's is 0.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from tinyllm.errors import InvalidArgumentError

Key = tuple[int, tuple[Hashable, ...]]


class Match(NamedTuple):
    blocks: list[int]
    node: int


@dataclass
class Entry:
    key: Key
    id: int
    locks: int = 0

    @property
    def parent(self) -> int:
        return self.key[0]


class RadixCache:
    def __init__(self, block_tokens: int) -> None:
        if (size := _integer(block_tokens)) < 1:
            raise InvalidArgumentError(f"blocks of {size} tokens")
        self._size = size
        self._numbers: dict[Key, int] = {}
        self._entries: OrderedDict[int, Entry] = OrderedDict()  # the least recently used first
        self._last = 0
        self._locked = 0
        self._misses = 0  # locks on the root

    def match(self, tokens: Sequence[Hashable]) -> Match:
        path = self._path(tokens)
        return Match([self._entries[number].id for number in path], path[-1] if path else 0)

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        ids = [_integer(block) for block in blocks]
        if len(ids) != len(tokens) // self._size:
            raise InvalidArgumentError(f"{len(ids)} ids for {len(tokens)} tokens")
        path = self._path(tokens)
        known = len(path)
        keys = [tuple(tokens[at * self._size : (at + 1) * self._size])
                for at in range(known, len(ids))]
        for tokens_of_block, id in zip(keys, ids[known:], strict=True):
            self._last += 1
            key = (path[-1] if path else 0, tokens_of_block)
            self._numbers[key] = self._last
            self._entries[self._last] = Entry(key, id)
            path.append(self._last)
        self._use(path[-1] if path else 0)
        return ids[known:]

    def lock(self, node: int) -> None:
        self._known(node)
        self._misses += node == 0
        for entry in self._upwards(node):
            self._locked += entry.locks == 0
            entry.locks += 1
        self._use(node)

    def unlock(self, node: int) -> None:
        self._known(node)
        if not (self._entries[node].locks if node else self._misses):
            raise InvalidArgumentError(f"node {node} is not locked")
        self._misses -= node == 0
        for entry in self._upwards(node):
            entry.locks -= 1
            self._locked -= entry.locks == 0

    def evict(self, n_blocks: int) -> list[int]:
        if (left := _integer(n_blocks)) < 0:
            raise InvalidArgumentError(f"evict({left})")
        oldest: list[int] = []
        for number, entry in self._entries.items():
            if len(oldest) == left:
                break
            if not entry.locks:
                oldest.append(number)
        dropped = []
        for number in oldest:
            entry = self._entries.pop(number)
            del self._numbers[entry.key]
            dropped.append(entry.id)
        return dropped

    @property
    def evictable_blocks(self) -> int:
        return len(self._entries) - self._locked

    @property
    def locked_blocks(self) -> int:
        return self._locked

    def __len__(self) -> int:
        return len(self._entries)

    def _path(self, tokens: Sequence[Hashable]) -> list[int]:
        """Return the numbers of the blocks of ``tokens`` that are cached, first to last."""
        path: list[int] = []
        for start in range(0, len(tokens) - self._size + 1, self._size):
            key = (path[-1] if path else 0, tuple(tokens[start : start + self._size]))
            if (number := self._numbers.get(key)) is None:
                break
            path.append(number)
        return path

    def _upwards(self, number: int) -> list[Entry]:
        entries = []
        while number:
            entries.append(self._entries[number])
            number = entries[-1].parent
        return entries

    def _use(self, number: int) -> None:
        while number:
            self._entries.move_to_end(number)
            number = self._entries[number].parent

    def _known(self, node: int) -> None:
        if node != 0 and node not in self._entries:
            raise InvalidArgumentError(f"{node!r} is no node")


def _integer(value: int) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{value!r} is no integer")
