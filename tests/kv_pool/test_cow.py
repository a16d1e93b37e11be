"""Copy on write, first without names, then with them."""

import numpy as np

from grader.assertions import demand, note, refuses, same, same_bytes
from tests.kv_pool.samples import (
    cache,
    contents,
    give_back,
    new_pool,
    same_counts,
    take,
    take_named,
    unchanged,
    views,
    write,
)
from tinyllm.errors import PoolFullError


def test_cow_copies_only_when_shared() -> None:
    """The only holder gets its own block back; one of two holders gets a copy of contents and fill,
    and the original, with one holder less, stays as it was.

    Why: beam search and parallel sampling fork a sequence at every step. A copy too few lets a
    child write into its parent's memory, a reference too many keeps the original for ever.
    """
    pool = new_pool()
    (id,) = take(pool, 1)
    data = write(pool, id, 1)
    pool.set_fill(id, 1)
    with unchanged(pool, "after cow by the only holder"):
        same(pool.cow(id), id, "the block that the only holder may write into")
    pool.ref(id)
    copy = pool.cow(id)
    demand(copy != id, "the block that one of two holders may write into",
           f"a copy: any block but {id}", f"{copy}")
    same(pool.ref_count(id), 1, "the original's reference count: the writer's has moved")
    same(pool.ref_count(copy), 1, "the copy's reference count")
    same(pool.fill(copy), 1, "the copy's fill")
    same_bytes(contents(pool, copy), data, "the copy's contents")
    written = write(pool, copy, 100)
    same_bytes(contents(pool, id), data, "the original's contents after a write into the copy")
    same_bytes(contents(pool, copy), written, "the copy's contents after that write")
    same(pool.fill(id), 1, "the original's fill")
    same_counts(pool, 2, 2, when="with the original and its copy held")
    give_back(pool, id, copy)
    same_counts(pool, 4, 0, when="with both given back")


def test_cow_copies_the_whole_block() -> None:
    """A copy has every layer, head and position, K and V, and the positions past the fill too.

    Why: a runner writes first and says the fill later, so what lies past the fill may be data.
    """
    pool = new_pool(n_blocks=3, block_tokens=3, n_layers=2, n_kv_heads=2, head_dim=2)
    for fill in (0, 1, 3):
        (id,) = take(pool, 1)
        data = write(pool, id, 20)
        pool.set_fill(id, fill)
        pool.ref(id)
        copy = pool.cow(id)
        same_bytes(contents(pool, copy), data, f"the contents of the copy, with fill {fill}")
        same(pool.fill(copy), fill, "the copy's fill")
        give_back(pool, id, copy)


def test_a_copy_has_the_same_bits() -> None:
    """A copy of a block with all 65,536 bit patterns of float16 has the same bytes.

    Why: contents are copied, never computed with. Arithmetic turns -0.0 into 0.0 and changes NaN,
    and two blocks that should be equal differ.
    """
    pool = new_pool(n_blocks=3, block_tokens=64, n_layers=2, n_kv_heads=2, head_dim=128)
    (id,) = take(pool, 1)
    note(f"write every bit pattern of float16 into block {id}, each once")
    bits = np.arange(2**16, dtype=np.uint16)
    for view, part in zip(views(pool, id), bits.reshape(4, -1), strict=True):
        view[...] = part.view(np.float16).reshape(view.shape)
    same_bytes(contents(pool, id), bits.tobytes(), "the block's contents")
    pool.ref(id)
    same_bytes(contents(pool, pool.cow(id)), bits.tobytes(), "the copy's contents")


def test_cow_takes_one_reference_at_a_time() -> None:
    """Of three holders two get copies, one after the other, and the third keeps the original.

    Why: a fork of a fork shares a block three times, and each holder writes for itself.
    """
    pool = new_pool(n_blocks=4)
    (id,) = take(pool, 1)
    data = write(pool, id, 9)
    pool.ref(id)
    pool.ref(id)
    copies = [pool.cow(id)]
    same(pool.ref_count(id), 2, "the original's reference count after the first cow")
    copies.append(pool.cow(id))
    same(pool.ref_count(id), 1, "the original's reference count after the second cow")
    same(len({id, *copies}), 3, "the number of different blocks")
    same(pool.cow(id), id, "the block that the last holder may write into")
    for block in (id, *copies):
        same_bytes(contents(pool, block), data, f"the contents of block {block}")
        same(pool.cow(block), block, f"cow({block}), which has one holder now")
    same_counts(pool, 1, 3, when="with three blocks held once each")


