"""The second tier with an index of its own in memory and a plain table on disk.

Where the reference asks its database for everything, this one has the sizes and the order in a
dictionary, and the table has nothing but values and the number of their last use. A cache restores
one block after the other, and proves a text by SHA-256 of all of it under a key of the space.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from hmac import digest
from math import inf, isinf, isnan
from operator import index
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from tinyllm.block_hash import block_hash, hash_chain
from tinyllm.errors import HashBusyError, InvalidArgumentError, KvError
from tinyllm.kv_export import export_blocks, import_blocks
from tinyllm.kv_pool import KvPool


class BlockStore(Protocol):
    def put(self, name: int, value: bytes) -> None: ...
    def get(self, name: int) -> bytes | None: ...
    def discard(self, name: int) -> None: ...


class TierStats(NamedTuple):
    pool_hits: int
    restored: int
    spilled: int
    rejected: int
    failed: int


def _natural(value: int, bits: int = 64) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidArgumentError(f"{value!r} is no integer")
    if (number := index(value)) < 0 or number >> bits:
        raise InvalidArgumentError(f"{value!r} is out of range")
    return number


class _Shelf:
    """Sizes by name, the least recently used first, with their sum."""

    def __init__(self) -> None:
        self.sizes: OrderedDict[int, int] = OrderedDict()
        self.total = 0

    def add(self, name: int, size: int) -> None:
        self.sizes[name] = size
        self.total += size

    def drop(self, name: int) -> None:
        self.total -= self.sizes.pop(name, 0)

    def leaving(self, name: int, size: int, capacity: int) -> list[int]:
        """Return who must leave for a value of ``size`` under ``name``, itself not among them."""
        room, gone = capacity - self.total + self.sizes.get(name, 0), []
        for other, its in self.sizes.items():
            if room >= size:
                break
            if other != name:
                gone.append(other)
                room += its
        return gone


class MemoryStore:
    def __init__(self, capacity: int, below: BlockStore | None = None) -> None:
        self.capacity = _natural(capacity, 256)
        self.below = below
        self.shelf, self.data = _Shelf(), dict[int, bytes]()
        self.wrong_below = dict[int, None]()  # what the store below must not answer any more

    @property
    def used_bytes(self) -> int:
        return self.shelf.total

    def names(self) -> list[int]:
        return list(self.shelf.sizes)

    def put(self, name: int, value: bytes) -> None:
        name, value = _natural(name), bytes(value)
        down = self._hold(name, value)
        if self.below is None:
            return
        self.wrong_below[name] = None
        self._put_down(down)
        if name in self.data:
            self._forget_below()

    def _hold(self, name: int, value: bytes) -> list[tuple[int, bytes]]:
        """Take a value in and return what goes down for it."""
        fits = len(value) <= self.capacity
        gone = self.shelf.leaving(name, len(value), self.capacity) if fits else []
        down = [(other, self._lose(other)) for other in gone]
        self._lose(name)
        if fits:
            self.data[name] = value
            self.shelf.add(name, len(value))
        else:
            down.append((name, value))
        return down

    def get(self, name: int) -> bytes | None:
        name = _natural(name)
        if name in self.data:
            self.shelf.sizes.move_to_end(name)
            return self.data[name]
        with suppress(OSError):
            self._forget_below()
        if self.below is None or name in self.wrong_below or (
                value := self.below.get(name)) is None:
            return None
        if len(value) <= self.capacity:
            down = self._hold(name, value)
            with suppress(OSError):  # what had to go found no room below
                self._put_down(down)
        return value

    def discard(self, name: int) -> None:
        self._lose(name := _natural(name))
        if self.below is not None:
            self.wrong_below[name] = None
            self._forget_below()

    def _put_down(self, down: list[tuple[int, bytes]]) -> None:
        assert self.below is not None
        for other, its in down:
            self.below.put(other, its)
            self.wrong_below.pop(other, None)

    def _forget_below(self) -> None:
        for name in list(self.wrong_below):
            assert self.below is not None
            self.below.discard(name)
            del self.wrong_below[name]

    def _lose(self, name: int) -> bytes:
        self.shelf.drop(name)
        return self.data.pop(name, b"")


class DiskStore:
    def __init__(self, folder: str | PathLike[str], capacity: int) -> None:
        self.capacity = _natural(capacity, 256)
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError(f"{folder} cannot be a folder") from error
        self.file = path / "tier.db"
        self.db: sqlite3.Connection | None = None
        self._start()

    @property
    def used_bytes(self) -> int:
        return self.shelf.total

    def names(self) -> list[int]:
        return list(self.shelf.sizes)

    def put(self, name: int, value: bytes) -> None:
        name, value = _natural(name), bytes(value)
        self._opened()
        try:
            self._write(name, value)
        except sqlite3.OperationalError as error:  # no room, no right, no disk
            raise OSError(f"{self.file}: {error}") from error
        except sqlite3.Error:
            self._begin_anew()
            self._write(name, value)

    def get(self, name: int) -> bytes | None:
        name, db = _natural(name), self._opened()
        if name not in self.shelf.sizes:
            return None
        try:
            (value,) = db.execute("SELECT value FROM entry WHERE key = ?", (hex(name),)).fetchone()
            self.uses += 1
            db.execute("UPDATE entry SET used = ? WHERE key = ?", (self.uses, hex(name)))
            if not isinstance(value, bytes):
                raise sqlite3.DatabaseError("a value of another kind")
        except (sqlite3.Error, TypeError):
            self._begin_anew()
            return None
        self.shelf.sizes.move_to_end(name)
        return value

    def discard(self, name: int) -> None:
        name = _natural(name)
        self._opened().execute("DELETE FROM entry WHERE key = ?", (hex(name),))
        self.shelf.drop(name)

    def close(self) -> None:
        if self.db is not None:
            self.db.close()
        self.db = None

    def _opened(self) -> sqlite3.Connection:
        if self.db is None:
            raise InvalidArgumentError("nothing can be done with a store that is closed")
        return self.db

    def _write(self, name: int, value: bytes) -> None:
        db = self._opened()
        fits = len(value) <= self.capacity
        gone = [name]
        if fits:
            gone += self.shelf.leaving(name, len(value), self.capacity)
        self.uses += 1
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany("DELETE FROM entry WHERE key = ?", [(hex(other),) for other in gone])
            if fits:
                db.execute("INSERT INTO entry (key, used, value) VALUES (?, ?, ?)",
                           (hex(name), self.uses, value))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        for other in gone:
            self.shelf.drop(other)
        if fits:
            self.shelf.add(name, len(value))

    def _start(self) -> None:
        try:
            self._load()
        except (sqlite3.Error, ValueError, TypeError) as error:
            if "locked" in str(error):
                self.close()
                raise InvalidArgumentError(f"{self.file.parent} is in use") from error
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)
        self._load()

    def _load(self) -> None:
        self.db = sqlite3.connect(self.file, timeout=0, isolation_level=None)
        self.db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.db.execute("PRAGMA journal_mode = WAL").fetchone()
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute("CREATE TABLE IF NOT EXISTS entry (key TEXT PRIMARY KEY, used INTEGER, "
                        "value BLOB)")
        rows = self.db.execute("SELECT used, key, length(value) FROM entry ORDER BY used"
                               ).fetchall()
        self.db.execute("COMMIT")
        self.shelf, self.uses = _Shelf(), max((int(used) for used, _, _ in rows), default=0)
        for _, key, size in rows:
            self.shelf.add(_natural(int(key, 16)), int(size))
        if gone := self.shelf.leaving(-1, 0, self.capacity):
            for name in gone:
                self.discard(name)
            self.db.execute("VACUUM")


class TieredCache:
    def __init__(self, pool: KvPool, store: BlockStore, space: str = "") -> None:
        self.pool, self.store = pool, store
        if not isinstance(space, str):
            raise InvalidArgumentError("spaces are named by strings")
        self.key = b"space " + space.encode("utf-8", "surrogatepass")
        self.first = int.from_bytes(sha256(self.key).digest()[:8], "big") if space else 0
        self.proof_of: dict[int, bytes] = {}
        self.waiting: list[int] = []  # blocks that nobody holds, the oldest first
        self.numbers = dict.fromkeys(TierStats._fields, 0)

    def alloc(self, n: int) -> list[int]:
        stats = self.pool.stats()
        try:
            count = _natural(n)
        except InvalidArgumentError:
            return self._new(n)
        return self._taking(count, lambda: self._new(n)) if (
            count <= stats.free + stats.cached) else self._new(n)

    def keep(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        proofs = self._proofs(tokens)
        if len(blocks) * self.pool.config.block_tokens - len(tokens) not in range(
                self.pool.config.block_tokens):
            raise InvalidArgumentError("blocks and tokens do not go together")
        block_hash(0, tokens[len(proofs) * self.pool.config.block_tokens :])
        self._must_hold(blocks)
        if any(self.proof_of.get(block, proof) != proof
               for block, (_, proof) in zip(blocks, proofs, strict=False)):
            raise InvalidArgumentError("what these blocks hold is another text")
        if len(proofs) < len(blocks) and blocks[-1] in self.proof_of:
            raise InvalidArgumentError("a block that has a hash is no place for the rest of a text")
        letting = list(blocks)
        for block, (name, proof) in zip(blocks, proofs, strict=False):
            if not self.pool.hash_of(block):
                self.pool.set_fill(block, self.pool.config.block_tokens)
                try:
                    self.pool.register(block, name)
                    self.proof_of[block] = proof
                except HashBusyError:  # what has the hash is let go in the place of this block
                    letting.insert(letting.index(block), self._revived(name))
        self._let_go(letting)

    def find(self, tokens: Sequence[int]) -> list[int]:
        proofs = self._proofs(tokens)
        near = self._known(proofs)  # all held before any must go
        run: list[int] = []
        restored: list[int] = []
        for at, (name, proof) in enumerate(proofs):
            if at in near:
                self.numbers["pool_hits"] += 1
                run.append(near.pop(at))
            elif (block := self._restored(name, proof)) is not None:
                run.append(block)
                restored.append(name)
            else:
                break
        self._let_go(list(near.values()))
        self._as_a_chain(restored)
        return run

    def give_back(self, blocks: Sequence[int]) -> None:
        self._must_hold(blocks)
        self._let_go(blocks)

    def stats(self) -> TierStats:
        return TierStats(**self.numbers)

    def _proofs(self, tokens: Sequence[int]) -> list[tuple[int, bytes]]:
        size = self.pool.config.block_tokens
        names = hash_chain(tokens, size, self.first)
        words = np.array([index(t) for t in tokens[: len(names) * size]], "<u4").tobytes()
        return [(name, digest(self.key, words[: 4 * size * at], "sha256"))
                for at, name in enumerate(names, 1)]

    def _restored(self, name: int, proof: bytes) -> int | None:
        stats = self.pool.stats()
        if stats.free + stats.cached < 1:
            return None
        try:
            entry = self.store.get(name)
        except OSError:
            self.numbers["failed"] += 1
            return None
        if entry is None:
            return None
        # The proof of an entry is keyed with its envelope's digest, so neither goes with another.
        envelope = entry[32:]
        bound = digest(proof, sha256(envelope).digest(), "sha256")
        if entry[:32] == bound and envelope[8:12] == b"\1\0\0\0":
            try:
                (block,) = self._taking(1, lambda: import_blocks(self.pool, envelope))
            except KvError:
                pass
            else:
                if self.pool.hash_of(block):
                    self.proof_of[block] = proof
                self.numbers["restored"] += 1
                return block
        self.numbers["rejected"] += 1
        try:
            self.store.discard(name)
        except OSError:
            self.numbers["failed"] += 1
        return None

    def _known(self, proofs: list[tuple[int, bytes]]) -> dict[int, int]:
        """Return the pool's blocks of this very text by their places, each held. A block of
        another text is not looked up, and keeps its age."""
        mine = set(self.proof_of.values())
        return {at: self._revived(name) for at, (name, proof) in enumerate(proofs) if proof in mine}

    def _revived(self, name: int) -> int:
        """Return the pool's block of this name, which it has, now held."""
        found = self.pool.lookup(name)
        assert found is not None
        block = int(found)  # this pool returns numpy integers
        if block in self.waiting:
            self.waiting.remove(block)
        return block

    def _as_a_chain(self, names: list[int]) -> None:
        """Use entries once more, from the end of their text: its beginning is to stay longest."""
        for name in names[-2::-1]:
            try:
                self.store.get(name)
            except OSError:
                self.numbers["failed"] += 1

    def _new(self, n: int) -> list[int]:
        return [int(block) for block in self.pool.alloc(n)]

    def _taking(self, n: int, take: "Take") -> list[int]:
        """Spill what taking ``n`` blocks evicts, and take them."""
        going = self.waiting[: max(0, n - self.pool.stats().free)]
        written = [(self.pool.hash_of(block), self._written(block)) for block in going]
        taken = take()
        for name, entry in written:
            try:
                self.store.put(name, entry)
                self.numbers["spilled"] += 1
            except OSError:
                self.numbers["failed"] += 1
        del self.waiting[: len(going)]
        for block in going:
            del self.proof_of[block]
        return taken

    def _written(self, block: int) -> bytes:
        envelope = export_blocks(self.pool, [block])
        return digest(self.proof_of[block], sha256(envelope).digest(), "sha256") + envelope

    def _let_go(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self.pool.unref(block)
            if block in self.proof_of and not self.pool.ref_count(block):
                self.waiting.append(block)

    def _must_hold(self, blocks: Sequence[int]) -> None:
        times: dict[int, int] = {}
        for block in blocks:
            times[block] = times.get(block, 0) + 1
        if any(self.pool.ref_count(block) < n for block, n in times.items()):
            raise InvalidArgumentError("not all of these blocks are held")


class Take(Protocol):
    def __call__(self) -> list[int]: ...


def break_even(token_bytes: float, bandwidth: float, prefill_rate: float,
               latency: float = 0.0) -> float:
    for figure in (token_bytes, bandwidth, prefill_rate, latency):
        if isinstance(figure, bool) or not isinstance(figure, (int, float)):
            raise InvalidArgumentError("sizes, rates and times are numbers")
        if isnan(figure) or isinf(figure) or figure < 0:
            raise InvalidArgumentError("sizes, rates and times are finite and not negative")
    if not token_bytes or not bandwidth or not prefill_rate:
        raise InvalidArgumentError("a size or rate of 0")
    per_token = 1 / prefill_rate - token_bytes / bandwidth
    if per_token <= 0:
        return inf
    return latency / per_token
