"""The cache: which blocks are evicted, when, and which never."""

from contextlib import suppress
from random import Random

from grader.assertions import demand, refuses, same, same_bytes
from tests.kv_pool.samples import (
    cache,
    contents,
    give_back,
    in_one_step,
    new_pool,
    same_counts,
    slab,
    take,
    take_full,
    take_named,
    unchanged,
    write,
)
from tinyllm.errors import HashBusyError, PoolFullError


def test_eviction_takes_the_least_recently_used() -> None:
    """A hit makes a cached block the newest once it is given back; two allocations evict the two
    oldest; evictions counts them.

    Why: prefixes in use are found again and again. Evicting the newest, or the first registered,
    throws away the system prompt that every request begins with.
    """
    pool = new_pool(n_blocks=4)
    one, two, three, four = cache(pool, 1, 2, 3, 4)
    same_counts(pool, 0, 0, 4, when="with every block cached")
    same(pool.lookup(1), one, "the block that lookup(1) finds")
    pool.unref(one)
    same(take(pool, 1), [two], "the block that alloc(1) evicts and returns: the oldest")
    same(take(pool, 1), [three], "the block that the next alloc(1) evicts and returns")
    same_counts(pool, 0, 2, 2, 2, when="after two evictions")
    same([pool.lookup(2), pool.lookup(3)], [None, None], "lookups of the evicted blocks' hashes")
    same([pool.lookup(4), pool.lookup(1)], [four, one], "the blocks that are still found")


def test_a_revived_block_is_never_evicted() -> None:
    """After a hit the next allocations take other blocks, and when no other is left they are
    refused.

    Why: a request is reading the block. If it is evicted, somebody else writes into it, and the
    request goes on with another prompt's K and V.
    """
    pool = new_pool(n_blocks=3)
    one, two, three = cache(pool, 1, 2, 3)
    same(pool.lookup(1), one, "the block that lookup(1) finds")
    data = write(pool, one, 40)
    same_counts(pool, 0, 1, 2, when="after the hit: the revived block is cached no more")
    same(take(pool, 1), [two], "the block that alloc(1) evicts and returns")
    same(take(pool, 1), [three], "the block that the next alloc(1) evicts and returns")
    with unchanged(pool, "after alloc(1) with every block held", names=True):
        refuses(PoolFullError, "alloc(1) with every block held", lambda: pool.alloc(1))
    same_bytes(contents(pool, one), data, "the revived block's contents")
    pool.unref(one)
    same_counts(pool, 0, 2, 1, 2, when="after the revived block was given back")
    same(take(pool, 1), [one], "the block that alloc(1) evicts and returns then")


def test_an_age_begins_when_a_block_becomes_cached() -> None:
    """Blocks are evicted in the order in which their last holder gave them back, whatever the order
    of their ids, names and earlier hits.

    Why: a long request keeps its blocks young as long as it runs.
    """
    pool = new_pool(n_blocks=4)
    ids = take_named(pool, 1, 2, 3, 4)
    pool.ref(ids[1])
    for at in (1, 2, 0, 1, 3):
        pool.unref(ids[at])
    for at, order in ((2, "first"), (0, "second"), (1, "third"), (3, "fourth")):
        same(take(pool, 1), [ids[at]], f"the block that is evicted {order}")
    same_counts(pool, 0, 4, 0, 4, when="after four evictions")


def test_a_block_cached_by_cow_is_the_newest() -> None:
    """A named block that its only holder has copied is cached, and evicted after all that were
    cached before.

    Why: somebody has just used it. A second place where blocks become cached is easily one that
    puts them at the wrong end.
    """
    pool = new_pool(n_blocks=5)
    one, two = cache(pool, 1, 2)
    (three,) = take_named(pool, 3)
    copy = pool.cow(three)
    demand(copy != three, "the block that the holder of a named block may write into",
           f"a copy: any block but {three}", f"{copy}")
    same_counts(pool, 1, 1, 3, when="with the copy held and the original cached")
    take(pool, 1)
    for id, order in ((one, "first"), (two, "second"), (three, "third: the one just copied")):
        same(take(pool, 1), [id], f"the block that is evicted {order}")


def test_an_old_hit_does_not_protect_a_block() -> None:
    """Blocks that were hit many times, long ago, are evicted before a block that became cached
    later and was never hit.

    Why: the order is LRU and nothing else. A queue of its own for blocks that were hit, or a count
    of hits, keeps yesterday's prompts and evicts today's; and when only such blocks are left, an
    allocation must still get them.
    """
    pool = new_pool(n_blocks=4)
    hit, often = take_named(pool, 1, 2)
    for hash, id, times in ((1, hit, 1), (2, often, 5)):
        pool.unref(id)
        for _ in range(times):
            same(pool.lookup(hash), id, f"the block that lookup({hash}) finds")
            pool.unref(id)
    later, last = cache(pool, 3, 4)
    for id, order in ((hit, "first"), (often, "second"), (later, "third")):
        same(take(pool, 1), [id], f"the block that is evicted {order}")
    same(pool.lookup(4), last, "the block that lookup(4) finds")
    pool.unref(last)
    same(take(pool, 1), [last], "the block that is evicted last: the only one, and it was hit")
    same_counts(pool, 0, 4, 0, 4, when="after four evictions")


