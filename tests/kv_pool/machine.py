"""Random calls on a pool, each judged against the model (`random_ops_keep_the_invariants`).

`BlocksMachine` knows the first pass, `PoolMachine` adds names. Another suite extends them: a
subclass adds its rules, calls ``self.pool``, and tells ``self.model`` what came of it; everything
that anyone can see of the pool is compared after every step.
"""

import builtins
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grader.assertions import new_example, refuses, same
from tests.kv_pool.model import Block, Errors, PoolModel
from tests.kv_pool.samples import judge, new_pool, slab, take, views, write_bits
from tinyllm.kv_pool import KvPool

N_BLOCKS, BLOCK_TOKENS = 5, 2
IDS = st.integers(0, N_BLOCKS - 1)
ANY_ID = st.sampled_from([*range(N_BLOCKS), *range(N_BLOCKS), N_BLOCKS, -1])
COUNTS = st.sampled_from([1, 2, 0, N_BLOCKS, -1])
FILLS = st.sampled_from([BLOCK_TOKENS, 1, 0, BLOCK_TOKENS + 1, -1])
HASHES = st.sampled_from([1, 2, 1 + 2**32, 2**61, 2**64 - 1])
"""Hashes of which two are equal in their lower 32 bits, and two to Python's own ``hash()``."""
ANY_HASH = st.one_of(HASHES, st.just(0))
PROMPTS = st.lists(HASHES, min_size=1, max_size=3, unique=True)


class BlocksMachine(RuleBasedStateMachine):
    """Allocation, references, copy on write and fills, legal calls and refused ones alike."""

    with_names: ClassVar[bool] = False
    sizes: ClassVar[tuple[int, int, int]] = (1, 1, 2)  # n_layers, n_kv_heads, head_dim

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.pool = new_pool(N_BLOCKS, BLOCK_TOKENS, *self.sizes)
        self.model = PoolModel(N_BLOCKS, BLOCK_TOKENS)
        self.neighbour: KvPool | None = None
        self.written = 0
        self.kept: dict[tuple[int, int], list[Any]] = {}
        self.lists: list[tuple[Any, list[Any]]] = []  # what alloc returned, and a copy of it

    def teardown(self) -> None:
        """At the end of an example that went well, see that the rest of the pool is right."""
        if sys.exc_info()[0] is None:
            self.finish()

    def finish(self) -> None:
        for got, ids in self.lists:
            same(list(got), ids, "a list of ids that alloc returned earlier")
        for id in sorted(self.model.blocks):
            self.unref(id, self.model.refs(id))
        self.alloc(self.model.free, BLOCK_TOKENS)

    @invariant()
    def the_pool_is_as_the_model_says(self) -> None:
        judge(self.pool, self.model.picture(names=self.with_names), "after these calls")

    @initialize(n=st.integers(1, 2), fill=st.integers(1, BLOCK_TOKENS))
    def begin(self, n: int, fill: int) -> None:
        """Begin with some blocks held, so that every rule has something to do at once."""
        self.alloc(n, fill)

    @rule(n=COUNTS, fill=st.integers(0, BLOCK_TOKENS))
    def alloc(self, n: int, fill: int) -> None:
        call = f"alloc({n})"
        if self.refused(self.model.alloc_errors(n), call, lambda: self.pool.alloc(n)):
            return
        new = [Block() for _ in range(n)]
        got = self.pool.alloc(n)
        ids = self.model.took(got, new, f"the ids that {call} returns")
        self.lists.append((got, list(got)))
        for id in ids:
            same(self.pool.fill(id), 0, f"the fill of block {id}, just allocated")
            self.write(id)
            self.set_fill(id, fill)

    @rule(more=st.integers(1, 2))
    def alloc_too_many(self, more: int) -> None:
        self.alloc(self.model.room + more, 0)

    @rule()
    def use_another_pool(self) -> None:
        """Take and fill every block of a second pool of the same shape."""
        if self.neighbour is None:
            self.neighbour = new_pool(N_BLOCKS, BLOCK_TOKENS, *self.sizes)
            take(self.neighbour, N_BLOCKS)
        for id in range(N_BLOCKS):
            slab(self.neighbour, id, 0, False)[...] = 9

    @rule(id=ANY_ID)
    def query(self, id: int) -> None:
        """Ask about a block, which may be free; an id out of range is refused."""
        calls: dict[str, Callable[[], Any]] = {
            f"fill({id})": lambda: self.pool.fill(id),
            f"ref_count({id})": lambda: self.pool.ref_count(id),
            f"block({id}, 0, True)": lambda: self.pool.block(id, 0, True),
        }
        if self.with_names:
            calls[f"hash_of({id})"] = lambda: self.pool.hash_of(id)
        for what, call in calls.items():
            if not self.refused(self.model.id_errors(id), what, call):
                call()

    @rule(id=ANY_ID)
    def ref(self, id: int) -> None:
        if not self.refused(self.model.held_errors(id), f"ref({id})", lambda: self.pool.ref(id)):
            self.pool.ref(id)
            self.model.shared(id)

    @rule(id=ANY_ID, times=st.sampled_from([1, 4]))
    def unref(self, id: int, times: int = 1) -> None:
        """Give back one reference; or all of them, which are seldom more than four."""
        call = f"unref({id})"
        if self.refused(self.model.held_errors(id), call, lambda: self.pool.unref(id)):
            return
        for _ in range(min(times, self.model.refs(id))):
            self.pool.unref(id)
            self.model.gave_back(id)

    @rule(id=ANY_ID, fork=st.booleans(), then_write=st.booleans())
    def cow(self, id: int, fork: bool, then_write: bool) -> None:
        """Ask for a block to write into, perhaps for a fork that came just before."""
        if fork and self.model.refs(id):
            self.ref(id)
        if self.refused(self.model.cow_errors(id), f"cow({id})", lambda: self.pool.cow(id)):
            return
        what = f"the block that cow({id}) returns"
        if self.model.copies(id):
            writable = self.model.copied(id, self.pool.cow(id), what)
        else:
            same(self.pool.cow(id), id, what)
            writable = id
        if then_write:
            self.write(writable)

    @rule(id=ANY_ID, n=FILLS)
    def set_fill(self, id: int, n: int) -> None:
        errors, call = self.model.set_fill_errors(id, n), f"set_fill({id}, {n})"
        if not self.refused(errors, call, lambda: self.pool.set_fill(id, n)):
            self.pool.set_fill(id, n)
            self.model.blocks[id].fill = n

    def refused(self, errors: Errors, what: str, call: Callable[[], Any]) -> bool:
        """Judge that ``call`` is refused with one of ``errors``, and say whether there are any."""
        if errors:
            refuses(errors, what, call)
        return bool(errors)

    def write(self, id: int) -> None:
        """Put values that no other block holds into a block that nobody else relies on, through the
        first views of it that were ever taken."""
        key = (builtins.id(self.pool), id)
        through = self.kept.setdefault(key, views(self.pool, id))
        self.model.blocks[id].contents = write_bits(self.pool, id, self.written, through)
        self.written += sum(view.size for view in through)


