"""The block manager over linked texts, with a cache object for each mode.

In mode hash every text that is named is one node, linked from the node of the text before it and
found by its last tokens; so two blocks hold the same exactly if they have the same node, and the
proof of a hit is one ``is``. Nodes go with their blocks. A prompt is judged before it touches the
pool: the nodes say what will be found, and a refused prompt has used nothing; only a tree tells
what can be evicted beside its hits once they are locked, so there a refusal comes later. Parent and
child of a fork are linked in a ring; who leaves hands over locks on what the others still hold.
Blocks come in the reverse of the pool's order, and errors have classes of their own.
"""

from __future__ import annotations

import hmac
import operator
import secrets
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tinyllm.block_hash import block_hash
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool
from tinyllm.radix_cache import RadixCache

Tenant = str | int | None


class NotLiveError(InvalidArgumentError):
    """No request of this id is live."""


class NoCapacityError(PoolFullError):
    """More blocks are needed than free and evictable ones together."""


Key = tuple[str, str | int] | None


class PrefixCache(StrEnum):
    NONE = "none"
    HASH = "hash"
    RADIX = "radix"


class Allocation(NamedTuple):
    blocks: list[int]
    cached_tokens: int


@dataclass(frozen=True)
class BlockStats:
    lookups: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0


class Sequence_:
    """A live request."""

    def __init__(self, prompt: list[int], tenant: Key, table: list[int], pin: Any) -> None:
        self.prompt, self.tenant, self.table, self.pin = prompt, tenant, table, pin
        self.slots = len(prompt)
        self.left = self.right = self  # the ring of its forks

    def fork(self) -> Sequence_:
        child = Sequence_(self.prompt, self.tenant, self.table.copy(), self.pin)
        child.slots = self.slots
        child.left, child.right = self, self.right
        self.right.left = child
        self.right = child
        return child

    def leave(self) -> None:
        self.left.right, self.right.left = self.right, self.left

    def relatives(self) -> Iterator[Sequence_]:
        other = self.right
        while other is not self:
            yield other
            other = other.right


class Cache:
    """Mode none. ``match`` promises nothing; ``hold`` takes what it found."""

    evictions = 0

    def __init__(self, pool: KvPool) -> None:
        self.pool = pool
        self.size = pool.config.block_tokens

    def __len__(self) -> int:
        return 0

    def idle(self) -> int:
        """How many blocks can be had, free ones and others."""
        stats = self.pool.stats()
        return stats.free + stats.cached

    def make_room(self, n: int) -> None:
        if n > self.idle():
            raise NoCapacityError(f"{n} blocks are not to be had")

    def take(self, n: int) -> list[int]:
        self.make_room(n)
        blocks = self.pool.alloc(n)[::-1]
        self.forget(blocks)
        return blocks

    def forget(self, blocks: list[int]) -> None:
        """These blocks are somebody's now."""

    def match(self, tokens: list[int], tenant: Key) -> list[int]:
        return []

    def judge(self, tokens: list[int], tenant: Key, n: int) -> None:
        """Refuse a prompt of ``n`` blocks before it uses anything, where that can be told."""

    def hold(self, tokens: list[int], tenant: Key, blocks: list[int]) -> Any:
        return None

    def lock(self, pin: Any) -> None:
        """Lock once more what ``hold`` has locked."""

    def unlock(self, pin: Any) -> None:
        """Take a lock back."""

    def keep(self, sequence: Sequence_, text: list[int]) -> list[int]:
        """Keep the blocks of a text; return those whose references are not needed for it."""
        return sequence.table

    def evict(self, n: int) -> int:
        return 0


class Text:
    """All tokens up to the end of a block, known by the text before it and the block's tokens."""

    __slots__ = ("after", "before", "block", "name", "tokens")

    def __init__(self, before: Text | None, tokens: tuple[int, ...], name: int) -> None:
        self.before, self.tokens, self.name = before, tokens, name
        self.after: dict[tuple[int, ...], Text] = {}
        self.block: int | None = None


