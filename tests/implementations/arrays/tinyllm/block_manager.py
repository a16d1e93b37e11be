"""The block manager as arrays.

Texts are numpy arrays, and what proves a hit is the whole text up to the end of the block, byte by
byte: long to store and short to tell. All names of a prompt are computed when it comes. Tables are
arrays, too, so ids come out as numpy integers. When a block goes into the tree that forks still
hold, each of them gets a lock of its own for it. The first holder of a duplicate is held until the
release is over, which counts as an access.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import index
from typing import Any, NamedTuple

import numpy as np

from tinyllm.block_hash import hash_chain
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool
from tinyllm.radix_cache import RadixCache

Tenant = str | int | None
Text = np.ndarray


class PrefixCache(StrEnum):
    NONE = "none"
    HASH = "hash"
    RADIX = "radix"


class Allocation(NamedTuple):
    blocks: list[Any]
    cached_tokens: int


class BlockStats(NamedTuple):
    lookups: int
    query_tokens: int
    hit_tokens: int
    evictions: int


@dataclass
class Row:
    """A live request: its table is the first ``n_blocks`` entries of ``blocks``. ``late`` are locks
    for blocks that came into the tree while it held them."""

    prompt: Text
    tenant: bytes
    names: list[int]
    blocks: np.ndarray = field(default_factory=lambda: np.zeros(4, dtype=np.int64))
    n_blocks: int = 0
    slots: int = 0
    node: Any = None
    late: dict[int, Any] = field(default_factory=dict)

    def table(self) -> list[Any]:
        return list(self.blocks[: self.n_blocks])

    def add(self, blocks: Sequence[Any]) -> None:
        if self.n_blocks + len(blocks) > len(self.blocks):
            self.blocks = np.resize(self.blocks, 2 * (self.n_blocks + len(blocks)))
        self.blocks[self.n_blocks : self.n_blocks + len(blocks)] = blocks
        self.n_blocks += len(blocks)


class BlockManager:
    def __init__(self, pool: KvPool, mode: PrefixCache | str) -> None:
        if not isinstance(mode, str) or mode not in set(PrefixCache):
            raise InvalidArgumentError(f"{mode!r} is not one of {', '.join(PrefixCache)}")
        self._mode = PrefixCache(mode)
        self._pool, self._b = pool, int(pool.config.block_tokens)
        self._rows: dict[Hashable, Row] = {}
        self._proofs: dict[int, bytes] = {}
        self._tree = RadixCache(self._b)
        self._secret = secrets.randbits(256).to_bytes(32, "big")
        self._counts: Counter[str] = Counter()
        self._evicted_before = pool.stats().evictions

    @property
    def mode(self) -> PrefixCache:
        return self._mode

    def can_allocate(self, n_tokens: int) -> bool:
        return -(-_size(n_tokens) // self._b) <= self._room()

    def allocate(self, request_id: Hashable, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Allocation:
        prompt = _text(tokens)
        owner = _owner(tenant)
        if request_id in self._rows or not len(prompt):
            raise InvalidArgumentError(f"no new request {request_id!r} of {len(prompt)} tokens")
        row = Row(prompt, owner, self._names(prompt, owner), slots=len(prompt))
        hits = self._hold(row, prompt[:-1])
        row.add(hits)
        try:
            row.add(self._take(-(-len(prompt) // self._b) - len(hits)))
        except PoolFullError:
            self._drop(row, hits)
            raise
        self._rows[request_id] = row
        if not readmission:
            self._counts.update(lookups=1, query=len(prompt), hit=len(hits) * self._b)
        return Allocation(row.table(), len(hits) * self._b)

    def append_slot(self, request_id: Hashable) -> int | None:
        row = self._row(request_id)
        new = self._take(1) if row.slots == row.n_blocks * self._b else []
        row.add(new)
        row.slots += 1
        return new[0] if new else None

    def fork(self, parent: Hashable, child: Hashable) -> None:
        row = self._row(parent)
        if child in self._rows:
            raise InvalidArgumentError(f"{child!r} runs")
        for block in row.table():
            self._pool.ref(block)
        for node in (row.node, *row.late.values()):
            if node is not None:
                self._tree.lock(node)
        twin = Row(row.prompt, row.tenant, row.names, slots=row.slots, node=row.node,
                   late=dict(row.late))
        twin.add(row.table())
        self._rows[child] = twin

    def write(self, request_id: Hashable, block_index: int) -> int:
        row = self._row(request_id)
        place = _size(block_index)
        if place >= row.n_blocks:
            raise InvalidArgumentError(f"{place} is past the table of {row.n_blocks}")
        old = row.blocks[place]
        if self._mode == PrefixCache.RADIX and self._pool.ref_count(old) > 1:
            self._make_room(1)
        new: Any = self._pool.cow(old)
        if new != old:
            if int(old) in row.late:
                self._tree.unlock(row.late.pop(int(old)))
            self._proofs.pop(int(new), None)
            row.blocks[place] = new
        return int(new)

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        row = self._row(request_id)
        text = _text(computed_tokens)
        n = min(len(text), len(row.prompt))
        if len(text) > row.slots or not np.array_equal(text[:n], row.prompt[:n]):
            raise InvalidArgumentError(f"{request_id!r} has not computed this")
        del self._rows[request_id]
        keep: list[int] = []
        if self._mode == PrefixCache.HASH:
            self._register(row, text)
        elif self._mode == PrefixCache.RADIX:
            keep = self._insert(row, text)
        self._drop(row, [block for block in row.table() if int(block) not in keep])

    def block_table(self, request_id: Hashable) -> list[Any]:
        return self._row(request_id).table()

    def lookup_prefix(self, tokens: Sequence[int], tenant: Tenant = None) -> list[Any]:
        text, owner = _text(tokens), _owner(tenant)
        row = Row(text, owner, self._names(text, owner))
        found = self._hold(row, text)
        self._drop(row, found)
        return found

    def evict(self, n: int) -> int:
        n = _size(n)
        if self._mode == PrefixCache.RADIX:
            gone = self._tree.evict(n)
            for block in gone:
                self._pool.unref(block)
            self._counts["evicted"] += len(gone)
            return len(gone)
        free, _, cached, _ = _four(self._pool.stats())
        n = min(n, cached)
        taken = self._take(free + n)
        for block in taken:
            self._pool.unref(block)
        return n

    def stats(self) -> BlockStats:
        c, evicted = self._counts, _four(self._pool.stats())[3] - self._evicted_before
        return BlockStats(c["lookups"], c["query"], c["hit"], c["evicted"] + evicted)

    @property
    def hit_rate(self) -> float:
        return self._counts["hit"] / self._counts["query"] if self._counts["query"] else 0.0

    @property
    def cached_blocks(self) -> int:
        return _four(self._pool.stats())[2] + len(self._tree)

    def _row(self, request_id: Hashable) -> Row:
        if (row := self._rows.get(request_id)) is None:
            raise InvalidArgumentError(f"{request_id!r} does not run")
        return row

    def _room(self) -> int:
        free, _, cached, _ = _four(self._pool.stats())
        return free + cached + self._tree.evictable_blocks

    def _make_room(self, n: int) -> None:
        if n > self._room():
            raise PoolFullError(f"{n} blocks do not fit in {self._room()}")
        free, _, cached, _ = _four(self._pool.stats())
        if n > free + cached:
            self.evict(n - free - cached)

    def _take(self, n: int) -> list[Any]:
        self._make_room(n)
        blocks = self._pool.alloc(n)
        for block in blocks:
            self._proofs.pop(int(block), None)
        return blocks

    def _hold(self, row: Row, text: Text) -> list[Any]:
        """Take references to the cached blocks that ``text`` begins with."""
        found: list[Any] = []
        if self._mode == PrefixCache.RADIX:
            match = self._tree.match(self._salted(row, text))
            self._tree.lock(match.node)
            row.node = match.node
            found = list(match.blocks)
            for block in found:
                self._pool.ref(block)
        elif self._mode == PrefixCache.HASH:
            for at in range(len(text) // self._b):
                block = self._pool.lookup(row.names[at])
                if block is None:
                    break
                if self._proofs.get(int(block)) != self._proof(row, text, at):
                    self._pool.unref(block)
                    break
                found.append(block)
        return found

    def _register(self, row: Row, text: Text) -> None:
        """Register the computed blocks; the first holder of a duplicate takes its place."""
        whole = len(text) // self._b
        names = row.names[:whole]
        done = len(names) * self._b
        last = names[-1] if names else self._root(row.tenant)
        names += hash_chain(text[done:].tolist(), self._b, last)
        for at, name in enumerate(names):
            block, proof = row.blocks[at], self._proof(row, text, at)
            if int(block) in self._proofs:
                if self._proofs[int(block)] != proof:
                    return
                continue
            self._pool.set_fill(block, self._b)
            try:
                self._pool.register(block, name)
            except HashBusyError:
                first = self._pool.lookup(name)
                assert first is not None
                if self._proofs.get(int(first)) != proof:
                    self._pool.unref(first)
                    return
                self._pool.unref(block)
                row.blocks[at] = first
            else:
                self._proofs[int(block)] = proof

    def _insert(self, row: Row, text: Text) -> list[int]:
        path = self._salted(row, text)
        for node in (row.node, *row.late.values()):  # a release is a use of all that is held
            if node is not None:
                self._tree.lock(node)
                self._tree.unlock(node)
        table = [int(block) for block in row.table()]
        stored = [int(block) for block in self._tree.insert(path, table[: len(text) // self._b])]
        for block in stored:
            self._pool.set_fill(block, self._b)
            for other in self._rows.values():
                if block in other.table():
                    end = (table.index(block) + 1) * self._b
                    other.late[block] = self._tree.match(path[:end]).node
                    self._tree.lock(other.late[block])
        return stored

    def _drop(self, row: Row, blocks: list[Any]) -> None:
        for block in blocks[::-1]:
            self._pool.unref(block)
        for node in (row.node, *row.late.values()):
            if node is not None:
                self._tree.unlock(node)

    def _proof(self, row: Row, text: Text, at: int) -> bytes:
        return row.tenant + b"\0" + text[: (at + 1) * self._b].tobytes()

    def _names(self, text: Text, owner: bytes) -> list[int]:
        if self._mode != PrefixCache.HASH:
            return []
        return hash_chain([int(token) for token in text], self._b, self._root(owner))

    def _root(self, owner: bytes) -> int:
        if not owner:
            return 0
        digest = hashlib.blake2s(owner, key=self._secret, digest_size=8).digest()
        return int(np.frombuffer(digest, dtype="<u8")[0]) or 1

    def _salted(self, row: Row, text: Text) -> list[Hashable]:
        path: list[Hashable] = text.tolist()
        if row.tenant and path:
            path[0] = row.tenant + text[:1].tobytes()
        return path


def _four(stats: Any) -> tuple[int, int, int, int]:
    return stats.free, stats.used, stats.cached, stats.evictions


def _text(tokens: Sequence[int]) -> Text:
    ids = []
    try:
        for token in tokens:
            if isinstance(token, bool) or not 0 <= index(token) < 1 << 32:
                raise InvalidArgumentError(f"{token!r} is no token")
            ids.append(index(token))
    except TypeError:
        raise InvalidArgumentError(f"{tokens!r} are no tokens") from None
    return np.array(ids, dtype=np.uint32)


def _owner(tenant: Tenant) -> bytes:
    """Return a tenant's type and value as bytes; none has none."""
    if tenant is None:
        return b""
    if isinstance(tenant, str):
        return b"str " + tenant.encode("utf-8", "backslashreplace")
    if isinstance(tenant, bool):
        raise InvalidArgumentError("a bool is no tenant")
    try:
        return b"int %d" % index(tenant)
    except TypeError:
        raise InvalidArgumentError(f"a {type(tenant).__name__} is no tenant") from None


def _size(value: int) -> int:
    try:
        if not isinstance(value, bool) and index(value) >= 0:
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{value!r} counts nothing")
