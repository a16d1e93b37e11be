"""Which pools can be made, and what a refused one costs."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from grader.assertions import demand, new_example, note, refuses, same
from tests.kv_pool.samples import checked_ids, new_pool, same_counts
from tinyllm.errors import InvalidArgumentError, PoolMemoryError, UnsupportedError
from tinyllm.kv_pool import KvPool, PoolConfig

Errors = type[Exception] | tuple[type[Exception], ...]
KIB = 1 << 10
TOO_LARGE = 2**32 - 1


def test_create_rules_and_alloc_failure() -> None:
    """Another format or data type is refused as unsupported, a dimension of zero as invalid, one
    beyond memory as too large; and a refused pool keeps no memory.

    Why: an engine starts, or says at once why it cannot. One that half starts is found at the first
    request, and one that tries again with less must find the memory free.
    """
    for what, more in (("format 2", {"format": 2}), ("format 0", {"format": 0}),
                       ("dtype f32", {"dtype": "f32"}), ("dtype bf16", {"dtype": "bf16"})):
        refuses(UnsupportedError, f"a pool of {what}", _make(4, 2, 1, 1, 2, **more))
    names = ("n_blocks", "block_tokens", "n_layers", "n_kv_heads", "head_dim")
    for at, name in enumerate(names):
        refuses(InvalidArgumentError, f"a pool with {name} 0", _make(*_with(at, 0)))
    too_large = (InvalidArgumentError, PoolMemoryError)
    refuses(too_large, "a pool whose slabs are beyond any address",
            _make(2, TOO_LARGE, 1, TOO_LARGE, TOO_LARGE))
    refuses(too_large, "a pool whose slabs are beyond any memory", _make(2, 2**20, 1, 2**15, 2**19))
    refuses(too_large, "a pool whose blocks have 2**64 + 4 bytes",
            _make(2, 242243305, 1, 49477, 384773))
    _keeps_no_memory("pools of format 2", UnsupportedError, _make(4, 64, 1, 32, 64, format=2))
    _keeps_no_memory("pools of dtype f32", UnsupportedError, _make(4, 64, 1, 32, 64, dtype="f32"))
    _keeps_no_memory("pools beyond memory", too_large, _make(10_000, 2**20, 1, 2**15, 2**19))


def test_a_new_pool_shows_its_config() -> None:
    """A new pool's blocks are all free, and its config can be read back from it.

    Why: the export envelope and the block manager take the dimensions from there.
    """
    config = PoolConfig(n_blocks=7, block_tokens=4, n_layers=3, n_kv_heads=2, head_dim=5)
    same([config.dtype, config.format], ["f16", 1], "dtype and format, where none are given")
    pool = KvPool(config)
    got = pool.config
    same([got.n_blocks, got.block_tokens, got.n_layers, got.n_kv_heads, got.head_dim],
         [7, 4, 3, 2, 5], "the dimensions in pool.config")
    same([got.dtype, got.format], ["f16", 1], "dtype and format in pool.config")
    same_counts(pool, 7, 0, when="of a new pool")


def test_numpy_integers_are_numbers() -> None:
    """numpy's integers are ids, counts and fills, whatever their width.

    Why: block tables are numpy arrays, and their entries come back as ids.
    """
    kinds: tuple[Any, ...] = (np.int64, np.uint32, np.int8)
    for kind in kinds:
        pool = new_pool(n_blocks=3)
        what = f"the ids that alloc({kind.__name__}(2)) returns"
        id = kind(checked_ids(pool.alloc(kind(2)), 2, 3, what)[1])
        pool.ref(id)
        pool.set_fill(id, kind(1))
        same([pool.ref_count(id), pool.fill(id)], [2, 1], "reference count and fill")
        same(list(pool.block(id, 0, True).shape), [1, 2, 2], "the shape of the block")
        pool.unref(pool.cow(id))
        pool.unref(id)
        same_counts(pool, 2, 1, when=f"with ids of type {kind.__name__}")


def _make(*dimensions: Any, **more: Any) -> Callable[[], KvPool]:
    return lambda: KvPool(PoolConfig(*dimensions, **more))


def _with(at: int, value: Any) -> tuple[Any, ...]:
    dimensions: list[Any] = [4, 2, 1, 1, 2]
    dimensions[at] = value
    return tuple(dimensions)


def _keeps_no_memory(what: str, errors: Errors, make: Callable[[], KvPool]) -> None:
    """Judge that four refused pools, whose slab or books would be large, leave nothing behind."""
    refuses(errors, what, make)  # what a first call loads is not its own
    already = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(4):
            refuses(errors, what, make)
        new_example()  # the story would keep the objects of its steps alive
        note(f"make four {what}; each is refused")
        held = tracemalloc.get_traced_memory()[0] - before
        if held > 256 * KIB:  # a ring of objects goes only when it is collected
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
    finally:
        if not already:
            tracemalloc.stop()
    demand(held < 256 * KIB, f"memory held after four {what} were refused", "none",
           f"{held // KIB} KiB")
