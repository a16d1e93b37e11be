"""Random requests on a manager, each judged against the model: `refcounts_balance_under_random_
workload`.

Requests share a few prefixes in a small pool. They come, go on, fork, are cut short, come again for
another tenant, and are refused, and after every step all that anyone can see is compared, K and V
of every position too. Numbers are such as are equal when they are cut, rounded or made a text.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.block_manager.model import ManagerModel
from tests.block_manager.runner import Id, Runner, Tenant
from tests.block_manager.samples import HASH, NONE, RADIX
from tests.judging import new_example, refuses, same
from tinyllm.errors import InvalidArgumentError, PoolFullError

N_BLOCKS, SIZE = 7, 2
IDS: tuple[Id, ...] = ("P", "Q", 0, "0")
ANY_ID = st.sampled_from(IDS)
LIVE = st.integers(0, len(IDS) - 1)  # which of the live requests, the oldest first
TWO = 2**16 + 1  # 1 in 16 bits
PREFIXES: tuple[list[int], ...] = ([], [1, 1, 1, 1], [1, 1, TWO, TWO, TWO], [2**31 + 1],
                                   [2**24, 1], [2**24 + 1, 1])
TOKENS = st.sampled_from([1, TWO])
TAILS = st.lists(TOKENS, max_size=4)
TENANTS = st.sampled_from([None, None, None, 1, "1", 2**32 + 1, "", -1, -2])
PROMPTS = st.builds(lambda prefix, tail: [*prefix, *tail], st.sampled_from(PREFIXES), TAILS)
# More of what has most to go wrong.
EXAMPLES = {NONE: 16, HASH: 70, RADIX: 90}


class ManagerMachine(RuleBasedStateMachine):
    """A manager in one mode, its runner and its model."""

    mode: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.runner = Runner(self.mode, N_BLOCKS, SIZE)
        self.pool, self.manager = self.runner.pool, self.runner.manager
        self.model = ManagerModel(self.mode, N_BLOCKS, SIZE)
        self.ended: list[tuple[list[int], Tenant]] = [([1, 1, 1, 1], None)]  # the latest first

    @invariant()
    def the_manager_is_as_the_model_says(self) -> None:
        pool, stats, model = self.pool.stats(), self.manager.stats(), self.model
        same([pool.free, pool.used, pool.cached], model.counts(), "free, used and cached blocks")
        got = [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.evictions]
        same(got, model.stats(), "lookups, query, hit tokens and evictions")
        same(round(self.manager.hit_rate, 9), round(model.hit_rate(), 9), "hit_rate, rounded")
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
        self.start(self.new_id(), prompt, tenant, False)

    @precondition(lambda self: len(self.model.live) < len(IDS))
    @rule(which=st.integers(0, 3), tail=TAILS, other=st.sampled_from([False, False, True]),
          tenant=TENANTS, readmission=st.booleans())
    def come_again(self, which: int, tail: list[int], other: bool, tenant: Tenant,
                   readmission: bool) -> None:
        """Let the text of a request that has ended come again, for its tenant or another one."""
        text, its = self.ended[which % len(self.ended)]
        self.start(self.new_id(), [*text, *tail], tenant if other else its, readmission)

    @precondition(lambda self: len(self.model.live) < len(IDS) - 1)
    @rule(which=st.integers(0, 3), first=st.booleans(), computed=st.sampled_from([99, 99, 4, 0]))
    def fork_of_hits(self, which: int, first: bool, computed: int) -> None:
        """Fork a request that found all its full blocks; let one of the two end, and evict."""
        text, tenant = self.ended[which % len(self.ended)]
        parent = self.new_id()
        self.start(parent, [*text[: len(text) // SIZE * SIZE], 5], tenant, False)
        if parent in self.model.live:
            child = self.new_id()
            self.fork(parent, child)
            self.end(parent if first else child, computed)
            self.evict(N_BLOCKS)

    @precondition(lambda self: len(self.model.live) < len(IDS) - 1)
    @rule(prompt=PROMPTS.filter(bool), tenant=TENANTS, later=st.booleans(), more=st.booleans())
    def side_by_side(self, prompt: list[int], tenant: Tenant, later: bool, more: bool) -> None:
        """Let two equal prompts be computed at the same time and end, and evict a block."""
        ids = []
        for _ in range(2):
            ids.append(self.new_id())
            self.start(ids[-1], prompt, tenant, False)
        if more and ids[-1] in self.model.live:
            self.say(ids[-1], 1)
        for id in ids[::-1] if later else ids:
            self.end(id, 99)
        self.evict(1)

    @rule(id=ANY_ID, prompt=PROMPTS, tenant=TENANTS, readmission=st.booleans())
    def start(self, id: Id, prompt: list[int], tenant: Tenant, readmission: bool) -> None:
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
    @rule(which=LIVE, tokens=st.lists(TOKENS, min_size=1, max_size=3))
    def go_on(self, which: int, tokens: list[int]) -> None:
        """Let a request's text grow."""
        for token in tokens:
            self.say(self.id_of(which), token)

    def say(self, id: Id, token: int) -> None:
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
    @rule(which=LIVE, token=TOKENS, end=st.booleans())
    def branch(self, which: int, token: int, end: bool) -> None:
        """Fork a request; let the child go on, or the parent end."""
        parent = self.id_of(which)
        child = self.new_id()
        self.fork(parent, child)
        if end:
            self.end(parent, 99)
        else:
            self.say(child, token)

    @rule(parent=ANY_ID, child=ANY_ID)
    def fork(self, parent: Id, child: Id) -> None:
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
    def end(self, id: Id, computed: int) -> None:
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
        self.ended = [(self.runner.texts[id], self.runner.tenants[id]), *self.ended[:3]]
        self.runner.end(id, computed)
        self.model.released(id, tokens, [block for block in table if self.is_kept(id, block)])

    @precondition(lambda self: self.model.live)
    @rule(which=LIVE)
    def end_wrongly(self, which: int) -> None:
        """Name tokens that a request cannot have computed."""
        id = self.id_of(which)
        text, slots = self.runner.texts[id], self.model.live[id].slots
        for tokens in ([*text, *[1] * (slots + 1 - len(text))], [text[0] + 1, *text[1:]]):
            refuses(InvalidArgumentError, f"release({id!r}, {tokens})",
                    partial(self.manager.release, id, tokens))

    @precondition(lambda self: self.model.live)
    @rule(which=LIVE, place=st.integers(0, 3))
    def write(self, which: int, place: int) -> None:
        """Ask for a block to write into, and write nothing else into it."""
        id = self.id_of(which)
        table = self.model.live[id].table
        place %= len(table)
        if self.model.is_shared(id, place):
            self.copy(id, place)
        else:
            same(self.manager.write(id, place), table[place], f"write({id!r}, {place}), its own")

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
    @rule(prompt=PROMPTS, tenant=TENANTS | st.just("never"))
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

    def id_of(self, which: int) -> Id:
        """Return one of the live requests."""
        live = list(self.model.live)
        return live[which % len(live)]

    def new_id(self) -> Id:
        """Return an id that is not live."""
        return next(id for id in IDS if id not in self.model.live)

    def append(self, id: Id) -> bool:
        """Book a slot and say whether there was room."""
        live, what = self.model.live[id], f"append_slot({id!r})"
        if live.slots < len(live.table) * SIZE:
            same(self.manager.append_slot(id), None, f"{what}, with a slot left in the last block")
            return True
        fits = self.model.has_room(1)
        return self.takes_one(id, None, fits, what, lambda: self.manager.append_slot(id))

    def copy(self, id: Id, place: int) -> bool:
        """Have a shared block copied and say whether there was room."""
        fits, what = self.model.has_room(1), f"write({id!r}, {place})"
        return self.takes_one(id, place, fits, what, lambda: self.manager.write(id, place))

    def takes_one(self, id: Id, place: int | None, fits: bool | None, what: str,
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

    def is_kept(self, ended: Id, block: int) -> bool:
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
