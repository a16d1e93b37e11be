"""Taking blocks, sharing them, giving them back: the pool without names."""

from collections import Counter
from functools import partial
from random import Random

from grader.assertions import note, refuses, same, same_bytes
from tests.kv_pool.samples import (
    checked_ids,
    contents,
    give_back,
    in_one_step,
    new_pool,
    same_counts,
    slab,
    take,
    take_full,
    unchanged,
    write,
)
from tinyllm.errors import InvalidArgumentError, PoolFullError


def test_every_block_is_handed_out_once() -> None:
    """Allocating a whole pool gives every id from 0 to n_blocks - 1, each once.

    Why: the id is the block's place in the slab; an id handed out twice is memory that two
    sequences write into.
    """
    pool = new_pool(n_blocks=5)
    same_counts(pool, 5, 0, when="of a new pool")
    ids = take(pool, 2) + take(pool, 3)
    same(sorted(ids), [0, 1, 2, 3, 4], "all ids that two allocations returned, sorted")
    same_counts(pool, 0, 5, when="with every block taken")


def test_alloc_is_all_or_nothing() -> None:
    """Asking for more blocks than there are takes none of them.

    Why: a scheduler admits a request when its blocks fit (L10.2). A refused request that keeps the
    blocks it got so far holds them for ever: nobody has their ids.
    """
    pool = new_pool(n_blocks=4)
    with unchanged(pool, "after alloc(5) in a new pool of 4"):
        refuses(PoolFullError, "alloc(5) in a new pool of 4", lambda: pool.alloc(5))
    held = take(pool, 3)
    write(pool, held[0], 10)
    with unchanged(pool, "after alloc(2) with one block free"):
        refuses(PoolFullError, "alloc(2) with one block free", lambda: pool.alloc(2))
    held += take(pool, 1)
    with unchanged(pool, "after alloc(1) in a full pool"):
        refuses(PoolFullError, "alloc(1) in a full pool", lambda: pool.alloc(1))
    give_back(pool, *held)
    same_counts(pool, 4, 0, when="with every block given back")
    take(pool, 4)


def test_alloc_of_no_blocks_is_an_empty_list() -> None:
    """alloc(0) returns an empty list and changes nothing, in an empty pool and in a full one.

    Why: a prompt whose blocks are all in the cache needs none that are new.
    """
    pool = new_pool(n_blocks=2)
    for when in ("in a new pool", "in a full pool"):
        with unchanged(pool, f"after alloc(0) {when}"):
            same(pool.alloc(0), [], f"alloc(0) {when}")
        if pool.stats().free:
            take(pool, 2)


def test_a_new_block_has_one_holder_and_no_data() -> None:
    """A block from alloc has reference count 1 and fill 0, whatever it was used for before.

    Why: a fill that survives makes the last owner's K and V look like the new owner's.
    """
    pool = new_pool(n_blocks=3)
    first = take_full(pool, 3)
    for id in first:
        pool.ref(id)
    give_back(pool, *first, *first)
    for id in take(pool, 3):
        same(pool.ref_count(id), 1, f"the reference count of block {id}, allocated again")
        same(pool.fill(id), 0, f"the fill of block {id}, allocated again")


def test_a_free_block_has_no_holder_and_no_data() -> None:
    """Fill and reference count of a block that nobody holds are 0, and asking is no error.

    Why: whoever prints or checks the pool asks about every block, free ones too.
    """
    pool = new_pool(n_blocks=2)
    same([pool.fill(id) for id in (0, 1)], [0, 0], "the fills in a new pool")
    same([pool.ref_count(id) for id in (0, 1)], [0, 0], "the reference counts in a new pool")
    (id,) = take_full(pool, 1)
    same(pool.fill(id), 2, "the fill that was set")
    pool.unref(id)
    same(pool.fill(id), 0, "the fill of a block that was given back")
    same(pool.ref_count(id), 0, "the reference count of a block that was given back")


def test_a_block_is_free_when_its_last_holder_goes() -> None:
    """Each ref adds a holder; a block stays used until as many unrefs have come.

    Why: a fork shares its parent's blocks, and either of the two may finish first.
    """
    pool = new_pool(n_blocks=3)
    (id,) = take(pool, 1)
    data = write(pool, id, 7)
    pool.ref(id)
    pool.ref(id)
    same(pool.ref_count(id), 3, "the reference count after alloc and two refs")
    same_counts(pool, 2, 1, when="with one block held three times")
    for left in (2, 1):
        pool.unref(id)
        same(pool.ref_count(id), left, "the reference count after an unref")
        same_counts(pool, 2, 1, when=f"with {left} holders left")
        same_bytes(contents(pool, id), data, "the contents while somebody holds the block")
    pool.unref(id)
    same_counts(pool, 3, 0, when="after the last unref")


