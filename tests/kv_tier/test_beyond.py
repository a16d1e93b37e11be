"""The cache and what lies beyond it: stores that fail, other processes, spaces."""

from functools import partial

from grader.assertions import new_example, note, refuses, same
from tests.kv_tier.elsewhere import Elsewhere
from tests.kv_tier.samples import (
    ROOMY,
    Shelf,
    cached,
    counts,
    flush,
    folder,
    found,
    looked_up,
    new_pool,
    text,
)
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import DiskStore, MemoryStore, TieredCache

A, B = text(100, 2), text(200, 2)


def test_a_store_that_fails_costs_hits_only() -> None:
    """A store that raises OSError makes nothing fail: what it has is a miss, what it is given is
    lost, and when it works again it is used again.

    Why: a full disk must not stop a server that could do without it.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    store.broken = True
    looked_up(cache, pool, A, 0, "a text in a store that fails")
    cached(cache, pool, B)
    flush(cache, pool)
    counts(pool, 4, 0, 0, "after evictions that could not be spilled")
    looked_up(cache, pool, B, 0, "a text that could not be spilled")
    store.broken = False
    looked_up(cache, pool, A, 2, "a text that the store has had all the time")
    same(cache.stats().failed, 4, "blocks for which the store failed: two spills, two looks")


def test_a_spill_that_fails_loses_that_block_alone() -> None:
    """A block whose spill fails is gone; what was spilled before and what is spilled later comes
    back.

    Why: a disk that is full for a moment costs what it would have taken in that moment.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    cached(cache, pool, B)
    store.broken = True
    flush(cache, pool)
    store.broken = False
    same(list(cache.stats())[2:], [2, 0, 2], "spilled, rejected and failed blocks")
    looked_up(cache, pool, B, 0, "a text whose spill failed")
    cached(cache, pool, B)
    flush(cache, pool)
    looked_up(cache, pool, A, 2, "a text that was spilled before")
    looked_up(cache, pool, B, 2, "the text whose spill failed, computed and spilled again")


class _Failing(Shelf):
    """A store in which one call fails, counted from now."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def work(self, changes: bool = False) -> None:
        self.left -= 1
        self.broken = self.left == 0
        super().work(changes)


def test_a_store_may_fail_at_any_call() -> None:
    """Whichever single call of the store raises OSError while a sequence is spilled or restored,
    the cache raises nothing, finds a right beginning, and leaves no block in use.

    Why: a network store fails at one call and works at the next. A cache that expects that of some
    calls only stops a request for it, or loses the blocks that it held.
    """
    long = text(400, 4)
    for call in range(1, 13):
        new_example()
        pool, store = new_pool(4), _Failing()
        cache = TieredCache(pool, store)
        cached(cache, pool, long)
        store.left = call
        note(f"call {call} of the store fails")
        flush(cache, pool)
        for look in ("the sequence", "the sequence, for the second time"):
            ids = cache.find(long)
            cache.give_back(found(cache, pool, long[: 4 * len(ids)], len(ids), look))
            cache.give_back(ids)
            same(pool.stats().used, 0, f"blocks in use after a look at {look}")


def test_a_cache_on_disk_is_warm_after_a_restart() -> None:
    """A new pool and a new cache over the same folder find what was spilled before.

    Why: a prompt that everybody has is computed once, and not once a restart.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        pool = new_pool(4)
        cache = TieredCache(pool, MemoryStore(0, store))
        cached(cache, pool, A)
        flush(cache, pool)
        store.close()
        new_example()
        store = DiskStore(path, ROOMY)
        pool = new_pool(2)
        looked_up(TieredCache(pool, store), pool, A, 2, "the text, after a restart")
        store.close()


def _look_in(folder: str, space: str) -> list[int]:
    """Return how many blocks of A are found in a folder, and how many were restored."""
    store = DiskStore(folder, ROOMY)
    pool = new_pool(2)
    cache = TieredCache(pool, store, space)
    ids = found(cache, pool, A, 2, "the text, in a process started anew")
    store.close()
    return [len(ids), cache.stats().restored]


def test_another_process_finds_the_text() -> None:
    """What one process has spilled, another finds: in every space, and whatever Python's own hash()
    is there.

    Why: a name or a proof that depends on the process (hash() of a string, a random key) is worth
    nothing after a restart, and no test inside one process sees it.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        pool = new_pool(2)
        cache = TieredCache(pool, store, "model-1")
        cached(cache, pool, A)
        flush(cache, pool)
        store.close()
        with Elsewhere(_look_in, str(path), "model-1") as other:
            same(other.answer("a look at the text in another process"), [2, 2],
                 "blocks found there, and restored")


def test_a_space_is_a_text() -> None:
    """Anything but a string is no space; every string is one.

    Why: None, 1 and b"model" would each need a rule of their own for equality; a string has
    one.
    """
    for bad in (None, 1, b"model"):
        refuses(InvalidArgumentError, f"a cache of the space {bad!r}",
                partial(TieredCache, new_pool(), Shelf(), bad))  # type: ignore[arg-type]
    pool = new_pool(4)
    looked_up(TieredCache(pool, Shelf(), "ünïcode"), pool, A, 0, "a text in a new space")
