"""Random calls, against models that know the contract alone."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging import demand, new_example, same
from tests.judging.words import say
from tests.kv_tier.samples import SIZE, Shelf, folder, found, new_pool, taken, values
from tinyllm.kv_tier import DiskStore, MemoryStore, TieredCache

_CALLS = st.lists(st.tuples(st.sampled_from(("put", "put", "get", "discard")),
                            st.integers(0, 7), st.integers(0, 40)), max_size=30)


class _Model:
    """A store as the contract has it: names with values, the least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.values = capacity, dict[int, bytes]()

    def call(self, what: str, name: int, size: int) -> bytes | None:
        value = self.values.pop(name, None)
        if what == "put" and size <= self.capacity:
            while sum(map(len, self.values.values())) + size > self.capacity:
                del self.values[next(iter(self.values))]
            self.values[name] = bytes([name]) * size
        elif what == "get" and value is not None:
            self.values[name] = value
        return value


def _agrees(store: Any, calls: list[tuple[str, int, int]]) -> None:
    model = _Model(64)
    for what, name, size in calls:
        if what == "get":
            same(say(store.get(name)), say(model.call(what, name, size)), f"the value of {name}")
        else:
            model.call(what, name, size)
            store.put(name, bytes([name]) * size) if what == "put" else store.discard(name)
        same(list(store.names()), list(model.values), "the names that are held, oldest first")
        same(store.used_bytes, sum(map(len, model.values.values())), "the bytes in use")


def test_any_calls_in_memory() -> None:
    """Whatever is put, got and discarded, a store in memory of 64 bytes holds what it should."""

    @settings(max_examples=40)
    @given(_CALLS)
    def check(calls: list[tuple[str, int, int]]) -> None:
        new_example()
        _agrees(MemoryStore(64), calls)

    check()


def test_any_calls_on_disk() -> None:
    """Whatever is put, got and discarded, a store on disk of 64 bytes holds what it should."""

    @settings(max_examples=8)
    @given(_CALLS)
    def check(calls: list[tuple[str, int, int]]) -> None:
        new_example()
        with folder() as path:
            store = DiskStore(path, 64)
            _agrees(store, calls)
            store.close()

    check()


_TEXTS = [[*([1] * SIZE), *([2] * SIZE), *([n] * SIZE), *([n + 1] * SIZE)][:length]
          for n in (3, 4, 5) for length in (SIZE, 2 * SIZE, 3 * SIZE + 1, 4 * SIZE)]
_ACTS = st.lists(st.tuples(st.sampled_from(("serve", "serve", "hold", "give back", "lose")),
                           st.integers(0, len(_TEXTS) - 1)), max_size=25)


def test_any_traffic_finds_its_own() -> None:
    """Whatever texts come and go, through a pool of 5 blocks and a store that loses entries, what
    is found has the K and V of its own text, and no block is lost."""

    @settings(max_examples=40)
    @given(_ACTS)
    def check(acts: list[tuple[str, int]]) -> None:
        new_example()
        pool, store = new_pool(5, n_layers=1), Shelf()
        cache = TieredCache(pool, store)
        held: list[list[int]] = []
        for what, number in acts:
            tokens = _TEXTS[number]
            if what == "lose" and store.values:
                del store.values[sorted(store.values)[number % len(store.values)]]
            elif what == "give back" and held:
                cache.give_back(held.pop())
            elif what in ("serve", "hold"):
                _serve(cache, pool, tokens, held if what == "hold" else None)
            stats = pool.stats()
            same(stats.free + stats.used + stats.cached, 5, "all blocks of the pool")
            same(stats.used, len({id for ids in held for id in ids}), "blocks in use")

    check()


def _serve(cache: TieredCache, pool: Any, tokens: list[int], held: list[list[int]] | None) -> None:
    before = cache.find(tokens)
    ids = found(cache, pool, tokens, len(before), "a text found twice in a row")
    cache.give_back(before)
    missing = -(-len(tokens) // SIZE) - len(ids)
    stats = pool.stats()
    if missing > stats.free + stats.cached:
        cache.give_back(ids)
        return
    new = taken(cache, missing)
    demand(not set(ids) & set(new), "blocks that are found and new ones", "different blocks",
           say([ids, new]))
    for at, id in enumerate(new, len(ids)):
        for side in (0, 1):
            pool.block(id, 0, side)[...] = values(tokens, at, 0, side)
    if held is None:
        cache.keep(tokens, ids + new)
    else:
        held.append(ids + new)
