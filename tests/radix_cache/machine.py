"""Random calls on a cache, each compared with the model (`random_calls_keep_the_promises`)."""

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grader.assertions import new_example, refuses, same
from tests.radix_cache.model import CacheModel, Prefix
from tests.radix_cache.samples import Odd, counts, drops, match, new_cache, same_found, stores
from tinyllm.errors import InvalidArgumentError

DEEP = 4  # blocks of the longest prompt
TURNS = st.lists(st.integers(0, 1), max_size=DEEP)  # which of two blocks comes next
TAIL = st.booleans()  # whether a partial block follows
PICK = st.integers(0, 7)
N_IDS = 100  # more than a tree of this depth and one prompt beside it can hold

# Two tokens that are different, and a second spelling of each that is equal to it.
TOKENS: tuple[tuple[tuple[Any, Any], tuple[Any, Any]], ...] = (
    ((0, 1), (0.0, True)),
    ((1, 257), (np.int64(1), np.int64(257))),
    ((-1, -2), (-1.0, np.int32(-2))),  # their hashes are equal
    ((7, 7 + 2**32), (np.uint8(7), 7 + 2**32)),
    ((2**64, 2**64 + 1), (2**64, 2**64 + 1)),
    ((2**53, 2**53 + 1), (float(2**53), 2**53 + 1)),
    ((0, 2**61 - 1), (False, 2**61 - 1)),  # their hashes are equal
    (("a", "aa"), ("a", "aa")),
    (("1", 1), ("1", 1.0)),
    ((("t", 1), ("t", 2)), (("t", 1.0), ("t", True + 1))),
    ((None, ()), (None, ())),
    ((Odd("a"), Odd("b")), (Odd("a"), Odd("b"))),
)


@dataclass(frozen=True)
class Alphabet:
    """The two blocks that the prompts of one example are made of.

    They differ in one token, at ``place``; where ``swapped`` they hold the same tokens in another
    order. Every other prompt is spelled with tokens that are equal and of another type.
    """

    size: int
    place: int
    tokens: tuple[tuple[Any, Any], tuple[Any, Any]]
    swapped: bool

    def blocks(self, spelling: int) -> tuple[list[Any], list[Any]]:
        """Return both blocks in one of the two spellings."""
        left, right = self.tokens[spelling]
        first = [left] * self.size
        second = first.copy()
        second[self.place % self.size] = right
        if self.swapped and self.size > 1:
            first[(self.place + 1) % self.size] = right
        return first, second

    def prompt(self, turns: list[int], tail: bool, spelling: int) -> list[Any]:
        """Return a prompt of these blocks, and the beginning of another one if ``tail``."""
        blocks = self.blocks(spelling)
        whole = [token for turn in turns for token in blocks[turn]]
        return whole + (blocks[0][:-1] if tail else [])


ALPHABETS = st.builds(Alphabet, st.sampled_from([2, 1, 3, 5]), st.integers(0, 4),
                      st.sampled_from(TOKENS), st.booleans())


