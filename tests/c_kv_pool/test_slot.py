"""The error slot, and outputs of calls that fail."""

from collections.abc import Callable
from functools import partial

from grader.assertions import same
from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Answer
from tests.c_kv_pool.samples import named, new_pool, not_in, refused

SHAPE = Shape(n_blocks=3)
Row = tuple[str, str, Callable[[], Answer]]
"""What a call is, the status that it must have, and the call."""


def test_a_failure_says_so_in_the_slot() -> None:
    """Every call that fails leaves its status in the error slot, and its outputs as they were.

    Why: a caller in another language asks the slot what went wrong, and prints it.
    """
    with new_pool(SHAPE) as pool:
        (id,) = pool.taken(1)
        free = not_in([id], SHAPE)
        rows: list[Row] = [
            ("tl_kv_alloc of too many", "TL_EFULL", lambda: pool.alloc(3)),
            ("tl_kv_alloc of 2^32 - 1", "TL_EFULL", lambda: pool.alloc(2**32 - 1)),
            ("tl_kv_ref of a free block", "TL_EINVAL", lambda: pool.ref(free)),
            ("tl_kv_ref of no block", "TL_EINVAL", lambda: pool.ref(3)),
            ("tl_kv_unref of a free block", "TL_EINVAL", lambda: pool.unref(free)),
            ("tl_kv_unref of no block", "TL_EINVAL", lambda: pool.unref(2**32 - 1)),
            ("tl_kv_cow of a free block", "TL_EINVAL", lambda: pool.cow(free)),
            ("tl_kv_cow of no block", "TL_EINVAL", lambda: pool.cow(3)),
            ("tl_kv_set_fill past the block", "TL_EINVAL", lambda: pool.set_fill(id, 3)),
            ("tl_kv_set_fill of no block", "TL_EINVAL", lambda: pool.set_fill(3, 1)),
            ("tl_kv_fill of no block", "TL_EINVAL", lambda: pool.fill(3)),
            ("tl_kv_ref_count of no block", "TL_EINVAL", lambda: pool.ref_count(2**31)),
        ]
        _each(pool, rows)


def test_a_failure_with_names_says_so_in_the_slot() -> None:
    """The same goes for the calls about hashes.

    Why: as above. A status that nobody can explain is looked for in the wrong place.
    """
    with new_pool(SHAPE) as pool:
        named(pool, SHAPE, 7)
        (plain,) = pool.taken(1)
        pool.set_fill(plain, 2)
        rows: list[Row] = [
            ("tl_kv_register of a taken hash", "TL_EBUSY", lambda: pool.register(plain, 7)),
            ("tl_kv_register of the hash 0", "TL_EINVAL", lambda: pool.register(plain, 0)),
            ("tl_kv_register of no block", "TL_EINVAL", lambda: pool.register(3, 8)),
            ("tl_kv_hash_of no block", "TL_EINVAL", lambda: pool.hash_of(3)),
        ]
        _each(pool, rows)


def test_numbers_above_the_signed_range_are_refused() -> None:
    """Every call returns `TL_EINVAL` for the ids 2^31 and 2^32 - 1, and `tl_kv_set_fill` for such a
    fill.

    Why: read as a signed number 2^32 - 1 is -1, which is below every limit. It is also what many
    callers use for "no block".
    """
    with new_pool(SHAPE) as pool:
        (id,) = pool.taken(1)
        rows: list[Row] = []
        for far in (2**31, 2**32 - 1):
            rows += [
                (f"tl_kv_ref of block {far}", "TL_EINVAL", partial(pool.ref, far)),
                (f"tl_kv_unref of block {far}", "TL_EINVAL", partial(pool.unref, far)),
                (f"tl_kv_cow of block {far}", "TL_EINVAL", partial(pool.cow, far)),
                (f"tl_kv_set_fill of block {far}", "TL_EINVAL", partial(pool.set_fill, far, 1)),
                (f"tl_kv_set_fill to {far}", "TL_EINVAL", partial(pool.set_fill, id, far)),
                (f"tl_kv_fill of block {far}", "TL_EINVAL", partial(pool.fill, far)),
                (f"tl_kv_ref_count of block {far}", "TL_EINVAL", partial(pool.ref_count, far)),
                (f"tl_kv_register of block {far}", "TL_EINVAL", partial(pool.register, far, 8)),
                (f"tl_kv_hash_of block {far}", "TL_EINVAL", partial(pool.hash_of, far)),
                (f"tl_kv_export of block {far}", "TL_EINVAL", partial(pool.export, [far], 400)),
            ]
        _each(pool, rows)


def test_success_leaves_the_slot_alone() -> None:
    """A call that succeeds leaves an earlier failure in the error slot.

    Why: a caller makes several calls and then asks what went wrong with the first.
    """
    with new_pool(SHAPE) as pool:
        pool.poison()
        (id,) = pool.taken(1)
        pool.set_fill(id, 1)
        copy = pool.cow(id).numbers
        pool.stats()
        pool.unref(copy[0])
        same(pool.slot(), "TL_EBUSY", "the error slot after calls that succeeded")


def test_a_miss_leaves_the_slot_alone() -> None:
    """A lookup that finds nothing is TL_ENOTFOUND, and leaves *id and an earlier failure alone.

    Why: a miss is the normal answer for a new prompt. If it took the slot, the error that the
    caller was about to print would be lost.
    """
    with new_pool(SHAPE) as pool:
        named(pool, SHAPE, 7)
        for hash in (8, 0, 2**64 - 1):
            pool.poison()
            refused(pool.lookup(hash), "TL_ENOTFOUND", f"tl_kv_lookup of {hash:#x}")
            same(pool.slot(), "TL_EBUSY", "the error slot after the miss")
        pool.poison()
        same(pool.lookup(7).status, "TL_OK", "the status of a hit")
        same(pool.slot(), "TL_EBUSY", "the error slot after a hit")


def _each(pool: Pool, rows: list[Row]) -> None:
    """Judge that each of these calls is refused, and says so in the slot."""
    for what, status, call in rows:
        pool.clear()
        refused(call(), status, what)
        same(pool.slot(), status, f"the error slot after {what}")
