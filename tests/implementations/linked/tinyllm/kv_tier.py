"""The second tier with a file for each value.

Where the reference has a database, this one has a folder: a value is written to a file of its own,
and a rename gives it its name and its age. An entry carries the whole text that it is for, and one
checksum over all of it. A cache gives each block that nobody holds the time since when, and sorts.
"""

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from operator import index
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Protocol

from tinyllm.block_hash import block_hash, hash_chain
from tinyllm.errors import EnvelopeError, HashBusyError, InvalidArgumentError, KvError
from tinyllm.kv_export import export_blocks, import_blocks
from tinyllm.kv_pool import KvPool

_LENGTH = struct.Struct("<I")  # of the JSON that follows it; then the envelope, then a CRC-32


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


def _number(value: int, most: float = 2**64 - 1) -> int:
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise InvalidArgumentError(f"{value!r} is no whole number that would do here")
    return number


class MemoryStore:
    def __init__(self, capacity: int, below: BlockStore | None = None) -> None:
        self._capacity = _number(capacity, inf)
        self._below = below
        self._held: dict[int, bytes] = {}
        self._stale: set[int] = set()  # keys whose last put or discard failed below
        self._bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._bytes

    def names(self) -> list[int]:
        return [*self._held]

    def put(self, name: int, value: bytes) -> None:
        name, value = _number(name), bytes(value)
        falling = self._bring(name, value)
        try:
            if self._below is not None and name in self._held:
                self._below.discard(name)
                self._stale.discard(name)
            self._let_fall(falling)
        except OSError:
            self._stale.add(name)
            raise

    def _bring(self, name: int, value: bytes) -> dict[int, bytes]:
        self._take(name)
        self._held[name] = value
        self._bytes += len(value)
        falling: dict[int, bytes] = {}
        if len(value) > self._capacity:
            falling[name] = self._take(name) or b""
        while self._bytes > self._capacity:
            oldest = next(iter(self._held))
            falling[oldest] = self._take(oldest) or b""
        return falling

    def _let_fall(self, falling: dict[int, bytes]) -> None:
        if self._below is not None:
            for lost, its in falling.items():
                self._below.put(lost, its)
                self._stale.discard(lost)

    def get(self, name: int) -> bytes | None:
        if (value := self._take(_number(name))) is not None:
            self._held[index(name)] = value
            self._bytes += len(value)
        elif self._below is not None:
            if name in self._stale:
                with suppress(OSError):
                    self.discard(name)
                return None
            value = self._below.get(name)
            if value is not None and len(value) <= self._capacity:
                with suppress(OSError):  # a value is in one of the two stores, not in both
                    self._below.discard(name)
                falling = self._bring(index(name), value)
                with suppress(OSError):  # who cannot go down is lost
                    self._let_fall(falling)
        return value

    def discard(self, name: int) -> None:
        self._take(_number(name))
        if self._below is not None:
            self._stale.add(index(name))
            self._below.discard(name)
            self._stale.discard(name)

    def _take(self, name: int) -> bytes | None:
        value = self._held.pop(name, None)
        self._bytes -= len(value or b"")
        return value


