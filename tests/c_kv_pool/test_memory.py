"""Memory: where it comes from, that all of it goes back, that nobody touches another's."""

from grader.assertions import demand, new_example, same, same_bytes
from tests.c_kv_pool.calls import SMALL, Pool, Shape
from tests.c_kv_pool.driver import Driver
from tests.c_kv_pool.samples import (
    WIDE,
    created,
    lies_at,
    named,
    new_pool,
    nothing_allocated,
    nothing_lives,
    only_from_tl_alloc,
    refused,
)
from tests.kv_pool import test_create

LARGEST = 2**32 - 1
WRAPPING = (Shape(2, 27905, 8681, 49477, 384773), Shape(27905, 8681, 49477, 384773, 1))
"""4 times the product of the last four, and of all five, is 2^64 + 4: of a block, of a slab of four
bytes."""


def test_create_rules_and_alloc_failure() -> None:
    """Other formats and data types are TL_EUNSUPPORTED, dimensions of zero TL_EINVAL; and whichever
    allocation of create fails, it is TL_ENOMEM and all the others are given back.

    Why: an engine starts or fails cleanly. One that tries again with a smaller pool needs the
    memory that the larger one had asked for.
    """
    with Driver() as driver:  # first, so that a sanitizer sees what could end this process below
        pool = Pool(driver)
        before = pool.live()
        pool.clear()
        for dtype, format in ((0, 1), (2, 1), (-1, 1), (1, 0), (1, 2), (1, LARGEST)):
            refused(pool.create(Shape(), dtype, format), "TL_EUNSUPPORTED",
                    f"a pool of dtype {dtype}, format {format}")
            same(pool.slot(), "TL_EUNSUPPORTED", "the error slot after that")
        for at in range(5):
            shape = Shape(*[0 if i == at else n for i, n in enumerate(Shape())])
            pool.clear()
            refused(pool.create(shape), "TL_EINVAL", f"a pool of {tuple(shape)}")
            same(pool.slot(), "TL_EINVAL", "the error slot after that")
        nothing_lives(pool, before, "after these were refused")
        for n in range(1, 100):
            pool.clear()
            pool.fail_at(n)
            answer = pool.create()
            if answer.status == "TL_OK":
                break
            refused(answer, "TL_ENOMEM", f"create whose allocation {n} fails")
            same(pool.slot(), "TL_ENOMEM", "the error slot after that")
            nothing_lives(pool, before, f"after create failed at its allocation {n}")
        pool.fail_at(0)
        demand(1 < n < 100, "allocations of create by tl_alloc", "at least one", str(n - 1))
        pool.destroy()
        nothing_lives(pool, before, "after tl_kv_pool_destroy")
    new_example()
    test_create.test_create_rules_and_alloc_failure()


def test_destroy_gives_back_what_create_took() -> None:
    """A pool that is made and destroyed leaves no memory behind, used or not.

    Why: a server that loads one model after another makes a pool for each.
    """
    for shape in (Shape(), WIDE):
        with new_pool(shape):
            pass
    with new_pool(WIDE) as pool:
        pool.taken(3)


def test_all_memory_comes_from_tl_alloc() -> None:
    """The slab and the books of a pool are memory of tl_alloc, asked for by create alone: no call
    about blocks and their references asks for any, nor does one that fails.

    Why: a server reserves its KV memory when it starts, where it can still say that there is too
    little. A pool that allocates later fails under load.
    """
    new_example()
    with Driver() as driver:
        pool = Pool(driver)
        before = pool.live()
        created(pool, WIDE)
        only_from_tl_alloc(pool, before, "tl_kv_pool_create")
        live = pool.live()
        demand(live.bytes >= WIDE.n_blocks * WIDE.block_bytes, "bytes of tl_alloc that a pool has",
               f"at least its slab's {WIDE.n_blocks * WIDE.block_bytes}", str(live.bytes))
        with nothing_allocated(pool, "tl_kv_alloc"):
            ids = pool.taken(WIDE.n_blocks - 1)
        with nothing_allocated(pool, "tl_kv_alloc, where it fails,"):
            refused(pool.alloc(2), "TL_EFULL", "tl_kv_alloc of two blocks where one is free")
        with nothing_allocated(pool, "tl_kv_ref"):
            pool.ref(ids[0])
        with nothing_allocated(pool, "tl_kv_set_fill"):
            same(pool.set_fill(ids[0], 1).status, "TL_OK", "the status of tl_kv_set_fill")
        with nothing_allocated(pool, "tl_kv_cow"):
            copy = pool.cow(ids[0])
        same(copy.status, "TL_OK", "the status of tl_kv_cow")
        demand(copy.numbers[0] not in ids, "the block that tl_kv_cow gives one of two holders",
               "a block that was free", f"block {copy.numbers[0]}, which is held")
        with nothing_allocated(pool, "a call that only answers"):
            same(pool.fill(ids[0]).numbers, [1], "the fill")
            same(pool.ref_count(ids[0]).numbers, [1], "the reference count")
            same(pool.block_ptr(ids[0], 0, 0).status, "TL_OK", "the address of a block")
            same(pool.cfg()[:5], [*WIDE], "the dimensions in tl_kv_pool_cfg")
            same(pool.stats(), [0, WIDE.n_blocks, 0, 0], "free, used, cached, evictions")
        with nothing_allocated(pool, "tl_kv_unref"):
            for id in (*ids, *copy.numbers):
                same(pool.unref(id).status, "TL_OK", f"the status of tl_kv_unref of block {id}")
        same(pool.stats(), [WIDE.n_blocks, 0, 0, 0], "free, used, cached, evictions after that")
        pool.destroy()
        nothing_lives(pool, before, "after tl_kv_pool_destroy")