class Named(Cache):
    def __init__(self, pool: KvPool) -> None:
        super().__init__(pool)
        self.roots: dict[Key, Text] = {None: Text(None, (), 0)}
        self.texts: dict[int, Text] = {}  # block -> what it holds
        self.secret = secrets.token_bytes(16)
        self.first_eviction = pool.stats().evictions

    @property
    def evictions(self) -> int:  # type: ignore[override]
        return self.pool.stats().evictions - self.first_eviction

    def __len__(self) -> int:
        return self.pool.stats().cached

    def match(self, tokens: list[int], tenant: Key) -> list[int]:
        blocks: list[int] = []
        text = self.roots.get(tenant)
        for part in _parts(tokens, self.size):
            text = text.after.get(part) if text else None
            if text is None or text.block is None or self.pool.hash_of(text.block) != text.name:
                break
            blocks.append(text.block)
        return blocks

    def judge(self, tokens: list[int], tenant: Key, n: int) -> None:
        hits = self.match(tokens, tenant)
        self.make_room(n - sum(self.pool.ref_count(block) > 0 for block in hits))

    def hold(self, tokens: list[int], tenant: Key, blocks: list[int]) -> None:
        for block in blocks:
            self.pool.lookup(self.texts[block].name)

    def keep(self, sequence: Sequence_, text: list[int]) -> list[int]:
        node = self.root(sequence.tenant)
        for block, part in zip(sequence.table, _parts(text, self.size), strict=False):
            known = node.after.get(part)
            node = known or Text(node, part, block_hash(node.name, part))
            if node.block is None and not self.name(block, node):
                break
        return sequence.table

    def name(self, block: int, text: Text) -> bool:
        """Name a block that is the first to hold this text, unless its name is taken."""
        if block in self.texts:
            return False
        self.pool.set_fill(block, self.size)
        try:
            self.pool.register(block, text.name)
        except HashBusyError:
            return False
        text.block, self.texts[block] = block, text
        if text.before is not None:
            text.before.after[text.tokens] = text
        return True

    def forget(self, blocks: list[int]) -> None:
        for block in blocks:
            text = self.texts.pop(block, None)
            if text is not None:
                text.block = None
            while text and text.before and text.block is None and not text.after:
                text.before.after.pop(text.tokens, None)
                text = text.before

    def evict(self, n: int) -> int:
        stats = self.pool.stats()
        n = min(n, stats.cached)
        for block in reversed(self.take(stats.free + n)):
            self.pool.unref(block)
        return n

    def root(self, tenant: Key) -> Text:
        if tenant not in self.roots:
            mac = hmac.digest(self.secret, ascii(tenant).encode(), "sha256")
            self.roots[tenant] = Text(None, (), int.from_bytes(mac[:8], "big") | 1)
        return self.roots[tenant]


