"""A manager as the contract tells it: what the random tests compare with.

The model never chooses a block. It is told which ones the manager took and which it kept, judges
whether that was legal, and keeps the books that follow. It knows nothing of trees, and of
hashes only which texts have the same: a cached block is known by its text, the tokens up to its
end.

Where the contract leaves the age of a block open, the model keeps the least and the greatest it may
be, and lets an eviction pass that some age between them explains. A block behind one that was
evicted may be found again when that one is computed again, or not: it is in doubt.

``strangers`` are blocks that the manager does not own, by the hash that they are registered under.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from grader.assertions import Wrong, demand, same
from grader.assertions.wording import say
from tests.block_manager.runner import Id, Tenant
from tests.block_manager.samples import HASH, NONE, RADIX
from tinyllm.block_hash import hash_chain

Text = tuple[str, Tenant, tuple[int, ...]]
Age = tuple[float, float]
_ENDLESS = float("inf")


@dataclass
class Live:
    """A request that holds blocks. ``slots`` are booked positions. ``replaced`` are cached blocks
    in whose place its table has a copy: radix mode may keep them locked for it."""

    prompt: list[int]
    tenant: Tenant
    table: list[int]
    slots: int
    replaced: set[int] = field(default_factory=set)


@dataclass
class Cached:
    """A block that can be found. Its age is between ``least`` and ``most``, greater is younger.

    ``ordered`` says that the block before it, if it is cached, was not used less recently.
    """

    block: int
    least: Age
    most: Age
    doubt: bool = False
    ordered: bool = True


@dataclass
class ManagerModel:
    """The books of one manager in one mode."""

    mode: str
    n_blocks: int
    size: int
    live: dict[Id, Live] = field(default_factory=dict)
    cached: dict[Text, Cached] = field(default_factory=dict)
    strangers: dict[int, int] = field(default_factory=dict)  # hash -> block
    lookups: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0
    now: int = 0

    # What anyone can see.

    def refs(self, block: int) -> int:
        """Return the block's reference count: one for each table, a stranger's, radix mode's."""
        holders = [*(live.table for live in self.live.values()), self.strangers.values()]
        tables = sum(block in holder for holder in holders)
        return tables + (self.mode == RADIX and block in self.kept())

    def counts(self) -> list[int]:
        """Return the pool's free, used and cached blocks."""
        held, kept = self.held(), self.kept()
        free = self.n_blocks - len(held | kept)
        cached = len(kept - held) if self.mode == HASH else 0
        return [free, self.n_blocks - free - cached, cached]

    def stats(self) -> list[int]:
        return [self.lookups, self.query_tokens, self.hit_tokens, self.evictions]

    def hit_rate(self) -> float:
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0

    def held(self) -> set[int]:
        """Return the blocks that a live request or a stranger holds."""
        held = {block for live in self.live.values() for block in live.table}
        return held | set(self.strangers.values())

    def kept(self) -> set[int]:
        return {cached.block for cached in self.cached.values()}

    def pinned(self, held: set[int]) -> set[int]:
        """Return the cached blocks that no request holds and that radix mode cannot evict, or may
        not: a block below them is held, or they or a block below them were replaced by a copy in
        the table of a live request."""
        replaced = {block for live in self.live.values() for block in live.replaced}
        below = [text for text, cached in self.cached.items() if cached.block in held | replaced]
        return {cached.block for text, cached in self.cached.items()
                if self.mode == RADIX and cached.block not in held
                and any(_follows(other, text) for other in below)}

    def has_room(self, n: int, hits: Sequence[Cached] = ()) -> bool | None:
        """Say whether ``n`` blocks can be had beside those of live requests and ``hits``; None
        where that hangs on pinned ones."""
        held = self.held() | {hit.block for hit in hits}
        room = self.n_blocks - len(held)
        return n <= room if (n <= room) == (n <= room - len(self.pinned(held))) else None

    def blocks_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self.size)

    def is_shared(self, id: Id, place: int) -> bool:
        """Say whether others than the request rely on a block of its table."""
        block = self.live[id].table[place]
        return block in self.kept() or self.refs(block) > 1

    # What a call must answer.

    def hits(self, tokens: Sequence[int], tenant: Tenant, most: int) -> list[Cached]:
        """Return the cached blocks that a prompt begins with, at most ``most`` of them."""
        found = []
        for text in self._texts(tokens, tenant, most):
            if text not in self.cached:
                break
            found.append(self.cached[text])
        return found

    def fits(self, hits: list[Cached], n_tokens: int) -> bool | None:
        """Say whether a prompt with these hits gets its blocks; None where the doubt about some
        of them decides it."""
        answers = {self.has_room(self.blocks_for(n_tokens) - n, hits[:n])
                   for n in range(_certain(hits), len(hits) + 1)}
        return answers.pop() if len(answers) == 1 else None

    def judge_hits(self, got: Sequence[int], hits: list[Cached], what: str) -> None:
        """Judge which blocks were found: all that are certain, perhaps those in doubt."""
        want = [hit.block for hit in hits]
        if not _certain(hits) <= len(got) <= len(want):
            raise Wrong(what, say(want), say(list(got)))
        same(list(got), want[: len(got)], what)

    # What was done.

    def admitted(self, id: Id, prompt: Sequence[int], tenant: Tenant, table: Sequence[int],
                 cached_tokens: int, readmission: bool) -> None:
        """Account for an allocation."""
        hits = self.hits(prompt, tenant, (len(prompt) - 1) // self.size)
        n = cached_tokens // self.size
        same(cached_tokens % self.size, 0, "cached_tokens past the last whole block")
        self.judge_hits(table[:n], hits, f"the blocks that {id} finds in the cache")
        same(len(table), self.blocks_for(len(prompt)), f"the number of blocks of {id}")
        self._missed(prompt[: (n + 1) * self.size], tenant)
        self.live[id] = Live(list(prompt), tenant, list(table[:n]), len(prompt))
        self.took(id, table[n:])
        if not readmission:
            self.lookups += 1
            self.query_tokens += len(prompt)
            self.hit_tokens += cached_tokens

    def refused(self, prompt: Sequence[int], tenant: Tenant) -> None:
        """Account for an allocation that was refused: it may count as a use of its hits."""
        self.looked(prompt[:-1], tenant)

    def looked(self, tokens: Sequence[int], tenant: Tenant) -> None:
        """Account for blocks that were found, and not taken: that may count as a use."""
        hits = self.hits(tokens, tenant, len(tokens))
        self.used_perhaps(hits)
        for n in range(_certain(hits), len(hits) + 1):
            self._missed(tokens[: (n + 1) * self.size], tenant)

    def took(self, id: Id, blocks: Sequence[int], place: int | None = None) -> None:
        """Account for new blocks at the end of a table, or for a copy at a place of it.

        Free blocks go first; then blocks that are cached and held by nobody leave the cache, no
        more than must.
        """
        what = f"the new blocks of {id}"
        held = self.held()
        legal = len(set(blocks)) == len(blocks) and all(0 <= b < self.n_blocks for b in blocks)
        demand(legal and not held & set(blocks), what, "blocks that no request holds",
               say(list(blocks)))
        free = self.n_blocks - len(held | self.kept())
        gone = [b for b in blocks if b in self.kept()]
        same(len(gone), max(0, len(blocks) - free), f"how many of {what} left the cache for it")
        self.left(set(gone), f"the blocks evicted for {id}")
        live = self.live[id]
        if place is None:
            live.table += blocks
        else:
            for text, cached in self.cached.items():
                if cached.block == live.table[place]:  # its reference is given back
                    live.replaced.add(cached.block)
                    self._order(text, live.table)
                    self.used_perhaps([cached])
            live.table[place] = blocks[0]

    def left(self, gone: set[int], what: str) -> None:
        """Account for blocks that left the cache: the least recently used of those that nobody
        holds."""
        held = self.held()
        idle = {t: c for t, c in self.cached.items() if c.block not in held}
        stay = [c for c in idle.values() if c.block not in gone | self.pinned(held)]
        for cached in idle.values():
            older = [c for c in stay if cached.block in gone and c.most < cached.least]
            if older:
                raise Wrong(what, f"block {older[0].block} first: it was used longer ago",
                            say(sorted(gone)))
        lost = [text for text, cached in idle.items() if cached.block in gone]
        for text, cached in idle.items():
            if cached in stay and cached.ordered and self._before(text) in lost:
                raise Wrong(what, f"block {cached.block} first: it is the next one of a sequence "
                            "whose beginning was not used less recently", say(sorted(gone)))
        for text in lost:
            del self.cached[text]
        for text, cached in self.cached.items():
            cached.doubt |= any(_follows(text, above) for above in lost)
        self.evictions += len(gone)

    def forked(self, parent: Id, child: Id) -> None:
        live = self.live[parent]
        self.live[child] = Live(live.prompt, live.tenant, list(live.table), live.slots,
                                set(live.replaced))

    def released(self, id: Id, computed: Sequence[int], kept: Sequence[int]) -> None:
        """Account for the end of a request. ``kept`` are the blocks of its table that are in the
        cache now."""
        live = self.live.pop(id)
        self.now += 1
        whole = 0 if self.mode == NONE else len(computed) // self.size
        doubt, mine = False, set()
        for place, text in enumerate(self._texts(computed, live.tenant, whole)):
            block, known, age = live.table[place], self.cached.get(text), (self.now, -place)
            if known is None and self._registered_as(text):
                self._missed(text[2], live.tenant)
                break  # this block stays private, and so do all behind it
            doubt |= bool(known and known.doubt)
            if known is not None and known.block != block:
                known.most = (self.now, _ENDLESS)  # giving back a duplicate may count as a use
            elif known is not None or block in kept or not doubt:
                demand(block in kept, f"block {block}, place {place} of {id}'s table, whole and "
                       "computed", "in the cache", "not in the cache")
                self.cached[text] = Cached(block, age, age, doubt)
                mine.add(block)
        for text, cached in self.cached.items():
            if cached.block in live.table:
                self._order(text, live.table)
        rest = set(live.table) - mine
        self.used_perhaps([cached for cached in self.cached.values() if cached.block in rest])
        for block in kept:
            demand(block in self.kept(), f"block {block} of {id}'s table", "not in the cache: not "
                   "whole, not computed, or another block holds the same", "in the cache")

    def used_perhaps(self, hits: Sequence[Cached]) -> None:
        """Account for what may count as a use, or not."""
        self.now += 1
        for hit in hits:
            hit.most = (self.now, _ENDLESS)

    def _registered_as(self, text: Text) -> list[Cached | None]:
        """Return what is registered under the text's hash: a cached block, or a stranger's."""
        if self.mode != HASH or (hash := _hash(text, self.size)) is None:
            return []
        strangers = [None] if hash in self.strangers else []
        return [*strangers, *(c for t, c in self.cached.items() if _hash(t, self.size) == hash)]

    def _missed(self, tokens: Sequence[int], tenant: Tenant) -> None:
        """Account for the last block of ``tokens`` when it was looked for and not found: that may
        count as a use of a block which has its hash, or is it and in doubt."""
        if len(tokens) < self.size or len(tokens) % self.size:
            return
        text: Text = (type(tenant).__name__, tenant, tuple(tokens))
        for cached in {id(c): c for c in (*self._registered_as(text), self.cached.get(text))
                       if c is not None}.values():
            self.used_perhaps([cached])
            cached.ordered = False

    def _order(self, text: Text, table: Sequence[int]) -> None:
        """Note whether the block before a cached one is given back with it, or later."""
        before = self.cached.get(self._before(text))
        self.cached[text].ordered = before is None or before.block in table

    def _before(self, text: Text) -> Text:
        """Return the text that ends a block earlier."""
        return (*text[:2], text[2][: -self.size])

    def _texts(self, tokens: Sequence[int], tenant: Tenant, most: int) -> Iterator[Text]:
        for end in range(self.size, min(most * self.size, len(tokens)) + 1, self.size):
            yield (type(tenant).__name__, tenant, tuple(tokens[:end]))


@cache
def _hash(text: Text, size: int) -> int | None:
    """Return the hash of a text's last block; a tenant's is a secret of the manager."""
    return None if text[1] is not None else hash_chain(list(text[2]), size)[-1]


def _certain(hits: list[Cached]) -> int:
    """Return how many hits come before the first one in doubt."""
    return next((n for n, hit in enumerate(hits) if hit.doubt), len(hits))


def _follows(text: Text, above: Text) -> bool:
    return text[:2] == above[:2] and text[2][: len(above[2])] == above[2]
