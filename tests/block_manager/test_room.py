"""Room: what can be had, what is evicted for it, and refusals that change nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.block_manager.samples import (
    CACHES,
    HASH,
    MODES,
    NONE,
    RADIX,
    A,
    admit,
    cached_tokens,
    new_manager,
    same_at_rest,
    same_room,
    serve,
    text,
    unchanged,
)
from tests.judging import new_example, refuses, same
from tinyllm.errors import PoolFullError


def test_a_prompt_that_finds_no_room_is_refused() -> None:
    """A prompt that needs more blocks than can be had is refused with PoolFullError and takes none;
    a prompt larger than the pool, too; one that fits exactly is admitted.

    Why: a scheduler keeps the request waiting and tries again later. It asks often, and must find
    the pool as it left it.
    """
    for mode in (NONE, HASH):
        new_example()
        pool, manager = new_manager(mode)
        admit(manager, "L", text(17))
        with unchanged(pool, manager, "after the refused prompts", "L"):
            refuses(PoolFullError, "a prompt of 13 tokens with 3 blocks of 4 free",
                    partial(manager.allocate, "A", text(13, 500)))
            refuses(PoolFullError, "a prompt of 33 tokens in a pool of 32",
                    partial(manager.allocate, "A", text(33, 500)))
        admit(manager, "A", text(12, 500))
        same_room(pool, 0, when="after a prompt that fits exactly")
        with unchanged(pool, manager, "after append_slot in a full pool", "A", "L"):
            refuses(PoolFullError, "append_slot for the first slot of a block, in a full pool",
                    partial(manager.append_slot, "A"))
            same(manager.append_slot("L"), None, "append_slot with a slot left in the last block")
        manager.release("L", [])
        manager.append_slot("A")
        same(len(manager.block_table("A")), 4, "blocks of A after append_slot found room")


def test_a_refused_prompt_gives_its_hits_back() -> None:
    """In mode hash a prompt that finds some of its blocks and no room for the rest gives those back
    and evicts nothing.

    Why: hits that stay held by a request that never ran can never be evicted (vllm#11562).
    """
    gives_hits_back(HASH)


def test_failed_allocation_returns_its_cache_hits() -> None:
    """In both caches a request too big for the pool does not pin its hits: afterwards they can all
    be evicted for another one.

    Why: all or nothing includes the hits. Otherwise each try of a request that is too large leaves
    the pool smaller than before.
    """
    for mode in CACHES:
        gives_hits_back(mode)


def gives_hits_back(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    serve(manager, "A", A)
    serve(manager, "X", text(9))
    admit(manager, "L", text(9, 300))
    for n in (26, 40):
        with unchanged(pool, manager, f"after the refused prompt of {n} tokens", "L"):
            refuses(PoolFullError, f"a prompt of {n} tokens, 8 of them cached, with one block free "
                    "and two more in the cache",
                    partial(manager.allocate, "B", [*A[:8], *text(n - 8, 600)]))
    same(cached_tokens(manager, text(9)), 8, "cached_tokens of X after the refusals")
    same(cached_tokens(manager, A), 8, "cached_tokens of A after the refusals")
    manager.release("L", [])
    got = admit(manager, "all", text(32, 900))
    same(len(got.blocks), 8, "the number of blocks of a prompt that fills the pool")
    manager.release("all", [])
    same_at_rest(pool, manager, mode, 0, when="after a prompt that took the whole pool")


def test_hits_are_held_before_anything_is_evicted() -> None:
    """In mode hash a prompt that finds the oldest blocks of the cache and needs others evicts those
    that it did not find.

    Why: room made before the hits are held is made out of them, and the prompt's own beginning is
    overwritten (vllm#10507).
    """
    holds_first(HASH)


def test_radix_locks_hits_before_it_evicts() -> None:
    """In mode radix, too, a prompt's own hits are not what is evicted for the rest of it.

    Why: a match is no lock. Until it is locked, an eviction may drop what was just found.
    """
    holds_first(RADIX)


def holds_first(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode, n_blocks=4)
    blocks = list(serve(manager, "A", text(8)).blocks)
    serve(manager, "X", text(8, 500))
    same_at_rest(pool, manager, mode, 4, when="with A's two blocks cached, and then X's")
    got = admit(manager, "B", [*text(8), *text(8, 700)])
    same(got.cached_tokens, 8, "cached_tokens of B, which begins as A does")
    same(list(got.blocks[:2]), blocks, "the blocks that B found")
    same(len(set(got.blocks)), 4, "different blocks of B")
    manager.release("B", [*text(8), *text(8, 700)])
    same(manager.lookup_prefix(text(8, 500)), [], "lookup_prefix of X, whose blocks were evicted")
    same_at_rest(pool, manager, mode, 4, when="after B")


def test_hits_are_no_room() -> None:
    """In mode hash blocks that a prompt finds in the cache do not count as room for its rest.

    Why: counted twice, they admit a request that then finds no block (vllm#11565).
    """
    counts_hits_once(HASH)


def test_radix_counts_no_hit_as_room() -> None:
    """In mode radix, too, a prompt's hits are not room for the rest of it, and finding that out
    evicts nothing.

    Why: whoever evicts first and then sees that it was not enough has lost the cache for nothing.
    """
    counts_hits_once(RADIX)


def counts_hits_once(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode, n_blocks=5)
    serve(manager, "A", text(8))
    serve(manager, "X", text(4, 500))
    admit(manager, "L", text(4, 300))
    prompt = [*text(8), *text(9, 700)]
    with unchanged(pool, manager, "after the refused prompt", "L"):
        refuses(PoolFullError, "a prompt of 5 blocks: two in the cache, one free, one to evict",
                lambda: manager.allocate("B", prompt))
    same(cached_tokens(manager, text(5, 500)), 4, "cached_tokens of X after the refusal")
    got = admit(manager, "B", prompt[:16])
    same(got.cached_tokens, 8, "cached_tokens of a prompt of one block less")
    same_room(pool, 0, when="with that prompt live")


def test_hits_in_use_need_no_room() -> None:
    """In both caches a prompt whose hits another request is reading needs free capacity for the
    rest of it only.

    Why: shared blocks are in use already. Counting them as needed, or taking them off the room a
    second time, refuses the very requests that share a system prompt (Megatron-LM#5822).
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode, n_blocks=6)
        serve(manager, "A", text(12))
        admit(manager, "L", [*text(12), 1])
        same_room(pool, 2, when="with L's four blocks in use")
        for id, free in (("P", 1), ("Q", 0)):
            got = admit(manager, id, [*text(12), 2])
            same(got.cached_tokens, 12, f"cached_tokens of {id}, whose hits L is reading")
            same_room(pool, free, when=f"with {id}")
        with unchanged(pool, manager, "after the refused prompt", "L", "P", "Q"):
            refuses(PoolFullError, "a fourth prompt, with no block free",
                    partial(manager.allocate, "R", [*text(12), 2]))


def test_duplicates_are_released_last_to_first() -> None:
    """Two equal prompts are computed side by side and released; then evict(1) drops the end of the
    cached copy, and the blocks before it are found. So it is when one finds the other's beginning.

    Why: whether giving back a duplicate counts as an access of the first copy is unspecified. If it
    does, it goes from the last block to the first, or what stays cached cannot be reached.
    """
    for mode in CACHES:
        for order in ("AB", "BA"):
            new_example()
            pool, manager = new_manager(mode)
            for id in "AB":
                admit(manager, id, text(13))
            first = manager.block_table(order[0])[:3]
            for id in order:
                manager.release(id, text(13))
            same_at_rest(pool, manager, mode, 3, when="after both")
            for left in (2, 1, 0):
                same(manager.evict(1), 1, "evict(1)")
                same(manager.lookup_prefix(text(13)), first[:left], f"lookup_prefix with {left} "
                     "blocks left")
        new_example()
        pool, manager = new_manager(mode)
        first = list(serve(manager, "A", text(8)).blocks)
        serve(manager, "B", text(8))
        same_at_rest(pool, manager, mode, 2, when="after a prompt that computed its last "
                     "block again")
        same(manager.evict(1), 1, "evict(1)")
        same(manager.lookup_prefix(text(8)), first[:1], "lookup_prefix with one block left")


def test_lookups_and_refusals_keep_eviction_order() -> None:
    """After lookup_prefix, and after a refused prompt, evict(1) still drops the end of the prompt
    that was found.

    Why: whether either counts as an access is unspecified. If it does, its order is that of any
    release: the beginning of a prompt stays the longest.
    """
    for mode in CACHES:
        for refused in (False, True):
            new_example()
            pool, manager = new_manager(mode)
            blocks = list(serve(manager, "A", text(12)).blocks)
            if refused:
                refuses(PoolFullError, "a prompt of 9 blocks in a pool of 8",
                        partial(manager.allocate, "B", [*text(12), *text(24, 500)]))
            else:
                same(manager.lookup_prefix(text(12)), blocks, "lookup_prefix of A's three blocks")
            for left in (2, 1, 0):
                same(manager.evict(1), 1, "evict(1)")
                same(manager.lookup_prefix(text(12)), blocks[:left], f"lookup_prefix with {left} "
                     "blocks left")
            same_at_rest(pool, manager, mode, 0, when="with nothing cached")


def test_hits_and_new_blocks_are_evicted_end_first() -> None:
    """A prompt that found two blocks and computed two more is released: evict drops its new blocks
    first, from the end, and its hits after them.

    Why: hits and new blocks are one sequence. Released in two groups, hits first, the beginning is
    evicted before the end (vllm#48489).
    """
    for mode in CACHES:
        new_example()
        _, manager = new_manager(mode)
        serve(manager, "A", text(8))
        blocks = list(admit(manager, "B", text(16)).blocks)
        manager.release("B", text(16))
        for left in (3, 2, 1, 0):
            same(manager.evict(1), 1, "evict(1)")
            same(manager.lookup_prefix(text(16)), blocks[:left], f"lookup_prefix with {left} "
                 "blocks left")


def test_can_allocate_keeps_its_promise() -> None:
    """When can_allocate says yes, every prompt of that length is admitted; with nobody live it says
    yes exactly up to the whole pool; what live requests hold is no room.

    Why: a scheduler plans by it. A yes that allocate takes back stops the engine.
    """
    for mode in (NONE, HASH):
        keeps_its_promise(mode)


def test_radix_keeps_the_promise_of_can_allocate() -> None:
    """In mode radix, too, can_allocate counts what may be evicted as room, and what is locked not.

    Why: the pool calls the tree's blocks used. A scheduler that believed it would admit nobody once
    the cache is warm.
    """
    keeps_its_promise(RADIX)


def keeps_its_promise(mode: str) -> None:
    new_example()
    _, manager = new_manager(mode)
    for prompt in (text(8), text(10, 300)):
        serve(manager, "A", prompt)
    for n, fits in ((0, True), (1, True), (29, True), (32, True), (33, False), (100, False)):
        same(manager.can_allocate(n), fits, f"can_allocate({n}), 8 blocks of 4, nobody live")
    admit(manager, "L", text(9))
    same(manager.can_allocate(0), True, "can_allocate(0)")
    for n in (21, 32):
        same(manager.can_allocate(n), False, f"can_allocate({n}) with 3 of 8 blocks held")
    for n in (20, 12, 4):
        if manager.can_allocate(n):  # it may be cautious while somebody is live
            for prompt in (text(n), text(n, 300), text(n, 600)):
                admit(manager, "P", prompt)
                manager.release("P", prompt[:0])
    manager.release("L", text(9))
    same(manager.can_allocate(32), True, "can_allocate(32) when the last request has ended")


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
