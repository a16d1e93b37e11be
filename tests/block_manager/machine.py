"""Random requests on a manager, each judged against the model: `refcounts_balance_under_random_
workload`.

Requests share a few prefixes in a small pool. They come, go on, fork, are cut short, come again for
another tenant, and are refused, and after every step all that anyone can see is compared. At the
end all of them go, and what stays in the cache is looked at and evicted. Numbers and tenants are
such as are equal when they are cut, rounded or made a text; `Colliding` prompts have equal hashes.
"""

import sys
from itertools import product
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grader.assertions import new_example
from tests.block_manager.collisions import CHAINS, COUSINS, TWINS
from tests.block_manager.judged import ALL, Judged
from tests.block_manager.runner import Id, Tenant
from tests.block_manager.samples import HASH, NONE, RADIX

IDS: tuple[Id, ...] = ("P", "Q", 0, "0")
TWO = 2**16 + 1  # 1 in 16 bits
PREFIXES: tuple[list[int], ...] = (
    [], [1, 1, 1, 1], [1, 1, TWO, TWO, TWO], [2**31 + 1, 1], [2**24, 1], [2**24 + 1, 1],
    [11, 1, 1, 1])
COLLIDING = (CHAINS[0], CHAINS[4], TWINS[0][1], *([*cousin, 1, 1, 1, 1] for cousin in COUSINS),
             CHAINS[2])
FAMILIES: tuple[tuple[Tenant, ...], ...] = (  # the tenants of an example
    (1, 11, "1", 2**32 + 1), ("a", " A", ""), (-1, -2, 0))
LOOKS = 16  # at the end

# What the steps are given.
ANY_ID = st.sampled_from(IDS)
WHICH = st.integers(0, 9)  # of the live requests, or of the texts of those that have ended
TOKENS = st.sampled_from([1, TWO])
PROMPTS = st.tuples(st.integers(0, 7), st.lists(TOKENS, max_size=4))
TENANTS = st.integers(-2, 3)  # below 0 for none
COMPUTED = st.sampled_from([ALL, ALL, 5, 4, 2, 0])
FLAG = st.booleans()
# A step's name -> how often it comes, and what it is given.
STEPS: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "begin": (4, st.tuples(PROMPTS, TENANTS, FLAG)),
    "come_again": (6, st.tuples(WHICH, st.lists(TOKENS, max_size=4), TENANTS, FLAG, FLAG)),
    "pass_by": (4, st.tuples(WHICH, COMPUTED)),
    "come_too_long": (3, st.tuples(WHICH, FLAG)),
    "fork_of_hits": (2, st.tuples(WHICH, FLAG, COMPUTED)),
    "side_by_side": (3, st.tuples(PROMPTS, TENANTS, FLAG, FLAG)),
    "fill": (3, st.tuples(FLAG)),
    "go_on": (4, st.tuples(WHICH, st.lists(TOKENS, min_size=1, max_size=3))),
    "branch": (4, st.tuples(WHICH, TOKENS, FLAG)),
    "write": (5, st.tuples(WHICH, WHICH, FLAG)),
    "lose_the_first": (4, st.tuples(WHICH, PROMPTS)),
    "finish": (3, st.tuples(WHICH, COMPUTED)),
    "any_start": (1, st.tuples(ANY_ID, PROMPTS)),
    "any_fork": (2, st.tuples(ANY_ID, ANY_ID)),
    "any_end": (1, st.tuples(ANY_ID, COMPUTED)),
    "evict": (3, st.tuples(st.sampled_from([1, 1, 2, 0, ALL]))),
    "look": (5, st.tuples(WHICH, FLAG)),
    "ask": (2, st.tuples(st.integers(0, 30))),
    "misuse": (2, st.tuples(WHICH)),
}
NAMES = [name for name, (times, _) in STEPS.items() for _ in range(times)]
STEP = st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), STEPS[name][1]))


