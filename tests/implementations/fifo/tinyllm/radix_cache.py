"""The radix cache without a tree: numbered blocks in one ordered dict.

A block gets a number that is never used again, and one dict finds it by its parent's number and its
tokens. The ordered dict has every block in the order of its last use, and of a path that is used
the end goes in before the beginning, so the first block without a lock is always a leaf (a walk
past the locked ones: short code, not fast code). A handle is the tokens that matched, block by
block: it is good whenever they are cached, also when they were dropped and stored again.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from tinyllm.errors import InvalidArgumentError

Key = tuple[int, tuple[Hashable, ...]]
Handle = tuple[tuple[Hashable, ...], ...]


class Match(NamedTuple):
    blocks: list[int]
    node: Handle


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
        found = [self._entries[number] for number in self._path(self._cut(tokens))]
        return Match([entry.id for entry in found], tuple(entry.key[1] for entry in found))

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        ids = [_integer(block) for block in blocks]
        run = self._cut(tokens)
        if len(ids) != len(run):
            raise InvalidArgumentError(f"{len(ids)} ids for {len(tokens)} tokens")
        path = self._path(run)
        known = len(path)
        for tokens_of_block, id in zip(run[known:], ids[known:], strict=True):
            self._last += 1
            key = (path[-1] if path else 0, tokens_of_block)
            self._numbers[key] = self._last
            self._entries[self._last] = Entry(key, id)
            path.append(self._last)
        self._use(path[-1] if path else 0)
        return ids[known:]

    def lock(self, node: Handle) -> None:
        path = self._whole(node)
        self._misses += not path
        for number in path:
            entry = self._entries[number]
            self._locked += entry.locks == 0
            entry.locks += 1
        self._use(path[-1] if path else 0)

    def unlock(self, node: Handle) -> None:
        path = self._whole(node)
        if not (self._entries[path[-1]].locks if path else self._misses):
            raise InvalidArgumentError(f"{node!r} is not locked")
        self._misses -= not path
        for number in path:
            entry = self._entries[number]
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

    def _cut(self, tokens: Sequence[Hashable]) -> Handle:
        """Return the tokens of the full blocks, block by block."""
        ends = range(self._size, len(tokens) + 1, self._size)
        return tuple(tuple(tokens[end - self._size : end]) for end in ends)

    def _path(self, run: Handle) -> list[int]:
        """Return the numbers of the blocks of ``run`` that are cached, first to last."""
        path: list[int] = []
        for tokens in run:
            number = self._numbers.get((path[-1] if path else 0, tokens))
            if number is None:
                break
            path.append(number)
        return path

    def _whole(self, node: Handle) -> list[int]:
        """Return the numbers of all blocks of a handle."""
        path = self._path(node)
        if len(path) < len(node):
            raise InvalidArgumentError("some blocks of this handle are not cached any more")
        return path

    def _use(self, number: int) -> None:
        while number:
            self._entries.move_to_end(number)
            number = self._entries[number].parent


def _integer(value: int) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{value!r} is no integer")
