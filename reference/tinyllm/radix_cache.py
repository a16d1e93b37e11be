"""The radix cache: which runs of tokens are cached, in which blocks (L8.4; L10.4, section 2.2).

A tree with a node a block. A node stands for the tokens of its block *and* all tokens before it,
which are the path from the root; so two prompts share exactly the nodes of their common whole
blocks, and a prompt that leaves a path in the middle makes a branch there, with nothing to split.

Every block is in one of two states, and ``evictable_blocks + locked_blocks == len(cache)`` after
every call:

    locked       a lock is on its node or on one below it; eviction passes it by
    evictable    all others: it goes when nothing is left below it and nothing else is older

Costs: `match` and `insert` look at each block of the prompt once, `lock` and `unlock` climb no
further than the first node that another lock holds already, `evict` takes O(log n) a block.
"""

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from operator import index
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
        """
        self._block_tokens = _integer(block_tokens, "block_tokens", least=1)
        self._root = _Node(self, None, (), -1)
        self._blocks = self._locked = self._now = 0
        # The leaves that may go, by age. No two of them have one age: a call makes one path newest.
        self._leaves: dict[int, _Node] = {}
        self._ages: list[int] = []  # a heap: the ages in _leaves, and some that were there once

    def match(self, tokens: Sequence[Hashable]) -> Match:
        """Return the longest cached run of whole blocks at the beginning of ``tokens``.

        Nothing changes that anyone can see, recency included. A miss is ``Match([], root)``. No
        token is kept back: whoever must compute the last one cuts it off first (L10.4, section
        2.1, rule 3). The handle stands for exactly what matched, whatever is inserted later, and
        is good until some of that is evicted; a lock on it keeps that from happening.
        """
        return Match(*self._walk(tuple(tokens)))

    def insert(self, tokens: Sequence[Hashable], blocks: Sequence[int]) -> list[int]:
        """Store the blocks of ``tokens``, an id for each whole block; return those newly stored.

        What is returned is a suffix of ``blocks``, perhaps an empty one: tokens that have a block
        already keep it, the first holder. A partial block at the end is ignored. The whole path
        becomes the newest.

        Raises ``InvalidArgumentError`` when the ids are not as many as the whole blocks, or one
        of them is no integer.
        """
        text, size = tuple(tokens), self._block_tokens
        ids = [_integer(block, "a block id") for block in blocks]
        if len(ids) != len(text) // size:
            raise InvalidArgumentError(f"{len(text)} tokens have {len(text) // size} whole blocks "
                                       f"of {size}, not {len(ids)}")
        known, node = self._walk(text)
        first = len(known)
        hash(text[first * size : len(ids) * size])  # no token? it fails before anything changes
        if first < len(ids):
            self._leaves.pop(node.age, None)  # it has a block below it from now on
        for at in range(first, len(ids)):
            node = node.grow(text[at * size : (at + 1) * size], ids[at])
        self._blocks += len(ids) - first
        self._use(node)
        return ids[first:]

    def lock(self, node: Any) -> None:
        """Keep the blocks of a match from eviction, until as many calls of ``unlock``.

        ``node`` is a match's handle. The whole path becomes the newest. Locking the root, the
        handle of a miss, is allowed and pins nothing.

        A handle is stale once one of its blocks was evicted. A lock with a stale handle raises
        ``InvalidArgumentError``, or returns and pins nothing; the counts stay exact.
        """
        handle = self._handle(node)
        handle.pins += 1
        while (above := node.parent) is not None:
            node.locks += 1
            if node.locks > 1:
                break  # another lock holds it, and so all above it
            self._locked += 1
            node = above
        self._use(handle)

    def unlock(self, node: Any) -> None:
        """Take back one ``lock`` of this handle. Nothing becomes newer by it.

        Raises ``InvalidArgumentError`` when no lock of this handle is left. With a stale handle it
        takes back no lock of another request.
        """
        handle = self._handle(node)
        if not handle.pins:
            raise InvalidArgumentError("no lock is left on this node")
        handle.pins -= 1
        while (above := node.parent) is not None:
            node.locks -= 1
            if node.locks:
                break
            self._locked -= 1
            node = above
        self._offer(handle)

    def evict(self, n_blocks: int) -> list[int]:
        """Drop ``n_blocks`` blocks, or all that can go if they are fewer; return the ids dropped.

        Each time the least recently used leaf without a lock goes: of a run of blocks that were
        used together, the last one first, so that what stays can be reached. O(log n) a block.

        Raises ``InvalidArgumentError`` for a count that is no integer from 0 on.
        """
        n_blocks = _integer(n_blocks, "the number of blocks", least=0)
        dropped: list[int] = []
        while self._leaves and len(dropped) < n_blocks:
            while (age := heappop(self._ages)) not in self._leaves:
                pass
            leaf = self._leaves.pop(age)
            parent = leaf.leave()
            parent.age = max(parent.age, age)  # who used the leaf used the path to it
            self._offer(parent)
            dropped.append(leaf.block)
        self._blocks -= len(dropped)
        return dropped

    @property
    def evictable_blocks(self) -> int:
        """How many blocks ``evict`` could drop now: those under no lock."""
        return self._blocks - self._locked

    @property
    def locked_blocks(self) -> int:
        """How many blocks are under a lock."""
        return self._locked

    def __len__(self) -> int:
        """How many blocks are in the tree."""
        return self._blocks

    def _walk(self, text: tuple[Hashable, ...]) -> tuple[list[int], "_Node"]:
        """Follow ``text`` from the root as far as it is cached: the ids, and the last node."""
        blocks, node, size = [], self._root, self._block_tokens
        for start in range(0, len(text) - size + 1, size):
            child = node.children.get(text[start : start + size])
            if child is None:
                break
            node = child
            blocks.append(node.block)
        return blocks, node

    def _use(self, node: "_Node") -> None:
        """Make the path down to ``node`` the newest. Its end alone is stamped: whoever is above
        learns of it in ``evict``, when it becomes a leaf."""
        self._now += 1
        self._leaves.pop(node.age, None)
        node.age = self._now
        self._offer(node)

    def _offer(self, node: "_Node") -> None:
        """Queue a node for eviction if it is a leaf without a lock."""
        if node.children or node.locks or node.parent is None:
            return
        self._leaves[node.age] = node
        heappush(self._ages, node.age)
        if len(self._ages) > 2 * len(self._leaves) + 16:
            self._ages = sorted(self._leaves)  # old ages are cleared away; sorted is a heap, too

    def _handle(self, node: Any) -> "_Node":
        if not isinstance(node, _Node) or node.cache is not self:
            raise InvalidArgumentError("this is no handle of a match in this cache, or its block "
                                       "was evicted before it was locked")
        return node


class _Node:
    """A block, and the path to it. Its children are told apart by the tokens of their blocks."""

    __slots__ = ("age", "block", "cache", "children", "key", "locks", "parent", "pins")

    def __init__(self, cache: RadixCache, parent: "_Node | None", key: tuple[Hashable, ...],
                 block: int) -> None:
        self.cache: RadixCache | None = cache  # None once it is evicted
        self.parent = parent  # None: the root
        self.key, self.block = key, block
        self.children: dict[tuple[Hashable, ...], _Node] = {}
        self.age = 0
        self.pins = 0  # locks of this very handle
        self.locks = 0  # those, and children that are under a lock

    def grow(self, key: tuple[Hashable, ...], block: int) -> "_Node":
        """Add a child and return it."""
        assert self.cache is not None
        child = self.children[key] = _Node(self.cache, self, key, block)
        return child

    def leave(self) -> "_Node":
        """Take this leaf out of the tree and return its parent."""
        assert self.parent is not None
        parent, self.cache = self.parent, None
        del parent.children[self.key]
        return parent


def _integer(value: Any, what: str, least: int | None = None) -> int:
    """Return ``value`` as a plain int, or refuse it."""
    try:
        number = None if isinstance(value, bool) else index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        limit = "" if least is None else f" from {least} on"
        raise InvalidArgumentError(f"{what} must be an integer{limit}, not {value!r}")
    return number