class ManagerMachine(RuleBasedStateMachine):
    """A judged manager in one mode, and what can happen to it.

    There is one rule for all steps: of several rules Hypothesis leaves most out of an example.
    """

    mode: ClassVar[str]
    n_blocks: ClassVar[int] = 7
    size: ClassVar[int] = 2
    prefixes: ClassVar[tuple[list[int], ...]] = PREFIXES
    families: ClassVar[tuple[tuple[Tenant, ...], ...]] = FAMILIES

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.judged = Judged(self.mode, self.n_blocks, self.size)
        self.model, self.random, self.family = self.judged.model, Random(0), self.families[0]

    @initialize(later=FLAG, stranger=FLAG, prompts=st.lists(PROMPTS, max_size=4),
                seed=st.integers(0, 99))
    def first(self, later: bool, stranger: bool, prompts: list[tuple[int, list[int]]],
              seed: int) -> None:
        """Begin with a cache, sometimes in a pool that was used before."""
        self.random, self.family = Random(seed), self.families[seed % len(self.families)]
        if later:
            self.judged.take_over()
        if stranger and self.mode == HASH:
            self.judged.meet_a_stranger(self.prefixes[seed % len(self.prefixes)][: self.size]
                                        or [TWO] * self.size)
        for prompt in prompts:
            self.serve(self.prompt(prompt), None)

    @rule(step=STEP)
    def step(self, step: tuple[str, tuple[Any, ...]]) -> None:
        name, given = step
        getattr(self, name)(*given)

    @invariant()
    def judge(self) -> None:
        self.judged.judge()

    def teardown(self) -> None:
        """End the example, unless it has failed."""
        if sys.exc_info()[0] is None:
            texts = [list(text) for _, _, text in self.model.cached]
            looks = list(product([*texts, *self.prefixes], (None, *self.family)))
            self.judged.close(self.random.choices(looks, k=LOOKS))

    # Steps.

    def begin(self, prompt: tuple[int, list[int]], tenant: int, careless: bool) -> None:
        """Let a new request come."""
        self.judged.start(self.new_id(), self.prompt(prompt), self.tenant(tenant),
                          careless=careless)

    def come_again(self, which: int, tail: list[int], tenant: int, other: bool,
                   readmission: bool) -> None:
        """Let the text of a request that has ended come again, for its tenant or another one."""
        text, its = self.text(which)
        self.judged.start(self.new_id(), [*text, *tail], self.tenant(tenant) if other else its,
                          readmission=readmission)

    def pass_by(self, which: int, computed: int) -> None:
        """Let it come again, find what there is, and go; and evict a block."""
        self.serve(*self.text(which), computed)
        self.judged.evict(1)

    def come_too_long(self, which: int, readmission: bool) -> None:
        """Let it come again with more than there is room for; and evict a block."""
        text, tenant = self.text(which)
        self.judged.start(self.new_id(), text + [1] * (self.n_blocks * self.size), tenant,
                          readmission=readmission)
        self.judged.evict(1)

    def fork_of_hits(self, which: int, first: bool, computed: int) -> None:
        """Fork a request that found all its full blocks; let one of the two end, and evict."""
        text, tenant = self.text(which)
        parent = self.new_id(2)
        self.judged.start(parent, [*text[: len(text) // self.size * self.size], 5], tenant)
        if parent in self.model.live:
            child = self.new_id()
            self.judged.fork(parent, child)
            self.judged.end(parent if first else child, computed)
            self.judged.evict(ALL)

    def side_by_side(self, prompt: tuple[int, list[int]], tenant: int, later: bool,
                     more: bool) -> None:
        """Let two equal prompts be computed at the same time and end, and evict a block."""
        ids, tokens, whose = [self.new_id(2)], self.prompt(prompt), self.tenant(tenant)
        self.judged.start(ids[0], tokens, whose)
        ids.append(self.new_id())
        self.judged.start(ids[1], tokens, whose)
        if more and ids[1] in self.model.live:
            self.judged.say(ids[1], 1)
        for id in ids[::-1] if later else ids:
            self.judged.end(id)
        self.judged.evict(1)

    def fill(self, cached: bool) -> None:
        """Let a prompt take all the room there is, and leave it cached or free."""
        room = self.n_blocks - len(self.model.held())
        if room:
            self.serve([7, *range(50, 49 + room * self.size)], None, ALL if cached else 0)

    def go_on(self, which: int, tokens: list[int]) -> None:
        """Let a request's text grow."""
        for id in self.live(which):
            for token in tokens:
                self.judged.say(id, token)

    def branch(self, which: int, token: int, end: bool) -> None:
        """Fork a request; let the child go on, or the parent end."""
        child = self.new_id()
        for parent in self.live(which):
            self.judged.fork(parent, child)
            if end:
                self.judged.end(parent)
            else:
                self.judged.say(child, token)

    def write(self, which: int, place: int, fork: bool) -> None:
        """Write into a block of a request, or of its new fork."""
        child = self.new_id()
        for id in self.live(which):
            if fork:
                self.judged.fork(id, child)
            self.judged.write(child if fork else id, place)

    def lose_the_first(self, which: int, prompt: tuple[int, list[int]]) -> None:
        """Let a request come twice and copy its first block; evict all that it does not hold,
        the cached first block too, and let another prompt come and go."""
        text, tenant = self.text(which)
        self.serve(text, tenant)
        id = self.new_id(2)
        self.judged.start(id, [*text, 5], tenant)
        if id in self.model.live:
            self.judged.write(id, 0)
            self.judged.evict(ALL)
            self.judged.look(text, tenant)
            self.serve(self.prompt(prompt), None)
            for other in (text, *self.prefixes):
                self.judged.look(other, tenant)

    def finish(self, which: int, computed: int) -> None:
        """Release a request."""
        for id in self.live(which):
            self.judged.end(id, computed)

    def any_start(self, id: Id, prompt: tuple[int, list[int]]) -> None:
        self.judged.start(id, self.prompt(prompt), None)

    def any_fork(self, parent: Id, child: Id) -> None:
        self.judged.fork(parent, child)

    def any_end(self, id: Id, computed: int) -> None:
        self.judged.end(id, computed)

    def evict(self, n: int) -> None:
        self.judged.evict(n)

    def look(self, which: int, evict: bool) -> None:
        """Look for the text of a request that has ended, and perhaps evict a block."""
        self.judged.look(*self.text(which))
        if evict:
            self.judged.evict(1)

    def ask(self, n: int) -> None:
        self.judged.ask(n)

    def misuse(self, which: int) -> None:
        """Make calls that are refused."""
        self.judged.ask_wrongly()
        for id in self.live(which):
            self.judged.end_wrongly(id)

    # What steps are about.

    def serve(self, prompt: list[int], tenant: Tenant, computed: int = ALL) -> None:
        """Let a request come and go."""
        id = self.new_id()
        self.judged.start(id, prompt, tenant)
        self.judged.end(id, computed)

    def prompt(self, drawn: tuple[int, list[int]]) -> list[int]:
        prefix, tail = drawn
        return [*self.prefixes[prefix % len(self.prefixes)], *tail]

    def tenant(self, drawn: int) -> Tenant:
        return None if drawn < 0 else self.family[drawn % len(self.family)]

    def text(self, which: int) -> tuple[list[int], Tenant]:
        """Return the text and the tenant of a request that has ended, or of none yet."""
        texts = [*self.judged.ended, *((prefix, None) for prefix in self.prefixes if prefix)]
        return texts[which % len(texts)]

    def live(self, which: int) -> list[Id]:
        """Return one of the live requests, if there are any."""
        live = list(self.model.live)
        return [live[which % len(live)]] if live else []

    def new_id(self, n: int = 1) -> Id:
        """Return an id that is not live; let the oldest requests end until ``n`` ids are not."""
        while len(self.model.live) > len(IDS) - n:
            self.judged.end(next(iter(self.model.live)))
        return next(id for id in IDS if id not in self.model.live)


class NoneMachine(ManagerMachine):
    mode = NONE


class HashMachine(ManagerMachine):
    mode = HASH


class CollidingMachine(ManagerMachine):
    mode, n_blocks, size, prefixes = HASH, 12, 4, COLLIDING
    families = ((None,),)  # a tenant's hashes do not collide


class RadixMachine(ManagerMachine):
    mode = RADIX


# How many examples of each: more of what has most to go wrong.
EXAMPLES: dict[type[ManagerMachine], int] = {
    NoneMachine: 4, HashMachine: 20, CollidingMachine: 12, RadixMachine: 24}
