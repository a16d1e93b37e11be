"""Stores as the contract has them: an exact one, and one over a second store that fails."""

from contextlib import suppress
from typing import Any

from grader.assertions import demand, note, same
from grader.assertions.wording import say
from tests.kv_tier.samples import Shelf
from tinyllm.kv_tier import MemoryStore

KEYS = (0, 1, 1 + 2**32, 7, 2**53, 2**53 + 1, 2**63, 2**64 - 1)
"""Names that clash where they are cut to 32 bits, to a double, or to a signed number."""


class StoreModel:
    """Values under names, the least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.values = capacity, dict[int, bytes]()

    @property
    def used(self) -> int:
        return sum(map(len, self.values.values()))

    def put(self, name: int, value: bytes) -> list[int]:
        """Keep a value if it fits at all; return the names that leave for it."""
        self.values.pop(name, None)
        if len(value) > self.capacity:
            return []
        left = self.shrink(self.capacity - len(value))
        self.values[name] = value
        return left

    def get(self, name: int) -> bytes | None:
        if (value := self.values.pop(name, None)) is not None:
            self.values[name] = value
        return value

    def shrink(self, most: int) -> list[int]:
        left = []
        while self.used > most:
            left.append(name := next(iter(self.values)))
            del self.values[name]
        return left

    def agrees(self, store: Any, when: str) -> None:
        same(list(store.names()), list(self.values), f"the names that are held, {when}, the next "
             "to leave first")
        same(store.used_bytes, self.used, f"the bytes in use, {when}")


def value_of(turn: int, size: int) -> bytes:
    """Return a value that no other turn has."""
    return bytes([turn % 251, turn // 251]) * (size // 2) + bytes(size % 2)


class TwoTiers:
    """A `MemoryStore` over another store that may fail or be small. The values above are exact;
    each value below is the latest of its name, or lost if something has failed or had no room."""

    def __init__(self, capacity: int, entries: int | None) -> None:
        self.below = Shelf(entries)
        self.store = MemoryStore(capacity, self.below)
        self.above = StoreModel(capacity)
        self.latest: dict[int, bytes] = {}
        self.unsure: set[int] = set()  # names whose latest value may be lost

    @property
    def fails(self) -> bool:
        return self.below.broken or self.below.read_only

    def fail(self, broken: bool, read_only: bool) -> None:
        self.below.broken, self.below.read_only = broken, read_only
        note("the store below fails" if broken else
             "the store below can only be read" if read_only else "the store below works")

    def put(self, name: int, value: bytes) -> None:
        left = self.above.put(name, value)
        if len(value) > self.above.capacity:
            left.append(name)
        self.latest[name] = value
        self.unsure.discard(name)
        buffer = bytearray(value)
        self._call(lambda: self.store.put(name, buffer))  # type: ignore[arg-type]
        buffer[:] = bytes(len(buffer))
        self._left(left)

    def discard(self, name: int) -> None:
        self.above.values.pop(name, None)
        self.latest.pop(name, None)
        self._call(lambda: self.store.discard(name))

    def get(self, name: int) -> None:
        held = self.above.get(name)
        if held is None and self.below.broken:
            with suppress(OSError):
                same(self.store.get(name), None, f"the value of {name}, which is not above, while "
                     "the store below fails")
            return
        want, got = self.latest.get(name), self.store.get(name)
        demand(got is None or isinstance(got, bytes | bytearray | memoryview),
               f"the value of {name}", "bytes, or None", say(got))
        if got is None and name in self.unsure and held is None:
            self.latest.pop(name, None)
            return
        same(say(got), say(want), f"the value of {name}: the latest that was put, or nothing if "
             "it was discarded")
        if held is None and want is not None and len(want) <= self.above.capacity:
            self._left(self.above.put(name, want))

    def agrees(self) -> None:
        self.above.agrees(self.store, "above")

    def _left(self, names: list[int]) -> None:
        """Some values went down: in order, if all works."""
        if self.fails or self.below.entries is not None:
            self.unsure.update(names)
        elif names:
            same(list(self.below.values)[-len(names) :], names, "the names that went down last, in "
                 "the order of eviction")

    def _call(self, call: Any) -> None:
        """Make a call that may raise ``OSError`` while the store below fails."""
        with suppress(*([OSError] if self.fails else [])):
            call()
