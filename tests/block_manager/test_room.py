"""Room: what can be had, what is evicted for it, and refusals that change nothing."""

from functools import partial

from grader.assertions import new_example, refuses, same
from tests.block_manager.samples import (
    CACHES,
    HASH,
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
