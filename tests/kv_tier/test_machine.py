"""Random calls of a cache and its store, compared with a plain model after each call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, note, refuses
from grader.assertions.wording import say
from tests.block_manager.collisions import CHAINS
from tests.kv_tier.cache_model import CacheModel, Request, Watched
from tests.kv_tier.samples import SIZE
from tinyllm.errors import InvalidArgumentError

_PLAIN = [[*([1] * SIZE), *([2] * SIZE), *([n] * SIZE), *([n + 1] * SIZE)][:length]
          for n in (3, 4, 2**32 - 2) for length in (SIZE, 2 * SIZE, 3 * SIZE + 1, 4 * SIZE)]
_TWINS = [chain[:length] for chain in CHAINS[:4] for length in (SIZE, 3 * SIZE)]

_OFTEN = ("serve", "serve", "look", "look", "flush", "evict", "open", "drop both", "drop head",
          "spoil", "refused")
_SELDOM = ("duplicate", "close", "drop", "take", "break", "lose", "foreign", "restart")
_ACTS = st.lists(st.tuples(st.sampled_from(_OFTEN * 3 + _SELDOM), st.sampled_from((0, 0, 0, 1)),
                           st.integers(0, 11)), min_size=30, max_size=60)
_WORLDS = st.tuples(
    st.integers(2, 6), st.sampled_from((None, None, None, 0, 1, 2, 3, 5)),
    st.sampled_from((("", ""), ("", "b"), ("tenant", "b"), ("model", "Model "),
                     ("\ud800", "\udfff"))))


@dataclass
class _World:
    """Two caches over one store, each with a pool of its own and requests that hold blocks."""

    n_blocks: int
    store: Watched
    spaces: tuple[str, str]
    texts: list[list[int]]
    caches: list[CacheModel] = field(default_factory=list)
    requests: tuple[list[Request], list[Request]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self.names: dict[str, dict[tuple[int, ...], int]] = {space: {} for space in self.spaces}
        self.caches = [self._cache(which) for which in (0, 1)]

    def act(self, what: str, which: int, number: int) -> None:
        cache, requests = self.caches[which], self.requests[which]
        self.store.puts = []
        tokens = self.texts[number % len(self.texts)]
        right = set(self.store.values) & set(self.store.owners)
        if what in ("serve", "open", "duplicate"):
            request = self._begin(cache, tokens, finds=what != "duplicate")
            if request and what == "serve":
                cache.keep(request)
            elif request:
                requests.append(request)
        elif what == "look":
            cache.give_back(cache.find(tokens))
        elif what == "evict":
            cache.give_back(cache.alloc(number % (self.n_blocks + 2)))
        elif what == "flush":
            cache.give_back(cache.alloc(cache.free + len(cache.cached)))
        elif what == "take":
            if blocks := cache.alloc(number % 2 + 1):
                requests.append(Request([0] * (SIZE * len(blocks)), blocks))
        elif what in ("close", "drop", "drop both", "drop head"):
            self._end(what, cache, requests, number)
        elif what == "refused":
            self._refused(cache, tokens, number)
        else:
            self._happen(what, which, number)
        if what not in ("lose", "spoil") and self.store.entries is None and self.texts is _PLAIN:
            demand(right <= set(self.store.values), "the entries that were right before this call",
                   "still in the store", say(sorted(right - set(self.store.values))) + " are gone")
        for at, each in enumerate(self.caches):
            each.check(f"of cache {at} after this call")

    def _cache(self, which: int) -> CacheModel:
        space = self.spaces[which]
        return CacheModel(self.n_blocks, self.store, space, self.names[space])

    def _begin(self, cache: CacheModel, tokens: list[int], finds: bool) -> Request | None:
        """Compute what is not found of a sequence, if there is room for it."""
        blocks = cache.find(tokens) if finds else []
        start, self.store.puts = len(blocks), []
        missing = -(-len(tokens) // SIZE) - start
        if missing > cache.free + len(cache.cached):
            cache.give_back(blocks)
            return None
        blocks = blocks + cache.alloc(missing)
        cache.write(tokens, blocks, start)
        return Request(tokens, blocks)

    def _end(self, what: str, cache: CacheModel, requests: list[Request], number: int) -> None:
        if len(requests) < 1 + (what == "drop both"):
            return
        request = requests.pop(number % len(requests))
        if what == "close" and request.tokens[0]:
            cache.keep(request)
        elif what == "drop head":
            cache.give_back(request.blocks[:1])
            if rest := request.blocks[1:]:
                requests.insert(0, Request([0] * (SIZE * len(rest)), rest))
        else:
            other = requests.pop() if what == "drop both" else Request([], [])
            cache.give_back([*request.blocks, *other.blocks])

    def _refused(self, cache: CacheModel, tokens: list[int], number: int) -> None:
        """Make a call that is wrong; the model stays as it is."""
        there = [block for block in range(self.n_blocks) if cache.refs[block] > 0]
        free = [block for block in range(self.n_blocks) if cache.refs[block] <= 0]
        need = -(-len(tokens) // SIZE)
        hashed = {block for block, _ in cache.hashed.values()}
        bad: dict[str, tuple[Callable[..., None], list[Any]]] = {
            "a block that is not in use, given back": (
                cache.cache.give_back, [[*free[:1], *there] if free else [self.n_blocks, *there]]),
            "a block given back more often than it is held": (
                cache.cache.give_back, [there[:1] * 9 + there if there else [0]]),
            "too many blocks kept": (cache.cache.keep, [tokens, (there * 9)[: need + 1]]),
            "too few blocks kept": (cache.cache.keep, [tokens, there[: need - 1]]),
            "a negative token kept in the last block": (
                cache.cache.keep, [[*tokens[:-1], -1], (there * 9)[:need]]),
            "a sequence kept in the block of another": (
                cache.cache.keep, [[9] * SIZE, [b for b in there if b in hashed][:1] or free]),
        }
        what = sorted(bad)[number % len(bad)]
        call, arguments = bad[what]
        refuses(InvalidArgumentError, what, partial(call, *arguments))

    def _happen(self, what: str, which: int, number: int) -> None:
        """Let something happen to the store, or a cache begin again."""
        if what == "break":
            self.store.broken, self.store.read_only = number in (0, 1), number in (2, 3)
            note("the store fails" if number < 2 else "the store can only be read" if number < 4
                 else "the store works")
        elif what == "restart":
            note("a new pool and a new cache take the place of one")
            self.caches[which] = self._cache(which)
            self.requests[which].clear()
        elif what == "foreign" and not (self.store.broken or self.store.read_only):
            self.store.foreign(number)
        elif what == "lose" and self.store.values:
            self.store.lose(number)
        elif what == "spoil" and self.store.values and (owner := self.store.spoil(number)):
            self._look_at(*owner)


    def _look_at(self, space: str, key: tuple[int, ...]) -> None:
        """Look for the longest sequence that begins with a block's."""
        cache = self.caches[self.spaces.index(space)]
        tokens = max((text for text in self.texts if tuple(text[: len(key)]) == key), key=len)
        cache.give_back(cache.find(tokens))