class DiskStore:
    def __init__(self, folder: str | PathLike[str], capacity: int) -> None:
        self._capacity = _number(capacity, inf)
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidArgumentError(f"{folder}: a file is in the way") from error
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise InvalidArgumentError(f"{folder} has an owner") from error
        self._open = True
        self._files: dict[int, tuple[int, int]] = {}  # name -> age, length
        self._look_around()
        self._make_room(0)

    @property
    def used_bytes(self) -> int:
        return sum(length for _, length in self._files.values())

    def names(self) -> list[int]:
        return sorted(self._files, key=lambda name: self._files[name])

    def put(self, name: int, value: bytes) -> None:
        name, value = self._ready(name), bytes(value)
        before = self._files.get(name)
        if len(value) > self._capacity:
            self.discard(name)
            return
        with open(self._folder / "new", "wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        length = before[1] if before else 0
        self._make_room(len(value) - length, spare=name)
        self._files[name] = self._age(), len(value)
        os.replace(self._folder / "new", self._path(name, self._files[name][0]))
        if before:
            self._path(name, before[0]).unlink()

    def get(self, name: int) -> bytes | None:
        name = self._ready(name)
        if name not in self._files:
            return None
        old, age = self._files[name][0], self._age()
        try:
            value = self._path(name, old).read_bytes()
            self._path(name, old).rename(self._path(name, age))
        except FileNotFoundError:
            del self._files[name]
            return None
        self._files[name] = age, len(value)
        return value

    def discard(self, name: int) -> None:
        if (known := self._files.pop(self._ready(name), None)) is not None:
            self._path(name, known[0]).unlink(missing_ok=True)

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._lock)

    def _ready(self, name: int) -> int:
        if not self._open:
            raise InvalidArgumentError("this store is closed")
        return _number(name)

    def _look_around(self) -> None:
        """Learn what is there; of two files for one name the newer one counts."""
        found = []
        for path in self._folder.glob("*.kv"):
            with suppress(ValueError):
                name, age = (int(part, 16) for part in path.stem.split("-"))
                found.append((age, name, path))
        for age, name, path in sorted(found):
            if name in self._files:
                self._path(name, self._files[name][0]).unlink()
            self._files[name] = age, path.stat().st_size

    def _make_room(self, more: int, spare: int | None = None) -> None:
        """Unlink the oldest files but ``spare`` until ``more`` bytes fit."""
        for name in self.names():
            if self.used_bytes + more <= self._capacity:
                break
            if name != spare:
                self._path(name, self._files.pop(name)[0]).unlink()

    def _age(self) -> int:
        return 1 + max((age for age, _ in self._files.values()), default=0)

    def _path(self, name: int, age: int) -> Path:
        return self._folder / f"{name:016x}-{age:x}.kv"


