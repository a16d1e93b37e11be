"""A careful learner's eight tests of the pool."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.errors import (
    HashBusyError,
    InvalidArgumentError,
    PoolFullError,
    UnsupportedError,
)
from tinyllm.kv_pool import KvPool, PoolConfig


def new_pool(n_blocks=4, block_tokens=2, n_layers=2, n_kv_heads=3, head_dim=2):
    return KvPool(PoolConfig(n_blocks, block_tokens, n_layers, n_kv_heads, head_dim))


def counts(pool):
    stats = pool.stats()
    return stats.free, stats.used, stats.cached, stats.evictions


def named(pool, name):
    """Take a block, fill it, name it."""
    (block,) = pool.alloc(1)
    pool.set_fill(block, pool.config.block_tokens)
    pool.register(block, name)
    return block


def write(pool, block, first):
    for layer in range(pool.config.n_layers):
        for side in (0, 1):
            view = pool.block(block, layer, side)
            view[:] = np.arange(first, first + view.size).reshape(view.shape)
            first += view.size


def read(pool, block):
    return [pool.block(block, layer, side).tolist()
            for layer in range(pool.config.n_layers) for side in (False, True)]


def test_alloc_all_or_nothing():
    pool = new_pool()
    first = pool.alloc(3)
    assert len(set(first)) == 3
    with pytest.raises(PoolFullError):
        pool.alloc(2)
    assert counts(pool) == (1, 3, 0, 0)
    assert len(pool.alloc(1)) == 1
    assert pool.alloc(0) == []
    for block in first:
        assert (pool.ref_count(block), pool.fill(block), pool.hash_of(block)) == (1, 0, 0)
        pool.unref(block)
    assert counts(pool) == (3, 1, 0, 0)


def test_unref_caches_registered_blocks():
    pool = new_pool()
    block = named(pool, 7)
    (other,) = pool.alloc(1)
    pool.set_fill(other, 1)
    pool.ref(block)
    pool.unref(block)
    assert counts(pool) == (2, 2, 0, 0)
    pool.unref(block)
    pool.unref(other)
    assert counts(pool) == (3, 0, 1, 0)
    assert (pool.hash_of(block), pool.fill(block), pool.fill(other)) == (7, 2, 0)


def test_double_unref_refused():
    pool = new_pool()
    (block,) = pool.alloc(1)
    cached = named(pool, 9)
    pool.unref(cached)
    pool.unref(block)
    before = counts(pool)
    for call in (pool.unref, pool.ref, pool.cow):
        for bad in (block, cached, -1, 4, True, 1.0, "0"):
            with pytest.raises(InvalidArgumentError):
                call(bad)
    assert counts(pool) == before


def test_lookup_hit_is_not_evicted():
    pool = new_pool(n_blocks=3)
    a, b, c = (named(pool, name) for name in (11, 12, 13))
    for block in (a, b, c):
        pool.unref(block)
    assert pool.lookup(99) is None
    assert pool.lookup(11) == a
    assert counts(pool) == (0, 1, 2, 0)
    assert pool.alloc(1) == [b]
    assert pool.lookup(12) is None
    assert counts(pool) == (0, 2, 1, 1)
    pool.unref(a)
    assert pool.alloc(1) == [c]
    assert (pool.lookup(11), pool.ref_count(a)) == (a, 1)
    assert pool.lookup(11) == a
    assert pool.ref_count(a) == 2
    with pytest.raises(PoolFullError):
        pool.alloc(1)


def test_an_old_hit_does_not_protect_a_block():
    pool = new_pool(n_blocks=3)
    old, other = named(pool, 21), named(pool, 22)
    pool.unref(old)
    pool.unref(other)
    for name in (21, 22):
        pool.unref(pool.lookup(name))
    pool.unref(named(pool, 23))
    assert pool.alloc(1) == [old]
    assert len(pool.alloc(2)) == 2


def test_cow_copies_shared_blocks():
    pool = new_pool()
    (block,) = pool.alloc(1)
    pool.set_fill(block, 1)
    write(pool, block, 1)
    assert pool.cow(block) == block
    pool.ref(block)
    pool.set_fill(block, 1)
    assert counts(pool) == (3, 1, 0, 0)
    original = read(pool, block)
    copy = pool.cow(block)
    assert copy != block
    assert (pool.ref_count(block), pool.ref_count(copy), pool.fill(copy)) == (1, 1, 1)
    assert read(pool, copy) == original
    write(pool, copy, 100)
    assert read(pool, block) == original
    name = named(pool, 5)
    fresh = pool.cow(name)
    assert fresh != name
    assert (pool.hash_of(fresh), pool.hash_of(name), counts(pool)) == (0, 5, (0, 3, 1, 0))


def test_partial_blocks_not_registered():
    pool = new_pool()
    (block,) = pool.alloc(1)
    pool.set_fill(block, 1)
    with pytest.raises(InvalidArgumentError):
        pool.register(block, 3)
    pool.set_fill(block, 2)
    for bad in (0, -1, 2**64, True):
        with pytest.raises(InvalidArgumentError):
            pool.register(block, bad)
    pool.register(block, 2**64 - 1)
    other = named(pool, 4)
    with pytest.raises(InvalidArgumentError):
        pool.set_fill(block, 1)
    (third,) = pool.alloc(1)
    pool.set_fill(third, 2)
    with pytest.raises(HashBusyError):
        pool.register(third, 4)
    assert (pool.hash_of(third), pool.lookup(4)) == (0, other)
    assert pool.lookup(2**32 + 4) is None
    with pytest.raises(InvalidArgumentError):
        pool.set_fill(third, 3)


def test_slabs_and_configs():
    pool = new_pool()
    shapes = {pool.block(b, layer, side).shape
              for b in range(4) for layer in range(2) for side in (0, 1)}
    assert shapes == {(3, 2, 2)}
    assert pool.block(0, 0, 0).dtype == np.float16
    assert pool.block_bytes == 2 * 2 * 3 * 2 * 2 * 2
    for block in range(4):
        write(pool, block, 100 * block)
    for block in range(4):
        assert read(pool, block)[0][0][0][0] == 100 * block
        assert read(pool, block)[3][2][1][1] == 100 * block + 47
    for bad in ((4, 0, 0), (0, 2, 0), (-1, 0, 0)):
        with pytest.raises(InvalidArgumentError):
            pool.block(*bad)
    with pytest.raises(InvalidArgumentError):
        new_pool(n_blocks=0)
    with pytest.raises(UnsupportedError):
        KvPool(PoolConfig(1, 1, 1, 1, 1, format=2))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(["alloc", "unref", "ref", "name", "look"]),
                          st.integers(0, 3)), max_size=30))
def test_counts_add_up(steps):
    pool = new_pool()
    held = []
    for what, number in steps:
        if what == "alloc" and number <= pool.stats().free + pool.stats().cached:
            held += pool.alloc(number)
        elif what == "look" and (found := pool.lookup(number + 1)) is not None:
            held.append(found)
        elif held and what == "unref":
            pool.unref(held.pop(number % len(held)))
        elif held and what == "ref":
            held.append(held[number % len(held)])
            pool.ref(held[-1])
        elif held and what == "name" and not pool.hash_of(held[-1]):
            pool.set_fill(held[-1], 2)
            if pool.lookup(number + 1) is None:
                pool.register(held[-1], number + 1)
            else:
                held.append(next(b for b in range(4) if pool.hash_of(b) == number + 1))
        free, used, cached, _ = counts(pool)
        assert (free + used + cached, used) == (4, len(set(held)))
        assert all(pool.ref_count(block) == held.count(block) for block in range(4))
