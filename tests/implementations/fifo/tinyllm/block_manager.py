"""The block manager in one class, with a question about the mode where the modes differ.

Each naming of a block gets a number of its own, and what is recorded of the block is its tokens and
the number of the one before it. So a proof is one comparison a block; a block whose parent was
evicted and computed again is not found any more. A duplicate's first holder is touched before the
request's own blocks are released. The fill of a prompt's full blocks is set at once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from itertools import count
from operator import index
from os import urandom
from typing import Any, NamedTuple

from tinyllm.block_hash import block_hash
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool
from tinyllm.radix_cache import RadixCache

Tenant = str | int | None


class PrefixCache(StrEnum):
    NONE = "none"
    HASH = "hash"
    RADIX = "radix"


class Allocation(NamedTuple):
    blocks: list[int]
    cached_tokens: int


class BlockStats(NamedTuple):
    lookups: int
    query_tokens: int
    hit_tokens: int
    evictions: int


@dataclass
class Request:
    prompt: list[int]
    tenant: Tenant
    table: list[int]
    slots: int
    hits: int
    handles: list[Any] = field(default_factory=list)


class Record(NamedTuple):
    """What a named block holds: tokens behind the block whose naming had the number ``after``."""

    number: int
    tokens: list[int]
    after: Hashable
    name: int


class BlockManager:
    def __init__(self, pool: KvPool, mode: PrefixCache | str) -> None:
        if mode not in list(PrefixCache):
            raise InvalidArgumentError(f"there is no mode {mode!r}")
        self.mode = PrefixCache(mode)
        self.pool = pool
        self.size = pool.config.block_tokens
        self.tree = RadixCache(self.size)
        self.requests: dict[Hashable, Request] = {}
        self.records: dict[int, Record] = {}
        self.numbers = count(1)
        self.key = urandom(16)
        self.counts = [0, 0, 0]
        self.dropped = 0
        self.old_evictions = pool.stats().evictions

    def can_allocate(self, n_tokens: int) -> bool:
        n_tokens = _natural(n_tokens, "a number of tokens")
        return n_tokens <= self.size * self._room()

    def allocate(self, request_id: Hashable, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Allocation:
        if request_id in self.requests:
            raise InvalidArgumentError(f"{request_id!r} is running")
        prompt, tenant = _tokens(tokens), _tenant(tenant)
        if not prompt:
            raise InvalidArgumentError("the prompt is empty")
        blocks, handles = self._find(prompt[:-1], tenant)
        hits = len(blocks)
        try:
            new = self._new(-(-len(prompt) // self.size) - hits)
        except PoolFullError:
            self._forget(blocks[::-1], handles)
            raise
        for block in new[: len(prompt) // self.size - hits]:
            self.pool.set_fill(block, self.size)
        table = [*blocks, *new]
        self.requests[request_id] = Request(prompt, tenant, table, len(prompt), hits, handles)
        if not readmission:
            for at, n in enumerate((1, len(prompt), hits * self.size)):
                self.counts[at] += n
        return Allocation(table.copy(), hits * self.size)

    def append_slot(self, request_id: Hashable) -> int | None:
        request = self._running(request_id)
        new = self._new(1) if request.slots == self.size * len(request.table) else []
        request.table += new
        request.slots += 1
        return new[0] if new else None

    def fork(self, parent: Hashable, child: Hashable) -> None:
        request = self._running(parent)
        if child in self.requests:
            raise InvalidArgumentError(f"{child!r} is running")
        for block in request.table:
            self.pool.ref(block)
        for handle in request.handles:
            self.tree.lock(handle)
        self.requests[child] = Request(request.prompt, request.tenant, request.table.copy(),
                                       request.slots, request.hits, request.handles.copy())

    def write(self, request_id: Hashable, block_index: int) -> int:
        table = self._running(request_id).table
        place = _natural(block_index, "a place in the table")
        if place >= len(table):
            raise InvalidArgumentError(f"the table has {len(table)} blocks")
        if self.mode == PrefixCache.RADIX and self.pool.ref_count(table[place]) > 1:
            self._evict_for(1)
        old, table[place] = table[place], self.pool.cow(table[place])
        if table[place] != old:
            self.records.pop(table[place], None)
        return table[place]

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        request = self._running(request_id)
        computed = _tokens(computed_tokens)
        prompt = request.prompt
        if len(computed) > request.slots or computed[: len(prompt)] != prompt[: len(computed)]:
            raise InvalidArgumentError(f"{request_id!r} cannot have computed these tokens")
        del self.requests[request_id]
        whole = len(computed) // self.size
        given = list(request.table)
        if self.mode == PrefixCache.HASH:
            self._register(request, computed, whole)
        elif self.mode == PrefixCache.RADIX:
            path = _path(computed, request.tenant)
            for handle in request.handles:  # what was found is used once more
                self.tree.lock(handle)
                self.tree.unlock(handle)
            stored = self.tree.insert(path, request.table[:whole])
            for block in stored:
                self.pool.set_fill(block, self.size)
                given.remove(block)
            for other in self.requests.values():
                shared = [n for n, (mine, its) in enumerate(
                    zip(request.table[:whole], other.table, strict=False), 1)
                    if mine == its and mine in stored]
                if shared:
                    other.handles.append(self.tree.match(path[: max(shared) * self.size]).node)
                    self.tree.lock(other.handles[-1])
        self._forget(given[::-1], request.handles)

    def block_table(self, request_id: Hashable) -> list[int]:
        return self._running(request_id).table.copy()

    def lookup_prefix(self, tokens: Sequence[int], tenant: Tenant = None) -> list[int]:
        blocks, handles = self._find(_tokens(tokens), _tenant(tenant))
        self._forget(blocks[::-1], handles)
        return blocks

    def evict(self, n: int) -> int:
        n = _natural(n, "a number of blocks")
        if self.mode == PrefixCache.RADIX:
            blocks = self.tree.evict(n)
            for block in blocks:
                self.pool.unref(block)
            self.dropped += len(blocks)
            return len(blocks)
        stats = self.pool.stats()
        n = min(n, stats.cached)
        for block in self._new(stats.free + n):
            self.pool.unref(block)
        return n

    def stats(self) -> BlockStats:
        lookups, query, hit = self.counts
        evictions = self.pool.stats().evictions - self.old_evictions + self.dropped
        return BlockStats(lookups, query, hit, evictions)

    @property
    def hit_rate(self) -> float:
        _, query, hit = self.counts
        return hit / max(query, 1)

    @property
    def cached_blocks(self) -> int:
        return self.pool.stats().cached + len(self.tree)

    def _running(self, request_id: Hashable) -> Request:
        if request_id not in self.requests:
            raise InvalidArgumentError(f"{request_id!r} is not running")
        return self.requests[request_id]

    def _room(self) -> int:
        stats = self.pool.stats()
        return stats.free + stats.cached + self.tree.evictable_blocks

    def _evict_for(self, n: int) -> None:
        if n > self._room():
            raise PoolFullError(f"no {n} blocks can be had")
        stats = self.pool.stats()
        if n > stats.free + stats.cached:
            self.evict(n - stats.free - stats.cached)

    def _new(self, n: int) -> list[int]:
        if self.mode == PrefixCache.RADIX:
            self._evict_for(n)
        blocks = self.pool.alloc(n)
        for block in blocks:
            self.records.pop(block, None)
        return blocks

    def _find(self, tokens: list[int], tenant: Tenant) -> tuple[list[int], list[Any]]:
        """Hold the cached blocks that ``tokens`` begin with."""
        if self.mode == PrefixCache.RADIX:
            match = self.tree.match(_path(tokens, tenant))
            self.tree.lock(match.node)
            for block in match.blocks:
                self.pool.ref(block)
            return list(match.blocks), [match.node]
        blocks: list[int] = []
        if self.mode == PrefixCache.HASH:
            name, after = self._root(tenant)
            for start in range(0, len(tokens) - self.size + 1, self.size):
                part = tokens[start : start + self.size]
                name = block_hash(name, part)
                if (hit := self._proved(name, part, after)) is None:
                    break
                blocks.append(hit)
                after = self.records[hit].number
        return blocks, []

    def _proved(self, name: int, part: list[int], after: Hashable) -> int | None:
        block = self.pool.lookup(name)
        if block is None:
            return None
        record = self.records.get(block)
        if record is not None and (record.tokens, record.after) == (part, after):
            return block
        self.pool.unref(block)
        return None

    def _register(self, request: Request, computed: list[int], whole: int) -> None:
        name, after = self._root(request.tenant)
        firsts: list[int] = []
        for place in range(whole):
            part = computed[place * self.size : (place + 1) * self.size]
            block = request.table[place]
            known = self.records.get(block)
            if known is not None:
                if (known.tokens, known.after) != (part, after):
                    break
                name, after = known.name, known.number
                continue
            name = block_hash(name, part)
            self.pool.set_fill(block, self.size)
            try:
                self.pool.register(block, name)
                self.records[block] = Record(next(self.numbers), part, after, name)
                after = self.records[block].number
            except HashBusyError:
                if (holder := self._proved(name, part, after)) is None:
                    break
                firsts.append(holder)
                after = self.records[holder].number
        for block in reversed(firsts):
            self.pool.unref(block)

    def _root(self, tenant: Tenant) -> tuple[int, Hashable]:
        """Return the parent of a first block and what stands for it."""
        if tenant is None:
            return 0, None
        text = f"{type(tenant).__name__} {tenant}".encode("utf-8", "surrogatepass")
        name = int.from_bytes(blake2b(text, digest_size=8, key=self.key).digest(), "big")
        return max(name, 1), (type(tenant), tenant)

    def _forget(self, blocks: list[int], handles: list[Any]) -> None:
        for block in blocks:
            self.pool.unref(block)
        for handle in handles:
            self.tree.unlock(handle)


def _path(tokens: list[int], tenant: Tenant) -> list[Hashable]:
    if tenant is None or not tokens:
        return list(tokens)
    return [(type(tenant), tenant, tokens[0]), *tokens[1:]]


def _tokens(tokens: Sequence[int]) -> list[int]:
    try:
        ids = [_natural(token, "a token") for token in tokens]
    except TypeError:
        raise InvalidArgumentError("these are no tokens") from None
    if ids and max(ids) >= 1 << 32:
        raise InvalidArgumentError(f"token {max(ids)} has more than 32 bits")
    return ids


def _tenant(tenant: Tenant) -> Tenant:
    if tenant is None or isinstance(tenant, str):
        return tenant
    if isinstance(tenant, bool) or not hasattr(tenant, "__index__"):
        raise InvalidArgumentError(f"{tenant!r} is no tenant")
    return index(tenant)


def _natural(value: int, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgumentError(f"{what} is an integer, not {value!r}")
    if (number := index(value)) < 0:
        raise InvalidArgumentError(f"{what} is not negative: {number}")
    return number
