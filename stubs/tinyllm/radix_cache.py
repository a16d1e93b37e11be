"""The radix cache: which runs of tokens are cached, in which blocks (L8.4; L10.4, section 2.2).

A tree over whole blocks: what it knows of a block is its tokens and all tokens before it, the path
from the root. A match finds the longest cached beginning of a prompt, an insert adds a prompt's
blocks, a lock keeps a path from eviction while a request reads it, and evict drops the least
recently used leaf. evictable_blocks + locked_blocks == len(cache) after every call, and a call
that raises has changed nothing. The cache keeps numbers of blocks, never the blocks themselves.
How the tree is built is up to you.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from tinyllm.errors import InvalidArgumentError


class Match(NamedTuple):
    """The longest cached run of whole blocks at the beginning of some tokens.

    ``blocks`` are their ids, first to last. ``node`` is the handle for ``lock`` and ``unlock``;
    what it is inside is the cache's own affair.
    """

    blocks: list[int]
    node: Any


class RadixCache:
    """A tree of cached prefixes over whole blocks of ``block_tokens`` tokens.

    Tokens are any hashable values, compared by equality. Block ids are anything with
    ``__index__`` that is no bool. The cache keeps ids, never contents or references: whoever
    inserts holds a reference to what is newly stored, and gives it back when ``evict`` drops it.
    A call that raises has changed nothing. A prompt may have thousands of blocks, so no method
    calls itself once per block: Python allows about a thousand nested calls.
    """

    def __init__(self, block_tokens: int) -> None:
        """Make an empty cache.

        Raises ``InvalidArgumentError`` unless ``block_tokens`` is an integer from 1 on.

        TODO (pass 1): Check the block size and make an empty tree: a root and no blocks.

        Approach:
          - Decide what a node is. One block a node is the simplest tree: a prompt that leaves a
            path makes a new child, and there is nothing to split. A node for a whole run of
            blocks is smaller, and must be split where prompts part.
          - What tells in one step which child goes on with a prompt? What leads from a node
            back to the root?
          - Three counts are asked for at any time. Which two do you keep, and which one
            follows?
          - Leave the order of eviction for the end; begin with match and insert.

        Example:
            >>> cache = RadixCache(block_tokens=4)
            >>> len(cache), cache.evictable_blocks, cache.locked_blocks
            (0, 0, 0)
            >>> RadixCache(0)
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: block_tokens must be an integer from 1 on, not 0
        """
        raise NotImplementedError("radix_cache: RadixCache")

    def match(self, tokens: Sequence[Hashable]) -> Match:
        """Return the longest cached run of whole blocks at the beginning of ``tokens``.

        Nothing changes that anyone can see, recency included. A miss is ``Match([], root)``. No
        token is kept back: whoever must compute the last one cuts it off first (L10.4, section
        2.1, rule 3). The handle stands for exactly what matched, whatever is inserted later, and
        is good until some of that is evicted; a lock on it keeps that from happening.

        TODO (pass 1): Return the ids of the longest cached beginning of the tokens, and its handle.

        Approach:
          - Go from the root, a whole block of the prompt at a time, and stop at the first one
            that is missing.
          - The handle is whatever lock needs to find the place again: the last node that
            matched, say. The root will do for a miss.
          - If your nodes hold runs: a match may end inside one. The handle must pin just what
            matched, and stay right when somebody splits that run later.
          - Write nothing: no age, no count. A split that nobody can see is allowed.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> cache.insert([1, 2, 3, 4, 5], [7, 9])
            [7, 9]
            >>> cache.match([1, 2, 3, 4, 5, 6]).blocks, cache.match([1, 2, 8, 8]).blocks
            ([7, 9], [7])
            >>> cache.match([3, 4]).blocks
            []
        """
        raise NotImplementedError("radix_cache: RadixCache.match")

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        """Store the blocks of ``tokens``, an id for each whole block; return those newly stored.

        What is returned is a suffix of ``blocks``, perhaps an empty one: tokens that have a block
        already keep it, the first holder. A partial block at the end is ignored. The whole path
        becomes the newest.

        Raises ``InvalidArgumentError`` when the ids are not as many as the whole blocks, or one
        of them is no integer.

        TODO (pass 1): Store the blocks of a prompt that are not there yet, and return their ids.

        Approach:
          - Check all ids and their number before you touch the tree.
          - Walk down what is there as match does. What is left of the prompt is new: hang it in
            behind the last node.
          - Tokens that have a block keep it, whatever id came with them this time. So what is
            new is always an end of the list of ids.
          - The whole path is the newest after it, also when nothing was new. A node that was a
            leaf may be none any more.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> cache.insert([1, 2, 3, 4], [7, 9])
            [7, 9]
            >>> cache.insert([1, 2, 5, 6], [3, 8])
            [8]
            >>> cache.insert([1, 2, 5, 6], [3])
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: 4 tokens have 2 whole blocks of 2, not 1
            >>> len(cache), cache.match([1, 2, 5, 6]).blocks
            (3, [7, 8])
        """
        raise NotImplementedError("radix_cache: RadixCache.insert")

    def lock(self, node: Any) -> None:
        """Keep the blocks of a match from eviction, until as many calls of ``unlock``.

        ``node`` is a match's handle. The whole path becomes the newest. Locking the root, the
        handle of a miss, is allowed and pins nothing.

        A handle is stale once one of its blocks was evicted. A lock with a stale handle raises
        ``InvalidArgumentError``, or returns and pins nothing; the counts stay exact.

        TODO (pass 1): Keep what a handle stands for from eviction, once more, and make its path the
            newest.

        Approach:
          - A block is locked if a lock is on its node or on any node below. Counting along the
            path to the root makes that one look at a node.
          - Begin with the handle's own node. The root is no block.
          - How does a handle know that one of its blocks was evicted? Decide that first, before
            any count changes: a stale handle pins nothing.
          - A node that is locked for the first time moves from one count to the other, and must
            not be dropped from now on.
          - A loop, not a function that calls itself: a long prompt has thousands of blocks.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4], [7, 9])
            >>> found = cache.match([1, 2, 5, 6])
            >>> cache.lock(found.node)
            >>> cache.evictable_blocks, cache.locked_blocks
            (1, 1)
            >>> cache.evict(2)
            [9]
        """
        raise NotImplementedError("radix_cache: RadixCache.lock")

    def unlock(self, node: Any) -> None:
        """Take back one ``lock`` of this handle. Nothing becomes newer by it.

        Raises ``InvalidArgumentError`` when no lock of this handle is left. With a stale handle it
        takes back no lock of another request.

        TODO (pass 1): Take back one lock of a handle; refuse it where none is left.

        Approach:
          - The mirror of lock, along the same path. Refuse first, count then.
          - A leaf whose last lock goes may be dropped from now on. Its age is that of its last
            use, and an unlock is none: its place in the order may be anywhere.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4], [7, 9])
            >>> found = cache.match([1, 2, 3, 4])
            >>> cache.lock(found.node)
            >>> cache.unlock(found.node)
            >>> cache.evictable_blocks
            2
            >>> cache.unlock(found.node)
            Traceback (most recent call last):
            tinyllm.errors.InvalidArgumentError: no lock is left on this node
        """
        raise NotImplementedError("radix_cache: RadixCache.unlock")

    def evict(self, n_blocks: int) -> list[int]:
        """Drop ``n_blocks`` blocks, or all that can go if they are fewer; return the ids dropped.

        Each time the least recently used leaf without a lock goes: of a run of blocks that were
        used together, the last one first, so that what stays can be reached. O(log n) a block.

        Raises ``InvalidArgumentError`` for a count that is no integer from 0 on.

        TODO (pass 1): Drop n blocks, the least recently used leaf each time, and return their ids
            in that order.

        Approach:
          - Of all leaves without a lock take the one whose last use is the longest ago. When it
            goes, its parent may become a leaf.
          - Blocks that were used together have one age; the last of them is the leaf, so it
            goes first by itself.
          - How do you find the oldest leaf without looking at all of them? A heap gives the
            smallest of many; entries that are no longer true can be passed over when they come
            up. Keep it from filling with them.
          - A use of a block is a use of all blocks before it. You can stamp the whole path at
            each use, or hand the age of a leaf on to its parent when it goes.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4], [7, 9])
            >>> new = cache.insert([1, 2, 5, 6], [7, 8])
            >>> cache.evict(0), cache.evict(1), cache.evict(10)
            ([], [9], [8, 7])
        """
        raise NotImplementedError("radix_cache: RadixCache.evict")

    @property
    def evictable_blocks(self) -> int:
        """How many blocks ``evict`` could drop now: those under no lock.

        TODO (pass 1): Return how many blocks are under no lock.

        Approach:
          - A block with children counts as well: evict could drop it after them.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4], [7, 9])
            >>> cache.evictable_blocks
            2
        """
        raise NotImplementedError("radix_cache: RadixCache.evictable_blocks")

    @property
    def locked_blocks(self) -> int:
        """How many blocks are under a lock.

        TODO (pass 1): Return how many blocks are under a lock.

        Approach:
          - Blocks are counted, not locks: two requests on one path lock its blocks once.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4], [7, 9])
            >>> cache.lock(cache.match([1, 2]).node)
            >>> cache.locked_blocks
            1
        """
        raise NotImplementedError("radix_cache: RadixCache.locked_blocks")

    def __len__(self) -> int:
        """How many blocks are in the tree.

        TODO (pass 1): Return how many blocks are in the tree, locked or not.

        Approach:
          - The root is no block. An object of length 0 is false to Python: ask a cache for its
            length, not for its truth.

        Example:
            >>> cache = RadixCache(block_tokens=2)
            >>> new = cache.insert([1, 2, 3, 4, 5], [7, 9])
            >>> len(cache)
            2
        """
        raise NotImplementedError("radix_cache: RadixCache.__len__")