class TieredCache:
    def __init__(self, pool: KvPool, store: BlockStore, space: str = "") -> None:
        if type(space) is not str:
            raise InvalidArgumentError(f"{space!r} is no text")
        self.pool, self.store = pool, store
        self._space = space
        self._root = zlib.crc32(space.encode("utf-16", "surrogatepass")) << 32 | len(space)
        self._texts: dict[int, list[int]] = {}  # of a named block: all tokens up to its end
        self._idle: dict[int, int] = {}  # of a block that nobody holds: since when
        self._clock = self._pool_hits = self._restored = self._spilled = 0
        self._rejected = self._failed = 0

    def alloc(self, n: int) -> list[int]:
        oldest = self._oldest(n)
        self._spill((self.pool.hash_of(id), self._sealed(id)) for id in oldest)
        ids = self.pool.alloc(n)
        self._evicted(oldest)
        return ids

    def keep(self, tokens: Sequence[int], blocks: Sequence[int]) -> None:
        names, size = self._names(tokens), self.pool.config.block_tokens
        if (len(tokens) + size - 1) // size != len(blocks):
            raise InvalidArgumentError("the blocks are not as many as the text has")
        block_hash(0, tokens[len(names) * size :])
        self._check(blocks)
        for at in range(len(names)):
            if (text := self._texts.get(blocks[at])) and text != self._text(tokens, at):
                raise InvalidArgumentError(f"block {blocks[at]} is another text's")
        first: dict[int, int] = {}  # by place: the block that has the hash already, now held
        for at, name in enumerate(names):
            if self.pool.hash_of(blocks[at]):
                continue
            self.pool.set_fill(blocks[at], size)
            try:
                self.pool.register(blocks[at], name)
            except HashBusyError:
                if (other := self._looked_up(name)) is not None:
                    first[at] = other
                continue
            self._texts[blocks[at]] = self._text(tokens, at)
        for at in range(len(blocks) - 1, -1, -1):  # the order of eviction: the end goes first
            self._unref([blocks[at], first[at]] if at in first else [blocks[at]])

    def find(self, tokens: Sequence[int]) -> list[int]:
        run = [(name, self._text(tokens, at)) for at, name in enumerate(self._names(tokens))]
        here = self._in_pool(run)  # held, so that none must go
        ids: list[int] = []
        for (name, text), id in zip(run, here, strict=True):
            if (restored := self._in_store(name, text) if id is None else id) is None:
                break
            ids.append(restored)
            self._pool_hits += id is not None
        self._unref([id for id in here[len(ids) :] if id is not None])
        came = [name for (name, _), id in zip(run[: len(ids)], here, strict=False) if id is None]
        for name in came[-2::-1]:  # the store drops the end of what came before its beginning
            with suppress(OSError):
                self.store.get(name)
        return ids

    def give_back(self, blocks: Sequence[int]) -> None:
        self._check(blocks)
        self._unref(blocks)

    def stats(self) -> TierStats:
        return TierStats(self._pool_hits, self._restored, self._spilled, self._rejected,
                         self._failed)

    def _names(self, tokens: Sequence[int]) -> list[int]:
        return hash_chain(tokens, self.pool.config.block_tokens, self._root if self._space else 0)

    def _text(self, tokens: Sequence[int], at: int) -> list[int]:
        return [index(t) for t in tokens[: (at + 1) * self.pool.config.block_tokens]]

    def _in_pool(self, run: list[tuple[int, list[int]]]) -> list[int | None]:
        """Return the pool's blocks of a run, each held; what it does not have is ``None``."""
        blocks = [self._looked_up(name) for name, _ in run]
        own = [id if id is not None and self._texts.get(id) == text else None
               for id, (_, text) in zip(blocks, run, strict=True)]
        self._unref([id for id in blocks if id is not None and id not in own])
        return own

    def _looked_up(self, name: int) -> int | None:
        id = self.pool.lookup(name)
        if id is not None:
            self._idle.pop(id, None)
        return id

    def _in_store(self, name: int, text: list[int]) -> int | None:
        if self.pool.stats().free + self.pool.stats().cached == 0:
            return None
        try:
            entry = self.store.get(name)
        except OSError:
            self._failed += 1
            return None
        if entry is None:
            return None
        envelope = self._opened(entry, text)
        if envelope is not None:
            leaving = {id: (self.pool.hash_of(id), self._sealed(id)) for id in self._oldest(1)}
            with suppress(EnvelopeError, KvError):
                [id] = import_blocks(self.pool, envelope)
                self._spill(leaving.values())
                self._evicted([*leaving])
                if self.pool.hash_of(id):
                    self._texts[id] = text
                self._restored += 1
                return id
        self._rejected += 1
        with suppress(OSError):
            self.store.discard(name)
        return None

    def _sealed(self, id: int) -> bytes:
        text = json.dumps([self._space, self._texts[id]]).encode()
        body = _LENGTH.pack(len(text)) + text + export_blocks(self.pool, [id])
        return body + _LENGTH.pack(zlib.crc32(body))

    def _opened(self, entry: bytes, text: list[int]) -> bytes | None:
        """Return the envelope of an entry that is whole, of one block, and of this text."""
        body, crc = entry[:-4], entry[-4:]
        if len(body) < 4 or _LENGTH.pack(zlib.crc32(body)) != crc:
            return None
        cut = 4 + _LENGTH.unpack_from(body)[0]
        if json.loads(body[4:cut]) != [self._space, text]:
            return None
        return body[cut:] if body[cut + 8 : cut + 12] == b"\1\0\0\0" else None

    def _oldest(self, n: int) -> list[int]:
        """Return the blocks that are evicted when ``n`` are taken, if that many can be."""
        stats = self.pool.stats()
        try:
            must = _number(n, stats.free + stats.cached) - stats.free
        except InvalidArgumentError:
            return []
        return sorted(self._idle, key=lambda id: self._idle[id])[: max(0, must)]

    def _spill(self, entries: Iterable[tuple[int, bytes]]) -> None:
        for name, entry in entries:
            try:
                self.store.put(name, entry)
                self._spilled += 1
            except OSError:
                self._failed += 1

    def _evicted(self, ids: list[int]) -> None:
        for id in ids:
            del self._idle[id], self._texts[id]

    def _unref(self, ids: Sequence[int]) -> None:
        for id in ids[::-1]:
            self.pool.unref(id)
            if not self.pool.ref_count(id) and id in self._texts:
                self._clock += 1
                self._idle[id] = self._clock

    def _check(self, ids: Sequence[int]) -> None:
        for id in ids:
            if list(ids).count(id) > self.pool.ref_count(id):
                raise InvalidArgumentError(f"nobody holds block {id} that often")


def break_even(token_bytes: float, bandwidth: float, prefill_rate: float,
               latency: float = 0.0) -> float:
    for value in (token_bytes, bandwidth, prefill_rate, latency):
        if type(value) not in (int, float) or not 0 <= value < inf:
            raise InvalidArgumentError(f"{value!r} is no size, rate or time")
    if 0 in (token_bytes, bandwidth, prefill_rate):
        raise InvalidArgumentError("sizes and rates are above 0")
    compute, restore = 1 / prefill_rate, token_bytes / bandwidth
    return inf if restore >= compute else latency / (compute - restore)
