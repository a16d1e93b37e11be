"""Which block goes first: in the pool, in a bounded store, and between the two."""

from grader.assertions import demand, new_example, note, same
from grader.assertions.wording import say
from tests.kv_tier.samples import (
    ROOMY,
    SIZE,
    Shelf,
    cached,
    counts,
    flush,
    folder,
    found,
    looked_up,
    new_pool,
    taken,
    text,
    write,
)
from tinyllm.block_hash import hash_chain
from tinyllm.kv_tier import BlockStore, DiskStore, MemoryStore, TieredCache

A, B, LONG = text(100, 2), text(200, 2), text(300, 3)
ONE = text(400, 1)


def test_eviction_takes_the_tail_of_a_found_sequence_first() -> None:
    """After `give_back(find(sequence))` the pool evicts the last block of the sequence first and
    its first block last, whether the blocks were hits or came from the store.

    Why: without its head nothing of a sequence can be found, so evicting the head first wastes all
    blocks after it (vllm#51787).
    """
    for restored in (False, True):
        new_example()
        pool, store = new_pool(4), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, LONG)
        if restored:
            flush(cache, pool)
        looked_up(cache, pool, LONG, 3, "the sequence")
        note("the store is emptied")
        store.values.clear()
        for n in range(4):
            taken(cache, 1)
            same(list(store.values), hash_chain(LONG, SIZE)[::-1][:n],
                 f"the spilled blocks after {n + 1} allocations of one block; the first one took "
                 "the free block")


def test_one_list_may_have_references_of_several_holders() -> None:
    """`give_back` accepts the references of several holders in one list: each reference counts, and
    each block enters the LRU list once, a tail before its head.

    Why: a block that is queued twice is handed out twice (dynamo#13398), and one that keeps a
    reference is lost.
    """
    names = hash_chain(LONG, SIZE)
    for first, second in ((2, 3), (3, 2), (3, 3)):
        new_example()
        pool, store = new_pool(4), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, LONG)
        one = found(cache, pool, LONG[: SIZE * first], first, "the sequence, by one request")
        two = found(cache, pool, LONG[: SIZE * second], second, "the sequence, by another request")
        cache.give_back([*one, *two])
        counts(pool, 1, 0, 3, "when both requests' references are given back in one list")
        got = taken(cache, 3)
        same(list(store.values), names[:0:-1], "the spilled blocks after an allocation of three, "
             "for which one block was free")
        got += taken(cache, 1)
        same(list(store.values), names[::-1], "the spilled blocks after one more")
        same(sorted(got), [0, 1, 2, 3], "the ids of the four blocks, sorted")


def test_a_duplicate_leaves_the_head_newer_than_the_tail() -> None:
    """When `keep` gets a copy of a block whose hash another block has, the other block stays cached
    and counts as accessed: it is evicted after the rest of its sequence.

    Why: two requests with one system prompt compute it twice. If only the new blocks count as
    recent, eviction takes the shared head first, and the rest cannot be found.
    """
    pool, store = new_pool(3), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A[:SIZE])
    blocks = taken(cache, 2)
    write(pool, blocks, A)
    cache.keep(A, blocks)
    counts(pool, 1, 0, 2, "when the head was kept twice and the tail once")
    taken(cache, 2)
    same(list(store.values), hash_chain(A, SIZE)[1:], "the spilled blocks after one eviction: the "
         "tail")


def test_keep_takes_one_reference_of_each_block() -> None:
    """`keep` gives back one reference of each block: other requests that have found the same blocks
    still hold them.

    Why: a second release through another path hands out blocks that a request reads
    (LMCache#2954).
    """
    pool = new_pool(4)
    cache = TieredCache(pool, Shelf())
    cached(cache, pool, A)
    one = found(cache, pool, A, 2, "the sequence, by one request")
    two = found(cache, pool, A, 2, "the sequence, by a second request")
    three = found(cache, pool, A, 2, "the sequence, by a third request")
    cache.keep(A, one)
    cache.give_back(two)
    counts(pool, 2, 2, 0, "when one of the three has kept it and one has given it back")
    cache.keep(A, three)
    counts(pool, 2, 0, 2, "when the third has kept it, too")


