"""A pool of blocks as a simulator needs it: names and numbers, no contents.

It answers like a block manager in mode hash or radix over a pool of the same size: the same hits,
the same room, and, under the policy ``lru-tail``, the same evictions in the same order. But it has
no ids, no tokens and no K and V, so it is some hundred times faster.

    held     a named block that one or more requests hold
    cached   a named block that nobody holds; it may be evicted, and is room until then
    private  a block without a name, of one request: new, partial, or a duplicate
    free     all others
"""

from collections.abc import Sequence
from itertools import islice

from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import Policy
from tinyllm.trace import Name


class PrefixIndex:
    """``n_blocks`` blocks under a policy of eviction; without one nothing is ever cached.

    Whoever holds blocks keeps the count of them, and the names of those it found. A call that
    raises has changed nothing.
    """

    def __init__(self, n_blocks: int, policy: Policy | None = None) -> None:
        if type(n_blocks) is not int or n_blocks < 1:
            raise InvalidArgumentError(f"a pool has at least 1 block, not {n_blocks!r}")
        self.n_blocks = n_blocks
        self.free = n_blocks
        self.evictions = 0
        self._policy = policy
        self._held: dict[Name, int] = {}  # how many hold it

    @property
    def cached(self) -> int:
        """How many blocks are cached and held by nobody."""
        return len(self._policy) if self._policy is not None else 0

    @property
    def room(self) -> int:
        """How many blocks `take` could take: the free and the cached ones."""
        return self.free + self.cached

    @property
    def held(self) -> int:
        """How many named blocks are held, each counted once however many hold it."""
        return len(self._held)

    def found(self, names: Sequence[Name]) -> int:
        """Return how many blocks at the beginning of ``names`` are there, up to the first miss."""
        if self._policy is None:
            return 0
        for at, name in enumerate(names):
            if name not in self._held and name not in self._policy:
                return at
        return len(names)

    def hold(self, names: Sequence[Name], n_blocks: int) -> int:
        """Take ``n_blocks`` blocks for a text that begins with ``names``, and return how many of
        them were found; the others are private, evicted for where none are free.

        Raises ``PoolFullError`` when there is no room; what is found is no room for the rest.
        """
        hit, cached = self.found(names), self._policy
        revived = 0 if cached is None else sum(n in cached for n in islice(names, hit))
        if n_blocks - hit > self.room - revived:
            raise PoolFullError(f"{n_blocks} blocks asked for, {hit} of them found; "
                                f"{self.room - revived} can be had")
        for name in islice(names, hit):
            if cached is not None and name in cached:
                del cached[name]
            self._held[name] = self._held.get(name, 0) + 1
        self.take(n_blocks - hit)
        return hit

    def take(self, n: int) -> None:
        """Take ``n`` private blocks. Raises ``PoolFullError`` when there is no room for all."""
        if n > self.room:
            raise PoolFullError(f"{n} blocks asked for, {self.room} can be had")
        while self.free < n:
            assert self._policy is not None
            self._policy.evict()
            self.evictions += 1
            self.free += 1
        self.free -= n

    def release(self, names: Sequence[Name], hit: int, n_blocks: int) -> None:
        """Give a request's ``n_blocks`` blocks back. The first ``hit`` of ``names`` are those that
        `hold` found; the others name whole blocks of its own, which may stay cached. One whose
        name is taken is a duplicate: it goes, and that counts as a use of the other."""
        cached, held = self._policy, self._held
        self.free += n_blocks - (hit if cached is None else len(names))
        if cached is None:
            return
        depths = range(len(names))
        for depth in reversed(depths) if cached.tail_first else depths:
            name = names[depth]
            if depth < hit:
                held[name] -= 1
                if not held[name]:
                    del held[name]
                    cached[name] = depth
            elif name in held:
                self.free += 1
            else:
                if name in cached:
                    self.free += 1
                    del cached[name]  # it is used again, at this place in the order
                cached[name] = depth