def test_a_large_cache_is_evicted_in_lru_order() -> None:
    """Of 600 cached blocks each allocation evicts exactly the one that became cached first.

    Why: a real cache holds thousands of blocks. A clock of 8 bits, or an eviction in batches of one
    per cent, looks right in a pool of ten.
    """
    random, n = Random(21), 600
    pool = new_pool(n_blocks=n, block_tokens=1, head_dim=1)
    ids = take_named(pool, *range(1, n + 1))
    random.shuffle(ids)
    give_back(pool, *ids)
    for at in range(0, n, 3):
        found = pool.lookup(pool.hash_of(ids[at]))
        same(found, ids[at], "the block that a lookup finds")
        pool.unref(ids[at])
    order = [id for at, id in enumerate(ids) if at % 3] + ids[::3]
    for at, id in enumerate(order):
        same(take(pool, 1), [id], f"the block that is evicted by allocation {at + 1}")
        same_counts(pool, 0, at + 1, n - at - 1, at + 1, when=f"after allocation {at + 1}")


def test_lru_order_survives_many_hits() -> None:
    """After 70,000 hits on one block, a block that was cached in between is older than it.

    Why: a server counts millions of hits. A clock of 16 bits wraps around within minutes, and from
    then on the wrong block is evicted.
    """
    pool = new_pool(n_blocks=2)
    busy, quiet = cache(pool, 1, 2)
    with in_one_step("look up hash 1 and give its block back 70000 times; hash 2 once after 40000"):
        for turn in range(70_000):
            same(pool.lookup(1), busy, "the block that lookup(1) finds")
            pool.unref(busy)
            if turn == 40_000:
                same(pool.lookup(2), quiet, "the block that lookup(2) finds")
                pool.unref(quiet)
    same_counts(pool, 0, 0, 2, when="after these hits")
    same(take(pool, 1), [quiet], "the block that alloc(1) evicts and returns")
    same(take(pool, 1), [busy], "the block that the next alloc(1) evicts and returns")


def test_only_the_last_unref_touches_the_order() -> None:
    """References that come and go while somebody holds the block make no cached block older or
    newer.

    Why: the order says for how long nobody has needed a block. What happens to a block in use says
    nothing of those.
    """
    pool = new_pool(n_blocks=4)
    one, two, three = cache(pool, 1, 2, 3)
    (four,) = take_named(pool, 4)
    pool.ref(four)
    same(pool.lookup(4), four, "the block that lookup(4) finds")
    give_back(pool, four, four)
    same_counts(pool, 0, 1, 3, when="with one of three holders left")
    pool.unref(four)
    for id, order in ((one, "first"), (two, "second"), (three, "third"), (four, "fourth")):
        same(take(pool, 1), [id], f"the block that is evicted {order}")


def test_a_chain_is_evicted_from_its_end() -> None:
    """A prompt's blocks given back last to first are evicted last to first, so its beginning is
    still found.

    Why: a block is reachable only through all blocks before it. Evicting the beginning first leaves
    a tail in the cache that no prompt can ever hit.
    """
    pool = new_pool(n_blocks=6)
    take(pool, 1)
    chain = take_named(pool, 101, 102, 103, 104)
    give_back(pool, *reversed(chain))
    take(pool, 3)
    same_counts(pool, 0, 4, 2, 2, when="with one block free and four cached, after alloc(3)")
    found = [pool.lookup(hash) for hash in (101, 102, 103, 104)]
    same(found, [*chain[:2], None, None], "what the lookups of the chain find, first to last")


def test_free_blocks_go_before_cached_ones() -> None:
    """As long as a block is free none is evicted, and blocks without a name never enter the cache.

    Why: requests leave partial blocks behind all the time. If those queue up with the cached ones,
    each pushes a prefix out that somebody would have found.
    """
    pool = new_pool(n_blocks=4)
    one, two = cache(pool, 1, 2)
    for _ in range(3):
        ids = take(pool, 2)
        pool.set_fill(ids[0], 1)
        pool.set_fill(ids[1], 2)
        same_counts(pool, 0, 2, 2, when="with the two free blocks taken")
        give_back(pool, *ids)
        same_counts(pool, 2, 0, 2, when="with the two given back, without a name")
    same([pool.lookup(1), pool.lookup(2)], [one, two], "the blocks that are still found")