def test_cow_in_a_full_pool_is_efull() -> None:
    """A copy that finds no room is refused and changes nothing; writing in place needs no room.

    Why: the scheduler answers a full pool by preempting a request. It can only do so if the failed
    copy has not dropped a reference or handed out the shared block.
    """
    pool = new_pool(n_blocks=2)
    shared, own = take(pool, 2)
    write(pool, shared, 1)
    write(pool, own, 50)
    pool.set_fill(shared, 1)
    pool.ref(shared)
    with unchanged(pool, "after the refused cow"):
        refuses(PoolFullError, "cow of a shared block in a full pool", lambda: pool.cow(shared))
        same(pool.cow(own), own, "cow of a block with one holder in a full pool")
    pool.unref(own)
    copy = pool.cow(shared)
    same(copy, own, "the copy, with exactly one block free")
    same_counts(pool, 0, 2, when="after the copy")


def test_cow_of_a_named_block_copies_it() -> None:
    """A block with a name is copied even for its only holder; the original becomes cached.

    Why: the prefix index promises the contents of a named block to every later prompt.
    """
    pool = new_pool()
    (id,) = take_named(pool, 77)
    data = write(pool, id, 4)
    copy = pool.cow(id)
    demand(copy != id, "the block that the holder of a named block may write into",
           f"a copy: any block but {id}", f"{copy}")
    same_counts(pool, 2, 1, 1, when="with the copy held and the original cached")
    same([pool.ref_count(id), pool.ref_count(copy)], [0, 1], "reference counts, original and copy")
    same([pool.hash_of(id), pool.hash_of(copy)], [77, 0], "hashes, original and copy")
    same([pool.fill(id), pool.fill(copy)], [2, 2], "fills, original and copy")
    same_bytes(contents(pool, copy), data, "the copy's contents")
    write(pool, copy, 300)
    same(pool.lookup(77), id, "the block that lookup(77) finds")
    same_bytes(contents(pool, id), data, "its contents after a write into the copy")
    pool.set_fill(copy, 1)
    give_back(pool, copy)
    same_counts(pool, 3, 1, when="with the copy given back: it has no name, so it is free")


def test_cow_of_a_shared_named_block_leaves_it_to_the_others() -> None:
    """Of a named block with two holders one gets a copy without a name, the other keeps the block.

    Why: a prefix block that two requests found is still one block, used and findable.
    """
    pool = new_pool()
    (id,) = take_named(pool, 5)
    same(pool.lookup(5), id, "the block that lookup(5) finds")
    copy = pool.cow(id)
    same([pool.ref_count(id), pool.ref_count(copy)], [1, 1], "reference counts, original and copy")
    same([pool.hash_of(id), pool.hash_of(copy)], [5, 0], "hashes, original and copy")
    same_counts(pool, 2, 2, when="with both held")
    same(pool.cow(copy), copy, "cow of the copy, which has one holder and no name")


def test_cow_evicts_when_nothing_is_free() -> None:
    """A copy takes the oldest cached block when no block is free.

    Why: the cache is spare room for every kind of need, a copy too.
    """
    pool = new_pool(n_blocks=4)
    (shared,) = take(pool, 1)
    data = write(pool, shared, 6)
    oldest, middle, newest = cache(pool, 1, 2, 3)
    pool.ref(shared)
    same(pool.cow(shared), oldest, "the copy, with three blocks cached and none free")
    same_bytes(contents(pool, oldest), data, "the copy's contents")
    same(pool.hash_of(oldest), 0, "the copy's hash: the evicted block's is forgotten")
    same(pool.lookup(1), None, "lookup of the evicted block's hash")
    same_counts(pool, 0, 2, 2, 1, when="after the copy")
    same([pool.lookup(2), pool.lookup(3)], [middle, newest], "the blocks that are still cached")


def test_cow_of_a_named_block_in_a_full_pool_is_efull() -> None:
    """A named block with one holder cannot be copied in a full pool, and nothing changes.

    Why: dropping the reference first would make room, by evicting the very block to be copied.
    """
    pool = new_pool(n_blocks=2)
    id, _ = take_named(pool, 8, 9)
    write(pool, id, 2)
    with unchanged(pool, "after the refused cow", names=True):
        refuses(PoolFullError, "cow of a named block in a full pool", lambda: pool.cow(id))
    same(pool.lookup(8), id, "the block that lookup(8) finds after the refused cow")