def test_an_allocation_spills_in_the_order_of_eviction() -> None:
    """Where one allocation evicts several blocks, they are spilled least recently used first, so a
    bounded store that cannot keep all of them keeps the head of a sequence.

    Why: a store that keeps the tail and has dropped the head holds blocks that cannot be found.
    """
    pool, store = new_pool(3), Shelf(entries=2)
    cache = TieredCache(pool, store)
    cached(cache, pool, LONG)
    flush(cache, pool)
    same(list(store.values), hash_chain(LONG, SIZE)[1::-1],
         "the entries of a store for two, after a sequence of three blocks was evicted")
    looked_up(cache, pool, LONG, 2, "the sequence")


def test_a_store_drops_the_tail_of_a_found_sequence_first() -> None:
    """After `give_back(find(sequence))` a bounded store drops the last entry of the sequence first
    and the first entry last.

    Why: `find` reads from the head on. If nothing else touches the entries, the head is the least
    recently used one, and the next spill of another request makes the whole rest unreachable
    (LMCache#1116).
    """
    for others in range(4):
        new_example()
        store = Shelf(entries=3)
        pool = new_pool(4)
        cache = TieredCache(pool, store)
        cached(cache, pool, LONG)
        flush(cache, pool)
        looked_up(cache, pool, LONG, 3, "the sequence, from a store for three entries")
        note(f"another cache puts {others} entries into the store, and a new pool begins")
        for name in range(others):
            store.put(name, b"of another cache")
        pool = new_pool(4)
        looked_up(TieredCache(pool, store), pool, LONG, 3 - others, "the sequence, by the new pool")


def test_the_stores_of_the_kit_drop_the_tail_first() -> None:
    """After `give_back(find(sequence))` the names of a store have the tail before the head: in
    memory, on disk, and on disk below a memory of no size.

    Why: a store on disk is all that a restart leaves, and its order decides what of it is useful.
    """
    with folder() as path:
        disk, lower = DiskStore(path / "1", ROOMY), DiskStore(path / "2", ROOMY)
        memory = MemoryStore(ROOMY)
        cases: list[tuple[str, BlockStore, MemoryStore | DiskStore]] = [
            ("memory", memory, memory), ("disk", disk, disk),
            ("disk below memory", MemoryStore(0, lower), lower)]
        for what, store, named in cases:
            new_example()
            pool = new_pool(4)
            cache = TieredCache(pool, store)
            cached(cache, pool, LONG)
            flush(cache, pool)
            looked_up(cache, pool, LONG, 3, f"the sequence, from {what}")
            same(list(named.names()), hash_chain(LONG, SIZE)[::-1],
                 f"the names in the store ({what}), the next to be evicted first")
        disk.close()
        lower.close()


def test_a_restored_block_is_spilled_again() -> None:
    """A block that came from the store is spilled at its next eviction like any other, whether its
    entry is still in the store or not.

    Why: a bounded store may drop an entry at any time. A cache that believes that the entry is
    still there loses the block (vllm#35846).
    """
    pool, store = new_pool(4), Shelf(entries=2)
    cache = TieredCache(pool, store)
    cached(cache, pool, ONE)
    flush(cache, pool)
    held = found(cache, pool, ONE, 1, "a sequence of one block, from the store")
    cached(cache, pool, B)
    flush(cache, pool)
    same(sorted(store.values), sorted(hash_chain(B, SIZE)), "the entries of a store for two, after "
         "two other blocks were evicted")
    cache.give_back(held)
    flush(cache, pool)
    looked_up(cache, pool, ONE, 1, "the sequence of one block, evicted for the second time")
    same(cache.stats().spilled, 4, "spilled blocks")


def test_a_stored_block_survives_what_the_same_call_spills() -> None:
    """A block whose entry is in the store at the begin of an allocation is still in the store at
    its end, also where the other blocks that the allocation evicts push the old entry out.

    Why: whoever asks the store first and leaves out what it has, loses the block to the spills of
    the same call (vllm#35846).
    """
    pool, store = new_pool(4), Shelf(entries=2)
    cache = TieredCache(pool, store)
    cached(cache, pool, ONE)
    flush(cache, pool)
    held = found(cache, pool, ONE, 1, "a sequence of one block, from the store")
    cached(cache, pool, B)
    cache.give_back(held)
    same(list(store.values), hash_chain(ONE, SIZE), "the entries in the store")
    flush(cache, pool)
    same(list(store.values), [hash_chain(B, SIZE)[0], hash_chain(ONE, SIZE)[0]],
         "the entries of a store for two, after one call evicted three blocks")
    looked_up(cache, pool, ONE, 1, "the sequence of one block")


