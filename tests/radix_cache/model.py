"""The cache as the contract tells it, in the plainest terms: what the random tests compare with.

There is no tree in it. Every cached block stands in one dict under the whole run of tokens that it
ends; everything else is asked of that dict, however long it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Prefix = tuple[Any, ...]
"""A run of whole blocks from the beginning of a prompt; the root's is empty."""


@dataclass
class Cached:
    """A block of the cache, and the tick of the last call that used it."""

    id: int
    age: int


class CacheModel:
    """The books of one cache with blocks of ``block_tokens`` tokens."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.blocks: dict[Prefix, Cached] = {}
        self.locks: list[Prefix] = []  # one entry a lock that is not taken back yet
        self.ticks = 0

    def steps(self, tokens: Sequence[Any]) -> list[Prefix]:
        """Return the prefixes of ``tokens`` that are whole blocks, the shortest first."""
        size = self.block_tokens
        return [tuple(tokens[:end]) for end in range(size, len(tokens) + 1, size)]

    def found(self, tokens: Sequence[Any]) -> tuple[list[int], Prefix]:
        """Return what a match must find: the ids, and the run of tokens that they hold."""
        ids: list[int] = []
        run: Prefix = ()
        for prefix in self.steps(tokens):
            if prefix not in self.blocks:
                break
            ids.append(self.blocks[prefix].id)
            run = prefix
        return ids, run

    def locked(self, prefix: Prefix) -> bool:
        """Say whether a block is on the path of a lock."""
        return self.locks_over(prefix) > 0

    def locks_over(self, prefix: Prefix) -> int:
        """Return how many locks hold a block: its own, and those further down."""
        return sum(lock[: len(prefix)] == prefix for lock in self.locks)

    @property
    def counts(self) -> list[int]:
        """Evictable blocks, locked blocks, and both together."""
        locked = sum(self.locked(prefix) for prefix in self.blocks)
        return [len(self.blocks) - locked, locked, len(self.blocks)]

    # What was done.

    def insert(self, tokens: Sequence[Any], ids: Sequence[int]) -> list[int]:
        """Account for an insert and return the ids newly stored."""
        new = []
        for prefix, id in zip(self.steps(tokens), ids, strict=True):
            if prefix not in self.blocks:
                self.blocks[prefix] = Cached(id, 0)
                new.append(id)
        self._use(tokens)
        return new

    def lock(self, run: Prefix) -> None:
        self.locks.append(run)
        self._use(run)

    def unlock(self, run: Prefix) -> None:
        self.locks.remove(run)

    def evict(self, n: int) -> list[int]:
        """Account for an eviction and return the ids that it must drop, in their order."""
        dropped: list[int] = []
        while len(dropped) < n and (leaves := self.leaves()):
            oldest = min(leaves, key=lambda prefix: self.blocks[prefix].age)
            dropped.append(self.blocks.pop(oldest).id)
        return dropped

    def leaves(self) -> list[Prefix]:
        """Return the blocks that may go: no lock holds them, and none is cached after them."""
        inner = {prefix[: -self.block_tokens] for prefix in self.blocks}
        return [p for p in self.blocks if p not in inner and not self.locked(p)]

    def _use(self, tokens: Sequence[Any]) -> None:
        """Make a path the newest."""
        self.ticks += 1
        for prefix in self.steps(tokens):
            self.blocks[prefix].age = self.ticks
