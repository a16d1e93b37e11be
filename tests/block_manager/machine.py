"""Random requests on a manager, each judged against the model: `refcounts_balance_under_random_
workload`.

Requests share three prefixes in a small pool. They come, go on, fork, are cut short, and are
refused, and after every step all that anyone can see is compared, K and V of every position too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.block_manager.model import ManagerModel
from tests.block_manager.runner import Runner, Tenant
from tests.block_manager.samples import HASH, NONE, RADIX
from tests.judging import new_example, refuses, same
from tinyllm.errors import InvalidArgumentError, PoolFullError

N_BLOCKS, SIZE = 7, 2
IDS = ("P", "Q", "R", "S")
ANY_ID = st.sampled_from(IDS)
LIVE = st.integers(0, len(IDS) - 1)  # which of the live requests, the oldest first
PREFIXES: tuple[list[int], ...] = ([], [1, 1, 1, 1], [1, 1, 2, 2, 2], [3])
TAILS = st.lists(st.integers(1, 2), max_size=4)
TENANTS = st.sampled_from([None, None, None, 1, "1"])
PROMPTS = st.builds(lambda prefix, tail: [*prefix, *tail], st.sampled_from(PREFIXES), TAILS)
# More of what has most to go wrong.
EXAMPLES = {NONE: 8, HASH: 18, RADIX: 24}


class ManagerMachine(RuleBasedStateMachine):
    """A manager in one mode, its runner and its model."""

    mode: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.runner = Runner(self.mode, N_BLOCKS, SIZE)
        self.pool, self.manager = self.runner.pool, self.runner.manager
        self.model = ManagerModel(self.mode, N_BLOCKS, SIZE)

    @invariant()
    def the_manager_is_as_the_model_says(self) -> None:
        pool, stats, model = self.pool.stats(), self.manager.stats(), self.model
        same([pool.free, pool.used, pool.cached], model.counts(), "free, used and cached blocks")
        got = [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.evictions]
        same(got, model.stats(), "lookups, query, hit tokens and evictions")
        for id, live in model.live.items():
            same(self.manager.block_table(id), live.table, f"block_table({id!r})")
        for block in range(N_BLOCKS):
            refs = self.pool.ref_count(block)
            same(refs, model.refs(block), f"block {block}'s reference count")
        if not model.live:
            same(self.manager.cached_blocks, len(model.cached), "cached_blocks, with nobody live")
        self.runner.judge_all("after these calls")

    @initialize(prompts=st.lists(PROMPTS.filter(bool), max_size=4))
    def begin_with_a_cache(self, prompts: list[list[int]]) -> None:
        for prompt in prompts:
            self.start("P", prompt, None, False)
            self.end("P", 99)

    @precondition(lambda self: len(self.model.live) < len(IDS))
    @rule(prompt=PROMPTS, tenant=TENANTS)
    def begin(self, prompt: list[int], tenant: Tenant) -> None:
        """Let a new request come."""
        self.start(next(id for id in IDS if id not in self.model.live), prompt, tenant, False)

    @rule(id=ANY_ID, prompt=PROMPTS, tenant=TENANTS, readmission=st.booleans())
    def start(self, id: str, prompt: list[int], tenant: Tenant, readmission: bool) -> None:
        what, model = f"allocate({id!r}, {prompt}, {tenant!r})", self.model

        def call() -> Any:
            return self.manager.allocate(id, prompt, tenant, readmission=readmission)

        if id in model.live or not prompt:
            refuses(InvalidArgumentError, what, call)
            return
        fits = model.fits(model.hits(prompt, tenant, (len(prompt) - 1) // SIZE), len(prompt))
        got = self.attempt(fits, what, call)
        if got is None:
            model.refused(prompt, tenant)
            return
        cached = got.cached_tokens
        model.admitted(id, prompt, tenant, got.blocks, cached, readmission)
        self.runner.begin(id, prompt, tenant, cached)

    @precondition(lambda self: self.model.live)
    @rule(which=LIVE, tokens=st.lists(st.integers(1, 2), min_size=1, max_size=3))
    def go_on(self, which: int, tokens: list[int]) -> None:
        """Let a request's text grow."""
        for token in tokens:
            self.say(self.id_of(which), token)

    def say(self, id: str, token: int) -> None:
        """Let a request's text grow by a token, if there is room for it."""
        live, place = self.model.live[id], len(self.runner.texts[id])
        if live.slots == place:
            if not self.append(id):
                return
            live.slots += 1
        if self.model.is_shared(id, place // SIZE) and not self.copy(id, place // SIZE):
            return
        self.runner.compute(id, token)

    @precondition(lambda self: 0 < len(self.model.live) < len(IDS))
    @rule(which=LIVE, token=st.integers(1, 2), end=st.booleans())
    def branch(self, which: int, token: int, end: bool) -> None:
        """Fork a request; let the child go on, or the parent end."""
        parent = self.id_of(which)
        child = next(id for id in IDS if id not in self.model.live)
        self.fork(parent, child)
        if end:
            self.end(parent, 99)
        else:
            self.say(child, token)

    @rule(parent=ANY_ID, child=ANY_ID)
    def fork(self, parent: str, child: str) -> None:
        if parent not in self.model.live or child in self.model.live:
            refuses(InvalidArgumentError, f"fork({parent!r}, {child!r})",
                    lambda: self.manager.fork(parent, child))
            return
        self.runner.fork(parent, child)
        self.model.forked(parent, child)

    @precondition(lambda self: self.model.live)
    @rule(which=LIVE)
    def finish(self, which: int) -> None:
        """Release a request with all of its text."""
        self.end(self.id_of(which), 99)

    @rule(id=ANY_ID, computed=st.sampled_from([99, 5, 2, 0]))
    def end(self, id: str, computed: int) -> None:
        """Release a request, with all of its text or cut short."""
        if id not in self.model.live:
            for what, call in (("append_slot({!r})", self.manager.append_slot),
                               ("block_table({!r})", self.manager.block_table)):
                refuses(InvalidArgumentError, what.format(id), partial(call, id))
            refuses(InvalidArgumentError, f"release({id!r}, [])",
                    lambda: self.manager.release(id, []))
            return
        table = self.model.live[id].table
        tokens = self.runner.texts[id][:computed]
        self.runner.end(id, computed)
        self.model.released(id, tokens, [block for block in table if self.is_kept(id, block)])

    @rule(n=st.sampled_from([1, 2, 0, N_BLOCKS]))
    def evict(self, n: int) -> None:
        idle = self.model.kept() - self.model.held()
        free = idle - self.model.pinned(self.model.held())
        got, what = self.manager.evict(n), f"how many blocks evict({n}) lets go"
        same(got, min(n, len(idle if got == len(idle) else free)), what)
        gone = {block for block in idle if self.is_free(block)}
        same(len(gone), got, f"how many blocks are free after evict({n}) that were not")
        self.model.left(gone, f"the blocks that evict({n}) lets go")

    @precondition(lambda self: self.mode != NONE)
    @rule(prompt=PROMPTS, tenant=TENANTS)
    def look(self, prompt: list[int], tenant: Tenant) -> None:
        hits, what = self.model.hits(prompt, tenant, 99), f"lookup_prefix({prompt}, {tenant!r})"
        self.model.judge_hits(self.manager.lookup_prefix(prompt, tenant), hits, what)
        self.model.used_perhaps(hits)

    @rule(n=st.integers(0, 2 * N_BLOCKS + 2))
    def ask(self, n: int) -> None:
        """A promise must hold; a refusal may be cautious while anybody is live."""
        fits = self.model.has_room(self.model.blocks_for(n))
        got, what = self.manager.can_allocate(n), f"can_allocate({n})"
        if not self.model.live or fits is False or n == 0:
            same(got, fits, what)

    def id_of(self, which: int) -> str:
        """Return one of the live requests."""
        live = list(self.model.live)
        return live[which % len(live)]

    def append(self, id: str) -> bool:
        """Book a slot and say whether there was room."""
        live, what = self.model.live[id], f"append_slot({id!r})"
        if live.slots < len(live.table) * SIZE:
            same(self.manager.append_slot(id), None, f"{what}, with a slot left in the last block")
            return True
        fits = self.model.has_room(1)
        return self.takes_one(id, None, fits, what, lambda: self.manager.append_slot(id))

    def copy(self, id: str, place: int) -> bool:
        """Have a shared block copied and say whether there was room."""
        fits, what = self.model.has_room(1), f"write({id!r}, {place})"
        return self.takes_one(id, place, fits, what, lambda: self.manager.write(id, place))

    def takes_one(self, id: str, place: int | None, fits: bool | None, what: str,
                  call: Callable[[], Any]) -> bool:
        got = self.attempt(fits, what, call)
        if got is not None:
            self.model.took(id, [got], place)
        elif fits:
            same(got, 0, f"{what}, which takes a block")
        return got is not None

    def attempt(self, fits: bool | None, what: str, call: Callable[[], Any]) -> Any:
        """Make a call that must succeed or be refused; where that is open, either."""
        if fits is False:
            refuses(PoolFullError, what, call)
            return None
        try:
            return call()
        except PoolFullError:
            if fits:
                raise
            return None

    def is_free(self, block: int) -> bool:
        return self.pool.ref_count(block) == 0 and self.pool.hash_of(block) == 0

    def is_kept(self, ended: str, block: int) -> bool:
        """Say whether a block of a request that has just ended is in the cache."""
        tables = [live.table for id, live in self.model.live.items() if id != ended]
        holders = sum(block in table for table in tables)
        return self.pool.hash_of(block) != 0 or self.pool.ref_count(block) > holders


class NoneMachine(ManagerMachine):
    mode = NONE


class HashMachine(ManagerMachine):
    mode = HASH


class RadixMachine(ManagerMachine):
    mode = RADIX