def test_find_reads_an_entry_before_it_makes_room() -> None:
    """`find` reads an entry before it evicts a block for it, because the spill of that block may
    push the entry out of a bounded store. What the store cannot keep gives a shorter hit.

    Why: otherwise restoring evicts what is being restored (sglang#27631), and a small store never
    gives a hit.
    """
    for entries, counted in ((1, (1,)), (2, (1, 2)), (3, (2,))):
        new_example()
        pool, store = new_pool(2), Shelf(entries)
        cache = TieredCache(pool, store)
        cached(cache, pool, A)
        flush(cache, pool)
        cached(cache, pool, B)
        ids = cache.find(A)
        demand(len(ids) in counted, f"how many blocks are found with a store for {entries} entries",
               " or ".join(map(str, counted)), say(len(ids)))
        found(cache, pool, A[: SIZE * len(ids)], len(ids), "what was found, once more")
        cache.give_back([*ids, *ids])
        counts(pool, 0, 0, 2, "when it is given back")


def test_a_bounded_store_never_makes_find_fail() -> None:
    """Two sequences take turns in a pool and a store of every small size: each `find` returns the
    right blocks of a beginning, and no block stays in use.

    Why: a cache that looks first and reads later finds nothing where it expects an entry, and stops
    the request (LMCache#4133).
    """
    for blocks in (3, 4, 5):
        for entries in range(5):
            new_example()
            pool, store = new_pool(blocks), Shelf(entries)
            cache = TieredCache(pool, store)
            for turn in range(4):
                tokens = (LONG, A)[turn % 2]
                when = f"turn {turn}, a pool of {blocks} blocks and a store for {entries} entries"
                ids = cache.find(tokens)
                cache.give_back(found(cache, pool, tokens[: SIZE * len(ids)], len(ids), when))
                cache.give_back(ids)
                same(pool.stats().used, 0, f"blocks in use after {when}")
                cached(cache, pool, tokens)


def test_a_prompt_larger_than_the_free_capacity_is_restored_in_part() -> None:
    """Hits take part of the pool: what is restored beside them has only the rest, and the run ends
    there.

    Why: a hit that waits in the LRU list is not available capacity once it is held (vllm#11565).
    """
    store = Shelf()
    long = text(600, 4)
    pool = new_pool(4)
    cache = TieredCache(pool, store)
    cached(cache, pool, long)
    flush(cache, pool)
    new_example()
    pool = new_pool(3)
    cache = TieredCache(pool, store)
    looked_up(cache, pool, long[: 2 * SIZE], 2, "the first half of a sequence of four blocks")
    looked_up(cache, pool, long, 3, "the whole sequence, in a pool of three blocks")
    counts(pool, 0, 0, 3, "when it is given back")


def test_a_failed_read_ends_the_run_and_keeps_its_beginning() -> None:
    """An entry that cannot be read is a miss: what `find` has before it is found, in the pool and
    in the store, and what comes after it is given back.

    Why: one unreadable sector costs the blocks from there on, and not the whole prompt
    (LMCache#3292).
    """
    names = hash_chain(text(600, 4), SIZE)
    for hits in (0, 1):
        new_example()
        pool, store = new_pool(5), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, text(600, 4))
        held = found(cache, pool, text(600, 4), 4, "the sequence")
        cache.give_back(held[hits:3])
        flush(cache, pool)
        cache.give_back(held[:hits] + held[3:])
        note("the third entry cannot be read")
        store.unreadable = {names[2]}
        looked_up(cache, pool, text(600, 4), 2, f"the sequence, {hits} of its first two blocks in "
                  "the pool, its third entry unreadable, its last block in the pool")
        counts(pool, 2, 0, 3, "after that")
        same(cache.stats().failed, 1, "failed blocks")
        store.unreadable.clear()
        looked_up(cache, pool, text(600, 4), 4, "the sequence, when everything can be read")
