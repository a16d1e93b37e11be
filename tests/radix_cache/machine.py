"""Random calls on a cache, each judged against the model (`random_calls_keep_the_promises`)."""

from itertools import product
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.judging import new_example, refuses, same
from tests.radix_cache.model import CacheModel, Prefix
from tests.radix_cache.samples import counts, drops, match, new_cache, same_found, stores
from tinyllm.errors import InvalidArgumentError

BLOCKS = ([0, 0], [0, 1])  # they differ in their last token only
DEEP = 4  # blocks of the longest prompt
PROMPTS = st.builds(
    lambda blocks, tail: [token for block in blocks for token in block] + tail,
    st.lists(st.sampled_from(BLOCKS), max_size=DEEP),
    st.sampled_from([[], [0]]),
)
LONGEST = [[token for block in run for token in block] for run in product(BLOCKS, repeat=DEEP)]
PICK = st.integers(0, 7)


class CacheMachine(RuleBasedStateMachine):
    """Inserts, matches, locks, unlocks and evictions, legal calls and refused ones alike."""

    def __init__(self) -> None:
        super().__init__()
        new_example()
        self.cache = new_cache()
        self.model = CacheModel(2)
        self.next_id = 0
        self.handles: list[tuple[Any, Prefix]] = []  # of matches, locked or not
        self.held: list[tuple[Any, Prefix]] = []  # an entry a lock

    @invariant()
    def the_cache_is_as_the_model_says(self) -> None:
        same(counts(self.cache), self.model.counts,
             "evictable blocks, locked blocks, len(cache) after these calls")
        for tokens in LONGEST:
            want = self.model.found(tokens)[0]
            if [*match(self.cache, tokens).blocks] != want:  # the sentence is made for the guilty
                same_found(self.cache, tokens, want, "after these calls")

    @initialize(first=PROMPTS, second=PROMPTS)
    def begin(self, first: list[int], second: list[int]) -> None:
        """Begin with two prompts, so that every rule has something to do at once."""
        self.insert(first)
        self.insert(second)

    @rule(tokens=PROMPTS)
    def insert(self, tokens: list[int]) -> None:
        ids = list(range(self.next_id, self.next_id + len(tokens) // 2))
        self.next_id += len(ids)
        stores(self.cache, tokens, ids, want=self.model.insert(tokens, ids))

    @rule(tokens=PROMPTS)
    def match(self, tokens: list[int]) -> None:
        """Match, and keep the handle for later."""
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

    @rule(tokens=PROMPTS)
    def hold(self, tokens: list[int]) -> None:
        """Match and lock at once, as a request does."""
        self.match(tokens)
        self.lock(0)

    @rule(tokens=PROMPTS, longer=PROMPTS)
    def serve(self, tokens: list[int], longer: list[int]) -> None:
        """A whole request: it holds what it finds, stores its prompt and answer, and lets go."""
        self.hold(tokens)
        self.insert((tokens[: len(tokens) // 2 * 2] + longer)[: 2 * DEEP])
        self.unlock(-1)

    @precondition(lambda self: self.held)
    @rule(at=PICK)
    def unlock(self, at: int) -> None:
        node, run = self.held.pop(at % len(self.held))
        self.cache.unlock(node)
        self.model.unlock(run)

    @precondition(lambda self: self.handles)
    @rule(tokens=PROMPTS, at=PICK)
    def ask_too_much(self, tokens: list[int], at: int) -> None:
        """Give an id too many; unlock what no lock holds, neither its own nor one behind it."""
        ids = list(range(len(tokens) // 2 + 1))
        refuses(InvalidArgumentError, f"insert({tokens}, {ids})",
                lambda: self.cache.insert(tokens, ids))
        node, run = self.handles[at % len(self.handles)]
        if run and not self.model.locked(run):
            refuses(InvalidArgumentError, "unlock of a node that no lock is left on",
                    lambda: self.cache.unlock(node))

    @rule(n=st.sampled_from([1, 2, 3, 0]))
    def evict(self, n: int) -> None:
        drops(self.cache, n, self.model.evict(n))
        self.handles = [(node, run) for node, run in self.handles
                        if not run or run in self.model.blocks]

    def teardown(self) -> None:
        """Whatever was done, in the end all that is not locked goes, and then the rest."""
        drops(self.cache, 99, self.model.evict(99), "with the locks that are left")
        while self.held:
            self.unlock(0)
        drops(self.cache, 99, self.model.evict(99), "at the end")
