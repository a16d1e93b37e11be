"""The index of blocks without contents answers as the block manager over a real pool does."""

import sys
from random import Random

import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.block_manager import BlockManager
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import Lru
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.prefix_index import PrefixIndex

B = 2


class Pair:
    """A manager with a cache and an index, under the same requests."""

    def __init__(self, n_blocks: int, mode: str) -> None:
        self.pool = KvPool(PoolConfig(n_blocks, B, 1, 1, 1))
        self.manager = BlockManager(self.pool, mode)
        self.index = PrefixIndex(n_blocks, Lru(tail_first=True))
        self.live: dict[int, tuple[list[int], int, int]] = {}  # text, hits, blocks

    def allocate(self, id_: int, text: list[int]) -> None:
        want = -(-len(text) // B)
        names = [tuple(text[: end]) for end in range(B, len(text), B)]
        try:
            allocation = self.manager.allocate(id_, text)
        except PoolFullError:
            with pytest.raises(PoolFullError):
                self.index.hold(names, want)
            # The manager's refused prompt counts as a use of its hits, which is up to it.
            found = self.index.found(names)
            self.index.hold(names[:found], found)
            self.index.release(names[:found], found, found)
            return
        hits = self.index.hold(names, want)
        assert hits * B == allocation.cached_tokens
        self.live[id_] = (text, hits, want)

    def append(self, id_: int, token: int) -> None:
        text, hits, blocks = self.live[id_]
        if len(text) == blocks * B:
            try:
                self.manager.append_slot(id_)
            except PoolFullError:
                with pytest.raises(PoolFullError):
                    self.index.take(1)
                return
            self.index.take(1)
            blocks += 1
        else:
            self.manager.append_slot(id_)
        self.live[id_] = ([*text, token], hits, blocks)

    def release(self, id_: int, computed: int) -> None:
        text, hits, blocks = self.live.pop(id_)
        computed = max(computed, hits * B)
        self.manager.release(id_, text[:computed])
        names = [tuple(text[:end]) for end in range(B, computed + 1, B)]
        self.index.release(names, hits, blocks)

    def agree(self) -> None:
        room = self.index.free + self.index.cached
        assert self.index.free == self.pool.stats().free
        assert self.manager.can_allocate(room * B)
        assert not self.manager.can_allocate(room * B + 1)
        assert self.index.evictions == self.manager.stats().evictions


@pytest.mark.parametrize("mode", ["hash", "radix"])
@pytest.mark.parametrize("seed", range(12))
def test_the_index_answers_as_the_manager_does(seed: int, mode: str) -> None:
    random = Random(seed)
    pair = Pair(random.randint(4, 12), mode)
    fronts = [[random.randrange(3) for _ in range(8)] for _ in range(3)]
    for id_ in range(250):
        choice = random.random()
        if choice < 0.5 or not pair.live:
            front = random.choice(fronts)[: random.randint(0, 8)]
            pair.allocate(id_, front + [random.randrange(3) for _ in range(random.randint(1, 5))])
        elif choice < 0.8:
            pair.append(random.choice(list(pair.live)), random.randrange(3))
        else:
            which = random.choice(list(pair.live))
            pair.release(which, random.randint(0, len(pair.live[which][0])))
        pair.agree()
    for which in list(pair.live):
        pair.release(which, len(pair.live[which][0]))
    pair.agree()


def test_without_a_policy_nothing_is_cached() -> None:
    index = PrefixIndex(4)
    assert index.hold("ab", 3) == 0
    index.release("ab", 0, 3)
    assert (index.free, index.cached, index.found("ab")) == (4, 0, 0)


def test_a_refused_call_changes_nothing() -> None:
    index = PrefixIndex(4, Lru())
    index.release("ab", 0, 2 + 0 * index.hold("ab", 2))
    with pytest.raises(PoolFullError, match="5 blocks asked for, 2 of them found; 2 can be had"):
        index.hold("abcd", 5)
    with pytest.raises(PoolFullError):
        index.take(5)
    assert (index.free, index.cached, index.held, index.evictions) == (2, 2, 0, 0)
    with pytest.raises(InvalidArgumentError):
        PrefixIndex(0)
