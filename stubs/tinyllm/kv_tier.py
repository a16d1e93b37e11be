"""The second tier: blocks that the pool evicts are spilled to a store, and restored (Project 09).

Pass 5 is two stores of bytes under 64-bit names: one in memory, one on disk that survives being
killed at any point. Both are bounded in bytes, and the least recently used goes first. Pass 6 is a
prefix cache over a pool and a store: before the pool evicts a block, its export envelope goes into
the store; a text that is looked for again is restored, if it is proved to be that text and whole.
Last comes the arithmetic: from how many tokens on is that faster than computing them?

How you store things inside, in files or in a database, is up to you: the tests call only what is
public. The chapter is `course/modules/kv_tier/chapter.md`.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tinyllm.block_hash import block_hash, hash_chain
from tinyllm.errors import EnvelopeError, HashBusyError, InvalidArgumentError, ShapeMismatchError
from tinyllm.kv_export import export_blocks, export_bytes, import_blocks
from tinyllm.kv_pool import KvPool, PoolConfig


class BlockStore(Protocol):
    """Bytes under names: all that a `TieredCache` or a `MemoryStore` calls of a store. Any object
    with these three methods is a store, and each of them may raise ``OSError`` at any call. Other
    caches and processes may use the same store, so what it holds may change between two calls."""

    def put(self, name: int, value: bytes) -> None:
        """Keep a copy of ``value`` under ``name``, in place of what was there. To make room, the
        store may drop any entry, this one included."""

    def get(self, name: int) -> bytes | None:
        """Return what is kept under ``name``, or ``None``. A hit makes the entry the most recently
        used one."""

    def discard(self, name: int) -> None:
        """Forget ``name``; an unknown name is not an error."""


class TierStats(NamedTuple):
    """Blocks since the cache was made: found in the pool, restored from the store, spilled into it,
    found in it but damaged or of another text, and lost because the store raised ``OSError``."""

    pool_hits: int
    restored: int
    spilled: int
    rejected: int
    failed: int


class MemoryStore:
    """A store in the host's memory, of at most ``capacity`` bytes of values.

    What it has no room for any more goes ``below``, to another store, if there is one; and what is
    found there comes up again.
    """

    def __init__(self, capacity: int, below: BlockStore | None = None) -> None:
        """Begin empty. Raises ``InvalidArgumentError`` for a capacity that is no whole number from
        0 on.

        TODO (pass 5): Set up an empty store.

        Approach:
          - Which container keeps an order in which one entry can be moved to the end?
          - The sum of all bytes is asked for after every call: keep it, do not count it each
            time.

        Example:
            >>> MemoryStore(100).used_bytes
            0
        """
        raise NotImplementedError("kv_tier: MemoryStore")

    @property
    def used_bytes(self) -> int:
        """The bytes of all values; at most the capacity, after every call.

        TODO (pass 5): Return the sum of the lengths of all values.

        Approach:
          - It changes where a value comes and where one leaves. How many such places are there?

        Example:
            >>> store = MemoryStore(100)
            >>> store.put(1, b"12345")
            >>> store.used_bytes
            5
        """
        raise NotImplementedError("kv_tier: MemoryStore.used_bytes")

    def names(self) -> list[int]:
        """Return the names that this store itself holds, the least recently used first.

        TODO (pass 5): Return the names in the order in which they would be evicted.

        Approach:
          - It is the order of your container.

        Example:
            >>> store = MemoryStore(100)
            >>> store.put(1, b"one"); store.put(2, b"two")
            >>> store.get(1)
            b'one'
            >>> store.names()
            [2, 1]
        """
        raise NotImplementedError("kv_tier: MemoryStore.names")

    def put(self, name: int, value: bytes) -> None:
        """Keep a copy of ``value`` as the newest, in place of what was there.

        To make room, the least recently used values leave, and no more of them than must; they go
        below, the oldest first. A value larger than the capacity pushes nobody out: it goes below
        at once. What had its name is gone from every floor. Raises what the store below raises;
        this one is in order then, and an older value that is still below never comes back.

        TODO (pass 5): Make room, keep a copy as the newest, and hand on what had to leave.

        Approach:
          - What had the name before goes first: its bytes are room, too.
          - A value that can never fit: notice it before anybody is evicted.
          - Is the store in order before the store below is called? That call may raise.

        Example:
            >>> store = MemoryStore(6)
            >>> store.put(1, b"one"); store.put(2, b"two"); store.put(3, b"six")
            >>> store.names()
            [2, 3]
        """
        raise NotImplementedError("kv_tier: MemoryStore.put")

    def get(self, name: int) -> bytes | None:
        """Return the value, now the newest, or ``None``. One that was below is here from now on;
        what goes down for it and finds no room there is lost, and no reason to refuse the value.

        TODO (pass 5): Return the value and make it the newest; look below for what is not here.

        Approach:
          - A hit moves to the end. A miss moves nothing.
          - What comes up from below is put here as any value is, and may push others down.
          - Below there may be no room for those. Is that a reason not to answer?

        Example:
            >>> below = MemoryStore(100)
            >>> store = MemoryStore(3, below)
            >>> store.put(1, b"one"); store.put(2, b"two")
            >>> store.names(), below.names()
            ([2], [1])
            >>> store.get(1)
            b'one'
            >>> store.names()
            [1]
        """
        raise NotImplementedError("kv_tier: MemoryStore.get")

    def discard(self, name: int) -> None:
        """Forget ``name``, here and below. Raises what the store below raises; the value does not
        come back then either.

        TODO (pass 5): Forget the name here and below.

        Approach:
          - A name that is not here may be below.

        Example:
            >>> store = MemoryStore(100)
            >>> store.put(1, b"one"); store.discard(1); store.discard(2)
            >>> store.get(1) is None
            True
        """
        raise NotImplementedError("kv_tier: MemoryStore.discard")


class DiskStore:
    """A store in a folder on disk, of at most ``capacity`` bytes of values.

    It outlives the process. A value is there from the moment that ``put`` returns, and whole or not
    at all whenever the process is killed: it and its name are one row, committed in one transaction
    of SQLite. (With a write-ahead log that is one write at the end of a file. When the machine
    loses power the last values may be gone; none is torn.) A file that is damaged beyond reading is
    begun anew: what was in it can be computed again.
    """

    def __init__(self, folder: str | os.PathLike[str], capacity: int) -> None:
        """Open the store in ``folder``, which is made if it is not there.

        With a smaller capacity than before, the least recently used values go. Raises
        ``InvalidArgumentError`` for a bad capacity, a path that is no folder, and a store that is
        open already, here or in another process; ``OSError`` where the file system refuses.

        TODO (pass 5): Make or open the store in the folder, whatever state its files are in, and be
            its only owner.

        Approach:
          - What is on the disk may be nothing, a store, the rest of a killed process, or
            garbage.
          - With sqlite3: PRAGMA journal_mode = WAL and locking_mode = EXCLUSIVE. With files of
            your own: a lock that ends with its process (fcntl.flock).
          - Which errors mean that the file is damaged, and which that the disk is full or the
            folder not yours? Only the first kind may cost the contents.
          - Garbled rows have values of any kind where you expect bytes, and messages that are
            no text.
          - The bytes in use and the ages must be known from the start. Perhaps there is less
            room than before.

        Example:
            >>> import tempfile
            >>> folder = tempfile.mkdtemp()
            >>> store = DiskStore(folder, 100)
            >>> store.put(1, b"one"); store.close()
            >>> DiskStore(folder, 100).get(1)
            b'one'
        """
        raise NotImplementedError("kv_tier: DiskStore")

    @property
    def used_bytes(self) -> int:
        """The bytes of all values; at most the capacity, after every call.

        TODO (pass 5): Return the sum of the lengths of all values.

        Approach:
          - As in memory. When a transaction fails, what you counted must be undone, too.

        Example:
            >>> import tempfile
            >>> store = DiskStore(tempfile.mkdtemp(), 100)
            >>> store.put(1, b"12345")
            >>> store.used_bytes
            5
        """
        raise NotImplementedError("kv_tier: DiskStore.used_bytes")

    def names(self) -> list[int]:
        """Return the names that are held, the least recently used first.

        TODO (pass 5): Return the names in the order in which they would be evicted.

        Approach:
          - An age is a number that grows with each use; no clock is needed.

        Example:
            >>> import tempfile
            >>> store = DiskStore(tempfile.mkdtemp(), 100)
            >>> store.put(2**64 - 1, b"one"); store.put(1, b"two")
            >>> store.names()
            [18446744073709551615, 1]
        """
        raise NotImplementedError("kv_tier: DiskStore.names")

    def put(self, name: int, value: bytes) -> None:
        """Keep ``value`` as the newest, in place of what was there.

        To make room, the least recently used values leave, and no more of them than must. A value
        larger than the capacity is not kept, and pushes nobody out.

        TODO (pass 5): Make room and keep the value, in one step that happens whole or not at all.

        Approach:
          - List what changes on the disk. If the process dies between two of these changes,
            what does the next one find?
          - Either one transaction has it all, or the name is what is written last.
          - An INTEGER of SQLite is signed; a name is not.

        Example:
            >>> import tempfile
            >>> store = DiskStore(tempfile.mkdtemp(), 6)
            >>> store.put(1, b"one"); store.put(2, b"two"); store.put(3, b"six")
            >>> store.names()
            [2, 3]
        """
        raise NotImplementedError("kv_tier: DiskStore.put")

    def get(self, name: int) -> bytes | None:
        """Return the value, now the newest, or ``None``.

        TODO (pass 5): Return the value and make it the newest.

        Approach:
          - An age that is only in memory is lost at a restart. How little can be written to
            keep it?

        Example:
            >>> import tempfile
            >>> store = DiskStore(tempfile.mkdtemp(), 100)
            >>> store.put(1, b"one")
            >>> store.get(1), store.get(2)
            (b'one', None)
        """
        raise NotImplementedError("kv_tier: DiskStore.get")

    def discard(self, name: int) -> None:
        """Forget ``name``, if it is there.

        TODO (pass 5): Forget the name.

        Approach:
          - Its bytes are room again.

        Example:
            >>> import tempfile
            >>> store = DiskStore(tempfile.mkdtemp(), 100)
            >>> store.put(1, b"one"); store.discard(1)
            >>> store.names()
            []
        """
        raise NotImplementedError("kv_tier: DiskStore.discard")

    def close(self) -> None:
        """Leave the folder to others. Nothing that was put is lost without it. Every call after it
        but another close raises ``InvalidArgumentError``.

        TODO (pass 5): Let go of the folder.

        Approach:
          - Nothing is left to be written here: whoever is killed never comes this far.

        Example:
            >>> import tempfile
            >>> folder = tempfile.mkdtemp()
            >>> DiskStore(folder, 100).close()
            >>> DiskStore(folder, 100).names()               # and the next owner may come
            []
        """
        raise NotImplementedError("kv_tier: DiskStore.close")


class TieredCache:
    """A prefix cache over a pool and a store.

    While it is there, blocks are taken from the pool by ``alloc`` and ``find`` alone, and given
    back by ``keep`` and ``give_back`` alone. A call that raises has changed nothing. A store that
    fails costs hits, and nothing else.
    """

    def __init__(self, pool: KvPool, store: BlockStore, space: str = "") -> None:
        """Use ``pool``, in which nothing is named yet, and ``store``, which others may use, too.

        ``space`` says what K and V depend on besides the tokens: the model and its weights, the
        tenant. Caches of different spaces share nothing. In the empty one a block's name is its
        ``block_hash``; in any other the chain has another beginning. Raises
        ``InvalidArgumentError`` for a space that is no string.

        TODO (pass 6): Set up a cache that knows no text.

        Approach:
          - The pool evicts in the order in which blocks became cached (a block's age begins
            when nobody holds it any more). You see every such moment: keep the same order.
          - What will you need to know about a block when it is evicted, and what when it is
            found?

        Example:
            >>> pool = KvPool(PoolConfig(2, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> TieredCache(pool, MemoryStore(1000), "model-1").find([1, 2, 3, 4])
            []
        """
        raise NotImplementedError("kv_tier: TieredCache")

    def alloc(self, n: int) -> list[int]:
        """Take ``n`` blocks, as the pool does; those that must be evicted for it are spilled.

        TODO (pass 6): Spill what the pool will evict, then let it.

        Approach:
          - How many must go: n, less what is free. Which: the first of your order.
          - A call that the pool refuses must have spilled nothing.
          - An entry is the block's envelope (export_blocks) and what proves whose it is.

        Example:
            >>> pool = KvPool(PoolConfig(1, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> cache = TieredCache(pool, MemoryStore(1000))
            >>> cache.keep([1, 2], cache.alloc(1))
            >>> cache.alloc(1), cache.stats().spilled
            ([0], 1)
        """
        raise NotImplementedError("kv_tier: TieredCache.alloc")

    def keep(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        """Give back the blocks of a text whose K and V are all there; the whole ones stay cached.

        ``blocks`` hold ``tokens`` from the first on, ceil(n / B) of them. They go last to first, so
        that a text's end is evicted before its beginning. A partial block is never kept. Where
        another block has the hash already, that one stays cached, and is accessed in its place.

        Raises ``InvalidArgumentError`` for another number of blocks, one that is not held or is
        known to hold another text, and tokens that have no hash.

        TODO (pass 6): Name the whole blocks of the text, and give all blocks back, last to first.

        Approach:
          - Refuse before you change anything: the tokens, the number of blocks, whether they
            are held.
          - A block that was found has its name already. A name that another block has stays
            there.
          - When is a block cached, in the pool and so in your order? When its last holder gives
            it back.

        Example:
            >>> pool = KvPool(PoolConfig(2, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> cache = TieredCache(pool, MemoryStore(1000))
            >>> cache.keep([1, 2, 3], cache.alloc(2))
            >>> pool.stats()
            PoolStats(free=1, used=0, cached=1, evictions=0)
        """
        raise NotImplementedError("kv_tier: TieredCache.keep")

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Return the blocks of the longest known run of whole blocks that ``tokens`` begin with,
        each held for the caller. Those that the pool has lost are restored from the store.

        A block counts as known only where its whole text, from the first token on, is proved to be
        this one, and its bytes are whole; an entry of the store that fails this is discarded. What
        finds no room in the pool is not restored. The store is left with the tail of the entries
        that were read as the next to go, and with their head as the most recently used one.

        TODO (pass 6): Return the longest run that pool and store have of the text, restored and
            held.

        Approach:
          - First look for all of the run, and hold what the pool has of it; then restore. The
            other way round, restoring evicts what comes next.
          - A name is no proof, and neither are the block's own tokens: what would be one for
            the whole text up to here, in a few bytes?
          - import_blocks takes a block from the pool, as alloc does: who is evicted by that?
            And if the envelope is refused?
          - Where the run breaks off, what have you held beyond that point?

        Example:
            >>> pool = KvPool(PoolConfig(2, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> cache = TieredCache(pool, MemoryStore(1000))
            >>> cache.keep([1, 2, 3, 4], cache.alloc(2))
            >>> cache.give_back(cache.alloc(2))
            >>> len(cache.find([1, 2, 3, 4, 5]))
            2
            >>> cache.stats()
            TierStats(pool_hits=0, restored=2, spilled=2, rejected=0, failed=0)
        """
        raise NotImplementedError("kv_tier: TieredCache.find")

    def give_back(self, blocks: Sequence[int]) -> None:
        """Give back blocks of ``find`` or ``alloc``, last to first, and name none.

        One list may have references of several holders, also several of one block. Raises
        ``InvalidArgumentError`` for a block that is not held, or not as often as it is listed.

        TODO (pass 6): Give back each block, last to first.

        Approach:
          - A block with a name is cached when nobody holds it any more, and the newest then.

        Example:
            >>> pool = KvPool(PoolConfig(2, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> cache = TieredCache(pool, MemoryStore(1000))
            >>> cache.give_back(cache.alloc(2))
            >>> pool.stats().free
            2
        """
        raise NotImplementedError("kv_tier: TieredCache.give_back")

    def stats(self) -> TierStats:
        """Return the counts of this moment.

        TODO (pass 6): Return the five counts.

        Approach:
          - Blocks are counted, not calls.

        Example:
            >>> pool = KvPool(PoolConfig(2, 2, n_layers=1, n_kv_heads=1, head_dim=1))
            >>> TieredCache(pool, MemoryStore(1000)).stats()
            TierStats(pool_hits=0, restored=0, spilled=0, rejected=0, failed=0)
        """
        raise NotImplementedError("kv_tier: TieredCache.stats")


def break_even(token_bytes: float, bandwidth: float, prefill_rate: float,
               latency: float = 0.0) -> float:
    """Return from how many tokens on a prefix is restored sooner than computed.

    A token's K and V are ``token_bytes``, the store gives ``bandwidth`` bytes a second after
    ``latency`` seconds, and the model computes ``prefill_rate`` tokens a second. Infinity where a
    token takes no less time to restore than to compute.

    Raises ``InvalidArgumentError`` for anything that is no finite number above 0 (``latency``:
    from 0 on).

    TODO (pass 6): Return the length at which both ways take the same time.

    Approach:
      - Write down the seconds for n tokens, both ways. Where are they equal?
      - What if a token takes longer to restore than to compute?

    Example:
        >>> round(break_even(131072, 2e9, 10_000, 0.010))
        290
        >>> break_even(131072, 1e9, 10_000, 0.010)
        inf
    """
    raise NotImplementedError("kv_tier: break_even")
