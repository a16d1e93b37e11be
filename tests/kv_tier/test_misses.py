"""Misses and block 0: what find leaves behind, and what it asks for again."""

from grader.assertions import new_example, note, same
from tests.block_manager.collisions import TWINS
from tests.kv_tier.samples import (
    SIZE,
    Shelf,
    cached,
    counts,
    damage,
    flush,
    found,
    looked_up,
    new_pool,
    taken,
    text,
    write,
)
from tinyllm.block_hash import hash_chain
from tinyllm.kv_tier import TieredCache

A = text(100, 2)


def test_hits_beyond_a_miss_are_given_back() -> None:
    """Blocks of the sequence that lie beyond a block that neither the pool nor the store has are
    not in use after `find`.

    Why: blocks that were found and cannot be used stay pinned for good (LMCache#1034).
    """
    long = text(600, 4)
    for lost in (0, 1, 2):
        new_example()
        pool, store = new_pool(5), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, long)
        held = found(cache, pool, long, 4, "the sequence")
        cache.give_back(held[: lost + 1])
        flush(cache, pool)
        note(f"the store loses the entry of block {lost}")
        del store.values[hash_chain(long, SIZE)[lost]]
        cache.give_back(held[lost + 1 :])
        looked_up(cache, pool, long, lost, f"the sequence without its block {lost}")
        counts(pool, 2, 0, 3, "after that")
        flush(cache, pool)


def test_a_look_that_ends_early_leaves_the_tail_oldest() -> None:
    """Where a look ends before the last hits of the sequence, those are evicted last block first
    afterwards, as if the look had not been.

    Why: a cache that gives back what it does not need in the wrong order turns the sequence round,
    and the next eviction takes its head (vllm#48489).
    """
    long = text(600, 4)
    names = hash_chain(long, SIZE)
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, long)
    held = found(cache, pool, long, 4, "the sequence")
    cache.give_back(held[:1])
    flush(cache, pool)
    note("the first entry is damaged")
    store.values[names[0]] = store.values[names[0]][:-8] + bytes(8)
    cache.give_back(held[1:])
    looked_up(cache, pool, long, 0, "the sequence, its first entry damaged")
    for n in range(4):
        taken(cache, 1)
        same(list(store.values), names[:0:-1][:n], f"the spilled blocks after {n + 1} allocations "
             "of one block; the first one took the free block")


def test_long_sequences_are_spilled_and_restored_whole() -> None:
    """A sequence of eighty blocks is spilled by one allocation and restored by one look.

    Why: a real prompt has hundreds of blocks. A limit per call that no small test reaches loses
    most of it (vllm#53498).
    """
    long = text(0, 80)
    pool, store = new_pool(81, n_layers=1), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, long)
    flush(cache, pool)
    same(len(store.values), 80, "entries in the store after all was evicted at once")
    looked_up(cache, pool, long, 80, "the sequence of eighty blocks")
    same(list(store.values), hash_chain(long, SIZE)[::-1], "the names in the store, the next to be "
         "dropped first")
    counts(pool, 1, 0, 80, "when it is given back")


def test_a_rejected_entry_costs_no_other_entry() -> None:
    """Only the damaged entry is discarded; the entries before and after it stay in the store.

    Why: the damaged block is computed again, and the rest of the sequence is right.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    flush(cache, pool)
    names = hash_chain(long, SIZE)
    whole = store.values[names[1]]
    damage(store, names[1], "second")
    looked_up(cache, pool, long, 1, "a sequence whose second entry is damaged")
    same(sorted(store.values), sorted([names[0], *names[2:]]), "the names in the store after that")
    note("the second entry is whole again")
    store.values[names[1]] = whole
    looked_up(cache, pool, long, 4, "the sequence")


def test_a_restored_copy_of_a_busy_hash_is_private() -> None:
    """A block that is restored while a block of another sequence has its hash in the pool holds the
    right K and V, has no hash, and is free when it is given back.

    Why: the pool does not cache it. A cache that believes otherwise spills a block that is not
    there (vllm#44237).
    """
    for mine, other in (TWINS[0], TWINS[0][::-1]):
        new_example()
        pool, store = new_pool(3), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, mine)
        flush(cache, pool)
        cached(cache, pool, other)
        held = found(cache, pool, other, 1, "another sequence of the same hash, in the pool")
        ids = found(cache, pool, mine, 1, "the first sequence, from the store")
        counts(pool, 1, 2, 0, "while both are held")
        cache.give_back(ids)
        cache.give_back(held)
        counts(pool, 2, 0, 1, "when both are given back")
        flush(cache, pool)
        looked_up(cache, pool, other, 1, "the other sequence, evicted since")
        same(cache.stats().spilled, 2, "spilled blocks: one of each sequence")


def test_block_0_is_a_block_like_any_other() -> None:
    """Block 0 is found, restored, given back and evicted like any other, wherever it stands in a
    sequence.

    Why: 0 is false in Python, so a test like `if block:` takes block 0 for a miss (mlx-lm#1495).
    """
    long = text(600, 4)
    for place in range(4):
        new_example()
        pool, store = new_pool(4), Shelf()
        cache = TieredCache(pool, store)
        ids = sorted(taken(cache, 4))
        ids = ids[-place:] + ids[:-place] if place else ids
        write(pool, ids, long)
        cache.keep(long, ids)
        where = f"block 0 is number {place} of the sequence"
        looked_up(cache, pool, long, 4, f"the sequence in the pool, where {where}")
        held = found(cache, pool, long, 4, "the sequence")
        cache.give_back(held[:1])
        flush(cache, pool)
        note("the store loses the entry of the first block")
        store.values.clear()
        cache.give_back(held[1:])
        looked_up(cache, pool, long, 0, f"the sequence without its first block, where {where}")
        counts(pool, 1, 0, 3, f"after that, where {where}")
        flush(cache, pool)
        same(len(store.values), 3, f"entries in the store after all was evicted, where {where}")


def test_a_miss_is_looked_up_again() -> None:
    """A block that was not in the store is looked for again at the next `find`: another cache may
    have stored it since.

    Why: several engines use one store. A cache that remembers misses never sees their work.
    """
    store = Shelf()
    pools = [new_pool(4), new_pool(4)]
    first, second = (TieredCache(pool, store) for pool in pools)
    looked_up(second, pools[1], A, 0, "a sequence that no cache has computed")
    cached(first, pools[0], A)
    flush(first, pools[0])
    looked_up(second, pools[1], A, 2, "the sequence that another cache has spilled since")


def test_empty_lists_are_fine() -> None:
    """No blocks are allocated, kept and given back, and no tokens are looked up, without an error
    and without an effect.

    Why: a request whose prompt is all hits allocates nothing, and the code that calls the cache
    should not need a special case.
    """
    pool, store = new_pool(2), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    same(list(cache.alloc(0)), [], "the blocks of an allocation of none")
    cache.keep([], [])
    cache.give_back([])
    same(list(cache.find([])), [], "the blocks of no tokens")
    counts(pool, 0, 0, 2, "after calls with nothing in them")
    same(len(store.values), 0, "entries in the store")
