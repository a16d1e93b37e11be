"""Small managers, the prompts of the hand example, and what anyone can see of a manager."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from grader.assertions import Wrong, same
from grader.assertions.wording import integer, say
from tinyllm.block_manager import Allocation, BlockManager
from tinyllm.kv_pool import KvPool, PoolConfig

NONE, HASH, RADIX = "none", "hash", "radix"
CACHES = (HASH, RADIX)
MODES = (NONE, *CACHES)

A = list(range(1, 11))
"""The prompts of L10.4, section 3, for blocks of 4: two whole blocks, and two tokens more."""
B = [1, 2, 3, 4, 5, 6, 7, 8, 99, 98, 97]
C = list(range(1, 9))
D = [5, 6, 7, 8, 9, 10, 11, 12]

NO_TOKENS: tuple[Any, ...] = (True, 1.0, "1", None, -1, 2**32)
"""Values that are no token: a bool, no integers, and numbers out of range."""


def new_manager(
    mode: str, n_blocks: int = 8, block_tokens: int = 4
) -> tuple[KvPool, BlockManager]:
    """Return a pool, small unless a test says otherwise, and a manager of it."""
    pool = KvPool(PoolConfig(n_blocks, block_tokens, n_layers=1, n_kv_heads=1, head_dim=1))
    return pool, BlockManager(pool, mode)


def text(n: int, start: int = 100) -> list[int]:
    """Return ``n`` tokens that no other prompt has which starts elsewhere."""
    return list(range(start, start + n))


def admit(
    manager: BlockManager, id: str | int, tokens: Sequence[int], *args: Any, **kwargs: Any
) -> Allocation:
    """Allocate, and judge what any caller relies on: different ids, and a table that is the same.
    """
    got = manager.allocate(id, tokens, *args, **kwargs)
    what = f"what allocate({id!r}, …) returns"
    if not hasattr(got, "blocks") or not hasattr(got, "cached_tokens"):
        raise Wrong(what, "an Allocation, with blocks and cached_tokens", say(got))
    blocks = [integer(block) for block in got.blocks]
    if None in blocks or len(set(blocks)) != len(blocks):
        raise Wrong(f"the blocks of {what}", "different ids", say(got.blocks))
    same(manager.block_table(id), list(got.blocks), f"block_table({id!r}), just allocated")
    return got


def serve(manager: BlockManager, id: str, tokens: Sequence[int], *args: Any) -> Allocation:
    """Let a request come and go, with its whole prompt computed."""
    got = admit(manager, id, tokens, *args)
    manager.release(id, tokens)
    return got


def cached_tokens(manager: BlockManager, tokens: Sequence[int], *args: Any) -> int:
    """Return how many tokens of a prompt are found, by a request that comes and goes at once."""
    got = admit(manager, "probe", tokens, *args)
    manager.release("probe", tokens[: got.cached_tokens])
    return got.cached_tokens


def hit_tokens(manager: BlockManager) -> list[int]:
    """Return lookups, query tokens and hit tokens."""
    stats = manager.stats()
    return [stats.lookups, stats.query_tokens, stats.hit_tokens]


class Grip:
    """Every block of a manager's pool, each held by a request of its own.

    A test that lets go of one block at a time decides which block the next call takes, in whatever
    order the pool hands out ids.
    """

    def __init__(self, pool: KvPool, manager: BlockManager) -> None:
        self.manager = manager
        n_blocks = pool.config.n_blocks
        got = [admit(manager, f"grip {n}", text(1, 10**6 + n)) for n in range(n_blocks)]
        self._holders = {int(one.blocks[0]): f"grip {n}" for n, one in enumerate(got)}
        same(sorted(self._holders), list(range(n_blocks)), f"the blocks of {n_blocks} requests of "
             "one token each, sorted")

    def let_go(self, *blocks: int) -> None:
        """Free these blocks."""
        for block in blocks:
            self.manager.release(self._holders.pop(block), [])

    def let_go_of_all(self) -> None:
        self.let_go(*list(self._holders))


# What the pool says.


def same_room(pool: KvPool, free: int, *, when: str) -> None:
    """Judge how many blocks are free. Whether the others count as used or cached is up to the
    mode."""
    same(pool.stats().free, free, f"free blocks {when}")


def same_refs(pool: KvPool, blocks: Sequence[int], refs: list[int], *, when: str) -> None:
    """Judge the reference counts of blocks."""
    counts = [pool.ref_count(block) for block in blocks]
    same(counts, refs, f"the reference counts of blocks {say(list(blocks))} {when}")


def cache_refs(mode: str) -> int:
    """Return how many references the cache itself has to a block in it: radix holds one."""
    return 1 if mode == RADIX else 0


def same_at_rest(
    pool: KvPool, manager: BlockManager, mode: str, cached: int, *, when: str
) -> None:
    """Judge that no request holds anything: ``cached`` blocks belong to the cache, and each of
    them only once; the rest is free. ``mode`` is the mode that the manager was given."""
    same(manager.cached_blocks, cached, f"cached_blocks {when}")
    same_room(pool, pool.config.n_blocks - cached, when=when)
    own = cache_refs(mode)
    used, idle = (cached, 0) if own else (0, cached)
    stats = pool.stats()
    same([stats.used, stats.cached], [used, idle], f"used and cached blocks of the pool {when}")
    refs = sorted(pool.ref_count(block) for block in range(pool.config.n_blocks))
    same(refs, [0] * (len(refs) - used) + [1] * used, f"all reference counts, sorted, {when}")


class Picture(NamedTuple):
    """What anyone can see of a manager and its pool: what a refused call must leave alone."""

    pool: list[int]
    refs: list[int]
    stats: list[int]
    tables: list[list[int]]


def look(pool: KvPool, manager: BlockManager, ids: Sequence[str]) -> Picture:
    """Return what the pool and the manager say now."""
    counts, stats = pool.stats(), manager.stats()
    return Picture(
        [counts.free, counts.used, counts.cached],
        [pool.ref_count(block) for block in range(pool.config.n_blocks)],
        [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.evictions],
        [manager.block_table(id) for id in ids],
    )


@contextmanager
def unchanged(pool: KvPool, manager: BlockManager, when: str, *ids: str) -> Iterator[None]:
    """Judge that what happens inside leaves everything as it was: counts, statistics, and the
    tables of the live requests ``ids``. Ages are not looked at."""
    before = look(pool, manager, ids)
    yield
    after = look(pool, manager, ids)
    same(after.pool, before.pool, f"free, used and cached blocks {when}")
    same(after.refs, before.refs, f"the reference counts of all blocks {when}")
    same(after.stats, before.stats, f"lookups, query, hit tokens and evictions {when}")
    for id, got, want in zip(ids, after.tables, before.tables, strict=True):
        same(got, want, f"block_table({id!r}) {when}")
