"""What the tests of the envelope need. Another folder has helpers of the same name."""

import numpy as np

from tinyllm.kv_pool import KvPool, PoolConfig


def new_pool(n_blocks=4, n_layers=1):
    return KvPool(PoolConfig(n_blocks, 2, n_layers, 1, 2))


def filled(pool, fill, first, name=0):
    """Take a block, write numbers into all of it, fill it, name it."""
    (block,) = pool.alloc(1)
    for side in (0, 1):
        view = pool.block(block, 0, side)
        view[:] = np.arange(first, first + view.size).reshape(view.shape)
        first += view.size
    pool.set_fill(block, fill)
    if name:
        pool.register(block, name)
    return block