def test_a_block_may_have_very_many_holders() -> None:
    """A block may be held 70,001 times, and each unref takes one holder away.

    Why: all requests of a service share the blocks of its instructions. A count that wraps round
    comes to 0 one day, and the block is given away while thousands read it.
    """
    pool = new_pool(n_blocks=2)
    (id,) = take(pool, 1)
    with in_one_step(f"call pool.ref({id}) 70000 times"):
        for _ in range(70_000):
            pool.ref(id)
    same(pool.ref_count(id), 70_001, "the reference count after alloc and 70000 refs")
    pool.unref(id)
    same(pool.ref_count(id), 70_000, "the reference count after an unref")
    same_counts(pool, 1, 1, when="with one block held 70000 times")


def test_a_large_pool_hands_out_every_block_once() -> None:
    """One `alloc` of 70,000 blocks returns 70,000 different ids, and each block has its own memory.

    Why: a real pool has tens of thousands of blocks. Ids that are kept in 16 bits, or one recursive
    call per block, work in every small pool.
    """
    n = 70_000
    pool = new_pool(n_blocks=n, block_tokens=1, head_dim=1)
    ids = take(pool, n)
    same_counts(pool, 0, n, when="with every block taken")
    marks = {id: at for at, id in enumerate((0, 1, 255, 256, 32_768, 65_535, 65_536, n - 1))}
    for id, mark in marks.items():
        slab(pool, id, 0, False)[...] = mark
    for id, mark in marks.items():
        same(int(slab(pool, id, 0, False)[0, 0, 0]), mark, f"the value written into block {id}")
    with in_one_step(f"call pool.unref for each of the {n} blocks"):
        for id in ids:
            pool.unref(id)
    same_counts(pool, n, 0, when="with every block freed")
    same(len({*take(pool, n // 2), *take(pool, n // 2)}), n, "the number of different ids of two "
         f"allocations of {n // 2}")


def test_a_block_may_have_very_many_positions() -> None:
    """A block of 70,000 positions takes every fill up to 70,000, and a copy has it too.

    Why: a fill that is kept in 8 or 16 bits wraps around, and a full block counts as empty.
    """
    pool = new_pool(n_blocks=2, block_tokens=70_000, head_dim=1)
    (id,) = take(pool, 1)
    for fill in (255, 256, 32_768, 65_535, 65_536, 70_000):
        pool.set_fill(id, fill)
        same(pool.fill(id), fill, f"the fill after set_fill({id}, {fill})")
    with unchanged(pool, "after set_fill past the block"):
        refuses(InvalidArgumentError, "a fill of 70001 in a block of 70000 positions",
                lambda: pool.set_fill(id, 70_001))
    pool.ref(id)
    same(pool.fill(pool.cow(id)), 70_000, "the fill of a copy")


def test_the_ids_of_an_allocation_belong_to_the_caller() -> None:
    """The list that `alloc` returns never changes later, and changing it does not change the pool.

    Why: a caller keeps the list as its block table and appends to it. A list that the pool uses
    again turns one request's table into the next one's.
    """
    pool = new_pool(n_blocks=5)
    first = pool.alloc(2)
    ids = checked_ids(first, 2, 5, "the ids that alloc(2) returns")
    more = take(pool, 2)
    same(list(first), ids, "the list of the first allocation, after a second one")
    if isinstance(first, list):
        note("the caller empties the list of the first allocation")
        first.clear()
    same_counts(pool, 1, 4, when="after the caller changed its list")
    give_back(pool, *ids)
    same_counts(pool, 3, 2, when="after the first allocation was given back")
    same(len({*take(pool, 3), *more}), 5, "the number of different blocks in use")


def test_double_unref_is_einval_and_changes_nothing() -> None:
    """A second unref, an id out of range and a ref on a free block are refused, and change nothing.

    Why: a block that goes back twice stands on the free list twice; later it is given to two
    sequences, and each overwrites what the other computed.
    """
    pool = new_pool(n_blocks=3)
    held, other, id = take(pool, 3)
    write(pool, held, 3)
    for bad in (3, -1):
        with unchanged(pool, f"after ref({bad}) and unref({bad})"):
            refuses(InvalidArgumentError, f"unref({bad}) in a pool of 3", partial(pool.unref, bad))
            refuses(InvalidArgumentError, f"ref({bad}) in a pool of 3", partial(pool.ref, bad))
    pool.unref(id)
    with unchanged(pool, "after the second unref"):
        refuses(InvalidArgumentError, "the second unref of a block", lambda: pool.unref(id))
    with unchanged(pool, "after ref on a free block"):
        refuses(InvalidArgumentError, "ref on a free block", lambda: pool.ref(id))
    pool.unref(other)
    rest = take(pool, 2)
    same(sorted(rest), sorted([other, id]), "the blocks of the next alloc(2), sorted")


def test_set_fill_keeps_to_the_block() -> None:
    """A held block's fill may be set to anything from 0 to block_tokens, up or down, no further.

    Why: export and register trust the fill; one beyond the block would read past its end.
    """
    pool = new_pool(n_blocks=2, block_tokens=3)
    (id,) = take(pool, 1)
    for n in (3, 0, 1, 2):
        pool.set_fill(id, n)
        same(pool.fill(id), n, f"the fill after set_fill({id}, {n})")
    for n in (4, -1, 2**32 - 1, 2**64):
        with unchanged(pool, f"after set_fill({id}, {n})"):
            refuses(InvalidArgumentError, f"a fill of {n} in a block of 3 positions",
                    partial(pool.set_fill, id, n))
    with unchanged(pool, "after set_fill on a free block"):
        refuses(InvalidArgumentError, "set_fill on a free block", lambda: pool.set_fill(1 - id, 1))


def test_the_fill_of_a_shared_block_may_be_set() -> None:
    """set_fill raises and lowers the fill of a block with several references, as long as it has no
    name.

    Why: the fill only says how far the data goes; who may write is what cow decides.
    """
    pool = new_pool()
    (id,) = take(pool, 1)
    pool.ref(id)
    for fill in (2, 1):
        pool.set_fill(id, fill)
        same(pool.fill(id), fill, f"the fill of a shared block after set_fill({id}, {fill})")
    same(pool.ref_count(id), 2, "its reference count")


def test_a_pool_of_one_block_works() -> None:
    """The smallest pool gives out its block, is full, and gets it back.

    Why: sizes of one are where an end is taken for a beginning.
    """
    pool = new_pool(n_blocks=1, block_tokens=1, head_dim=1)
    for _ in range(3):
        same(take(pool, 1), [0], "the only block")
        refuses(PoolFullError, "alloc(1) with the only block taken", lambda: pool.alloc(1))
        pool.unref(0)
        same_counts(pool, 1, 0, when="with the only block given back")


def test_two_pools_share_nothing() -> None:
    """What is done in one pool shows in no other: counts, fills and contents.

    Why: an engine runs a pool for each model; state kept for the class, not the object, mixes them.
    """
    left, right = new_pool(n_blocks=3), new_pool(n_blocks=3)
    for id in take_full(right, 2):
        write(right, id, 50)
    with unchanged(right, "after calls on another pool"):
        ids = take_full(left, 3)
        for id in ids:
            write(left, id, 5)
        left.ref(ids[0])
        give_back(left, *ids)


def test_a_fork_gives_every_block_back() -> None:
    """Parent and child share two blocks, the child copies the last; when both end, all is free.

    Why: beam search and parallel sampling fork at every step; one block lost each time empties the
    pool within minutes.
    """
    pool = new_pool(n_blocks=5)
    parent = take(pool, 2)
    pool.set_fill(parent[0], 2)
    pool.set_fill(parent[1], 1)
    for id in parent:
        pool.ref(id)
    same_counts(pool, 3, 2, when="after the fork: shared blocks count once")
    child = [parent[0], pool.cow(parent[1])]
    same_counts(pool, 2, 3, when="after the child's cow")
    give_back(pool, *parent)
    same_counts(pool, 3, 2, when="after the parent's end")
    same([pool.ref_count(id) for id in child], [1, 1], "the child's reference counts")
    give_back(pool, *child)
    same_counts(pool, 5, 0, when="after the child's end")
    same(sorted(take(pool, 5)), [0, 1, 2, 3, 4], "every block, allocated once more, sorted")


def test_a_long_churn_loses_no_block() -> None:
    """After a thousand requests that begin, fork, write and end, every block is free again.

    Why: a server runs for weeks; what leaks once in a thousand requests stops it at night.
    """
    random, pool = Random(4), new_pool(n_blocks=24)
    running: list[list[int]] = []
    for _ in range(1000):
        if running and (len(running) > 6 or random.random() < 0.4):
            give_back(pool, *running.pop(random.randrange(len(running))))
        elif running and random.random() < 0.4 and pool.stats().free:
            child = list(random.choice(running))
            for id in child:
                pool.ref(id)
            child[-1] = pool.cow(child[-1])
            running.append(child)
        elif (n := random.randint(1, 5)) <= pool.stats().free:
            running.append(take(pool, n))
        holders = Counter(id for table in running for id in table)
        same_counts(pool, 24 - len(holders), len(holders), when="between two requests")
    got = [pool.ref_count(id) for id in range(24)]
    same(got, [holders[id] for id in range(24)], "the reference counts after 1000 steps")
    for table in running:
        give_back(pool, *table)
    same_counts(pool, 24, 0, when="at the end of all requests")
    same(sorted(take(pool, 24)), list(range(24)), "every block, allocated once more, sorted")
