"""The slab and the views into it."""

import tracemalloc
from functools import partial

import numpy as np

from grader.assertions import demand, note, refuses, same, same_array, same_bytes
from tests.kv_pool.samples import contents, give_back, new_pool, slab, take, views
from tinyllm.errors import InvalidArgumentError

MIB = 1 << 20


def test_block_ptr_layout() -> None:
    """Each (block, layer, K or V) is a float16 slab of its own, [n_kv_heads, block_tokens,
    head_dim]; a block or a layer out of range raises.

    Why: the attention kernels (L8.3, L9.4) read and write K and V through these slabs and nothing
    else. Two that overlap overwrite each other.
    """
    pool = new_pool(n_blocks=3, block_tokens=4, n_layers=2, n_kv_heads=2, head_dim=3)
    take(pool, 3)
    places = [
        (id, layer, side) for id in range(3) for layer in range(2) for side in (0, 1)
    ]
    values = np.arange(len(places) * 24, dtype=np.float16).reshape(-1, 2, 4, 3)
    note("write numbers of its own into every slab of every block")
    for place, value in zip(places, values, strict=True):
        slab(pool, *place)[...] = value
    for (id, layer, side), value in zip(places, values, strict=True):
        same_array(slab(pool, id, layer, side), value, f"block({id}, {layer}, {side})")
        same_array(slab(pool, id, layer, bool(side)), value, f"block({id}, {layer}, {bool(side)})")
    same(pool.block_bytes, 2 * 2 * 2 * 4 * 3 * 2, "block_bytes: L * 2 * H * B * D * 2")
    for place in ((3, 0, 0), (-1, 0, 0), (0, 2, 0), (0, -1, 0)):
        refuses(InvalidArgumentError, f"block{place}", partial(pool.block, *place))


def test_block_views_show_the_same_memory_each_time() -> None:
    """Every view of a slab, old or new, reads and writes the same memory; also one that was taken
    while the block was free.

    Why: a model keeps its views and writes a position at a time; a copy would swallow the values.
    """
    pool = new_pool(n_blocks=2, n_layers=2)
    early = [slab(pool, id, 1, True) for id in range(2)]
    first, second = take(pool, 2)
    kept = slab(pool, first, 1, True)
    slab(pool, first, 1, True)[...] = 1
    slab(pool, second, 1, True)[...] = 2
    ones = np.ones((1, 2, 2), dtype=np.float16)
    same_array(kept, ones, "a view taken before the write")
    same_array(early[first], ones, "a view taken while the block was free")
    kept[0, 1, 0] = 3
    ones[0, 1, 0] = 3
    same_array(slab(pool, first, 1, True), ones, "a view taken after a write through an older one")
    demand(np.shares_memory(kept, slab(pool, first, 1, True)), "two views of one slab",
           "the same memory", "two arrays")
    pool.ref(first)
    give_back(pool, first)
    same_array(kept, ones, "the view after a ref and an unref")


def test_every_block_can_be_viewed() -> None:
    """`block`, `fill` and `ref_count` work for every block in range, free ones too.

    Why: a debugger, or a monitor that prints the pool, asks about all blocks. A free block is a
    normal answer to that and not an error.
    """
    pool = new_pool(n_blocks=3)
    for when in ("in a new pool", "after the blocks were freed"):
        for id in range(3):
            slab(pool, id, 0, False)
            slab(pool, id, 0, True)
            same([pool.ref_count(id), pool.fill(id)], [0, 0],
                 f"reference count and fill of block {id} {when}")
        give_back(pool, *take(pool, 3))


def test_a_block_of_a_real_model_is_copied_whole() -> None:
    """With 32 layers, 8 heads, 16 positions and a head_dim of 128, every view keeps its own values
    and a copy has all 2 MiB of its block.

    Why: this is one block of a model with 8 billion weights. Code that copies in pieces, or counts
    bytes in 16 bits, is right for the small blocks of a test and wrong for real ones.
    """
    pool = new_pool(n_blocks=3, block_tokens=16, n_layers=32, n_kv_heads=8, head_dim=128)
    same(pool.block_bytes, 2 * MIB, "block_bytes")
    shared, other = take(pool, 2)
    random = np.random.default_rng(3)
    data = {}
    for id in (shared, other):
        note(f"write 2 MiB of random bits into block {id}")
        bits = random.integers(0, 2**16, MIB, dtype=np.uint16)
        for view, part in zip(views(pool, id), bits.reshape(64, -1), strict=True):
            view[...] = part.view(np.float16).reshape(view.shape)
        data[id] = bits.tobytes()
    pool.ref(shared)
    copy = pool.cow(shared)
    for id, want in ((shared, shared), (copy, shared), (other, other)):
        same_bytes(contents(pool, id), data[want], f"the contents of block {id} after the copy")


def test_the_slab_is_allocated_once() -> None:
    """After the constructor no call takes memory for blocks, however many are taken and copied.

    Why: an engine reserves its KV memory when it starts; growing later fails under load.
    """
    pool = new_pool(n_blocks=6, block_tokens=64, n_kv_heads=8, head_dim=64)
    already = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            ids = take(pool, 3)
            for id in ids:
                slab(pool, id, 0, False)[...] = 1
                pool.ref(id)
            give_back(pool, *ids, *[pool.cow(id) for id in ids])
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        if not already:
            tracemalloc.stop()
    demand(grown < pool.block_bytes, "memory that the pool took after its constructor",
           f"less than one block of {pool.block_bytes} bytes", f"{grown} bytes")
