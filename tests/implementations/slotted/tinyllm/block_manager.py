"""The block manager with a lease for every block of a table.

A lease says what a request holds of a block: a reference and, in mode radix, perhaps a pin in the
tree. The index of mode hash is the manager's own, from name to page; a page has its block, its
tokens and the page before it, and is proved before the pool is asked for anything. Pages whose
blocks have gone are noticed when they come up, and swept out now and then. While anybody is live,
``can_allocate`` promises only free blocks. ``PrefixCache`` is an `Enum` and nothing more.
"""

import hashlib
import operator
import os
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tinyllm.block_hash import block_hash
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool
from tinyllm.radix_cache import RadixCache

Tenant = str | int | None


class PrefixCache(Enum):
    NONE = "none"
    HASH = "hash"
    RADIX = "radix"


@dataclass(frozen=True, slots=True)
class Allocation:
    blocks: list[int]
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class BlockStats:
    lookups: int
    query_tokens: int
    hit_tokens: int
    evictions: int


class Page:
    """A named block: its tokens, and the page before it; the first page's is its tenant's."""

    __slots__ = ("before", "block", "name", "tokens")

    def __init__(self, block: int, name: int, tokens: Hashable, before: "Page | None") -> None:
        self.block, self.name, self.tokens, self.before = block, name, tokens, before


@dataclass(slots=True)
class Lease:
    block: int
    pin: Any = None  # radix: the lock that keeps the block in the tree


@dataclass(slots=True)
class Live:
    prompt: list[int]
    tenant: Hashable
    leases: list[Lease]
    booked: int
    names: list[int] = field(default_factory=list)

    @property
    def table(self) -> list[int]:
        return [lease.block for lease in self.leases]


