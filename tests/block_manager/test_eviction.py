"""Eviction: cached blocks are available, and which of them goes first."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, same
from tests.block_manager.samples import (
    CACHES,
    HASH,
    MODES,
    NONE,
    RADIX,
    admit,
    cached_tokens,
    new_manager,
    same_at_rest,
    same_room,
    serve,
    text,
    unchanged,
)


def test_cached_blocks_are_room() -> None:
    """In mode hash a pool full of cached prompts admits new ones, and they are cached in turn.

    Why: a cache is spare memory. It must never be a reason to refuse a request.
    """
    reclaims(HASH)


def test_eviction_reclaims_cached_blocks() -> None:
    """In both caches a pool full of cached prefixes admits new requests that share nothing with
    them.

    Why: the cache is spare capacity, not a leak: a server that has been running for an hour has no
    free block left, and serves on.
    """
    for mode in CACHES:
        reclaims(mode)


def reclaims(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    for start in (100, 200, 300, 400):
        serve(manager, "A", text(8, start))
    same_at_rest(pool, manager, mode, 8, when="with every block cached")
    for round, start in enumerate((500, 600, 700), 1):
        got = serve(manager, "B", text(16, start))
        same(got.cached_tokens, 0, "cached_tokens of a prompt that nobody asked before")
        same(manager.stats().evictions, 4 * round, f"evictions after {round} new prompts")
        same_at_rest(pool, manager, mode, 8, when="with every block cached again")
    same(manager.lookup_prefix(text(16, 700)), list(got.blocks), "lookup_prefix of the last prompt")


def test_eviction_takes_the_least_recently_used() -> None:
    """In mode hash the prompt that was used longest ago is evicted first, of a prompt its end
    first, and no more blocks than are needed; a hit is a use.

    Why: the system prompt is the oldest prompt of all, and used by every request. And what is left
    of a prompt can be found only from its beginning.
    """
    evicts_the_oldest(HASH)


def test_radix_evicts_the_least_recently_used() -> None:
    """In mode radix, too, the prompt that was used longest ago goes first, from its end, and no
    more blocks than are needed.

    Why: an eviction that does not stop when it has enough throws the whole cache away for one block
    (sglang#4987).
    """
    evicts_the_oldest(RADIX)


def evicts_the_oldest(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode, n_blocks=9)
    for start in (100, 200, 300):
        serve(manager, "A", text(12, start))
    same_at_rest(pool, manager, mode, 9, when="with three prompts of three blocks cached")
    same(cached_tokens(manager, text(13)), 12, "cached_tokens of the oldest prompt, used again")
    admit(manager, "B", text(12, 500))
    same(manager.stats().evictions, 3, "evictions: one for the probe, which is free, two for B")
    manager.append_slot("B")
    same(manager.stats().evictions, 4, "evictions after append_slot took a block")
    found = [len(manager.lookup_prefix(text(12, start))) for start in (100, 200, 300)]
    same(found, [3, 0, 2], "blocks that are left of the three prompts, the first one used last")


def test_a_release_is_a_use() -> None:
    """In both caches a release makes young what it gives back, hits included, though it names none
    of its tokens as computed: what others used in the meantime is evicted first.

    Why: a request that was cancelled or preempted has read its hits all the same, and comes back
    soon. The two caches must agree on it, or they hit differently ever after.
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode)
        for start in (100, 200):
            serve(manager, "A", text(8, start))
        same_at_rest(pool, manager, mode, 4, when="with two prompts of two blocks cached")
        same(admit(manager, "L", text(9, 100)).cached_tokens, 8, "cached_tokens of L")
        serve(manager, "M", text(9, 200))
        manager.release("L", [])
        same(manager.evict(2), 2, "blocks that leave the cache")
        found = [len(manager.lookup_prefix(text(8, start))) for start in (100, 200)]
        same(found, [2, 0], "blocks left of the prompt that L had, of the one that M had, released "
                            "before L was")