class Tree(Cache):
    def __init__(self, pool: KvPool) -> None:
        super().__init__(pool)
        self.tree = RadixCache(self.size)
        self.evictions = 0

    def __len__(self) -> int:
        return len(self.tree)

    def idle(self) -> int:
        return super().idle() + self.tree.evictable_blocks

    def make_room(self, n: int) -> None:
        super().make_room(n)
        self.evict(max(0, n - super().idle()))

    def match(self, tokens: list[int], tenant: Key) -> list[int]:
        return list(self.tree.match(_salted(tokens, tenant)).blocks)

    def hold(self, tokens: list[int], tenant: Key, blocks: list[int]) -> Any:
        pin = self.tree.match(_salted(tokens, tenant)).node
        self.tree.lock(pin)
        for block in blocks:
            self.pool.ref(block)
        return pin

    def lock(self, pin: Any) -> None:
        self.tree.lock(pin)

    def unlock(self, pin: Any) -> None:
        self.tree.unlock(pin)

    def keep(self, sequence: Sequence_, text: list[int]) -> list[int]:
        table, path = sequence.table, _salted(text, sequence.tenant)
        self.tree.lock(sequence.pin)  # makes what was found young, whatever of it was computed
        self.tree.unlock(sequence.pin)
        stored = self.tree.insert(path, table[: len(text) // self.size])
        for block in stored:
            self.pool.set_fill(block, self.size)
        for other in sequence.relatives():
            depth = 0
            for at, (mine, its) in enumerate(zip(table, other.table, strict=False), 1):
                if mine == its and mine in stored:
                    depth = at
            if depth:
                pin = self.tree.match(path[: depth * self.size]).node
                self.tree.lock(pin)
                self.tree.unlock(other.pin)
                other.pin = pin
        kept = set(stored)
        return [block for block in table if block not in kept]

    def evict(self, n: int) -> int:
        dropped = self.tree.evict(n)
        for block in dropped:
            self.pool.unref(block)
        self.evictions += len(dropped)
        return len(dropped)


class BlockManager:
    def __init__(self, pool: KvPool, mode: PrefixCache | str) -> None:
        kinds: dict[PrefixCache, type[Cache]] = {
            PrefixCache.NONE: Cache, PrefixCache.HASH: Named, PrefixCache.RADIX: Tree}
        try:
            self._mode = PrefixCache(mode)
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        self._pool = pool
        self._cache = kinds[self._mode](pool)
        self._size = pool.config.block_tokens
        self._live: dict[Hashable, Sequence_] = {}
        self._seen = BlockStats()

    @property
    def mode(self) -> PrefixCache:
        return self._mode

    def can_allocate(self, n_tokens: int) -> bool:
        need = -(-_count(n_tokens) // self._size)
        return need <= self._cache.idle()

    def allocate(self, request_id: Hashable, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Allocation:
        prompt, key = _ids(tokens), _key(tenant)
        if not prompt or request_id in self._live:
            raise InvalidArgumentError(f"{request_id!r} is live, or its prompt is empty")
        usable = prompt[: (len(prompt) - 1) // self._size * self._size]
        self._cache.judge(usable, key, -(-len(prompt) // self._size))
        hits = self._cache.match(usable, key)
        pin = self._cache.hold(usable, key, hits)
        try:
            fresh = self._cache.take(-(-len(prompt) // self._size) - len(hits))
        except PoolFullError:
            self._give_back(hits, pin)
            raise
        self._live[request_id] = Sequence_(prompt, key, [*hits, *fresh], pin)
        cached = len(hits) * self._size
        if not readmission:
            seen = self._seen
            self._seen = BlockStats(seen.lookups + 1, seen.query_tokens + len(prompt),
                                    seen.hit_tokens + cached)
        return Allocation([*hits, *fresh], cached)

    def append_slot(self, request_id: Hashable) -> int | None:
        sequence = self._of(request_id)
        new: int | None = None
        if sequence.slots % self._size == 0:
            new = self._cache.take(1)[0]
            sequence.table.append(new)
        sequence.slots += 1
        return new

    def fork(self, parent: Hashable, child: Hashable) -> None:
        sequence = self._of(parent)
        if child in self._live:
            raise InvalidArgumentError(f"{child!r} is live")
        for block in sequence.table:
            self._pool.ref(block)
        self._cache.lock(sequence.pin)
        self._live[child] = sequence.fork()

    def write(self, request_id: Hashable, block_index: int) -> int:
        table, at = self._of(request_id).table, _count(block_index)
        if at >= len(table):
            raise InvalidArgumentError(f"no place {at} in a table of {len(table)}")
        block = table[at]
        if self._pool.ref_count(block) > 1 or self._pool.hash_of(block):
            self._cache.make_room(1)
            table[at] = self._pool.cow(block)
            self._cache.forget([table[at]])
        return table[at]

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        sequence, text = self._of(request_id), _ids(computed_tokens)
        if len(text) > sequence.slots:
            raise InvalidArgumentError(f"{len(text)} tokens in {sequence.slots} slots")
        if any(a != b for a, b in zip(text, sequence.prompt, strict=False)):
            raise InvalidArgumentError("the prompt was another one")
        del self._live[request_id]
        rest = self._cache.keep(sequence, text)
        sequence.leave()
        self._give_back(rest, sequence.pin)

    def block_table(self, request_id: Hashable) -> list[int]:
        return list(self._of(request_id).table)

    def lookup_prefix(self, tokens: Sequence[int], tenant: Tenant = None) -> list[int]:
        return self._cache.match(_ids(tokens), _key(tenant))

    def evict(self, n: int) -> int:
        return self._cache.evict(_count(n))

    def stats(self) -> BlockStats:
        seen = self._seen
        return BlockStats(seen.lookups, seen.query_tokens, seen.hit_tokens, self._cache.evictions)

    @property
    def hit_rate(self) -> float:
        seen = self._seen
        return seen.hit_tokens / seen.query_tokens if seen.lookups else 0.0

    @property
    def cached_blocks(self) -> int:
        return len(self._cache)

    def _of(self, request_id: Hashable) -> Sequence_:
        try:
            return self._live[request_id]
        except KeyError:
            raise NotLiveError(f"{request_id!r} is not live") from None

    def _give_back(self, blocks: list[int], pin: Any) -> None:
        self._cache.unlock(pin)
        for block in reversed(blocks):
            self._pool.unref(block)


def _parts(tokens: list[int], size: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(tokens) - size + 1, size):
        yield tuple(tokens[start : start + size])


def _salted(tokens: list[int], tenant: Key) -> list[Hashable]:
    return [(tenant, token) for token in tokens] if tenant else list(tokens)


def _ids(tokens: Sequence[int]) -> list[int]:
    try:
        ids = [_count(token) for token in tokens]
    except TypeError:
        raise InvalidArgumentError("tokens come in a sequence") from None
    if any(id >> 32 for id in ids):
        raise InvalidArgumentError("a token has 32 bits")
    return ids


def _key(tenant: Tenant) -> Key:
    if tenant is None:
        return None
    if isinstance(tenant, str):
        return "name", tenant
    return "number", _integer(tenant)


def _count(value: int) -> int:
    if (number := _integer(value)) < 0:
        raise InvalidArgumentError(f"{number} is less than 0")
    return number


def _integer(value: int) -> int:
    try:
        return operator.index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{value!r} is no integer") from None