def test_names_need_no_memory_of_their_own() -> None:
    """Blocks are named, found, cached and evicted in the memory that create has reserved.

    Why: the index grows with the traffic. Where it asks for memory then, it fails under load.
    """
    with new_pool(SMALL) as pool:
        with nothing_allocated(pool, "tl_kv_register"):
            ids = named(pool, SMALL, *range(1, SMALL.n_blocks + 1))
        with nothing_allocated(pool, "tl_kv_lookup"):
            same(pool.lookup(1).numbers, [ids[0]], "the block of a hit")
            refused(pool.lookup(99), "TL_ENOTFOUND", "a lookup of a hash that no block has")
        with nothing_allocated(pool, "tl_kv_unref of a block with a hash"):
            for id in (ids[0], *ids):
                same(pool.unref(id).status, "TL_OK", f"the status of tl_kv_unref of block {id}")
        with nothing_allocated(pool, "a lookup of a cached block"):
            same(pool.lookup(1).numbers, [ids[0]], "the block of a hit")
        with nothing_allocated(pool, "tl_kv_cow of a block with a hash"):
            same(pool.cow(ids[0]).numbers, [ids[1]], "the copy, in the place of the oldest block")
        for hash in range(100, 100 + 4 * SMALL.n_blocks):
            with nothing_allocated(pool, "an eviction"):
                (id,) = named(pool, SMALL, hash)
                same(pool.unref(id).status, "TL_OK", "the status of tl_kv_unref")


def test_envelopes_need_no_memory_of_their_own() -> None:
    """An export and an import, refused ones too, allocate nothing.

    Why: a stranger sends the envelope. Whoever allocates by what it says gives its memory away.
    """
    with new_pool(SMALL) as pool:
        ids = named(pool, SMALL, 1, 2)
        size = 32 + 2 * (12 + SMALL.block_bytes)
        for cap in (size - 1, size):
            with nothing_allocated(pool, "tl_kv_export"):
                answer = pool.export(ids, cap)
        same(answer.status, "TL_OK", "the status of tl_kv_export")
        data = bytes.fromhex(answer.words[2])
        for what, status, bytes_ in (
            ("a damaged envelope", "TL_EFORMAT", data[:-1] + bytes([data[-1] ^ 1])),
            ("an envelope that was cut", "TL_EFORMAT", data[:-1]),
            ("an envelope", "TL_OK", data),
            ("an envelope of more blocks than are free", "TL_EFULL", data),
        ):
            with nothing_allocated(pool, f"an import of {what}"):
                same(pool.import_(bytes_, what=what).status, status, f"the status of {what}")


def test_sizes_that_wrap_round_are_refused() -> None:
    """Dimensions whose product is small only modulo 2^64 make no pool.

    Why: a product that wraps round makes a slab of a few bytes, and every block lies outside it.
    """
    with Driver() as driver:
        pool = Pool(driver)
        before = pool.live()
        for shape in (*WRAPPING, Shape(2, 2**16, 2**16, 2**16, 2**16),
                      Shape(2**16, 2**16, 2**16, 2**14, 1), Shape(1, LARGEST, LARGEST, 1, 1),
                      Shape(*[LARGEST] * 5), Shape(2, 2**31, 2**30, 1, 1)):
            new_example()
            pool.clear()
            refused(pool.create(shape), "TL_ENOMEM", f"a pool of {tuple(shape)}")
            same(pool.slot(), "TL_ENOMEM", "the error slot after that")
            nothing_lives(pool, before, "after it was refused")


