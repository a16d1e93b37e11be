"""Small pools, values to put in them, and what the suite reads back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from grader.assertions import Wrong, demand, note, same, same_bytes
from grader.assertions.steps import STORY
from grader.assertions.wording import integer, say
from tinyllm.kv_pool import KvPool, PoolConfig


def new_pool(
    n_blocks: int = 4,
    block_tokens: int = 2,
    n_layers: int = 1,
    n_kv_heads: int = 1,
    head_dim: int = 2,
) -> KvPool:
    """Return a pool, small unless a test says otherwise."""
    return KvPool(PoolConfig(n_blocks, block_tokens, n_layers, n_kv_heads, head_dim))


# Taking blocks and giving them back.


def checked_ids(got: Any, n: int, n_blocks: int, what: str) -> list[int]:
    """Return ``got`` as plain ints: a sequence of ``n`` different ids, or it is wrong."""
    found = got if isinstance(got, list | tuple | np.ndarray) else [None]
    ids = [number for id in found if (number := integer(id)) is not None and 0 <= number < n_blocks]
    if not len(found) == len(ids) == len(set(ids)) == n:
        expected = "one id," if n == 1 else f"{n} different ids, each"
        raise Wrong(what, f"{expected} 0..{n_blocks - 1}", say(got))
    return ids


def take(pool: KvPool, n: int) -> list[int]:
    """Allocate ``n`` blocks and return their ids, judged for what any caller relies on."""
    return checked_ids(pool.alloc(n), n, pool.config.n_blocks, f"the ids that alloc({n}) returns")


def take_full(pool: KvPool, n: int) -> list[int]:
    """Allocate ``n`` blocks and say that every position of them holds data."""
    ids = take(pool, n)
    for id in ids:
        pool.set_fill(id, pool.config.block_tokens)
    return ids


def take_named(pool: KvPool, *hashes: int) -> list[int]:
    """Allocate a full block for each hash and register it."""
    ids = take_full(pool, len(hashes))
    for id, hash in zip(ids, hashes, strict=True):
        pool.register(id, hash)
    return ids


def cache(pool: KvPool, *hashes: int) -> list[int]:
    """Leave a cached block for each hash, the first one the oldest."""
    ids = take_named(pool, *hashes)
    give_back(pool, *ids)
    return ids


def give_back(pool: KvPool, *ids: int) -> None:
    """Give back one reference to each block, in this order."""
    for id in ids:
        pool.unref(id)


@contextmanager
def in_one_step(text: str) -> Iterator[None]:
    """Tell in one step of the story what happens inside, which is too much to tell call by call."""
    note(text)
    STORY.depth += 1  # as if a call were running: what it calls is no step
    try:
        yield
    finally:
        STORY.depth -= 1


# What blocks hold.


def slab(pool: KvPool, id: int, layer: int, is_v: bool | int) -> np.ndarray:
    """Return one view of a block, judged for the type and shape that the contract gives it."""
    got = pool.block(id, layer, is_v)
    config = pool.config
    shape = (config.n_kv_heads, config.block_tokens, config.head_dim)
    if not isinstance(got, np.ndarray) or got.dtype != np.float16 or got.shape != shape:
        raise Wrong(f"block({id}, {layer}, {is_v})", f"<float16 {list(shape)}>", say(got))
    return got


def write(pool: KvPool, id: int, start: int) -> bytes:
    """Fill the whole block with start, start + 1, ... and return what it must hold from then on.

    No two elements are equal, so a copy that misses a layer, a side, a head or a position shows.
    Whole numbers up to 2048 are exact in float16.
    """
    note(f"write the numbers from {start} on into block {id}")
    at = start
    for layer in range(pool.config.n_layers):
        for is_v in (False, True):
            view = slab(pool, id, layer, is_v)
            demand(view.flags.writeable, f"block({id}, {layer}, {is_v})", "a view to write through",
                   "a read-only array")
            view[...] = np.arange(at, at + view.size).reshape(view.shape)
            at += view.size
    return np.arange(start, at).astype(np.float16).tobytes()


def views(pool: KvPool, id: int) -> list[np.ndarray]:
    """Return every view of a block: layer by layer, K then V."""
    return [slab(pool, id, layer, is_v)
            for layer in range(pool.config.n_layers) for is_v in (False, True)]


def write_bits(pool: KvPool, id: int, start: int, through: list[np.ndarray]) -> bytes:
    """Write the bit patterns from ``start`` on ``through`` views of the block, and return what it
    must hold from then on. Among the first patterns are -0.0 and a signalling NaN, which arithmetic
    would change."""
    note(f"write values of its own into block {id}, -0.0 and NaN among them")
    size = sum(view.size for view in through)
    bits = (np.arange(start, start + size) % 0x7C00).astype(np.uint16)
    bits[:2] = 0x8000, 0x7C01
    values = bits.view(np.float16)
    at = 0
    for view in through:
        view[...] = values[at : at + view.size].reshape(view.shape)
        at += view.size
    return bits.tobytes()


def contents(pool: KvPool, id: int) -> bytes:
    """Return everything that a block holds: layer by layer, K then V, each [H][B][D]."""
    return b"".join(view.tobytes() for view in views(pool, id))


# What the pool says of its blocks.


class Facts(NamedTuple):
    """What anyone can see of a block; None where a test does not ask: the name before pass 2, the
    contents of a free block."""

    refs: int
    fill: int
    name: int | None
    contents: bytes | None


class Picture(NamedTuple):
    """What anyone can see of a pool: free, used, cached, evictions; and every block."""

    counts: list[int]
    blocks: list[Facts]


def counts(pool: KvPool) -> list[int]:
    """Return free, used, cached and evictions."""
    stats = pool.stats()
    return [stats.free, stats.used, stats.cached, stats.evictions]


def same_counts(
    pool: KvPool, free: int, used: int, cached: int = 0, evictions: int = 0, *, when: str
) -> None:
    """Judge the four numbers of ``stats()``."""
    same(counts(pool), [free, used, cached, evictions], f"free, used, cached, evictions {when}")


def look(pool: KvPool, *, names: bool) -> Picture:
    """Return what the pool says now; ``names`` is false for tests of the first pass."""
    blocks = []
    for id in range(pool.config.n_blocks):
        refs, name = pool.ref_count(id), pool.hash_of(id) if names else None
        data = contents(pool, id) if refs or name else None
        blocks.append(Facts(refs, pool.fill(id), name, data))
    return Picture(counts(pool), blocks)


def judge(pool: KvPool, want: Picture, when: str) -> None:
    """Judge everything that anyone can see of a pool."""
    same(counts(pool), want.counts, f"free, used, cached, evictions {when}")
    for id, (refs, fill, name, data) in enumerate(want.blocks):
        same(pool.ref_count(id), refs, f"block {id}'s reference count {when}")
        same(pool.fill(id), fill, f"block {id}'s fill {when}")
        if name is not None:
            same(pool.hash_of(id), name, f"block {id}'s hash {when}")
        if data is not None:
            same_bytes(contents(pool, id), data, f"block {id}'s contents {when}")


@contextmanager
def unchanged(pool: KvPool, when: str, *, names: bool = False) -> Iterator[None]:
    """Judge that what happens inside leaves the pool as it was."""
    before = look(pool, names=names)
    yield
    judge(pool, before, when)