class PoolMachine(BlocksMachine):
    """The whole pool: blocks with names, found again or evicted."""

    with_names = True

    @rule(id=ANY_ID, hash=ANY_HASH, full=st.booleans())
    def register(self, id: int, hash: int, full: bool = False) -> None:
        """Name a block as it is, or one that was filled just before."""
        if full and not self.model.set_fill_errors(id, BLOCK_TOKENS):
            self.set_fill(id, BLOCK_TOKENS)
        errors, call = self.model.register_errors(id, hash), f"register({id}, {hash})"
        if not self.refused(errors, call, lambda: self.pool.register(id, hash)):
            self.pool.register(id, hash)
            self.model.blocks[id].name = hash

    @precondition(lambda self: self.model.used)
    @rule(pick=st.integers(0, N_BLOCKS - 1), hash=HASHES, fill=FILLS)
    def fill_and_register(self, pick: int, hash: int, fill: int) -> None:
        """Register a block in use with this fill, under a hash that another may have."""
        id = self.model.used[pick % len(self.model.used)]
        self.set_fill(id, fill)
        self.register(id, hash)

    @precondition(lambda self: self.model.registered)
    @rule(pick=st.integers(0, N_BLOCKS - 1), share=st.booleans())
    def use_a_registered_block(self, pick: int, share: bool) -> None:
        """Share a registered block for a moment, or ask for a block to write into in its place."""
        id = self.model.registered[pick % len(self.model.registered)]
        if share:
            self.ref(id)
            self.unref(id)
        else:
            self.cow(id, fork=False, then_write=True)

    @rule(hash=ANY_HASH)
    def lookup(self, hash: int) -> None:
        same(self.pool.lookup(hash), self.model.found(hash), f"the block that lookup({hash}) finds")

    @precondition(lambda self: self.model.cached)
    @rule(picks=st.lists(st.integers(0, 2), min_size=1, max_size=3), end=st.booleans())
    def revive(self, picks: list[int], end: bool) -> None:
        """Look up blocks that are cached, which chance alone seldom asks for; perhaps give them
        back, now the newest."""
        for pick in picks[: len(self.model.cached)]:
            id = self.model.cached[pick % len(self.model.cached)]
            self.lookup(self.model.blocks[id].name)
            if end:
                self.unref(id)

    @rule(hashes=PROMPTS, end=st.booleans())
    def serve(self, hashes: list[int], end: bool) -> None:
        """Go through a prompt: find each of its blocks, or take a new one and name it. At its end
        the blocks are given back last to first."""
        held = []
        for hash in hashes:
            self.lookup(hash)
            if self.model.holder_of(hash) is None and self.model.room:
                got = self.pool.alloc(1)
                (id,) = self.model.took(got, [Block()], "the ids that alloc(1) returns")
                self.write(id)
                self.set_fill(id, BLOCK_TOKENS)
                self.register(id, hash)
            if (holder := self.model.holder_of(hash)) is not None:
                held.append(holder)
        for id in reversed(held if end else []):
            self.unref(id)

    @initialize(hashes=PROMPTS)
    def begin_with_a_cache(self, hashes: list[int]) -> None:
        self.serve(hashes, end=True)

    @precondition(lambda self: self.model.cached)
    @rule(n=st.integers(1, N_BLOCKS))
    def evict(self, n: int) -> None:
        """Take blocks one at a time, and give them back: of the cached ones the oldest must come
        first."""
        for id in self.take_one_by_one(n):
            self.unref(id)

    def take_one_by_one(self, n: int) -> list[int]:
        taken = []
        for _ in range(min(n, self.model.room)):
            got = self.pool.alloc(1)
            taken += self.model.took(got, [Block()], "the ids that alloc(1) returns")
        return taken

    def finish(self) -> None:
        """Register what is in use, as far as it is full; evict what is cached, one block at a time;
        then the rest."""
        self.alloc_too_many(1)
        for id in self.model.used:
            self.register(id, 2**40 + id)
        self.take_one_by_one(self.model.room)
        self.the_pool_is_as_the_model_says()
        super().finish()
