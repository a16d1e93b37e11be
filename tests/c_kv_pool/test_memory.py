"""Memory: where it comes from, that all of it goes back, that nobody touches another's."""

from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Driver
from tests.c_kv_pool.samples import WIDE, created, named, new_pool, nothing_lives, refused
from tests.judging import demand, new_example, same, same_bytes
from tests.kv_pool import test_create

LARGEST = 2**32 - 1


def test_create_rules_and_alloc_failure() -> None:
    """Other formats and data types are TL_EUNSUPPORTED, dimensions of zero TL_EINVAL; and whichever
    allocation of create fails, it is TL_ENOMEM and all the others are given back.

    Why: an engine starts or fails cleanly. One that tries again with a smaller pool needs the
    memory that the larger one had asked for.
    """
    test_create.test_create_rules_and_alloc_failure()
    new_example()
    with Driver() as driver:
        pool = Pool(driver)
        before = pool.live()
        for dtype, format in ((0, 1), (2, 1), (-1, 1), (1, 0), (1, 2), (1, LARGEST)):
            refused(pool.create(Shape(), dtype, format), "TL_EUNSUPPORTED",
                    f"a pool of dtype {dtype}, format {format}")
        for at in range(5):
            shape = Shape(*[0 if i == at else n for i, n in enumerate(Shape())])
            refused(pool.create(shape), "TL_EINVAL", f"a pool of {tuple(shape)}")
        nothing_lives(pool, before, "after these were refused")
        for n in range(1, 100):
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
    """The slab and the books of a pool are memory of tl_alloc, asked for by create alone.

    Why: a server reserves its KV memory when it starts, where it can still say that there is too
    little. A pool that allocates later fails under load.
    """
    with new_pool(WIDE) as pool:
        live = pool.live()
        demand(live.bytes >= WIDE.n_blocks * WIDE.block_bytes, "bytes of tl_alloc that a pool has",
               f"at least its slab's {WIDE.n_blocks * WIDE.block_bytes}", str(live.bytes))
        for hash in range(1, 4 * WIDE.n_blocks):
            (id,) = named(pool, WIDE, hash)
            pool.ref(id)
            copy = pool.cow(id)
            same(copy.status, "TL_OK", "the status of tl_kv_cow")
            for given in (id, *copy.numbers):
                pool.unref(given)
        after = pool.live()
        same(after.asked - live.asked, 0, "allocations after create")
        same(after.bytes, live.bytes, "bytes of tl_alloc that the pool has after that")
        demand(after.heap <= live.heap, "memory taken after create, not by tl_alloc", "none",
               f"{after.heap - live.heap} bytes")


def test_sizes_that_wrap_round_are_refused() -> None:
    """Dimensions whose product is small only modulo 2^32 or 2^64 make no pool.

    Why: a product that wraps round makes a slab of a few bytes, and every block lies outside it.
    """
    with Driver() as driver:
        pool = Pool(driver)
        before = pool.live()
        for shape in (Shape(2, 2**16, 2**16, 2**16, 2**16), Shape(2**31, 2**31, 1, 1, 1),
                      Shape(2**16, 2**16, 2**16, 2**14, 1), Shape(1, LARGEST, LARGEST, 1, 1),
                      Shape(*[LARGEST] * 5), Shape(2, 2**31, 2**30, 1, 1)):
            new_example()
            refused(pool.create(shape), "TL_ENOMEM", f"a pool of {tuple(shape)}")
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


def test_block_ptr_gives_null_out_of_range() -> None:
    """A slab's address is as the header says, the same each time; what is out of range is NULL, and
    the error slot says why.

    Why: a kernel computes other addresses from the first one, and writes through what it is given.
    """
    with new_pool(WIDE) as pool:
        half = WIDE.block_bytes // (2 * WIDE.n_layers)
        for _ in range(2):
            for id, layer, is_v in ((0, 0, 1), (1, 0, 0), (4, 1, 1)):
                want = id * WIDE.block_bytes + (layer * 2 + is_v) * half
                got = pool.block_ptr(id, layer, is_v)
                same(got.words, [str(want)], f"the distance of block {id}, layer {layer}, is_v "
                     f"{is_v} from the first slab, in bytes")
        for id, layer, is_v in ((5, 0, 0), (LARGEST, 0, 0), (0, 2, 0), (0, LARGEST, 0), (0, 0, 2),
                                (0, 0, -1)):
            pool.clear()
            what = f"block {id}, layer {layer}, is_v {is_v}"
            same(pool.block_ptr(id, layer, is_v).status, "NULL", f"the address of {what}")
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
