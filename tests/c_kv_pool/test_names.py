"""Some hundred names at once: what an index makes of them when many fall into one place."""

import random

from grader.assertions import same
from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.samples import named, new_pool, refused

_ANY = random.Random(4)
NAMES = list(dict.fromkeys([
    *(_ANY.getrandbits(64) for _ in range(120)),
    *range(1, 41),
    *(n << 32 for n in range(1, 41)),
    *(n << 56 for n in range(1, 41)),
    *(2**64 - 1 - 1024 * n for n in range(40)),
]))
"""Names by chance, and such as are alike in the bits of one end or the other."""
SHAPE = Shape(n_blocks=len(NAMES))


def test_many_names_are_kept_apart() -> None:
    """Each of 280 names finds its block, held or cached, also after others were evicted; a name
    that was evicted is found no more, and may be given again.

    Why: an index has places for names, and two names fall into one place. What is lost there is
    seldom missed in a small pool; a server has a hundred thousand blocks.
    """
    order = random.Random(5).sample(NAMES, len(NAMES))
    with new_pool(SHAPE) as pool:
        blocks = dict(zip(NAMES, named(pool, SHAPE, *NAMES), strict=True))
        found(pool, order, blocks, "while all are held")
        for name in order:
            pool.unref(blocks[name])
        kept = order[::3]
        for name in kept:
            same(pool.lookup(name).numbers, [blocks[name]],
                 f"the block found under {name:#x}, which is cached")
        gone = [name for name in order if name not in set(kept)][:100]
        ids = pool.taken(len(gone))
        same(sorted(ids), sorted(blocks.pop(name) for name in gone), "the blocks that were evicted")
        for name in gone:
            refused(pool.lookup(name), "TL_ENOTFOUND", f"tl_kv_lookup of {name:#x}, evicted")
        found(pool, order, blocks, "after others were evicted")
        for id, name in zip(ids, gone, strict=True):
            pool.set_fill(id, SHAPE.block_tokens)
            same(pool.register(id, name).status, "TL_OK",
                 f"the status of tl_kv_register of {name:#x}, which no block has any more")
        found(pool, order, blocks | dict(zip(gone, ids, strict=True)), "after all have names again")


def found(pool: Pool, names: list[int], blocks: dict[int, int], when: str) -> None:
    """Judge that each of these names that has a block finds it."""
    for name in names:
        if name in blocks:
            same(pool.lookup(name).numbers, [blocks[name]],
                 f"the block found under {name:#x} {when}")
            pool.unref(blocks[name])
