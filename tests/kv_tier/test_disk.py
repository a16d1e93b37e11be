"""The store on disk: what is left of it after a restart, damage, and a full disk."""

import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from grader.assertions import demand, new_example, note, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.kv_tier.elsewhere import Elsewhere
from tests.kv_tier.samples import ROOMY, folder, no_file_beyond, opened
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import DiskStore


def test_a_store_on_disk_outlives_its_owner() -> None:
    """A store that is opened again has its values, their ages and its count of bytes.

    Why: a server that restarts begins with a warm cache.
    """
    with folder() as path:
        store = DiskStore(path / "new" / "folder", 30)
        for name in (1, 2, 3):
            store.put(name, bytes([name]) * 10)
        store.get(1)
        store.close()
        again = DiskStore(path / "new" / "folder", 30)
        same(list(again.names()), [2, 3, 1], "the names after a restart, oldest first")
        same(again.used_bytes, 30, "the bytes in use after a restart")
        again.put(4, bytes(10))
        same(list(again.names()), [3, 1, 4], "the names after one more value")
        same_bytes(again.get(3), bytes([3]) * 10, "the value of 3")
        again.close()


def test_a_smaller_capacity_holds_from_the_start() -> None:
    """A store that is opened with less room than it has values gives the oldest up at once.

    Why: the administrator who gives a store less room needs the rest of the disk now, not at
    the next put.
    """
    with folder() as path:
        store = DiskStore(path, 30)
        for name in (1, 2, 3):
            store.put(name, bytes(10))
        store.close()
        again = DiskStore(path, 25)
        same(list(again.names()), [2, 3], "the names in a store of 25 bytes")
        same(again.used_bytes, 20, "the bytes in use")
        again.close()


def test_a_smaller_capacity_evicts_by_recency_and_not_by_size() -> None:
    """A store that is opened with less room evicts its least recently used values until the rest
    fits, large or small, and no more of them.

    Why: the largest values are the longest prompts. Recency says which are worth their room.
    """
    with folder() as path:
        store = DiskStore(path, 30)
        for name, size in ((1, 2), (2, 3), (3, 12), (4, 13)):
            store.put(name, bytes([name]) * size)
        store.get(1)
        store.close()
        again = DiskStore(path, 27)
        same(list(again.names()), [3, 4, 1], "the names in a store of 27 bytes, after values of 2, "
             "3, 12 and 13 bytes and an access to the first")
        again.close()
        again = DiskStore(path, 14)
        same(list(again.names()), [1], "the names in a store of 14 bytes")
        same(again.used_bytes, 2, "the bytes in use")
        again.close()


def test_what_has_gone_stays_away() -> None:
    """What was discarded, or replaced by a value that is too large, is not there after a restart.

    Why: a damaged entry that comes back with each start is refused each day anew.
    """
    with folder() as path:
        store = DiskStore(path, 30)
        for name in (1, 2, 3):
            store.put(name, bytes([name]) * 10)
        store.put(2, bytes(31))
        store.discard(1)
        store.close()
        again = DiskStore(path, 30)
        same(list(again.names()), [3], "the names after a restart: 1 was discarded, 2 replaced by "
             "a value larger than the store")
        same(again.used_bytes, 10, "the bytes in use after a restart")
        same(again.get(1), None, "the value of 1")
        same(again.get(2), None, "the value of 2")
        again.close()


def test_a_damaged_folder_opens() -> None:
    """However its files are cut, garbled or deleted while it is closed, a store opens, answers, and
    takes new values.

    Why: all that is in it can be computed again. A server that does not start because its cache is
    broken is worse than one that starts with an empty cache.
    """
    with folder() as path:
        template = path / "template"
        store = DiskStore(template, ROOMY)
        for name in range(1, 20):
            store.put(name, bytes([name]) * 700)
        store.close()
        files = sorted(f.relative_to(template) for f in template.rglob("*") if f.is_file())
        for number, (file, damage) in enumerate((f, d) for f in files for d in _DAMAGES):
            new_example()
            place = path / str(number)
            shutil.copytree(template, place)
            damaged = _DAMAGES[damage](bytearray((place / file).read_bytes()))
            if damaged is None:
                (place / file).unlink()
            else:
                (place / file).write_bytes(damaged)
            note(f"{file}: {damage}")
            store = opened(place, f"{file}: {damage}")
            for name in range(1, 20):
                demand(isinstance(got := store.get(name), bytes | None),
                       f"the value of {name} after this damage to {file}: {damage}",
                       "bytes, or None", say(got))
            store.put(99, b"new")
            same_bytes(store.get(99), b"new", "a value put after the damage")
            store.close()
            store = opened(place, f"{file}: {damage}; a second time")
            same_bytes(store.get(99), b"new", "that value after one more restart")
            store.close()
            shutil.rmtree(place)


_DAMAGES: dict[str, Any] = {
    "deleted": lambda data: None,
    "emptied": lambda data: b"",
    "cut to 10 bytes": lambda data: data[:10],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "its front overwritten": lambda data: b"garbage!" * 12 + data[96:],
    "zeros in the middle": lambda data: _zeroed(data),
    "every 97th byte changed": lambda data: bytes(
        byte ^ (0xA5 if at % 97 == 50 else 0) for at, byte in enumerate(data)),
    "each space from byte 100 on overwritten": lambda data: (
        data[:100] + data[100:].replace(b" ", b"\xff")),
    "every 13th byte from byte 100 on overwritten": lambda data: bytes(
        0xFF if at >= 100 and at % 13 == 6 else byte for at, byte in enumerate(data)),
    "its byte 18 changed": lambda data: data[:18] + b"\xff" + data[19:],
    "all of it noise": lambda data: bytes((at * at * 31 + 7) % 251 for at in range(len(data))),
}


