"""A store on disk under random calls: what it holds, and what of it is left after a crash."""

import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader.assertions import demand, note, refuses, same
from grader.assertions.wording import say
from tests.kv_tier.samples import no_file_beyond, opened
from tests.kv_tier.store_model import StoreModel
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import DiskStore


class DiskMachine:
    """A store in a folder beside its model. A crash is a copy of the folder as it is at that
    moment: that is all that a killed process leaves."""

    def __init__(self, path: Path, capacity: int) -> None:
        self.path, self.copies = path, 0
        self.model = StoreModel(capacity)
        self.store = DiskStore(self._live, capacity)

    @property
    def _live(self) -> Path:
        return self.path / "live"

    def agrees(self, when: str = "after this call") -> None:
        self.model.agrees(self.store, when)

    def put(self, name: int, value: bytes) -> None:
        self.model.put(name, value)
        self.store.put(name, value)

    def get(self, name: int) -> None:
        same(say(self.store.get(name)), say(self.model.get(name)), f"the value of {name}")

    def discard(self, name: int) -> None:
        self.model.values.pop(name, None)
        self.store.discard(name)

    def put_on_a_full_disk(self, name: int, value: bytes) -> None:
        """Put a value while no file may grow: it is kept, or nothing has changed."""
        with no_file_beyond(0):
            try:
                self.store.put(name, value)
            except OSError:
                return
        self.model.put(name, value)

    def restart(self, capacity: int) -> None:
        self.store.close()
        self.model.capacity = capacity
        self.model.shrink(capacity)
        self.store = DiskStore(self._live, capacity)

    def second_owner(self) -> None:
        refuses(InvalidArgumentError, "a second store in the same folder",
                lambda: DiskStore(self._live, self.model.capacity))

    def crash(self) -> None:
        """Judge that a store that was never closed has everything."""
        with self._copied("a crash between two calls") as (copy, _):
            self.model.agrees(copy, "after a crash")
            for name, value in self.model.values.items():
                same(say(copy.get(name)), say(value), f"the value of {name} after a crash")

    def crash_in_a_call(self, point: int, name: int, value: bytes | None) -> None:
        """Put, or get where there is no value, and judge what a crash at some point in the call
        would have left: each name that is held has its whole value, and nothing is missing but
        what the call itself was to replace or evict."""
        before = dict(self.model.values)
        place = self._place()
        with _at_call(point, lambda: shutil.copytree(self._live, place)):
            self.put(name, value) if value is not None else self.get(name)
        if not place.exists():
            return
        after = dict(self.model.values)
        try:
            store = opened(place, "after a crash in a call")
            names = [int(held) for held in store.names()]
            for held in sorted({*before, *after, *names}):
                allowed = {before.get(held), after.get(held)}
                if held == name and value is not None:
                    allowed.add(None)
                got = store.get(held)
                demand(got in allowed and (got is None) == (held not in names),
                       f"the value of {held} after a crash in put or get of {name}",
                       " or ".join(map(say, allowed)), say(got))
            store.close()
        finally:
            shutil.rmtree(place)

    def damage(self, seed: int) -> None:
        """Judge that a store whose files are damaged opens, answers and takes new values."""
        def garble(place: Path) -> None:
            files = sorted(file for file in place.rglob("*") if file.is_file())
            file = files[seed % len(files)]
            data = bytearray(file.read_bytes())
            step = (13, 61, 211)[seed % 3]
            data[seed % step :: step] = b"\xff" * len(data[seed % step :: step])
            file.write_bytes(data if seed % 4 else data[: len(data) // 2])
            note(f"{file.name} is damaged")

        with self._copied("damage to the files", garble) as (copy, place):
            for name in self.model.values:
                demand(isinstance(got := copy.get(name), bytes | None),
                       f"the value of {name} after damage", "bytes, or None", say(got))
            copy.put(99, b"new")
            same(say(copy.get(99)), say(b"new"), "a value put after the damage")
            copy.close()
            again = opened(place, "damaged, for the second time")
            same(say(again.get(99)), say(b"new"), "that value after one more restart")
            again.close()

    def close(self) -> None:
        self.store.close()

    def _place(self) -> Path:
        self.copies += 1
        return self.path / f"copy-{self.copies}"

    @contextmanager
    def _copied(self, what: str, change: Callable[[Path], None] = lambda place: None) -> Any:
        note(what)
        place = self._place()
        shutil.copytree(self._live, place)
        change(place)
        store = opened(place, what)
        try:
            yield store, place
        finally:
            store.close()
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _at_call(point: int, act: Callable[[], Any]) -> Any:
    """Call ``act`` once, when the code below has made ``point`` calls and returns."""
    passed, other = 0, sys.getprofile()

    def count(*_: Any) -> None:
        nonlocal passed
        if passed == point:
            act()
        passed += 1

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(other)
