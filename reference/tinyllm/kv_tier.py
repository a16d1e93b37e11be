"""The second tier: blocks that the pool evicts, kept elsewhere and brought back (Project 09).

A block's life goes on after its eviction. Before the pool forgets it, it is exported into a store,
under its name; a later prompt that begins with the same text imports it again instead of computing
it. Three parts:

    stores         bytes under 64-bit names, bounded, least recently used first to go: in memory,
                   or on disk, where they survive a crash
    TieredCache    a prefix cache over a pool and a store, which spills and restores
    break_even     how long a prefix must be for that to pay
"""

import os
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from math import inf
from numbers import Real
from operator import index
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from tinyllm.block_hash import block_hash, hash_chain
from tinyllm.errors import EnvelopeError, HashBusyError, InvalidArgumentError, ShapeMismatchError
from tinyllm.kv_export import export_blocks, export_bytes, import_blocks
from tinyllm.kv_pool import KvPool

_U64 = 0xFFFFFFFFFFFFFFFF
_Answer = TypeVar("_Answer")


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
        0 on."""
        self._capacity = _whole(capacity, inf, "a capacity")
        self._below = below
        self._values: OrderedDict[int, bytes] = OrderedDict()  # the least recently used first
        self._outdated: set[int] = set()  # whose value below, if there is one, must not come back
        self._used = 0

    @property
    def used_bytes(self) -> int:
        """The bytes of all values; at most the capacity, after every call."""
        return self._used

    def names(self) -> list[int]:
        """Return the names that this store itself holds, the least recently used first."""
        return list(self._values)

    def put(self, name: int, value: bytes) -> None:
        """Keep a copy of ``value`` as the newest, in place of what was there.

        To make room, the least recently used values leave, and no more of them than must; they go
        below, the oldest first. A value larger than the capacity pushes nobody out: it goes below
        at once. What had its name is gone from every floor. Raises what the store below raises;
        this one is in order then, and an older value that is still below never comes back.
        """
        name, value = _name(name), bytes(value)
        leaving = self._keep(name, value)
        if self._below is not None:
            self._outdated.add(name)
            if name in self._values:
                self._clear_below(name)
            self._send_down(leaving)

    def get(self, name: int) -> bytes | None:
        """Return the value, now the newest, or ``None``. One that was below is here from now on;
        what goes down for it and finds no room there is lost, and no reason to refuse the value."""
        if (name := _name(name)) in self._values:
            self._values.move_to_end(name)
            return self._values[name]
        value = self._look_below(name)
        if value is not None and len(value) <= self._capacity:
            leaving = self._keep(name, value)
            with suppress(OSError):
                self._send_down(leaving)
        return value

    def discard(self, name: int) -> None:
        """Forget ``name``, here and below. Raises what the store below raises; the value does not
        come back then either."""
        self._drop(name := _name(name))
        if self._below is not None:
            self._outdated.add(name)
            self._clear_below(name)

    def _keep(self, name: int, value: bytes) -> list[tuple[int, bytes]]:
        """Take a value in, and return what leaves for it: itself, where it is too large."""
        self._drop(name)
        if len(value) > self._capacity:
            return [(name, value)]
        leaving = []
        while self._used + len(value) > self._capacity:
            old, gone = self._values.popitem(last=False)
            self._used -= len(gone)
            leaving.append((old, gone))
        self._values[name] = value
        self._used += len(value)
        return leaving

    def _send_down(self, leaving: list[tuple[int, bytes]]) -> None:
        if self._below is not None:
            for old, gone in leaving:
                self._below.put(old, gone)
                self._outdated.discard(old)

    def _look_below(self, name: int) -> bytes | None:
        if self._below is None:
            return None
        if name in self._outdated:
            with suppress(OSError):
                self._clear_below(name)
            return None
        return self._below.get(name)

    def _clear_below(self, name: int) -> None:
        """Have the store below forget a value that is out of date."""
        if self._below is not None:
            self._below.discard(name)
            self._outdated.discard(name)

    def _drop(self, name: int) -> None:
        self._used -= len(self._values.pop(name, b""))


_FILE = "blocks.sqlite3"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS blocks (name BLOB PRIMARY KEY, age INTEGER, value BLOB)",
    "CREATE INDEX IF NOT EXISTS by_age ON blocks (age)",
)
# One owner: then no memory need be shared, and the log works on any file system. Vacuum: the file
# gets smaller with what is in it.
_PRAGMAS = ("locking_mode = EXCLUSIVE", "auto_vacuum = FULL", "journal_mode = WAL",
            "synchronous = NORMAL", "journal_size_limit = 0")
# What may happen to a database that is whole.
_NO_DAMAGE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
              sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_TOOBIG}


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
        """
        self._capacity = _whole(capacity, inf, "a capacity")
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidArgumentError(f"{folder} is no folder") from None
        self._used = self._now = 0
        self._db = self._connection()
        try:
            self._attempt(self._begin)
        except Exception:
            self.close()
            raise

    @property
    def used_bytes(self) -> int:
        """The bytes of all values; at most the capacity, after every call."""
        return self._used

    def names(self) -> list[int]:
        """Return the names that are held, the least recently used first."""
        return self._attempt(self._names)

    def put(self, name: int, value: bytes) -> None:
        """Keep ``value`` as the newest, in place of what was there.

        To make room, the least recently used values leave, and no more of them than must. A value
        larger than the capacity is not kept, and pushes nobody out.
        """
        key, value = _name(name).to_bytes(8, "little"), bytes(value)
        self._attempt(lambda: self._put(key, value))

    def get(self, name: int) -> bytes | None:
        """Return the value, now the newest, or ``None``."""
        key = _name(name).to_bytes(8, "little")
        return self._attempt(lambda: self._get(key))

    def discard(self, name: int) -> None:
        """Forget ``name``, if it is there."""
        key = _name(name).to_bytes(8, "little")
        self._attempt(lambda: self._discard(key))

    def close(self) -> None:
        """Leave the folder to others. Nothing that was put is lost without it. Every call after it
        but another close raises ``InvalidArgumentError``."""
        self._db.close()

    def _names(self) -> list[int]:
        rows = self._db.execute("SELECT name FROM blocks ORDER BY age").fetchall()
        return [int.from_bytes(name, "little") for (name,) in rows]

    def _put(self, key: bytes, value: bytes) -> None:
        with self._db:  # a transaction: committed at its end, undone where anything is raised
            used = self._used - self._delete(key)
            if len(value) <= self._capacity:
                used = self._shrink(used, self._capacity - len(value)) + len(value)
                self._db.execute("INSERT INTO blocks VALUES (?, ?, ?)", (key, self._tick(), value))
        self._used = used

    def _get(self, key: bytes) -> bytes | None:
        row = self._db.execute("SELECT value FROM blocks WHERE name = ?", (key,)).fetchone()
        if row is None:
            return None
        with self._db:
            self._db.execute("UPDATE blocks SET age = ? WHERE name = ?", (self._tick(), key))
        (value,) = row
        if not isinstance(value, bytes):
            raise TypeError("a value of another kind: the file is damaged")
        return value

    def _discard(self, key: bytes) -> None:
        with self._db:
            freed = self._delete(key)
        self._used -= freed

    def _shrink(self, used: int, most: int) -> int:
        """Delete the least recently used values until at most ``most`` bytes are left; return how
        many are."""
        while used > most:
            (key,) = self._db.execute("SELECT name FROM blocks ORDER BY age LIMIT 1").fetchone()
            used -= self._delete(key)
        return used

    def _delete(self, key: bytes) -> int:
        row = self._db.execute("SELECT length(value) FROM blocks WHERE name = ?", (key,)).fetchone()
        self._db.execute("DELETE FROM blocks WHERE name = ?", (key,))
        return int(row[0]) if row else 0

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _connection(self) -> sqlite3.Connection:
        try:
            return sqlite3.connect(self._folder / _FILE, timeout=0)
        except sqlite3.Error as error:
            raise OSError(f"{self._folder}: {error}") from error

    def _begin(self) -> None:
        for pragma in _PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}").fetchone()
        with self._db:
            for table in _TABLES:
                self._db.execute(table)
            self._now, used = self._db.execute("SELECT coalesce(max(age), 0), "
                                               "coalesce(sum(length(value)), 0) FROM blocks"
                                               ).fetchone()
            self._used = self._shrink(used, self._capacity)

    def _attempt(self, work: Callable[[], _Answer]) -> _Answer:
        """Do ``work``; where the file turns out to be damaged, begin anew and do it once more."""
        try:
            return work()
        except sqlite3.ProgrammingError as error:  # closed, or called from another thread
            raise InvalidArgumentError(f"{self._folder}: {error}") from None
        except (sqlite3.Error, TypeError, OverflowError, UnicodeDecodeError) as error:
            self._demand_damage(error)  # a damaged file has errors that are not SQLite's, too
        self._db.close()
        for file in self._folder.glob(f"{_FILE}*"):
            file.unlink()
        self._db = self._connection()
        try:
            self._begin()
            return work()
        except sqlite3.Error as error:
            raise OSError(f"{self._folder}: {error}") from error

    def _demand_damage(self, error: Exception) -> None:
        """Raise what an error means that says nothing against the file."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise InvalidArgumentError(f"{self._folder} is open already") from None
        # A file that may be written, and is called read-only, has a damaged header.
        writable = os.access(self._folder / _FILE, os.W_OK,
                             effective_ids=os.access in os.supports_effective_ids)
        if code in _NO_DAMAGE or (code == sqlite3.SQLITE_READONLY and not writable):
            raise OSError(f"{self._folder}: {error}") from error


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
        """
        if not isinstance(space, str):
            raise InvalidArgumentError(f"a space is a string, not {space!r}")
        self.pool, self.store = pool, store
        self._seed = blake2b(space.encode(errors="surrogatepass")).digest()
        self._parent = int.from_bytes(self._seed[:8], "little") if space else 0
        self._proofs: dict[int, bytes] = {}  # of each block that has a name, by id
        # Blocks that nobody holds, in the order in which the pool will evict them.
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._counts: Counter[str] = Counter()

    def alloc(self, n: int) -> list[int]:
        """Take ``n`` blocks, as the pool does; those that must be evicted for it are spilled."""
        going = self._going(n)
        for block in going:
            self._spill(*self._record(block))
        taken = self.pool.alloc(n)
        self._forget(going)
        return taken

    def keep(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        """Give back the blocks of a text whose K and V are all there; the whole ones stay cached.

        ``blocks`` hold ``tokens`` from the first on, ceil(n / B) of them. They go last to first, so
        that a text's end is evicted before its beginning. A partial block is never kept. Where
        another block has the hash already, that one stays cached, and is accessed in its place.

        Raises ``InvalidArgumentError`` for another number of blocks, one that is not held or is
        known to hold another text, and tokens that have no hash.
        """
        size = self.pool.config.block_tokens
        chain = list(self._chain(tokens))
        block_hash(0, tokens[len(chain) * size :])  # the rest must be tokens, too
        if len(blocks) != -(-len(tokens) // size):
            raise InvalidArgumentError(f"{len(tokens)} tokens have {-(-len(tokens) // size)} "
                                       f"blocks, not {len(blocks)}")
        self._demand_held(blocks)
        for block, (_, proof) in zip(blocks, chain, strict=False):
            if self._proofs.get(block, proof) != proof:
                raise InvalidArgumentError(f"block {block} holds another text than this one")
        going: list[int] = []
        for block, (name, proof) in zip(blocks, chain, strict=False):
            going.append(block)
            if self.pool.hash_of(block) == 0:
                self.pool.set_fill(block, size)
                try:
                    self.pool.register(block, name)
                    self._proofs[block] = proof
                except HashBusyError:  # the first holder keeps it, whatever it holds
                    going += self._hold(name)
        self.give_back([*going, *blocks[len(chain) :]])

    def find(self, tokens: Sequence[int]) -> list[int]:
        """Return the blocks of the longest known run of whole blocks that ``tokens`` begin with,
        each held for the caller. Those that the pool has lost are restored from the store.

        A block counts as known only where its whole text, from the first token on, is proved to be
        this one, and its bytes are whole; an entry of the store that fails this is discarded. What
        finds no room in the pool is not restored. The store is left with the tail of the entries
        that were read as the next to go, and with their head as the most recently used one.
        """
        run = self._run(tokens)
        blocks: list[int] = []
        for at, (name, found) in enumerate(run):
            block = found if isinstance(found, int) else self._restore(name, *found)
            if block is None:
                self.give_back([later for _, later in run[at:] if isinstance(later, int)])
                break
            self._counts["pool_hits" if isinstance(found, int) else "restored"] += 1
            blocks.append(block)
        return blocks

    def give_back(self, blocks: Sequence[int]) -> None:
        """Give back blocks of ``find`` or ``alloc``, last to first, and name none.

        One list may have references of several holders, also several of one block. Raises
        ``InvalidArgumentError`` for a block that is not held, or not as often as it is listed.
        """
        self._demand_held(blocks)
        for block in reversed(blocks):
            self.pool.unref(block)
            if self.pool.ref_count(block) == 0 and block in self._proofs:
                self._cached[block] = None

    def stats(self) -> TierStats:
        """Return the counts of this moment."""
        return TierStats(*(self._counts[name] for name in TierStats._fields))

    def _chain(self, tokens: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (name, proof) of each whole block. A name is 64 bits and no secret, so two texts
        may share it; a proof is a cryptographic hash of the space and all tokens so far."""
        size, proof = self.pool.config.block_tokens, blake2b(self._seed, digest_size=32)
        for at, name in enumerate(hash_chain(tokens, size, self._parent)):
            for token in tokens[at * size : (at + 1) * size]:
                proof.update(index(token).to_bytes(4, "little"))
            yield name, proof.digest()

    def _run(self, tokens: Sequence[int]) -> list[tuple[int, int | tuple[bytes, bytes]]]:
        """Return (name, what was found) of the known run: a block, now held, or an entry's proof
        and envelope. All is looked for before anything is restored, because that evicts; and no
        entry is read that would find no room."""
        run: list[tuple[int, int | tuple[bytes, bytes]]] = []
        read: list[int] = []
        others: list[int] = []  # blocks of other texts under the same names
        for name, proof in self._chain(tokens):
            held = self._hold(name)
            if held and self._proofs.get(held[0]) == proof:
                run.append((name, held[0]))
                continue
            others += held
            if len(read) == self._room() + len(others):
                break
            if (envelope := self._entry(name, proof)) is None:
                break
            read.append(name)
            run.append((name, (proof, envelope)))
        self.give_back(others)
        self._touch(read)
        return run

    def _hold(self, name: int) -> list[int]:
        """Return the pool's block of this name, now held, or nothing."""
        if (block := self.pool.lookup(name)) is None:
            return []
        self._cached.pop(block, None)
        return [block]

    def _touch(self, read: list[int]) -> None:
        """Access the entries that were read once more, last to first: reading a run from its head
        on has left the head as the next to go, and nothing after it can be found without it."""
        for name in reversed(read[:-1]):
            with suppress(OSError):
                self.store.get(name)

    def _entry(self, name: int, proof: bytes) -> bytes | None:
        """Return the envelope that the store has of this very block."""
        try:
            record = self.store.get(name)
        except OSError:
            self._counts["failed"] += 1
            return None
        if record is None:
            return None
        envelope = record[len(proof) :]
        # Where formats/kv-block.md has the hash of the first block; there must be no second one.
        named = envelope[28:36] == name.to_bytes(8, "little")
        one = len(envelope) == export_bytes(self.pool.config, 1)
        if record[: len(proof)] == proof and named and one:
            return envelope
        self._reject(name)
        return None

    def _restore(self, name: int, proof: bytes, envelope: bytes) -> int | None:
        """Import a block; return its id, or ``None`` where it is damaged or there is no room."""
        if self._room() == 0:
            return None
        going = self._going(1)
        records = [self._record(evicted) for evicted in going]  # before the pool forgets them
        try:
            (block,) = import_blocks(self.pool, envelope)
        except (EnvelopeError, ShapeMismatchError):
            self._reject(name)
            return None
        for record in records:
            self._spill(*record)
        self._forget(going)
        if self.pool.hash_of(block):
            self._proofs[block] = proof
        return block

    def _reject(self, name: int) -> None:
        self._counts["rejected"] += 1
        with suppress(OSError):
            self.store.discard(name)

    def _room(self) -> int:
        """Return how many blocks the pool can give."""
        stats = self.pool.stats()
        return stats.free + stats.cached

    def _going(self, n: int) -> list[int]:
        """Return the blocks that taking ``n`` evicts: none where the pool will refuse ``n``."""
        try:
            n = _whole(n, self._room(), "a number of blocks")
        except InvalidArgumentError:
            return []
        return list(islice(self._cached, max(n - self.pool.stats().free, 0)))

    def _record(self, block: int) -> tuple[int, bytes]:
        """Return what a block's entry in the store is: its name and its value."""
        return self.pool.hash_of(block), self._proofs[block] + export_blocks(self.pool, [block])

    def _spill(self, name: int, record: bytes) -> None:
        try:
            self.store.put(name, record)
            self._counts["spilled"] += 1
        except OSError:
            self._counts["failed"] += 1

    def _forget(self, evicted: list[int]) -> None:
        for block in evicted:
            del self._cached[block], self._proofs[block]

    def _demand_held(self, blocks: Sequence[int]) -> None:
        for block, times in Counter(blocks).items():
            if self.pool.ref_count(block) < times:
                raise InvalidArgumentError(f"block {block} is given back more often than held")


def break_even(token_bytes: float, bandwidth: float, prefill_rate: float,
               latency: float = 0.0) -> float:
    """Return from how many tokens on a prefix is restored sooner than computed.

    A token's K and V are ``token_bytes``, the store gives ``bandwidth`` bytes a second after
    ``latency`` seconds, and the model computes ``prefill_rate`` tokens a second. Infinity where a
    token takes no less time to restore than to compute.

    Raises ``InvalidArgumentError`` for anything that is no finite number above 0 (``latency``:
    from 0 on).
    """
    for value in (token_bytes, bandwidth, prefill_rate, latency):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < inf:
            raise InvalidArgumentError(f"a finite number from 0 on is needed, not {value!r}")
    if 0 in (token_bytes, bandwidth, prefill_rate):
        raise InvalidArgumentError("a size and a rate are above 0")
    saved = 1 / prefill_rate - token_bytes / bandwidth  # seconds a token
    return latency / saved if saved > 0 else inf


def _name(value: int) -> int:
    return _whole(value, _U64, "a name")


def _whole(value: int, most: float, what: str) -> int:
    """Return ``value`` as a plain int in 0..most; a bool is no number here."""
    with suppress(TypeError):
        if not isinstance(value, bool) and 0 <= (number := index(value)) <= most:
            return number
    raise InvalidArgumentError(f"{what} is a whole number from 0 on, not {value!r}")
