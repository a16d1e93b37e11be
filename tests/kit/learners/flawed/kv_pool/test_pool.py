"""A learner's tests with two mistakes in them: one test asks for more than the contract, and one
works only after another."""

import pytest

from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool, PoolConfig

POOLS = []


def new_pool():
    return KvPool(PoolConfig(n_blocks=3, block_tokens=2, n_layers=1, n_kv_heads=1, head_dim=2))


def test_double_unref_refused():
    pool = new_pool()
    (block,) = pool.alloc(1)
    pool.unref(block)
    with pytest.raises(InvalidArgumentError):
        pool.unref(block)


def test_the_block_freed_last_goes_first():
    pool = new_pool()
    first, second = pool.alloc(2)
    pool.unref(first)
    pool.unref(second)
    assert pool.alloc(1) == [second]


def test_a_pool_is_made():
    POOLS.append(new_pool())


def test_the_pool_is_still_there():
    assert POOLS[-1].stats().free == 3
