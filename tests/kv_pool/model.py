"""The pool as the contract tells it, in the plainest terms: what the random tests compare with.

The model never chooses a block. It is told which ones the pool handed out, judges whether they
were legal, and keeps the books that follow.
"""

from dataclasses import dataclass
from typing import Any

from grader.assertions import Wrong
from grader.assertions.wording import say
from tests.kv_pool.samples import Facts, Picture, checked_ids
from tinyllm.errors import HashBusyError, InvalidArgumentError, KvError, PoolFullError

Errors = tuple[type[KvError], ...]
"""The errors a call may be refused with; none when it must succeed."""


@dataclass
class Block:
    """A block that is held, or cached when ``refs`` is 0. ``contents`` None: not known."""

    refs: int = 1
    fill: int = 0
    name: int = 0
    contents: bytes | None = None


class PoolModel:
    """The books of one pool of ``n_blocks`` blocks with ``block_tokens`` positions each."""

    def __init__(self, n_blocks: int, block_tokens: int) -> None:
        self.n_blocks, self.block_tokens = n_blocks, block_tokens
        self.blocks: dict[int, Block] = {}  # held and cached ones; all others are free
        self.cached: list[int] = []  # the oldest first
        self.evictions = 0

    @property
    def free(self) -> int:
        return self.n_blocks - len(self.blocks)

    @property
    def room(self) -> int:
        """How many blocks an allocation can have: the free and the cached."""
        return self.free + len(self.cached)

    @property
    def used(self) -> list[int]:
        return sorted(id for id, block in self.blocks.items() if block.refs)

    @property
    def registered(self) -> list[int]:
        return [id for id in self.used if self.blocks[id].name]

    def refs(self, id: int) -> int:
        block = self.blocks.get(id)
        return block.refs if block else 0

    def holder_of(self, name: int) -> int | None:
        """Return the block with this name; 0 is nobody's."""
        found = (id for id, block in self.blocks.items() if name and block.name == name)
        return next(found, None)

    def picture(self, *, names: bool) -> Picture:
        """Return what the pool must say of itself."""
        cached = len(self.cached)
        facts = []
        for id in range(self.n_blocks):
            b = self.blocks.get(id) or Block(refs=0)
            facts.append(Facts(b.refs, b.fill, b.name if names else None, b.contents))
        used = len(self.blocks) - cached
        return Picture([self.free, used, cached, self.evictions], facts)

    # What must be refused.

    def alloc_errors(self, n: int) -> Errors:
        if n < 0:
            return (InvalidArgumentError,)
        return (PoolFullError,) if n > self.room else ()

    def id_errors(self, id: int) -> Errors:
        """Refusals of a query: every block in range can be asked about."""
        return () if 0 <= id < self.n_blocks else (InvalidArgumentError,)

    def held_errors(self, id: int) -> Errors:
        """Refusals of ``ref`` and ``unref``: only a held block has references."""
        return () if self.refs(id) else (InvalidArgumentError,)

    def copies(self, id: int) -> bool:
        """Say whether ``cow`` must copy: somebody else relies on the block's contents."""
        return self.blocks[id].refs > 1 or self.blocks[id].name != 0

    def cow_errors(self, id: int) -> Errors:
        if errors := self.held_errors(id):
            return errors
        return self.alloc_errors(1) if self.copies(id) else ()

    def set_fill_errors(self, id: int, n: int) -> Errors:
        legal = not self.held_errors(id) and not self.blocks[id].name
        return () if legal and 0 <= n <= self.block_tokens else (InvalidArgumentError,)

    def register_errors(self, id: int, name: int) -> Errors:
        """A call that is wrong in two ways may be refused for either, and the error for a second
        name is free."""
        block = self.blocks.get(id) or Block(refs=0)
        errors: Errors = ()
        if not block.refs or not name or block.name or block.fill != self.block_tokens:
            errors += (InvalidArgumentError,)
        if block.name or self.holder_of(name) is not None:
            errors += (HashBusyError,)
        return errors

    # What was done.

    def took(self, got: Any, blocks: list[Block], what: str) -> list[int]:
        """Account for new blocks, one for each of ``blocks``, and return their ids.

        ``got`` is what the pool answered. Free blocks go first, then the oldest cached ones, which
        are evicted. A name among ``blocks`` must be nobody else's after that.
        """
        ids = checked_ids(got, len(blocks), self.n_blocks, what)
        evicted = self.cached[: max(0, len(blocks) - self.free)]
        for id in ids:
            if id in self.blocks and id not in evicted:
                state = "cached" if id in self.cached else "held"
                oldest = f", then the oldest cached: {say(evicted)}" if evicted else " only"
                raise Wrong(what, f"free blocks{oldest}", f"block {id}, which was {state}")
        for id in evicted:
            del self.blocks[id]
        del self.cached[: len(evicted)]
        self.evictions += len(evicted)
        for id, block in zip(ids, blocks, strict=True):
            if block.name and (holder := self.holder_of(block.name)) is not None:
                raise Wrong(f"{what}: the hash of block {id}", "a private copy, without a hash",
                            f"{block.name:#018x}, which block {holder} holds")
            self.blocks[id] = block
        return ids

    def shared(self, id: int) -> None:
        """Account for one more reference to a held block."""
        self.blocks[id].refs += 1

    def gave_back(self, id: int) -> None:
        """Account for one reference less: the last one makes a block cached or free."""
        block = self.blocks[id]
        block.refs -= 1
        if block.refs == 0 and block.name:
            self.cached.append(id)
        elif block.refs == 0:
            del self.blocks[id]

    def copied(self, id: int, got: Any, what: str) -> int:
        """Account for a ``cow`` that had to copy block ``id`` and return the copy's id."""
        original = self.blocks[id]
        new = Block(1, original.fill, 0, original.contents)
        (copy,) = self.took([got], [new], what)
        self.gave_back(id)
        return copy

    def found(self, name: int) -> int | None:
        """Account for a lookup and return what it must answer."""
        id = self.holder_of(name)
        if id is not None:
            self.blocks[id].refs += 1
            if id in self.cached:
                self.cached.remove(id)
        return id
