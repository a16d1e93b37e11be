"""The store on disk: what is left of it after a restart, a kill, and damage."""

import os
import resource
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.judging import Wrong, demand, new_example, note, refuses, same, same_bytes
from tests.judging.words import say
from tests.kv_tier.samples import ROOMY, folder, in_a_child
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import DiskStore

_POINTS = 30  # at which a put is killed
_OLD = {1: b"a" * 3000, 2: b"b" * 3000}
_NEW = b"c" * 3000


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
    """A store that is opened with less room than it has values gives the oldest up at once."""
    with folder() as path:
        store = DiskStore(path, 30)
        for name in (1, 2, 3):
            store.put(name, bytes(10))
        store.close()
        again = DiskStore(path, 25)
        same(list(again.names()), [2, 3], "the names in a store of 25 bytes")
        same(again.used_bytes, 20, "the bytes in use")
        again.close()


def test_what_was_put_survives_a_kill() -> None:
    """A process that is killed right after put has lost nothing that put had returned from.

    Why: nobody closes the store of a server that dies.
    """
    with folder() as path:
        _stored(path / "first").close()  # what does not work at all is not for a child to find out
        new_example()

        def put_and_die() -> None:
            _stored(path / "second")
            os.kill(os.getpid(), signal.SIGKILL)

        note("put two values in another process, and kill it")
        _killed(in_a_child(put_and_die))
        _whole(path / "second", _OLD, {}, "after a kill")


def test_killed_at_any_point_a_put_is_whole_or_absent() -> None:
    """Wherever in put the process is killed, the store opens again, every name that it holds has
    its whole value, and no value is gone but for what put was about to evict.

    Why: a name that stands there without its value, or with half of it, is a hit on nothing. A
    server that is killed must not need an operator to start again.
    """
    with folder() as path:
        template, live = path / "template", path / "live"
        _stored(template).close()

        def put(point: int, report: Path | None = None) -> None:
            store = DiskStore(live, 7000)
            passed = 0

            def count(*_: Any) -> None:
                nonlocal passed
                if passed == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                passed += 1

            sys.setprofile(count)
            try:
                store.put(3, _NEW)
            finally:
                sys.setprofile(None)
            if report:
                report.write_text(str(passed))

        shutil.copytree(template, live)
        note("put a third value, for which the first must go")
        same(in_a_child(lambda: put(-1, path / "points")), 0, "how a put in a child ends")
        calls = int((path / "points").read_text())
        for point in sorted({at * calls // _POINTS for at in range(_POINTS)}):
            new_example()
            shutil.rmtree(live)
            shutil.copytree(template, live)
            note(f"put a third value; killed at call {point} of {calls} that put makes")
            _killed(in_a_child(partial(put, point)))
            _whole(live, {2: _OLD[2]}, {1: _OLD[1], 3: _NEW}, "after a kill in the middle of put")


def test_a_damaged_folder_opens() -> None:
    """However its files are cut or garbled, a store opens, answers, and takes new values.

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
            data = bytearray((place / file).read_bytes())
            (place / file).write_bytes(_DAMAGES[damage](data))
            note(f"{file}: {damage}")
            store = _opened(place, f"{file}: {damage}")
            for name in range(1, 20):
                demand(isinstance(got := store.get(name), bytes | None),
                       f"the value of {name} after this damage to {file}: {damage}",
                       "bytes, or None", say(got))
            store.put(99, b"new")
            same_bytes(store.get(99), b"new", "a value put after the damage")
            store.close()
            store = _opened(place, f"{file}: {damage}; a second time")
            same_bytes(store.get(99), b"new", "that value after one more restart")
            store.close()
            shutil.rmtree(place)


_DAMAGES: dict[str, Any] = {
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


def test_a_folder_has_one_owner() -> None:
    """A folder that a store has open is refused to a second one, and free again after close.

    Why: two owners count bytes and ages past each other.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.put(1, b"one")
        refuses(InvalidArgumentError, "a second store in the same folder",
                lambda: DiskStore(path, ROOMY))
        same_bytes(store.get(1), b"one", "the value, after somebody was refused")
        store.close()
        again = DiskStore(path, ROOMY)
        same_bytes(again.get(1), b"one", "the value, to the next owner")
        again.close()


def test_a_full_disk_costs_no_contents() -> None:
    """Where the system has no room for a value, put raises OSError; what was there is there still,
    and when there is room again the store goes on.

    Why: a disk is full for a moment, now and then. That is no damage.
    """
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.put(1, bytes(50_000))
        least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        note("no file may grow beyond 300,000 bytes")
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
        try:
            refuses(OSError, "put of a value for which the disk has no room",
                    lambda: store.put(2, bytes(600_000)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
        note("files may grow again")
        same(list(store.names()), [1], "the names that are held")
        same(store.used_bytes, 50_000, "the bytes in use")
        store.put(2, b"later")
        store.close()
        again = DiskStore(path, ROOMY)
        same_bytes(again.get(1), bytes(50_000), "the value that was there before")
        same_bytes(again.get(2), b"later", "the value put when there was room again")
        again.close()


def test_a_file_is_no_folder() -> None:
    """A path that leads to a file, or through one, is refused, and the file is left alone."""
    with folder() as path:
        (path / "file").write_bytes(b"mine")
        for wrong in (path / "file", path / "file" / "below"):
            refuses(InvalidArgumentError, f"a store in {wrong.name}",
                    partial(DiskStore, wrong, ROOMY))
        same_bytes((path / "file").read_bytes(), b"mine", "the file that was in the way")


def test_a_closed_store_is_refused() -> None:
    """A store that was closed takes and gives nothing; closing it again is fine."""
    with folder() as path:
        store = DiskStore(path, ROOMY)
        store.close()
        store.close()
        refuses(InvalidArgumentError, "put into a closed store", lambda: store.put(1, b"x"))
        refuses(InvalidArgumentError, "get from a closed store", lambda: store.get(1))


def _bounded(path: Path, most: int, when: str) -> None:
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    demand(size <= most, f"the bytes of all files, {when}", f"at most {most}", say(size))


def _stored(path: Path) -> DiskStore:
    store = DiskStore(path, 7000)
    for name, value in _OLD.items():
        store.put(name, value)
    return store


def _zeroed(data: bytearray) -> bytearray:
    third = len(data) // 3
    data[third : 2 * third] = bytes(third)
    return data


def _opened(path: Path, what: str) -> DiskStore:
    try:
        return DiskStore(path, ROOMY)
    except NotImplementedError:
        raise
    except Exception as error:
        raise Wrong(f"a store whose file was damaged ({what}) opens", "a store",
                    f"{type(error).__name__}: {error}") from error


def _killed(status: int | None) -> None:
    same(status, -signal.SIGKILL, "how the child ends: it is killed, and not stopped by an error")


def _whole(path: Path, sure: dict[int, bytes], perhaps: dict[int, bytes], when: str) -> None:
    """Judge that a store, opened again, has all of ``sure`` and maybe some of ``perhaps``."""
    store = _opened(path, when)
    names = [int(name) for name in store.names()]
    for name in sure:
        demand(name in names, f"{when}: the value of {name}, put long before, is still there",
               say(sorted(sure)), say(names))
    for name in names:
        value = (sure | perhaps).get(name)
        demand(value is not None, f"{when}: a name that was ever put", say(sorted(sure | perhaps)),
               say(names))
        same_bytes(store.get(name), value or b"", f"{when}: the value of {name}, which is held")
    same(store.used_bytes, sum(len((sure | perhaps)[name]) for name in names),
         f"{when}: the bytes in use")
    store.close()