def _run(world: _World, acts: list[tuple[str, int, int]]) -> None:
    new_example()
    for what, which, number in acts:
        world.act(what, which, number)


def test_any_calls_of_a_cache_match_a_model() -> None:
    """Whatever is kept, found, given back, allocated and evicted, by two caches over one store of
    any size that fails now and then, matches a plain model: the blocks found and their K and V, the
    blocks spilled and their order, the counts and the statistics.

    Why: the faults of real tiers need four or five calls in an order that no author has thought of.
    """

    @settings(max_examples=60)
    @given(_WORLDS, _ACTS)
    def check(world: tuple[int, int | None, tuple[str, str]],
              acts: list[tuple[str, int, int]]) -> None:
        n_blocks, entries, spaces = world
        _run(_World(n_blocks, Watched(entries), spaces, _PLAIN), acts)

    check()


def test_any_calls_with_colliding_hashes_match_a_model() -> None:
    """The same with sequences whose block hashes collide: none is served for another.

    Why: a 64-bit hash that is not cryptographic collides as often as an attacker wishes.
    """

    @settings(max_examples=30)
    @given(_WORLDS, _ACTS)
    def check(world: tuple[int, int | None, tuple[str, str]],
              acts: list[tuple[str, int, int]]) -> None:
        n_blocks, entries, _ = world
        _run(_World(n_blocks, Watched(entries), ("", ""), _TWINS), acts)

    check()
