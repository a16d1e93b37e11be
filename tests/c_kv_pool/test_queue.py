"""The queue for eviction, whose links are the learner's to mend."""

from grader.assertions import same
from tests.c_kv_pool.calls import Shape
from tests.c_kv_pool.samples import named, new_pool, refused

SHAPE = Shape(n_blocks=3)


def test_a_revived_block_leaves_the_queue_on_both_sides() -> None:
    """Whether it was the first, the middle or the last one, a block that is revived is out of the
    queue for eviction, and those before and behind it are evicted in their order.

    Why: a link that is mended on one side only sends the next eviction to a block in use, or
    through a NULL pointer, long after the call that forgot the other side.
    """
    for revived in (1, 0, 2):
        with new_pool(SHAPE) as pool:
            ids = named(pool, SHAPE, 10, 20, 30)
            for id in ids:
                pool.unref(id)
            place = ("oldest", "middle", "newest")[revived]
            same(pool.lookup(10 * (revived + 1)).numbers, [ids[revived]], "the block of the hit")
            for id in ids[:revived] + ids[revived + 1 :]:
                same(pool.alloc(1).numbers, [id],
                     f"the block that is evicted next, after the {place} one was revived")
            refused(pool.alloc(1), "TL_EFULL", "tl_kv_alloc where all blocks are used")


def test_a_block_may_come_and_go_in_the_queue() -> None:
    """A block that is cached and revived over and over, alone or beside others, leaves the queue
    whole each time.

    Why: the system prompt of a busy server does this thousands of times a minute.
    """
    with new_pool(SHAPE) as pool:
        ids = named(pool, SHAPE, 10, 20, 30)
        for id in ids[:2]:
            pool.unref(id)
        for _ in range(3):
            for hash, id in ((20, ids[1]), (10, ids[0])):
                same(pool.lookup(hash).numbers, [id], "the block of the hit")
                pool.unref(id)
        pool.unref(ids[2])
        for id in (ids[1], ids[0], ids[2]):
            same(pool.alloc(1).numbers, [id], "the block that is evicted next")
        same(pool.stats(), [0, 3, 0, 3], "free, used, cached, evictions after that")
