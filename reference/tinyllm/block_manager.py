"""The block manager: block tables for requests over one pool, with a prefix cache (L10.4).

A request asks for slots, one for each position of its text, and gets whole blocks. When it ends,
its full blocks may stay cached, and a later prompt that begins with the same tokens begins with
those blocks instead of computing them again. Three modes, each a small class below:

    none     nothing stays
    hash     full blocks stay in the pool, named by their chained hashes; the pool evicts them
    radix    full blocks stay in a radix cache, which holds a reference to each and evicts them
"""

import secrets
from array import array
from collections.abc import Hashable, Sequence
from enum import StrEnum
from hashlib import blake2b
from operator import index
from typing import Any, NamedTuple, NoReturn

from tinyllm.block_hash import hash_chain
from tinyllm.errors import HashBusyError, InvalidArgumentError, PoolFullError
from tinyllm.kv_pool import KvPool
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
        """Manage ``pool``; ``mode`` is a member of `PrefixCache` or its string."""
        try:
            self._mode = PrefixCache(mode)
        except ValueError:
            raise InvalidArgumentError(f"a mode is none, hash or radix, not {mode!r}") from None
        self._cache = _CACHES[self._mode](pool)
        self._block_tokens = pool.config.block_tokens
        self._requests = _Requests()
        self._lookups = self._query_tokens = self._hit_tokens = 0

    @property
    def mode(self) -> PrefixCache:
        """How the blocks of ended requests are found again."""
        return self._mode

    def can_allocate(self, n_tokens: int) -> bool:
        """Say whether any prompt of ``n_tokens`` tokens would get its blocks now.

        Cached blocks are room, blocks that live requests hold are not.
        """
        return self._blocks_for(_count(n_tokens, "the number of tokens")) <= self._cache.room()

    def allocate(self, request_id: Hashable, tokens: Sequence[int],
                 tenant: str | int | None = None, *, readmission: bool = False) -> Allocation:
        """Give a new request the blocks of its prompt, as many of them as possible cached ones.

        A prompt of n tokens takes ceil(n / B) blocks. The first are the longest cached run of
        whole blocks within its first n - 1 tokens: the last token is always computed, for the
        logits of the next one (L10.4, section 2.1). ``readmission`` says that the request comes
        back after a preemption; the statistics leave it out.

        Raises ``PoolFullError`` when there is no room for the rest, and ``InvalidArgumentError``
        for an empty prompt.
        """
        self._refuse_live(request_id)
        request = _Request(_token_ids(tokens), _tenant_key(tenant))
        n_tokens = len(request.prompt)
        if n_tokens == 0:
            raise InvalidArgumentError("a prompt has at least one token")
        # Hits are held before anything is allocated, or an allocation could evict them.
        self._cache.hold(request, (n_tokens - 1) // self._block_tokens)
        hits = len(request.blocks)
        try:
            request.blocks += self._cache.take(self._blocks_for(n_tokens) - hits)
        except PoolFullError:
            self._cache.drop(request)
            raise
        request.idle = len(request.blocks) * self._block_tokens - n_tokens
        self._requests[request_id] = request
        if not readmission:
            self._lookups += 1
            self._query_tokens += n_tokens
            self._hit_tokens += hits * self._block_tokens
        return Allocation(list(request.blocks), hits * self._block_tokens)

    def append_slot(self, request_id: Hashable) -> int | None:
        """Make room for the request's next position; return the block that it took, or ``None``
        when the last block had a slot left.

        It only books: before writing into a block that a fork shares, ask ``write``.

        Raises ``PoolFullError`` when a block is needed and there is no room.
        """
        request = self._requests[request_id]
        taken = None
        if request.idle == 0:
            (taken,) = self._cache.take(1)
            request.blocks.append(taken)
            request.idle = self._block_tokens
        request.idle -= 1
        return taken

    def fork(self, parent: Hashable, child: Hashable) -> None:
        """Begin the request ``child`` with all that ``parent`` holds, its last block included."""
        request = self._requests[parent]
        self._refuse_live(child)
        self._requests[child] = self._cache.fork(request)

    def write(self, request_id: Hashable, block_index: int) -> int:
        """Return the block at ``block_index`` of the request's table, now its own to write into.

        One that others hold, or that is cached, is replaced by a copy (the pool's ``cow``).

        Raises ``PoolFullError`` when there is no room for the copy.
        """
        request = self._requests[request_id]
        place = _count(block_index, "a block's index")
        if place >= len(request.blocks):
            raise InvalidArgumentError(f"block {place} of {len(request.blocks)} does not exist")
        request.blocks[place] = self._cache.own(request.blocks[place])
        return request.blocks[place]

    def release(self, request_id: Hashable, computed_tokens: Sequence[int]) -> None:
        """End a request: cache the whole blocks that are computed, and give all blocks back.

        ``computed_tokens`` are the tokens whose K and V are there, from position 0 on: hits,
        prompt and generated ones, or fewer than the prompt after a preemption. Blocks are given
        back last to first, so that a prompt's end is evicted before its beginning.

        Raises ``InvalidArgumentError`` for more tokens than slots, or others than the prompt's.
        """
        request = self._requests[request_id]
        computed = _token_ids(computed_tokens)
        slots = len(request.blocks) * self._block_tokens - request.idle
        if len(computed) > slots:
            raise InvalidArgumentError(f"{len(computed)} tokens are computed in {slots} slots")
        if computed[: len(request.prompt)] != request.prompt[: len(computed)]:
            raise InvalidArgumentError("the computed tokens are not those of the prompt")
        del self._requests[request_id]
        self._cache.keep(request, computed)

    def block_table(self, request_id: Hashable) -> list[int]:
        """Return the request's blocks, first to last. The list is the caller's."""
        return list(self._requests[request_id].blocks)

    def lookup_prefix(self, tokens: Sequence[int], tenant: str | int | None = None) -> list[int]:
        """Return the longest cached run of whole blocks that ``tokens`` begin with, up to their
        very end. Nothing is held and nothing is counted."""
        request = _Request(_token_ids(tokens), _tenant_key(tenant))
        self._cache.hold(request, len(request.prompt) // self._block_tokens)
        self._cache.drop(request)
        return request.blocks

    def evict(self, n: int) -> int:
        """Let ``n`` blocks leave the cache, or all that nobody holds if they are fewer, least
        recently used first; return how many left."""
        return self._cache.evict(_count(n, "the number of blocks"))

    def stats(self) -> BlockStats:
        """Return the counts of this moment."""
        return BlockStats(self._lookups, self._query_tokens, self._hit_tokens,
                          self._cache.evictions())

    @property
    def hit_rate(self) -> float:
        """hit_tokens / query_tokens, 0.0 before the first prompt."""
        return self._hit_tokens / self._query_tokens if self._query_tokens else 0.0

    @property
    def cached_blocks(self) -> int:
        """How many blocks the cache holds."""
        return self._cache.blocks()

    def _blocks_for(self, n_tokens: int) -> int:
        return -(-n_tokens // self._block_tokens)

    def _refuse_live(self, request_id: Hashable) -> None:
        if request_id in self._requests:
            raise InvalidArgumentError(f"request {request_id!r} is live already")


class _Request:
    """A live request, or a prompt to be looked for. It holds a reference to each of its blocks."""

    __slots__ = ("blocks", "chain", "idle", "kin", "node", "prompt", "tenant")

    def __init__(self, prompt: "array[int]", tenant: tuple[str, Any] | None) -> None:
        self.prompt, self.tenant = prompt, tenant
        self.blocks: list[int] = []
        self.idle = 0  # slots of its last block that are not booked
        self.chain: list[_Record] = []  # hash mode: of its first blocks, as far as they were needed
        self.node: Any = None  # radix mode: its lock in the tree
        self.kin: set[_Request] = set()  # radix mode: itself and its forks, if there are any

    def copy(self) -> "_Request":
        twin = _Request(self.prompt, self.tenant)
        twin.blocks, twin.chain = list(self.blocks), list(self.chain)
        twin.idle, twin.node = self.idle, self.node
        return twin


class _Requests(dict[Hashable, _Request]):
    """The live requests; asking for another one is an error of the caller."""

    def __missing__(self, request_id: Hashable) -> NoReturn:
        raise InvalidArgumentError(f"no request {request_id!r} is live")


class _NoCache:
    """Mode none: nothing is named, so what is given back is free. The two caches build on it."""

    def __init__(self, pool: KvPool) -> None:
        self.pool = pool
        self.block_tokens = pool.config.block_tokens
        self.evictions_before = pool.stats().evictions

    def blocks(self) -> int:
        """Return how many blocks the cache holds."""
        return self.pool.stats().cached

    def evictions(self) -> int:
        """Return how many blocks have left the cache."""
        return self.pool.stats().evictions - self.evictions_before

    def room(self) -> int:
        """Return how many blocks ``take`` can have."""
        stats = self.pool.stats()
        return stats.free + stats.cached

    def take(self, n: int) -> list[int]:
        """Take ``n`` new blocks, all or nothing; evict no more than must be."""
        return self.pool.alloc(n)

    def own(self, block: int) -> int:
        """Return the block, or a copy of it, for its holder to write into."""
        return self.pool.cow(block)

    def evict(self, n: int) -> int:
        """Let up to ``n`` blocks leave the cache; return how many did. Nobody asks the pool to
        evict, so they are taken, behind all that are free, and given back."""
        stats = self.pool.stats()
        if n := min(n, stats.cached):
            self.give_back(self.take(stats.free + n))
        return n

    def hold(self, request: _Request, most: int) -> None:
        """Give the request the longest cached run of its prompt's first ``most`` blocks."""

    def fork(self, request: _Request) -> _Request:
        """Return another request that holds all that this one holds."""
        for block in request.blocks:
            self.pool.ref(block)
        return request.copy()

    def keep(self, request: _Request, computed: "array[int]") -> None:
        """Cache the whole blocks of ``computed``, and drop the request."""
        self.drop(request)

    def drop(self, request: _Request) -> None:
        """Give back all that the request holds, last to first."""
        self.give_back(request.blocks)

    def give_back(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.pool.unref(block)


class _Record:
    """What a block holds: ``tokens``, after those of the record before it. ``name`` is its hash.

    The record before the first block's stands for the tenant.
    """

    __slots__ = ("name", "parent", "tokens")

    def __init__(self, name: int, tokens: Any, parent: "_Record | None") -> None:
        self.name, self.tokens, self.parent = name, tokens, parent

    def proves(self, other: "_Record") -> bool:
        """Say whether both stand for the same text, from its first token on.

        Equal names are no proof, and neither are equal tokens under them: the names may have
        collided further up. Equal records are nearly always one object. If not, one of them was
        forgotten and made again; from now on their parents are.
        """
        mine: _Record | None = self
        its: _Record | None = other
        while mine is not its:
            if mine is None or its is None or mine.tokens != its.tokens:
                return False
            mine, its = mine.parent, its.parent
        self.parent = other.parent
        return True


_REMEMBERED = 4096  # records that may be asked for again


class _HashCache(_NoCache):
    """Mode hash: the pool's index finds full blocks by name, and the pool's LRU evicts them."""

    def __init__(self, pool: KvPool) -> None:
        super().__init__(pool)
        self._records: dict[int, _Record] = {}  # of each block that has a name
        self._known: dict[tuple[_Record | None, Any], _Record] = {}  # by parent and tokens
        self._secret = secrets.token_bytes(32)

    def take(self, n: int) -> list[int]:
        taken = self.pool.alloc(n)
        for block in taken:
            self._records.pop(block, None)
        return taken

    def own(self, block: int) -> int:
        if (own := self.pool.cow(block)) != block:
            self._records.pop(own, None)
        return own

    def hold(self, request: _Request, most: int) -> None:
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        request.chain = [self._root(request.tenant)]
        self._extend(request.chain, request.prompt, most)
        for record in request.chain[1:]:
            if (block := self._lookup(record)) is None:
                break
            request.blocks.append(block)

    def keep(self, request: _Request, computed: "array[int]") -> None:
        whole = len(computed) // self.block_tokens
        self._extend(request.chain, computed, whole)
        for place in range(whole):
            record = request.chain[place + 1]
            # What has this record already was a hit, or was named for a fork.
            known = self._records.get(request.blocks[place])
            if known is not record and not self._name(request, place, record):
                break
        self.drop(request)

    def _extend(self, chain: list[_Record], text: "array[int]", n: int) -> None:
        """Add to the chain the records of the text's first ``n`` blocks that it has not yet.

        A beginning that many prompts have is hashed once, not for each of them, and what is new
        of a text in one call: no other step of a request costs as much.
        """
        done, size = len(chain) - 1, self.block_tokens
        data, width = text.tobytes(), size * text.itemsize
        blocks = [data[at : at + width] for at in range(done * width, n * width, width)]
        record = chain[-1]
        for tokens in blocks:
            if (known := self._known.get((record, tokens))) is None:
                break
            chain.append(record := known)
        done = len(chain) - 1
        if done < n:
            names = hash_chain(text[done * size : n * size], size, record.name)
            for name, tokens in zip(names, blocks[done - n :], strict=True):
                known = self._known[record, tokens] = _Record(name, tokens, record)
                chain.append(record := known)

    def _lookup(self, record: _Record) -> int | None:
        """Hold the block that has the record's name, if it is proved to hold what it says."""
        block = self.pool.lookup(record.name)
        if block is None:
            return None
        known = self._records.get(block)
        if known is record:
            return block
        if known is not None and known.proves(record):
            self._records[block] = record  # proved at a glance from now on
            return block
        self.pool.unref(block)
        return None

    def _name(self, request: _Request, place: int, record: _Record) -> bool:
        """Name a block of the request's; False when one with other contents has the name.

        When one with the same contents has it, the request holds that one from now on and its own
        is free: so the whole chain is given back, and ages, together.
        """
        block = request.blocks[place]
        if block not in self._records:
            self.pool.set_fill(block, self.block_tokens)
            try:
                self.pool.register(block, record.name)
            except HashBusyError:
                pass
            else:
                self._records[block] = record
                return True
        if (holder := self._lookup(record)) is None:
            return False
        self.pool.unref(block)
        request.blocks[place] = holder
        return True

    def _root(self, tenant: tuple[str, Any] | None) -> _Record:
        """Return what stands before a text's first block: for a tenant a name nobody can guess."""
        if (known := self._known.get((None, tenant))) is None:
            name = 0
            if tenant is not None:
                key = repr(tenant).encode()
                digest = blake2b(key, key=self._secret, digest_size=8).digest()
                name = int.from_bytes(digest, "little") or 1
            known = self._known[None, tenant] = _Record(name, tenant, None)
        return known


class _TreeCache(_NoCache):
    """Mode radix: a radix cache has the full blocks, with a reference to each, and evicts them."""

    def __init__(self, pool: KvPool) -> None:
        super().__init__(pool)
        self._tree = RadixCache(self.block_tokens)
        self._evictions = 0

    def blocks(self) -> int:
        return len(self._tree)

    def evictions(self) -> int:
        return self._evictions

    def room(self) -> int:
        return super().room() + self._tree.evictable_blocks

    def take(self, n: int) -> list[int]:
        self._make_room(n)
        return self.pool.alloc(n)

    def own(self, block: int) -> int:
        if self.pool.ref_count(block) > 1:
            self._make_room(1)
        return self.pool.cow(block)

    def hold(self, request: _Request, most: int) -> None:
        path = self._path(request, request.prompt[: most * self.block_tokens])
        match = self._tree.match(path)
        self._tree.lock(match.node)
        for block in match.blocks:
            self.pool.ref(block)
        request.blocks, request.node = list(match.blocks), match.node

    def fork(self, request: _Request) -> _Request:
        child = super().fork(request)
        self._tree.lock(child.node)
        request.kin |= {request, child}
        child.kin = request.kin
        return child

    def drop(self, request: _Request) -> None:
        self.give_back(request.blocks)
        self._tree.unlock(request.node)
        request.kin.discard(request)

    def keep(self, request: _Request, computed: "array[int]") -> None:
        self._use(request)
        whole = len(computed) // self.block_tokens
        path, blocks = self._path(request, computed), request.blocks[:whole]
        stored = self._tree.insert(path, blocks)
        for block in stored:
            self.pool.set_fill(block, self.block_tokens)
        for other in request.kin - {request}:
            self._lock_shared(other, path, blocks, whole - len(stored))
        # What was stored is the tree's now, and so is the request's reference to it.
        del request.blocks[whole - len(stored) : whole]
        self.drop(request)

    def evict(self, n: int) -> int:
        dropped = self._tree.evict(n)
        for block in dropped:
            self.pool.unref(block)
        self._evictions += len(dropped)
        return len(dropped)

    def _make_room(self, n: int) -> None:
        missing = n - super().room()
        if missing > self._tree.evictable_blocks:
            raise PoolFullError(f"{n} blocks asked for, {self.room()} can be had")
        if missing > 0:
            self.evict(missing)

    def _use(self, request: _Request) -> None:
        """Make the hits young: a release is a use of them, though it may name none of them as
        computed. What the tree calls a use is a lock."""
        self._tree.lock(request.node)
        self._tree.unlock(request.node)

    def _lock_shared(self, other: _Request, path: list[Hashable], blocks: list[int],
                     first: int) -> None:
        """Lock, for a live fork, what it holds of the blocks stored from place ``first`` on: to
        drop them from the tree would free nothing."""
        shared = [place for place, (a, b) in enumerate(zip(blocks, other.blocks, strict=False))
                  if a == b and place >= first]
        if shared:
            node = self._tree.match(path[: (shared[-1] + 1) * self.block_tokens]).node
            self._tree.lock(node)
            self._tree.unlock(other.node)
            other.node = node

    def _path(self, request: _Request, text: "array[int]") -> list[Hashable]:
        """Return the text with the tenant in its first token: tenants share no path, and yet all
        paths are in one tree and age together."""
        path: list[Hashable] = list(text)
        if path and request.tenant is not None:
            path[0] = (request.tenant, path[0])
        return path


_CACHES: dict[PrefixCache, type[_NoCache]] = {
    PrefixCache.NONE: _NoCache, PrefixCache.HASH: _HashCache, PrefixCache.RADIX: _TreeCache}


def _token_ids(tokens: Sequence[int]) -> "array[int]":
    """Return the tokens as numbers of 32 bits in a row, or refuse them."""
    try:
        ids = list(tokens)
        kinds = [*map(type, ids)]
        if kinds.count(int) == len(ids) or bool not in kinds:
            return array("I", ids)
    except (TypeError, OverflowError):
        pass
    raise InvalidArgumentError("tokens are integers in 0..2**32-1, and no bools")


def _tenant_key(tenant: str | int | None) -> tuple[str, Any] | None:
    """Return what tells tenants apart, type and value; ``None`` for none."""
    if tenant is None:
        return None
    if isinstance(tenant, str):
        return "str", str(tenant)
    return "int", _integer(tenant, "a tenant is a string or an integer")


def _count(value: int, what: str) -> int:
    number = _integer(value, f"{what} is an integer from 0 on")
    if number < 0:
        raise InvalidArgumentError(f"{what} is an integer from 0 on, not {value!r}")
    return number


def _integer(value: int, rule: str) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{rule}, not {value!r}")