def test_every_byte_of_every_slab_is_the_pools() -> None:
    """All slabs can be written from the first to the last byte, and no two of them share one.

    Why: attention kernels write there for hours. A slab that is one row short is somebody else's
    memory, and nobody notices for a long time.
    """
    for shape in (WIDE, Shape(1, 1, 1, 1, 1), Shape(7, 1, 3, 1, 5)):
        with new_pool(shape) as pool:
            for id in range(shape.n_blocks):
                pool.write(id, id + 1)
            for id in range(shape.n_blocks):
                same_bytes(pool.read(id), bytes([id + 1]) * shape.block_bytes,
                           f"what block {id} holds")


def test_a_copy_touches_no_other_block() -> None:
    """A copy fills the block that it is made in, whichever that is, and no byte of any other.

    Why: the block behind the copy is another request's. One row too many, and two chats mix.
    """
    with new_pool(WIDE) as pool:
        ids = pool.taken(WIDE.n_blocks)
        for place in ids:
            new_example()
            for id in ids:
                pool.write(id, id + 1)
            source = next(id for id in ids if id != place)
            pool.ref(source)
            pool.unref(place)
            same(pool.cow(source).numbers, [place], "the block of the copy, the only free one")
            for id in ids:
                byte = source + 1 if id == place else id + 1
                same_bytes(pool.read(id), bytes([byte]) * WIDE.block_bytes,
                           f"what block {id} holds after block {source} was copied into {place}")


def test_block_ptr_gives_null_out_of_range() -> None:
    """A slab's address is as the header says, the same each time; what is out of range is NULL, and
    the error slot says why.

    Why: a kernel computes other addresses from the first one, and writes through what it is given.
    """
    with new_pool(WIDE) as pool:
        half = WIDE.block_bytes // (2 * WIDE.n_layers)
        for _ in range(2):
            for id, layer, is_v in ((0, 0, 1), (1, 0, 0), (4, 1, 1)):
                lies_at(pool, id, layer, is_v, id * WIDE.block_bytes + (layer * 2 + is_v) * half)
        for id, layer, is_v in ((5, 0, 0), (LARGEST, 0, 0), (0, 2, 0), (0, LARGEST, 0), (0, 0, 2),
                                (0, 0, -1)):
            pool.clear()
            what = f"block {id}, layer {layer}, is_v {is_v}"
            got = pool.block_ptr(id, layer, is_v)
            demand(got.status == "NULL", f"the address of {what}", "NULL",
                   f"{' '.join(got.words)} bytes from the first slab")
            same(pool.slot(), "TL_EINVAL", f"the error slot after {what}")


def test_pools_live_and_end_apart() -> None:
    """Of several pools each can be destroyed while the others go on, in any order; NULL may be.

    Why: a server that loads another model makes the new pool before it lets the old one go.
    """
    new_example()
    with Driver() as driver:
        first, second, none = Pool(driver, 0), Pool(driver, 1), Pool(driver, 3)
        before = first.live()
        none.destroy()
        created(first)
        created(second, WIDE)
        for pool, shape in ((first, SMALL), (second, WIDE), (first, SMALL)):
            same(pool.cfg(), [*shape, 1, 1], "the configuration that tl_kv_pool_cfg returned first")
        (id,) = named(second, WIDE, 7)
        second.unref(id)
        first.taken(2)
        first.destroy()
        same(second.lookup(7).numbers, [id], "the block found in the pool that is left")
        created(first)
        second.write(id, 3)
        first.taken(4)
        second.destroy()
        same(first.alloc(1).status, "TL_EFULL", "the status of tl_kv_alloc in a full pool")
        first.destroy()
        nothing_lives(first, before, "after all pools were destroyed")


def test_a_pool_keeps_no_pointer_of_the_callers() -> None:
    """The configuration is copied, and the pool never again looks at what create was given.

    Why: callers build it on their stack, and are gone when the pool still lives.
    """
    with new_pool(WIDE) as pool:
        same(pool.cfg(), [*WIDE, 1, 1], "what tl_kv_pool_cfg returns")
        same(pool.cfg(), [*WIDE, 1, 1], "what tl_kv_pool_cfg returns, asked again")
