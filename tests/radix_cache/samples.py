"""Small caches and prompts, and what the suite reads back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from grader.assertions import Wrong, same
from grader.assertions.wording import integer, say
from tinyllm.radix_cache import Match, RadixCache

NOT_INTEGERS: tuple[Any, ...] = (True, False, 1.0, "1", None)
"""Values that are no id and no count, however much some look like one."""


@dataclass(frozen=True)
class Odd:
    """A token whose hash says nothing: every one has the same."""

    name: str

    def __hash__(self) -> int:
        return 7


def new_cache(block_tokens: int = 2) -> RadixCache:
    """Return an empty cache."""
    return RadixCache(block_tokens)


def prompt(*blocks: int) -> list[int]:
    """Return the tokens of whole blocks of two: prompt(1, 2) is [10, 11, 20, 21]."""
    return [token for block in blocks for token in (10 * block, 10 * block + 1)]


def match(cache: RadixCache, tokens: Sequence[Any]) -> Match:
    """Match, and judge the form of the answer: a named tuple of ids and a handle."""
    got: Any = cache.match(tokens)
    if not isinstance(got, tuple) or getattr(got, "_fields", None) != ("blocks", "node"):
        raise Wrong("what match returns", "a Match(blocks, node)", f"a {type(got).__name__}")
    if not isinstance(got[0], list | tuple) or any(integer(id) is None for id in got[0]):
        raise Wrong("the blocks of a match", "a list of block ids", say(got[0]))
    return got  # type: ignore[return-value]  # a learner's Match is theirs


def same_found(cache: RadixCache, tokens: Sequence[Any], want: list[int], when: str = "") -> None:
    """Judge the blocks that a match of ``tokens`` finds."""
    what = f"the blocks that match({say(tokens)}) finds" + (f" {when}" if when else "")
    same(match(cache, tokens).blocks, want, what)


def stores(cache: RadixCache, tokens: Sequence[Any], ids: list[int],
           want: list[int] | None = None) -> None:
    """Insert, and judge which ids it says are newly stored: all of them unless told otherwise."""
    same(cache.insert(tokens, ids), ids if want is None else want,
         f"the ids that insert({say(tokens)}, {say(ids)}) newly stores")


def hold(cache: RadixCache, tokens: Sequence[Any]) -> Any:
    """Match and lock, as a request does that begins, and return the handle."""
    node = match(cache, tokens).node
    cache.lock(node)
    return node


def drops(cache: RadixCache, n: int, want: list[int], when: str = "") -> None:
    """Judge the ids that ``evict(n)`` drops, in their order."""
    what = f"the ids that evict({n}) drops, in their order" + (f", {when}" if when else "")
    same(cache.evict(n), want, what)


def counts(cache: RadixCache) -> list[Any]:
    """Return evictable blocks, locked blocks, and how many there are."""
    return [cache.evictable_blocks, cache.locked_blocks, len(cache)]


def same_counts(cache: RadixCache, evictable: int, locked: int, when: str) -> None:
    """Judge the two counts, and that together they are the blocks of the cache."""
    same(counts(cache), [evictable, locked, evictable + locked],
         f"evictable blocks, locked blocks, len(cache) {when}")


@contextmanager
def unchanged(cache: RadixCache, prompts: Sequence[Sequence[Any]], when: str) -> Iterator[None]:
    """Judge that what happens inside leaves the counts, and what is found of each prompt."""
    before = counts(cache)
    found = [list(match(cache, tokens).blocks) for tokens in prompts]
    yield
    same(counts(cache), before, f"evictable blocks, locked blocks, len(cache) {when}")
    for tokens, ids in zip(prompts, found, strict=True):
        same_found(cache, tokens, ids, when)