class BlockManager:
    def __init__(self, pool: KvPool, mode: PrefixCache | str) -> None:
        found = [member for member in PrefixCache if mode is member or mode == member.value]
        if len(found) != 1:
            raise InvalidArgumentError(f"mode {mode!r} is not known")
        self.mode = found[0]
        self._pool = pool
        self._size = pool.config.block_tokens
        self._salt = os.urandom(32)
        self._live: dict[Hashable, Live] = {}
        self._pages: dict[int, Page] = {}
        self._tree = RadixCache(self._size)
        self._lookups = self._queried = self._hit = 0
        self._left_tree = 0
        self._left_pool = pool.stats().evictions

    def can_allocate(self, n_tokens: int) -> bool:
        need = self._blocks_of(_number(n_tokens, 0))
        stats = self._pool.stats()
        if self._live:
            return need <= stats.free
        return need <= stats.free + stats.cached + len(self._tree)

    def allocate(self, request_id: Hashable, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Allocation:
        prompt, owner = _token_list(tokens), _owner(tenant)
        if request_id in self._live:
            raise InvalidArgumentError(f"{request_id!r} is already there")
        if len(prompt) == 0:
            raise InvalidArgumentError("nothing to compute")
        live = Live(prompt, owner, [], len(prompt))
        live.leases = self._lease(live, prompt[:-1])
        hits = len(live.leases)
        try:
            live.leases += self._take(self._blocks_of(len(prompt)) - hits)
        except PoolFullError:
            self._end(live.leases)
            raise
        self._live[request_id] = live
        if not readmission:
            self._lookups += 1
            self._queried += len(prompt)
            self._hit += hits * self._size
        return Allocation(live.table, hits * self._size)

    def append_slot(self, request_id: Hashable) -> int | None:
        live = self._get(request_id)
        if live.booked < len(live.leases) * self._size:
            live.booked += 1
            return None
        live.leases += self._take(1)
        live.booked += 1
        return live.leases[-1].block

    def fork(self, parent: Hashable, child: Hashable) -> None:
        live = self._get(parent)
        if child in self._live:
            raise InvalidArgumentError(f"{child!r} is already there")
        leases = []
        for lease in live.leases:
            self._pool.ref(lease.block)
            if lease.pin is not None:
                self._tree.lock(lease.pin)
            leases.append(Lease(lease.block, lease.pin))
        self._live[child] = Live(live.prompt, live.tenant, leases, live.booked, live.names[:])

    def write(self, request_id: Hashable, block_index: int) -> int:
        leases = self._get(request_id).leases
        lease = leases[_number(block_index, 0, len(leases) - 1)]
        if self._pool.ref_count(lease.block) > 1:
            self._clear(1)
        lease.block = self._pool.cow(lease.block)
        return lease.block

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        live = self._get(request_id)
        computed = _token_list(computed_tokens)
        known = min(len(computed), len(live.prompt))
        if len(computed) > live.booked or computed[:known] != live.prompt[:known]:
            raise InvalidArgumentError("these tokens cannot have been computed")
        del self._live[request_id]
        leases = live.leases
        if self.mode is PrefixCache.HASH:
            self._publish(live, computed)
        elif self.mode is PrefixCache.RADIX:
            leases = self._plant(live, computed)
        self._end(leases)

    def block_table(self, request_id: Hashable) -> list[int]:
        return self._get(request_id).table

    def lookup_prefix(self, tokens: Sequence[int], tenant: Tenant = None) -> list[int]:
        asked = Live(_token_list(tokens), _owner(tenant), [], 0)
        leases = self._lease(asked, asked.prompt)
        self._end(leases)
        return [lease.block for lease in leases]

    def evict(self, n: int) -> int:
        n = _number(n, 0)
        if self.mode is PrefixCache.RADIX:
            return self._drop(n)
        stats = self._pool.stats()
        n = min(n, stats.cached)
        for block in self._pool.alloc(stats.free + n):
            self._pool.unref(block)
        return n

    def stats(self) -> BlockStats:
        left = self._pool.stats().evictions - self._left_pool + self._left_tree
        return BlockStats(self._lookups, self._queried, self._hit, left)

    @property
    def hit_rate(self) -> float:
        return 0.0 if self._queried == 0 else self._hit / self._queried

    @property
    def cached_blocks(self) -> int:
        """Count blocks that live requests hold, too."""
        n_blocks = self._pool.config.n_blocks
        return len(self._tree) + sum(self._pool.hash_of(id) != 0 for id in range(n_blocks))

    def _blocks_of(self, n_tokens: int) -> int:
        return (n_tokens + self._size - 1) // self._size

    def _get(self, request_id: Hashable) -> Live:
        live = self._live.get(request_id)
        if live is None:
            raise InvalidArgumentError(f"{request_id!r} is not there")
        return live

    def _take(self, n: int) -> list[Lease]:
        self._clear(n)
        return [Lease(block) for block in self._pool.alloc(n)]

    def _clear(self, n: int) -> None:
        """Make ``n`` blocks available to the pool, or refuse it before anything is dropped."""
        stats = self._pool.stats()
        short = n - stats.free - stats.cached
        if short > self._tree.evictable_blocks:
            raise PoolFullError(f"short of {short} blocks")
        self._drop(max(short, 0))

    def _drop(self, n: int) -> int:
        gone = self._tree.evict(n)
        for block in gone:
            self._pool.unref(block)
        self._left_tree += len(gone)
        return len(gone)

    def _end(self, leases: list[Lease]) -> None:
        for lease in reversed(leases):
            if lease.pin is not None:
                self._tree.unlock(lease.pin)
            self._pool.unref(lease.block)

    def _lease(self, live: Live, tokens: list[int]) -> list[Lease]:
        """Hold what is cached of the beginning of ``tokens``."""
        if self.mode is PrefixCache.RADIX:
            match = self._tree.match(_signed(tokens, live.tenant))
            leases = [Lease(block) for block in match.blocks]
            for lease in leases:
                self._pool.ref(lease.block)
            if leases:  # one pin holds the whole path; the last lease has it
                leases[-1].pin = match.node
                self._tree.lock(match.node)
            return leases
        pages: list[Page] = []
        if self.mode is PrefixCache.HASH:
            before = Page(-1, 0, live.tenant, None)
            for at, part in enumerate(self._parts(tokens)):
                page = self._page(self._name(live, at, part))
                if page is None or not self._proves(page, before, part):
                    break
                self._pool.lookup(page.name)
                pages.append(page)
                before = page
        return [Lease(page.block) for page in pages]

    def _page(self, name: int) -> Page | None:
        """Return the page of this name if its block is still there."""
        page = self._pages.get(name)
        if page is not None and self._pool.hash_of(page.block) != name:
            return None
        return page

    def _proves(self, page: Page, before: Page, part: tuple[int, ...]) -> bool:
        if page.tokens != part:
            return False
        left: Page | None = page.before
        right: Page | None = before
        while left is not right:
            if left is None or right is None or left.tokens != right.tokens:
                return False
            left, right = left.before, right.before
        return True

    def _publish(self, live: Live, computed: list[int]) -> None:
        """Name the request's computed blocks, as far as no other text has one of the names."""
        before = Page(-1, 0, live.tenant, None)
        for at, part in enumerate(self._parts(computed)):
            name, block = self._name(live, at, part), live.leases[at].block
            page = self._page(name)
            if page is None:
                if self._pool.hash_of(block):
                    return
                self._pool.set_fill(block, self._size)
                try:
                    self._pool.register(block, name)
                except HashBusyError:
                    return
                page = self._pages[name] = Page(block, name, part, before)
            elif not self._proves(page, before, part):
                return
            before = page
        if len(self._pages) > 2 * self._pool.config.n_blocks:
            self._pages = {name: page for name, page in self._pages.items()
                           if self._pool.hash_of(page.block) == name}

    def _plant(self, live: Live, computed: list[int]) -> list[Lease]:
        """Put the request's computed blocks into the tree; return the leases that are left."""
        table, path = live.table, _signed(computed, live.tenant)
        for pin in [lease.pin for lease in live.leases if lease.pin is not None][::-1]:
            self._tree.lock(pin)  # a use: what is given back becomes young
            self._tree.unlock(pin)
        stored = self._tree.insert(path, table[: len(computed) // self._size])
        for block in stored:
            self._pool.set_fill(block, self._size)
            if self._pool.ref_count(block) > 1:
                self._pin_for_others(block, path[: (table.index(block) + 1) * self._size])
        return [lease for lease in live.leases if lease.block not in stored]

    def _pin_for_others(self, block: int, path: list[Hashable]) -> None:
        for other in self._live.values():
            for lease in other.leases:
                if lease.block == block:
                    lease.pin = self._tree.match(path).node
                    self._tree.lock(lease.pin)

    def _parts(self, tokens: list[int]) -> Iterator[tuple[int, ...]]:
        for end in range(self._size, len(tokens) + 1, self._size):
            yield tuple(tokens[end - self._size : end])

    def _name(self, live: Live, at: int, part: tuple[int, ...]) -> int:
        if at == len(live.names):
            live.names.append(block_hash(live.names[-1] if at else self._root(live.tenant), part))
        return live.names[at]

    def _root(self, tenant: Hashable) -> int:
        if tenant is None:
            return 0
        digest = hashlib.sha256(self._salt + repr(tenant).encode()).digest()
        return int.from_bytes(digest[:8], "little") or 1


def _signed(tokens: list[int], tenant: Hashable) -> list[Hashable]:
    if tenant is None:
        return list(tokens)
    return [token if at else (token, tenant) for at, token in enumerate(tokens)]


def _token_list(tokens: Sequence[int]) -> list[int]:
    if isinstance(tokens, str | bytes) or not hasattr(tokens, "__iter__"):
        raise InvalidArgumentError(f"a {type(tokens).__name__} is no sequence of tokens")
    return [_number(token, 0, 2**32 - 1) for token in tokens]


def _owner(tenant: Tenant) -> Hashable:
    if tenant is None:
        return None
    if isinstance(tenant, str):
        return ("s", tenant)
    return ("i", _number(tenant, None))


def _number(value: int, low: int | None, high: int | None = None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no integer") from None
    if isinstance(value, bool) or (low is not None and number < low) or (
            high is not None and number > high):
        raise InvalidArgumentError(f"{value!r} is not in {low}..{high}")
    return number