def test_files_are_bounded_too() -> None:
    """Many times its capacity put through a store leaves files of a few times its capacity; so
    does a smaller capacity than before.

    Why: values that are deleted and whose bytes stay in the file fill the disk all the same.
    """
    with folder() as path:
        store = DiskStore(path, 200_000)
        for name in range(100):
            store.put(name, bytes([name]) * 20_000)
        store.close()
        _bounded(path, 600_000, "after ten times the capacity of 200,000")
        DiskStore(path, 50_000).close()
        _bounded(path, 150_000, "after a restart with a capacity of 50,000")


def _wait(folder: str) -> str:
    """Hold a folder for as long as the process lives."""
    _OWNED.append(store := DiskStore(folder, ROOMY))
    store.put(2, b"two")
    return "waiting"


_OWNED: list[DiskStore] = []


def test_a_folder_has_one_owner() -> None:
    """A folder that a store has open is refused to a second one, here or in another process, and
    free again after close, and when its owner was killed.

    Why: two owners count bytes and ages past each other.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.put(1, b"one")
        refuses(InvalidArgumentError, "a second store in the same folder",
                lambda: DiskStore(path, ROOMY))
        same_bytes(store.get(1), b"one", "the value, after somebody was refused")
        store.close()
        with Elsewhere(_wait, str(path)) as owner:
            same(owner.answer("a store in the folder that was closed, in another process"),
                 "waiting", "what the other process does, with the store open")
            refuses(InvalidArgumentError, "a store in the folder that another process has open",
                    lambda: DiskStore(path, ROOMY))
            note("the other process is killed")
            owner.kill()
        again = DiskStore(path, ROOMY)
        same_bytes(again.get(1), b"one", "the first value, to the next owner")
        same_bytes(again.get(2), b"two", "the value of the owner that was killed")
        again.close()


def test_a_full_disk_costs_no_contents() -> None:
    """Where the system has no room for a value, put raises OSError; what was there is there still,
    what would have been evicted or replaced too, and when there is room again the store goes on.

    Why: a disk is full for a moment, now and then. That is no damage. And a store that makes room
    before it writes loses its contents, one after the other, to values that never come.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.put(1, bytes(50_000))
        with no_file_beyond(300_000):
            refuses(OSError, "put of a value for which the disk has no room",
                    lambda: store.put(2, bytes(600_000)))
        same(list(store.names()), [1], "the names that are held")
        same(store.used_bytes, 50_000, "the bytes in use")
        store.put(2, b"later")
        store.close()
        again = DiskStore(path, ROOMY)
        same_bytes(again.get(1), bytes(50_000), "the value that was there before")
        same_bytes(again.get(2), b"later", "the value put when there was room again")
        again.close()
    new_example()
    with folder() as path:
        store = DiskStore(path, 50_000)
        for name in range(5):
            store.put(name, bytes([name]) * 10_000)
        with no_file_beyond(3_000):
            for name, which in ((9, "a new name"), (2, "a name that is there")):
                refuses(OSError, f"put under {which}, in a store that is full, on a disk that is "
                        "full", partial(store.put, name, bytes(20_000)))
        same(list(store.names()), [*range(5)], "the names that are held")
        same(store.used_bytes, 50_000, "the bytes in use")
        for name in range(5):
            same_bytes(store.get(name), bytes([name]) * 10_000, f"the value of {name}")
        store.close()


def test_what_a_failed_put_left_goes_at_the_next_opening() -> None:
    """However often put found no room, the files of a store that is opened again stay within a few
    times its capacity.

    Why: half a file for each value that failed is what fills the disk that was nearly full.
    """
    with folder() as path:
        store = DiskStore(path, 50_000)
        store.put(1, bytes(5_000))
        with no_file_beyond(3_000):
            for name in range(2, 102):
                refuses(OSError, "put of a value for which the disk has no room",
                        partial(store.put, name, random.Random(name).randbytes(40_000)))
        store.close()
        again = DiskStore(path, 50_000)
        same_bytes(again.get(1), bytes(5_000), "the value that was there before")
        again.close()
        _bounded(path, 150_000, "after 100 puts that failed, and another opening")


def test_a_file_is_no_folder() -> None:
    """A path that leads to a file, or through one, is refused, and the file is left alone.

    Why: a wrong path in the settings must be noticed at the start, and must not cost the file.
    """
    with folder() as path:
        (path / "file").write_bytes(b"mine")
        for wrong in (path / "file", path / "file" / "below"):
            refuses(InvalidArgumentError, f"a store in {wrong.name}",
                    partial(DiskStore, wrong, ROOMY))
        same_bytes((path / "file").read_bytes(), b"mine", "the file that was in the way")


def test_a_closed_store_is_refused() -> None:
    """A store that was closed takes and gives nothing; closing it again is fine.

    Why: a write after close would reach a folder that another process may own by then.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.close()
        store.close()
        refuses(InvalidArgumentError, "put into a closed store", lambda: store.put(1, b"x"))
        refuses(InvalidArgumentError, "get from a closed store", lambda: store.get(1))


def _bounded(path: Path, most: int, when: str) -> None:
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    demand(size <= most, f"the bytes of all files, {when}", f"at most {most}", say(size))


def _zeroed(data: bytearray) -> bytearray:
    third = len(data) // 3
    data[third : 2 * third] = bytes(third)
    return data
