"""The block manager: block tables for requests over one pool, with a prefix cache (L10.4).

A request is live from allocate, or fork, to release. It has a table of blocks with a slot for each
position of its text, and holds one reference to each block. When it ends, its whole blocks may
stay cached, and a prompt that begins with the same tokens begins with those blocks.

Pass 3 is mode none, where nothing stays, and mode hash, where full blocks stay in the pool under
their chained hashes as names. Pass 4 is mode radix, where a radix cache has them, and forks, copies
and evictions in all modes. A call that raises has changed nothing but perhaps the age of a
prompt's hits. How you store all this is up to you.
"""

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import NamedTuple

from tinyllm.block_hash import hash_chain
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.radix_cache import RadixCache


class PrefixCache(StrEnum):
    """How the blocks of ended requests are found again: `prefix_cache` of the engine's config."""

    NONE = "none"
    HASH = "hash"
    RADIX = "radix"


class Allocation(NamedTuple):
    """A new request's block table, and how many of its first positions have K and V already.

    ``cached_tokens`` is a multiple of the block size and less than the prompt's length.
    """

    blocks: list[int]
    cached_tokens: int


class BlockStats(NamedTuple):
    """What happened since the manager was made: first admissions, the tokens of their prompts,
    how many of these were cached, and blocks that left the cache."""

    lookups: int
    query_tokens: int
    hit_tokens: int
    evictions: int