def test_eviction_takes_no_more_than_it_needs() -> None:
    """An allocation evicts exactly the blocks that the free ones fall short of.

    Why: an eviction that goes on until the cache is empty throws every prefix away for one block.
    """
    pool = new_pool(n_blocks=6)
    ids = cache(pool, 1, 2, 3, 4)
    take(pool, 3)
    same_counts(pool, 0, 3, 3, 1, when="after alloc(3) with two blocks free and four cached")
    take(pool, 2)
    same_counts(pool, 0, 5, 1, 3, when="after alloc(2) with none free")
    found = [pool.lookup(hash) for hash in (1, 2, 3, 4)]
    same(found, [None, None, None, ids[3]], "what the lookups find, oldest first")


def test_alloc_counts_cached_blocks_as_room() -> None:
    """alloc can have all free and all cached blocks; for one more it is refused and evicts nothing.

    Why: a refused request is tried again later. If each try empties the cache, a full server loses
    all its prefixes and becomes slower still.
    """
    pool = new_pool(n_blocks=5)
    cache(pool, 1, 2, 3)
    held = take(pool, 1)
    with unchanged(pool, "after alloc(5)", names=True):
        refuses(PoolFullError, "alloc(5) with one block free and three cached",
                lambda: pool.alloc(5))
    with unchanged(pool, "after alloc(6)", names=True):
        refuses(PoolFullError, "alloc(6) in a pool of 5", lambda: pool.alloc(6))
    same(sorted(held + take(pool, 4)), list(range(5)), "the ids of alloc(1) and alloc(4), sorted")
    same_counts(pool, 0, 5, 0, 3, when="after alloc(4)")


def test_asking_makes_no_block_newer() -> None:
    """Queries, misses and refused calls leave the order of eviction as it is.

    Why: whoever prints the pool, or asks for what is not there, must not decide what stays.
    """
    pool = new_pool(n_blocks=4)
    (plain,) = take_full(pool, 1)
    one, two, three = cache(pool, 1, 2, 3)
    pool.fill(one)
    pool.ref_count(one)
    pool.hash_of(one)
    pool.block(one, 0, False)
    pool.stats()
    same(pool.lookup(4), None, "lookup of a hash that no block has")
    refuses(HashBusyError, "the oldest block's hash for another block",
            lambda: pool.register(plain, 1))
    for id in (one, two, three):
        same(take(pool, 1), [id], "the block that alloc(1) evicts and returns")


def test_a_cached_block_keeps_what_it_holds() -> None:
    """While a block is cached, other requests come and go without touching its contents.

    Why: a hit skips the computing of K and V; it is worth nothing if they changed meanwhile.
    """
    pool = new_pool(n_blocks=4)
    (id,) = take_named(pool, 7)
    data = write(pool, id, 60)
    pool.unref(id)
    for start in (100, 200):
        for other in take(pool, 3):
            write(pool, other, start)
            pool.ref(other)
            pool.unref(other)
            pool.unref(other)
    same([pool.fill(id), pool.hash_of(id)], [2, 7], "the cached block's fill and hash")
    same_bytes(contents(pool, id), data, "the cached block's contents")
    same(pool.lookup(7), id, "the block that lookup(7) finds")


def test_a_long_churn_through_the_cache_finds_only_its_own() -> None:
    """Five hundred requests over a few prompts, in a pool too small for all: each hit finds what
    was stored under its name, and nothing is lost.

    Why: this is a day of a server: hits, misses, evictions and names used again.
    """
    random, pool = Random(11), new_pool(n_blocks=12, block_tokens=1, head_dim=1)
    running: list[list[int]] = []
    for _ in range(500):
        if running and (len(running) == 3 or random.random() < 0.3):
            give_back(pool, *reversed(running.pop(0)))
        hashes = [random.randrange(1, 5) * 100 + i for i in range(random.randint(1, 4))]
        ids: list[int] = []
        while len(ids) < len(hashes) and (hit := pool.lookup(hashes[len(ids)])) is not None:
            what = f"the value in the block that lookup({hashes[len(ids)]}) finds"
            same(int(slab(pool, hit, 0, True)[0, 0, 0]), hashes[len(ids)], what)
            ids.append(hit)
        fresh = take_full(pool, len(hashes) - len(ids))
        for id, hash in zip(fresh, hashes[len(ids) :], strict=True):
            slab(pool, id, 0, True)[...] = hash
            with suppress(HashBusyError):  # a chain's end may outlive its beginning
                pool.register(id, hash)
        running.append(ids + fresh)
    for table in running:
        give_back(pool, *table)
    same(pool.stats().used, 0, "used blocks at the end of all requests")
    same(pool.stats().free + pool.stats().cached, 12, "free and cached blocks together")
    same(sorted(take(pool, 12)), list(range(12)), "every block, allocated once more, sorted")
    for hash in (100, 200, 300, 400):
        same(pool.lookup(hash), None, f"lookup({hash}) with nothing cached")
