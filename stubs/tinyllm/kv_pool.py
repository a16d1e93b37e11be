"""The paged KV pool: fixed-size blocks in one slab, shared by reference count (rt.04, section 2).

A block is free (nobody holds it, no name), used (somebody holds it) or cached (nobody holds it,
but it has a name and may be found again), and free + used + cached == n_blocks after every call.

Pass 1 is a pool that knows no names: blocks are taken, shared, copied and given back. Pass 2 gives
names to full blocks, finds them again, and evicts the cached block that was given back longest
ago. A call that raises has changed nothing. How you store all this is up to you.
"""

from dataclasses import dataclass, fields
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.errors import (
    HashBusyError,
    InvalidArgumentError,
    PoolFullError,
    PoolMemoryError,
    UnsupportedError,
)


@dataclass(frozen=True)
class PoolConfig:
    """The dimensions of a pool; each is 1..2**32-1 (rt.04, section 2.1).

    ``n_blocks`` blocks of ``block_tokens`` positions each, for ``n_layers`` layers of
    ``n_kv_heads`` heads of ``head_dim`` values. ``dtype`` is ``"f16"`` and ``format`` is 1: the
    only ones there are.

    A dimension may come as any integer, such as numpy's; the config keeps it as a plain ``int``.
    Raises ``InvalidArgumentError`` for a dimension of another type or out of range.
    """

    n_blocks: int
    block_tokens: int
    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "f16"
    format: int = 1

    def __post_init__(self) -> None:
        """Check the five dimensions and make each a plain ``int``."""
        for field in fields(self)[:5]:
            value = getattr(self, field.name)
            try:
                size = -1 if isinstance(value, bool) else index(value)
            except TypeError:
                size = -1
            if not 1 <= size <= 0xFFFFFFFF:
                raise InvalidArgumentError(f"{field.name} is 1..{0xFFFFFFFF}, not {value!r}")
            object.__setattr__(self, field.name, size)


class PoolStats(NamedTuple):
    """How many blocks are in each state, and how many were evicted since the pool was made."""

    free: int
    used: int
    cached: int
    evictions: int