class CacheMachine(RuleBasedStateMachine):
    """Inserts, matches, locks, unlocks and evictions, calls that are allowed and that raise."""

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.calls = 0
        # The pool's free ids: from both ends, so that id 0 is the second block of a prompt. A
        # dropped id is the next to be given out.
        self.free = deque(id for pair in zip(range(N_IDS - 1, N_IDS // 2 - 1, -1),
                                             range(N_IDS // 2), strict=True)
                          for id in pair)
        self.handles: list[tuple[Any, Prefix]] = []  # of matches, locked or not
        self.held: list[tuple[Any, Prefix]] = []  # one entry per lock
        self.stale: list[tuple[Any, Prefix]] = []  # handles of which some block was evicted

    @initialize(alphabet=ALPHABETS, first=TURNS, second=TURNS)
    def begin(self, alphabet: Alphabet, first: list[int], second: list[int]) -> None:
        """Begin with two prompts, so that every rule has something to do at once."""
        self.alphabet = alphabet
        self.cache = new_cache(alphabet.size)
        self.model = CacheModel(alphabet.size)
        self.longest = [alphabet.prompt(list(turns), False, 0)
                        for turns in product((0, 1), repeat=DEEP)]
        self.insert(first, False)
        self.insert(second, True)

    @invariant()
    def the_cache_is_as_the_model_says(self) -> None:
        same(counts(self.cache), self.model.counts,
             "evictable blocks, locked blocks, len(cache) after these calls")
        for tokens in self.longest:
            want = self.model.found(tokens)[0]
            if [*match(self.cache, tokens).blocks] != want:  # build the sentence only on failure
                same_found(self.cache, tokens, want, "after these calls")

    @rule(turns=TURNS, tail=TAIL)
    def insert(self, turns: list[int], tail: bool) -> None:
        """Store a prompt under fresh ids; what the cache does not keep goes back to the pool."""
        ids = [self.free.popleft() for _ in turns]
        tokens = self.prompt(turns, tail)
        new = self.model.insert(tokens, ids)
        stores(self.cache, tokens, ids, want=new)
        self.free.extend(ids[: len(ids) - len(new)])

    @rule(turns=TURNS, tail=TAIL)
    def match(self, turns: list[int], tail: bool) -> None:
        """Match, and keep the handle for later."""
        tokens = self.prompt(turns, tail)
        got = match(self.cache, tokens)
        ids, run = self.model.found(tokens)
        same(got.blocks, ids, f"the blocks that match({tokens}) finds")
        self.handles.append((got.node, run))

    @precondition(lambda self: self.handles)
    @rule(at=PICK)
    def lock(self, at: int) -> None:
        """Lock with the handle of some earlier match, whatever was divided since."""
        node, run = self.handles[-1 - at % len(self.handles)]
        self.cache.lock(node)
        self.model.lock(run)
        self.held.append((node, run))

    @rule(turns=TURNS, tail=TAIL)
    def hold(self, turns: list[int], tail: bool) -> None:
        """Match and lock at once, as a request does."""
        self.match(turns, tail)
        self.lock(0)

    @rule(turns=TURNS, longer=TURNS)
    def serve(self, turns: list[int], longer: list[int]) -> None:
        """A whole request: lock what is found, store the prompt and its answer, unlock."""
        self.hold(turns, False)
        self.insert((turns + longer)[:DEEP], True)
        self.unlock(-1)

    @precondition(lambda self: self.held)
    @rule(at=PICK)
    def unlock(self, at: int) -> None:
        node, run = self.held.pop(at % len(self.held))
        self.cache.unlock(node)
        self.model.unlock(run)

    @precondition(lambda self: self.held)
    @rule(at=PICK, turns=TURNS)
    def lock_again(self, at: int, turns: list[int]) -> None:
        """A second request takes a locked prompt, and one that is locked is stored once more."""
        node, run = self.held[at % len(self.held)]
        self.cache.lock(node)
        self.model.lock(run)
        self.held.append((node, run))
        self.insert(turns, False)

    @precondition(lambda self: self.handles)
    @rule(turns=TURNS, at=PICK)
    def ask_too_much(self, turns: list[int], at: int) -> None:
        """Give an id too many; unlock a handle where neither it nor one behind it is locked."""
        tokens, ids = self.prompt(turns, True), list(range(len(turns) + 1))
        refuses(InvalidArgumentError, f"insert({tokens}, {ids})",
                lambda: self.cache.insert(tokens, ids))
        node, run = self.handles[at % len(self.handles)]
        if run and not self.model.locked(run):
            refuses(InvalidArgumentError, "unlock of a node that no lock is left on",
                    lambda: self.cache.unlock(node))

    @rule(n=st.sampled_from([1, 2, 3, 0, 99]))
    def evict(self, n: int) -> None:
        want = self.model.evict(n)
        drops(self.cache, n, want)
        self.free.extendleft(want)
        self.stale += [each for each in self.handles if not self._good(each[1])]
        self.handles = [each for each in self.handles if self._good(each[1])]

    @rule(turns=TURNS, n=st.sampled_from([1, 2, 99]), then=st.none() | TURNS)
    def lose(self, turns: list[int], n: int, then: list[int] | None) -> None:
        """Evict between the match and the lock of a request; another prompt may take the blocks."""
        self.match(turns, False)
        self.evict(n)
        if then is not None:
            self.insert(then, False)
        if self.stale:
            self.come_too_late(0)

    @precondition(lambda self: self.stale)
    @rule(at=PICK)
    def come_too_late(self, at: int) -> None:
        """Lock and unlock a stale handle: either may raise, and nothing changes."""
        node, run = self.stale[-1 - at % len(self.stale)]
        if not self._good(run):  # of a prompt that was stored again nothing is promised
            for call in (self.cache.lock, self.cache.unlock):
                with suppress(InvalidArgumentError):
                    call(node)

    def prompt(self, turns: list[int], tail: bool) -> list[Any]:
        """Return the tokens of these blocks, in the other spelling at every second call."""
        self.calls += 1
        return self.alphabet.prompt(turns, tail, self.calls % 2)

    def _good(self, run: Prefix) -> bool:
        return not run or run in self.model.blocks

    def teardown(self) -> None:
        """Take all locks back, and drop every block in its turn."""
        if not hasattr(self, "model"):
            return  # the first call of all has failed
        while self.held:
            self.unlock(0)
        drops(self.cache, 99, self.model.evict(99), "at the end")
