"""Pools whose blocks say what they hold, folders to store in, and stores that go wrong."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from grader.assertions import Wrong, demand, note, same
from grader.assertions.wording import integer, say
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.kv_tier import DiskStore, TieredCache

SIZE = 4
"""Tokens of a block."""

ROOMY = 1 << 20
"""A capacity that no test fills."""


def new_pool(n_blocks: int = 4, n_layers: int = 2, n_kv_heads: int = 1) -> KvPool:
    return KvPool(PoolConfig(n_blocks, SIZE, n_layers, n_kv_heads, head_dim=2))


def text(first: int, n_blocks: int) -> list[int]:
    """Return the tokens first, first + 1, … of some whole blocks."""
    return list(range(first, first + SIZE * n_blocks))


def values(tokens: Sequence[int], at: int, layer: int, side: int) -> np.ndarray:
    """Return what block ``at`` of a text holds: values that depend on all tokens up to its end, as
    K and V do. float16 [1, SIZE, 2]."""
    known = sum((place + 1) * token for place, token in enumerate(tokens[: (at + 1) * SIZE])) % 997
    return (known + 0.25 * np.arange(2 * SIZE).reshape(1, SIZE, 2)
            + 16 * layer + 8 * side).astype(np.float16)


def write(pool: KvPool, blocks: Sequence[int], tokens: Sequence[int]) -> None:
    """Compute a text's K and V, as it were, into these blocks."""
    note(f"write K and V of {say(list(tokens))} into {say(list(blocks))}")
    for at, block in enumerate(blocks):
        for layer in range(pool.config.n_layers):
            for side in (0, 1):
                pool.block(block, layer, side)[...] = values(tokens, at, layer, side)


def cached(cache: TieredCache, pool: KvPool, tokens: Sequence[int]) -> None:
    """Have a text computed and kept, without a look at what is there of it."""
    blocks = taken(cache, -(-len(tokens) // SIZE))
    write(pool, blocks, tokens)
    cache.keep(tokens, blocks)


def taken(cache: TieredCache, n: int) -> list[int]:
    ids = cache.alloc(n)
    same(len(ids), n, "the number of blocks that alloc gives")
    return [int(id) for id in ids]


def flush(cache: TieredCache, pool: KvPool) -> None:
    """Have every block that nobody holds evicted."""
    stats = pool.stats()
    cache.give_back(taken(cache, stats.free + stats.cached))


def found(cache: TieredCache, pool: KvPool, tokens: Sequence[int], n_blocks: int,
          what: str) -> list[int]:
    """Judge that ``n_blocks`` blocks of a text are found, are held, and hold its K and V."""
    ids = cache.find(tokens)
    demand(isinstance(ids, list | tuple), f"{what}: find returns a list of blocks", "a list",
           say(ids))
    same(len(ids), n_blocks, f"{what}: how many blocks are found")
    for at, id in enumerate(ids):
        demand(integer(id) is not None and 0 <= id < pool.config.n_blocks,
               f"{what}: find returns ids of blocks", "ids", say(ids))
        demand(pool.ref_count(id) >= 1, f"{what}: the reference count of block {say(id)}, which "
               "is held for the caller", "at least 1", say(pool.ref_count(id)))
        same(pool.fill(id), SIZE, f"{what}: the fill of block {say(id)}")
        for layer in range(pool.config.n_layers):
            for side in (0, 1):
                same(pool.block(id, layer, side).tolist(), values(tokens, at, layer, side).tolist(),
                     f"{what}: {'KV'[side]} of layer {layer} in block {at} of the text")
    return list(ids)


def looked_up(cache: TieredCache, pool: KvPool, tokens: Sequence[int], n_blocks: int,
              what: str) -> None:
    """Judge that ``n_blocks`` blocks of a text are found, and give them back."""
    cache.give_back(found(cache, pool, tokens, n_blocks, what))


class Shelf:
    """A store of the suite's own, whose values a test may see and change, the least recently used
    first. It keeps at most ``entries`` of them. When it is broken each call fails, when it is
    read-only each that would change it; ``unreadable`` are the names for which get fails."""

    def __init__(self, entries: int | None = None) -> None:
        self.values: dict[int, bytes] = {}
        self.entries = entries
        self.broken = self.read_only = False
        self.unreadable: set[int] = set()

    def put(self, name: int, value: bytes) -> None:
        self.work(changes=True)
        self.values.pop(name, None)
        self.values[name] = bytes(value)
        while self.entries is not None and len(self.values) > self.entries:
            del self.values[next(iter(self.values))]

    def get(self, name: int) -> bytes | None:
        self.work()
        if name in self.unreadable:
            raise OSError("unreadable sector")
        if (value := self.values.pop(name, None)) is not None:
            self.values[name] = value
        return value

    def discard(self, name: int) -> None:
        self.work(changes=True)
        self.values.pop(name, None)

    def work(self, changes: bool = False) -> None:
        if self.broken or (changes and self.read_only):
            raise OSError("input/output error")


def damage(store: Shelf, name: int, which: str) -> None:
    """Overwrite the end of an entry, and so its checksum or what stands for it."""
    note(f"the entry of the {which} block is damaged: its last 8 bytes are zeros now")
    store.values[name] = store.values[name][:-8] + bytes(8)


def counts(pool: KvPool, free: int, used: int, cached: int, when: str) -> None:
    stats = pool.stats()
    same([stats.free, stats.used, stats.cached], [free, used, cached],
         f"free, used and cached blocks of the pool {when}")


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder with a short name and, at the end, remove it."""
    path = next(path for n in count(1) if _made(path := Path(gettempdir(), f"tier-{n}")))
    try:
        yield Path(os.path.relpath(path))
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def no_file_beyond(most: int) -> Iterator[None]:
    """Have the disk full, as it were: writes beyond this size fail."""
    least, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    note(f"no file may grow beyond {most:,} bytes")
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, hard))
    note("files may grow again")


def _made(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def opened(path: Path, what: str) -> DiskStore:
    """Judge that the store in a folder to which something happened opens, and return it."""
    try:
        return DiskStore(path, ROOMY)
    except NotImplementedError:
        raise
    except Exception as error:
        raise Wrong(f"a store opens again ({what})", "a store",
                    f"{type(error).__name__}: {error}") from error


def in_a_child(work: Callable[[], None]) -> int | None:
    """Run ``work`` in a forked process and return how it ended: 0 when it came to its end, 1 when
    it raised, below 0 when a signal killed it."""
    child = get_context("fork").Process(target=work)
    child.start()
    child.join()
    return child.exitcode