class BlockManager:
    """Block tables for requests, over a pool that nobody else allocates from or names blocks in.

    A request's id is anything hashable, and live from ``allocate`` or ``fork`` to ``release``. A
    token is an integer in 0..2**32-1; a tenant is a string or an integer, told apart by type and
    value, or ``None``. What is an integer has ``__index__`` and is no bool. Every method raises
    ``InvalidArgumentError`` for anything else, and for an id that is not live (or, where a request
    is to begin, is); for an id that cannot be hashed Python's own ``TypeError`` will do. A call
    that raises has changed nothing but perhaps the age of a prompt's hits.
    """

    def __init__(self, pool: KvPool, mode: PrefixCache | str) -> None:
        """Manage ``pool``; ``mode`` is a member of `PrefixCache` or its string.

        TODO (pass 3): Read the mode, and set up the books: nobody is live, nothing is cached.

        Approach:
          - PrefixCache("hash") gives the member for its string. Which error comes for another
            string, and which should?
          - What do you need to know about a live request? Its table, its prompt, how many slots
            are booked; more will come.
          - Three modes differ in a few places only: what a prompt finds, where new blocks come
            from, what a release keeps. Give those places one shape now, and pass 4 is a third
            filling of it.
          - The pool may have been used before you: evictions count from now.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> manager.stats(), manager.cached_blocks
            (BlockStats(lookups=0, query_tokens=0, hit_tokens=0, evictions=0), 0)
            >>> BlockManager(pool, "paged")
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: a mode is none, hash or radix, not 'paged'
        """
        raise NotImplementedError("block_manager: BlockManager")

    @property
    def mode(self) -> PrefixCache:
        """How the blocks of ended requests are found again.

        TODO (pass 3): Return the member of PrefixCache.

        Approach:
          - A member, whatever the constructor was given.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> manager.mode is PrefixCache.HASH
            True
        """
        raise NotImplementedError("block_manager: BlockManager.mode")

    def can_allocate(self, n_tokens: int) -> bool:
        """Say whether any prompt of ``n_tokens`` tokens would get its blocks now.

        Cached blocks are room, blocks that live requests hold are not.

        TODO (pass 3): Say whether any prompt of this length would get its blocks now.

        Approach:
          - What can be had? Blocks that are free, and cached ones that nobody holds. The pool
            knows both.
          - A prompt that finds some of its blocks needs fewer, and those it finds are no room
            any more. Do the two cancel out?
          - Pass 4: come back. The pool does not know which of its used blocks are only the
            tree's.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> manager.can_allocate(32), manager.can_allocate(33)
            (True, False)
            >>> allocation = manager.allocate("A", range(9))
            >>> manager.can_allocate(20), manager.can_allocate(21)
            (True, False)
        """
        raise NotImplementedError("block_manager: BlockManager.can_allocate")

    def allocate(self, request_id: Hashable, tokens: Sequence[int],
                 tenant: str | int | None = None, *, readmission: bool = False) -> Allocation:
        """Give a new request the blocks of its prompt, as many of them as possible cached ones.

        A prompt of n tokens takes ceil(n / B) blocks. The first are the longest cached run of
        whole blocks within its first n - 1 tokens: the last token is always computed, for the
        logits of the next one (L10.4, section 2.1). ``readmission`` says that the request comes
        back after a preemption; the statistics leave it out.

        Raises ``PoolFullError`` when there is no room for the rest, and ``InvalidArgumentError``
        for an empty prompt.

        TODO (pass 3): Give a new request a table for its prompt: what is cached first, then new
            blocks; all or nothing.

        Approach:
          - Refuse first: a live id, no tokens, a token or a tenant that is none. Look out for
            True, which is 1.
          - Mode none: n tokens take n / B blocks, rounded up.
          - Mode hash: walk the prompt's whole blocks, front to back, and look each name up.
            Which block must the walk not reach, though it may be whole and cached?
          - A name is no proof. Compare tokens, of the block and of all before it. It is enough
            to know, of each named block, its tokens and which block's record was its parent's:
            the walk has verified that one a step before. When the parents are two objects, they
            may still say the same.
          - Hold the hits before you take new blocks, or a new block may be one of them. If
            there is no room, give back all that you hold, last to first.
          - Count last, when nothing can fail any more.
          - Pass 4: a match in the tree, a reference for each block, and a lock. How much can be
            evicted once the lock is there? Ask before you evict anything.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> allocation = manager.allocate("A", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
            >>> len(allocation.blocks), allocation.cached_tokens
            (3, 0)
            >>> manager.release("A", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
            >>> manager.allocate("B", [1, 2, 3, 4, 5, 6, 7, 8, 99, 98, 97]).cached_tokens
            8
            >>> manager.allocate("C", range(40))
            Traceback (most recent call last):
            tinyllm.errors.PoolFullError: 10 blocks asked for, 5 free, 0 cached
        """
        raise NotImplementedError("block_manager: BlockManager.allocate")

    def append_slot(self, request_id: Hashable) -> int | None:
        """Make room for the request's next position; return the block that it took, or ``None``
        when the last block had a slot left.

        It only books: before writing into a block that a fork shares, ask ``write``.

        Raises ``PoolFullError`` when a block is needed and there is no room.

        TODO (pass 3): Book the next position; take a block when the last one is full.

        Approach:
          - The first call after a prompt of n tokens books position n, the next one n + 1.
          - Take the block before you count the slot: if there is no room, nothing may have
            changed.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "none")
            >>> table = manager.allocate("A", [1, 2, 3]).blocks
            >>> manager.append_slot("A") is None, manager.append_slot("A") in table
            (True, False)
            >>> len(manager.block_table("A"))
            2
        """
        raise NotImplementedError("block_manager: BlockManager.append_slot")

    def fork(self, parent: Hashable, child: Hashable) -> None:
        """Begin the request ``child`` with all that ``parent`` holds, its last block included.

        TODO (pass 4): Make a child that holds all that its parent holds.

        Approach:
          - A reference more to each block, the partial one too. The two tables are two lists.
          - The child has its parent's tenant and prompt: its release is compared with that
            prompt, and publishes for that tenant.
          - Mode radix: a lock more. The child may outlive the parent, and the parent's lock
            goes with the parent.
          - Mode radix: what the parent leaves in the tree at its end, the child may hold still.
            An eviction that drops such a block frees nothing. Who locks it for the child, and
            when?

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "none")
            >>> table = manager.allocate("A", [1, 2, 3, 4, 5]).blocks
            >>> manager.fork("A", "B")
            >>> manager.block_table("B") == table, [pool.ref_count(block) for block in table]
            (True, [2, 2])
        """
        raise NotImplementedError("block_manager: BlockManager.fork")

    def write(self, request_id: Hashable, block_index: int) -> int:
        """Return the block at ``block_index`` of the request's table, now its own to write into.

        One that others hold, or that is cached, is replaced by a copy (the pool's ``cow``).

        Raises ``PoolFullError`` when there is no room for the copy.

        TODO (pass 4): Return a block that the request may write into, in its place in the table.

        Approach:
          - The pool's cow knows when a copy is needed, and makes it. What is left to do is the
            table.
          - Mode radix: a copy needs room, and only you can make it. But do not evict when no
            copy is needed.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "none")
            >>> table = manager.allocate("A", [1, 2, 3, 4, 5]).blocks
            >>> manager.write("A", 1) == table[1]
            True
            >>> manager.fork("A", "B")
            >>> copy = manager.write("B", 1)
            >>> copy in table, manager.block_table("A") == table
            (False, True)
            >>> manager.block_table("B") == [table[0], copy]
            True
        """
        raise NotImplementedError("block_manager: BlockManager.write")

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        """End a request: cache the whole blocks that are computed, and give all blocks back.

        ``computed_tokens`` are the tokens whose K and V are there, from position 0 on: hits,
        prompt and generated ones, or fewer than the prompt after a preemption. Blocks are given
        back last to first, so that a prompt's end is evicted before its beginning.

        Raises ``InvalidArgumentError`` for more tokens than slots, or others than the prompt's.

        TODO (pass 3): End a request: keep its whole computed blocks, give all blocks back.

        Approach:
          - Refuse first: nobody of this id, too many tokens, others than the prompt's.
          - Mode hash: the pool names full blocks only, and nobody has told it that they are
            full. Compute each name once a request, from where the walk at the beginning
            stopped.
          - A name may be taken: by a block that holds the same, then go on, the names behind it
            are good; or by one that holds something else, then this block and all behind it
            stay without a name. Ask with the same proof as a hit.
          - Give back the last block first. Which one is evicted first then, and what could
            still be found if it were the other way round?
          - Mode radix: insert says which blocks it has stored. The tree needs a reference to
            those, and you have one to give. All others go back, also those that the tree has
            already.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> table = manager.allocate("A", [1, 2, 3, 4, 5, 6]).blocks
            >>> manager.release("A", [1, 2, 3, 4, 5, 6])
            >>> manager.cached_blocks, pool.stats().free, pool.fill(table[0])
            (1, 7, 4)
            >>> manager.release("A", [])
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: no request 'A' is live
        """
        raise NotImplementedError("block_manager: BlockManager.release")

    def block_table(self, request_id: Hashable) -> list[int]:
        """Return the request's blocks, first to last. The list is the caller's.

        TODO (pass 3): Return the request's blocks as a new list.

        Approach:
          - Whoever gets the list may change it.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "none")
            >>> manager.allocate("A", [1, 2, 3, 4, 5]).blocks == manager.block_table("A")
            True
        """
        raise NotImplementedError("block_manager: BlockManager.block_table")

    def lookup_prefix(self, tokens: Sequence[int], tenant: str | int | None = None) -> list[int]:
        """Return the longest cached run of whole blocks that ``tokens`` begin with, up to their
        very end. Nothing is held and nothing is counted.

        TODO (pass 3): Return the longest run of cached blocks that the tokens begin with, holding
            none of them.

        Approach:
          - The walk of allocate, up to the very last token; then give back what it held.
          - Nothing is counted, and a refused prompt or tenant is refused here too.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> table = manager.allocate("A", [1, 2, 3, 4, 5, 6, 7, 8]).blocks
            >>> manager.release("A", [1, 2, 3, 4, 5, 6, 7, 8])
            >>> manager.lookup_prefix([1, 2, 3, 4, 5, 6, 7, 8]) == table
            True
            >>> manager.lookup_prefix([1, 2, 3, 4], tenant="somebody")
            []
            >>> manager.lookup_prefix([5, 6, 7, 8])
            []
        """
        raise NotImplementedError("block_manager: BlockManager.lookup_prefix")

    def evict(self, n: int) -> int:
        """Let ``n`` blocks leave the cache, or all that nobody holds if they are fewer, least
        recently used first; return how many left.

        TODO (pass 4): Let up to n blocks leave the cache, and return how many did.

        Approach:
          - Mode radix: the tree says which ones it dropped; the reference that it had to each
            is yours to give back.
          - Mode hash: only the pool evicts, and only to hand out blocks. Ask it for one block
            more than are free: what happens?

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "radix")
            >>> table = manager.allocate("A", [1, 2, 3, 4, 5, 6, 7, 8]).blocks
            >>> manager.release("A", [1, 2, 3, 4, 5, 6, 7, 8])
            >>> manager.evict(1), manager.lookup_prefix([1, 2, 3, 4, 5, 6, 7, 8]) == table[:1]
            (1, True)
            >>> manager.evict(5), pool.stats().free
            (1, 8)
        """
        raise NotImplementedError("block_manager: BlockManager.evict")

    def stats(self) -> BlockStats:
        """Return the counts of this moment.

        TODO (pass 3): Return lookups, query tokens, hit tokens and evictions since the beginning.

        Approach:
          - In mode hash the pool counts evictions already. Those before your time are not
            yours.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> for request in "AB":
            ...     allocation = manager.allocate(request, [1, 2, 3, 4, 5])
            ...     manager.release(request, [1, 2, 3, 4, 5])
            >>> manager.stats()
            BlockStats(lookups=2, query_tokens=10, hit_tokens=4, evictions=0)
        """
        raise NotImplementedError("block_manager: BlockManager.stats")

    @property
    def hit_rate(self) -> float:
        """hit_tokens / query_tokens, 0.0 before the first prompt.

        TODO (pass 3): Return hit tokens by query tokens.

        Approach:
          - There is a moment before the first prompt.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> manager.hit_rate
            0.0
            >>> for request in "AB":
            ...     allocation = manager.allocate(request, [1, 2, 3, 4, 5])
            ...     manager.release(request, [1, 2, 3, 4, 5])
            >>> manager.hit_rate
            0.4
        """
        raise NotImplementedError("block_manager: BlockManager.hit_rate")

    @property
    def cached_blocks(self) -> int:
        """How many blocks the cache holds.

        TODO (pass 3): Return how many blocks the cache holds.

        Approach:
          - It is asked when nobody is live. Whether blocks in use count at other times is up to
            you.

        Example:
            >>> pool = KvPool(PoolConfig(8, 4, n_layers=1, n_kv_heads=1, head_dim=2))
            >>> manager = BlockManager(pool, "hash")
            >>> allocation = manager.allocate("A", [1, 2, 3, 4, 5])
            >>> manager.release("A", [1, 2, 3, 4, 5])
            >>> manager.cached_blocks
            1
        """
        raise NotImplementedError("block_manager: BlockManager.cached_blocks")