class KvPool:
    """A pool of KV blocks. No method allocates memory for blocks after the constructor.

    A block id is 0..n_blocks-1, given as anything with ``__index__`` that is no bool; any other
    is an ``InvalidArgumentError``. A call that raises has changed nothing.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Allocate the slab; all blocks are free.

        Raises ``UnsupportedError`` for a dtype other than ``"f16"`` or a format other than 1,
        ``InvalidArgumentError`` for a dimension out of 1..2**32-1, ``PoolMemoryError`` when the
        slab does not fit in memory (rt.04, section 4, create_rules_and_alloc_failure).

        TODO (pass 1): Check dtype and format, allocate the slab once, and set up the bookkeeping:
            all blocks are free.

        Approach:
          - PoolConfig has checked the five dimensions already. Check dtype and format before
            you allocate anything.
          - One numpy array of float16 for all blocks. Which order of its axes makes the K or V
            of one layer of one block a plain index?
          - numpy has two ways to say that an array is too large; a caller should see one.
          - What do you need to know about each block, and what to find a free one at once? Pass
            2 adds an index from name to block and an order of the cached ones.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> pool.stats()
            PoolStats(free=4, used=0, cached=0, evictions=0)
            >>> pool.config.block_tokens
            2
        """
        raise NotImplementedError("kv_pool: KvPool")

    def alloc(self, n: int) -> list[int]:
        """Take ``n`` blocks, all or nothing, and return their ids.

        Free blocks go first; when they run out, cached ones are evicted, oldest first. A new
        block has reference count 1, fill 0 and no name; its bytes are whatever was there.
        ``alloc(0)`` is ``[]``.

        Raises ``PoolFullError`` when free + cached < n, ``InvalidArgumentError`` for a bad count.

        TODO (pass 1): Take n blocks or none, and return their ids: one holder each, fill 0.

        Approach:
          - Settle first whether there is room; take the first block only after that.
          - A block comes with the last owner's fill unless somebody resets it.
          - Pass 2: cached blocks are room too. Take the free ones first, then evict, oldest
            first, exactly as many as are missing. What must be forgotten about a block that is
            evicted?

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> len(pool.alloc(3)), pool.stats().free, pool.alloc(0)
            (3, 1, [])
            >>> pool.alloc(2)
            Traceback (most recent call last):
            tinyllm.errors.PoolFullError: 2 blocks asked for, 1 free, 0 cached
            >>> pool.stats().free
            1
        """
        raise NotImplementedError("kv_pool: KvPool.alloc")

    def ref(self, id: int) -> None:
        """Add a holder to a block that is held already: this is how a fork shares its parent.

        Raises ``InvalidArgumentError`` when nobody holds the block; only ``lookup`` revives.

        TODO (pass 1): Add a holder to a block that somebody holds; refuse any other.

        Approach:
          - Every method that takes an id asks the same two things: is it an id, and is the
            block held? Write that once.
          - -1 is a good index of a list and no id. True is 1.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.ref(block)
            >>> pool.ref_count(block), pool.stats().used
            (2, 1)
        """
        raise NotImplementedError("kv_pool: KvPool.ref")

    def unref(self, id: int) -> None:
        """Give back one reference. With the last one, a block with a name becomes cached, as the
        newest; any other becomes free.

        Raises ``InvalidArgumentError`` when nobody holds the block: a count below zero would hand
        one block to two sequences.

        TODO (pass 1): Give back one reference; the last one makes the block free, or cached if it
            has a name.

        Approach:
          - Refuse a block that nobody holds before you count down.
          - Pass 1: with the last reference the block goes back to the free ones.
          - Pass 2: come back. A block with a name is kept, as the newest of the cached; all
            others are freed as before. Only the last reference decides.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.unref(block)
            >>> pool.stats().free
            4
            >>> pool.unref(block)
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: nobody holds block 0
        """
        raise NotImplementedError("kv_pool: KvPool.unref")

    def cow(self, id: int) -> int:
        """Return a block that the caller may write into: copy on write (rt.04, section 2.2).

        The only holder of a block without a name writes in place and gets ``id`` back. Otherwise
        a block is allocated, contents and fill are copied, the caller's reference moves from the
        original to the copy, and the copy's id is returned. A named block is copied even at
        reference count 1: the prefix index still promises its contents.

        Raises ``PoolFullError`` when the copy finds no room, ``InvalidArgumentError`` when nobody
        holds the block.

        TODO (pass 1): Return a block that the caller may write into: its own, or a copy where
            others rely on it.

        Approach:
          - Pass 1: who is the only holder writes in place. With more holders the caller gets a
            copy: a new block, all of the contents, the fill.
          - The caller held one reference before and holds one after. Which block loses one?
          - If there is no room for the copy, nothing may have happened yet. That decides the
            order of the steps.
          - Pass 2: come back. A block with a name is promised to others even when only one
            holds it. The copy has no name.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.cow(block) == block
            True
            >>> pool.ref(block)
            >>> copy = pool.cow(block)
            >>> copy == block, pool.ref_count(block), pool.ref_count(copy)
            (False, 1, 1)
        """
        raise NotImplementedError("kv_pool: KvPool.cow")

    def set_fill(self, id: int, n: int) -> None:
        """Say that the block's first ``n`` positions hold data, 0..block_tokens.

        Raises ``InvalidArgumentError`` for a fill out of range, a block that nobody holds, or one
        with a name: named contents do not change.

        TODO (pass 1): Record how many of a held block's positions hold data, 0 to block_tokens.

        Approach:
          - Both ends are allowed, and a fill may go down again.
          - Pass 2: come back. A named block is full and stays so: refuse to change it.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.set_fill(block, 2)
            >>> pool.fill(block)
            2
        """
        raise NotImplementedError("kv_pool: KvPool.set_fill")

    def fill(self, id: int) -> int:
        """Return how many positions hold data; 0 for a free block.

        TODO (pass 1): Return how many positions of a block hold data; 0 for a free block.

        Approach:
          - Asking about a free block is no error, asking about a block that does not exist is.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> [pool.fill(block) for block in range(4)]
            [0, 0, 0, 0]
        """
        raise NotImplementedError("kv_pool: KvPool.fill")

    def ref_count(self, id: int) -> int:
        """Return how many holders the block has; 0 for a free or a cached one.

        TODO (pass 1): Return how many holders a block has; 0 for a free or a cached one.

        Approach:
          - As with the fill: any block in range may be asked about.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> ids = pool.alloc(2)
            >>> sorted(pool.ref_count(block) for block in range(4))
            [0, 0, 1, 1]
        """
        raise NotImplementedError("kv_pool: KvPool.ref_count")

    def register(self, id: int, hash: int) -> None:
        """Give a full, held block its name, so that ``lookup`` finds it (rt.04, section 2.3).

        ``hash`` is 1..2**64-1. Raises ``HashBusyError`` when another block has this name, which
        keeps it; ``InvalidArgumentError`` for a block that is partial, held by nobody or named
        already, and for a hash out of range.

        TODO (pass 2): Give a held, full block without a name its name, unless another block has it.

        Approach:
          - Four things can be wrong with the block or the hash, and one with the name being
            taken. Ask all of them before you write anything.
          - The name belongs in two places: with the block, and in the index from name to block.
            They must never disagree.
          - Who has a name first keeps it, whether that block is used or cached.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> first, second = pool.alloc(2)
            >>> pool.set_fill(first, 2)
            >>> pool.register(first, 0xA91AB0C1027B9366)
            >>> pool.set_fill(second, 2)
            >>> pool.register(second, 0xA91AB0C1027B9366)
            Traceback (most recent call last):
            tinyllm.errors.HashBusyError: block 0 holds 0xa91ab0c1027b9366 already
        """
        raise NotImplementedError("kv_pool: KvPool.register")

    def lookup(self, hash: int) -> int | None:
        """Return the block with this name, with a reference taken for the caller, or ``None``.

        A cached block is revived: it is used again and cannot be evicted. A miss changes nothing;
        it is the normal answer for a new prompt. ``hash`` is 0..2**64-1, and 0 names no block.

        Raises ``InvalidArgumentError`` for a hash out of range.

        TODO (pass 2): Return the block with this name, held once more, or None; revive it if it is
            cached.

        Approach:
          - A miss is the normal answer for a new prompt: nothing is raised and nothing is
            stored.
          - A block that is found while cached leaves the order of eviction at that moment.
          - A block that is found while used has one holder more.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.set_fill(block, 2)
            >>> pool.register(block, 77)
            >>> pool.unref(block)
            >>> pool.stats().cached, pool.lookup(78)
            (1, None)
            >>> pool.lookup(77) == block, pool.stats().cached, pool.ref_count(block)
            (True, 0, 1)
        """
        raise NotImplementedError("kv_pool: KvPool.lookup")

    def hash_of(self, id: int) -> int:
        """Return the block's name, 0 if it has none.

        TODO (pass 2): Return a block's name, 0 if it has none.

        Approach:
          - A cached block has its name still; a freed or evicted one has none.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.set_fill(block, 2)
            >>> pool.register(block, 77)
            >>> pool.unref(block)
            >>> pool.hash_of(block)
            77
        """
        raise NotImplementedError("kv_pool: KvPool.hash_of")

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        """Return the K (``is_v`` false) or V slab of one layer: a writable view, not a copy.

        float16, shape [n_kv_heads, block_tokens, head_dim]: the order of the export payload
        (rt.04, section 2.1). Any id in range will do, held or not.

        Raises ``InvalidArgumentError`` for an id or a layer out of range, or another ``is_v``
        than a bool, 0 or 1.

        TODO (pass 1): Return a view of the K or V slab of one layer of one block, to read and to
            write.

        Approach:
          - Plain indices into a numpy array give a view; a list of indices gives a copy.
          - numpy takes -1, None and 0.5 in ways of its own. Check the layer and is_v before
            they reach it.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> keys = pool.block(0, layer=0, is_v=False)
            >>> keys.shape, str(keys.dtype)
            ((1, 2, 2), 'float16')
            >>> keys[0, 1] = [3, 4]
            >>> pool.block(0, 0, False)[0, 1].tolist()
            [3.0, 4.0]
        """
        raise NotImplementedError("kv_pool: KvPool.block")

    @property
    def block_bytes(self) -> int:
        """Payload bytes of one block: L * 2 * H * B * D * 2 (P in rt.04, section 2.1).

        TODO (pass 1): Return how many bytes of K and V one block holds.

        Approach:
          - Layers times two times heads times positions times head_dim, two bytes each.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> pool.block_bytes
            16
        """
        raise NotImplementedError("kv_pool: KvPool.block_bytes")

    def stats(self) -> PoolStats:
        """Return the counts of this moment; ``free + used + cached == n_blocks``.

        TODO (pass 1): Return how many blocks are free, used and cached now, and how many were
            evicted so far.

        Approach:
          - Blocks are counted, not holders.
          - Pass 1: cached and evictions are 0. Pass 2: come back.

        Example:
            >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> (block,) = pool.alloc(1)
            >>> pool.ref(block)
            >>> pool.stats()
            PoolStats(free=3, used=1, cached=0, evictions=0)
        """
        raise NotImplementedError("kv_pool: KvPool.stats")