@settings(max_examples=40)
@given(mode=st.sampled_from(CACHES), shared=st.integers(0, 12), rest=st.integers(1, 12),
       again=st.integers(1, 3))
def test_shared_blocks_return_to_free_after_eviction(
    mode: str, shared: int, rest: int, again: int
) -> None:
    """After requests have reused each other's blocks, a request that needs the whole pool fits.

    Why: every reference that was taken on a hit must have been given back. One that was not is a
    block that no eviction ever frees.
    """
    new_example()
    pool, manager = new_manager(mode)
    for n in range(again + 1):
        serve(manager, f"P{n}", [*text(shared), *text(rest, 200 + 20 * n)])
    live = [[*text(shared), *text(1, 500 + n)] for n in range(2)]
    for n, prompt in enumerate(live):
        admit(manager, f"L{n}", prompt)
    for n, prompt in enumerate(live):
        manager.release(f"L{n}", prompt)
    cached = manager.cached_blocks
    same_at_rest(pool, manager, mode, cached, when="with everybody gone")
    got = admit(manager, "all", text(32, 900))
    same(len(got.blocks), 8, "the number of blocks of a prompt that fills the pool")
    manager.release("all", text(32, 900))
    same_at_rest(pool, manager, mode, 8, when="after it")


def test_evict_of_an_empty_cache_returns_zero() -> None:
    """In every mode evict(n) returns 0 and changes nothing when nothing is cached: at the start,
    while a request runs, after a prompt too short for a block, and when everything was evicted.

    Why: a loop that evicts until it has enough must also end when nothing is left
    (TensorRT-LLM#17908).
    """
    for mode in MODES:
        new_example()
        pool, manager = new_manager(mode)
        steps: dict[str, Callable[[], Any]] = {
            "at the start": lambda: None,
            "after a prompt of 3 tokens": partial(serve, manager, "A", text(3)),
            "while a request runs": partial(admit, manager, "L", text(9, 300)),
            "after a request that computed nothing": partial(manager.release, "L", []),
        }
        for when, step in steps.items():
            step()
            with unchanged(pool, manager, f"after evict {when}"):
                for n in (1, 9, 0):
                    same(manager.evict(n), 0, f"evict({n}) {when}")
        serve(manager, "A", text(8))
        cached = manager.cached_blocks
        same(manager.evict(9), cached, "evict(9), which empties the cache")
        same(manager.evict(9), 0, "evict(9) of the emptied cache")
        same_at_rest(pool, manager, mode, 0, when="with nothing cached")


def test_evict_lets_the_oldest_go() -> None:
    """evict(n) lets n blocks leave the cache, the least recently used first, or all that nobody
    holds; it returns how many left, and they are free. In mode none there are none.

    Why: an operator, or a second tier of memory, makes room before it is needed.
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode, n_blocks=10)
        for start in (100, 200):
            serve(manager, "A", text(12, start))
        admit(manager, "L", text(9, 200))
        same(manager.evict(0), 0, "evict(0)")
        same(manager.evict(2), 2, "evict(2)")
        same_room(pool, 5, when="after evict(2), with 6 blocks cached and one more held")
        same(manager.evict(9), 2, "evict(9): two blocks more, for L holds the other two")
        same(manager.stats().evictions, 4, "evictions")
        same(manager.lookup_prefix(text(12, 200)), manager.block_table("L")[:2],
             "lookup_prefix of the prompt that L holds")
        manager.release("L", text(9, 200))
        same_at_rest(pool, manager, mode, 2, when="after L")
        same(manager.evict(1), 1, "evict(1)")
        same(len(manager.lookup_prefix(text(12, 200))), 1, "blocks found after it: the beginning")
        same(manager.evict(9), 1, "evict(9), with one block cached")
        same_at_rest(pool, manager, mode, 0, when="with nothing cached")
    new_example()
    _, manager = new_manager(NONE)
    serve(manager, "A", text(12))
    same(manager.evict(3), 0, "evict(3) in mode none")
