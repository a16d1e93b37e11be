"""The store on disk, killed at any point of any call."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from grader.assertions import demand, new_example, note, same
from grader.assertions.wording import say
from tests.kv_tier.samples import folder, in_a_child, opened
from tinyllm.kv_tier import DiskStore

_POINTS = 12  # at which a call is killed; a put at three times as many
_OLD, _OTHER, _NEW = b"a" * 3000, b"b" * 3000, b"c" * 2500

Values = dict[int, tuple[bytes, ...]]
"""What may stand under each name."""


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
        _whole(path / "second", {1: (_OLD,), 2: (_OTHER,)}, {}, "after a kill")


def test_recency_survives_a_kill() -> None:
    """The order in which values would be evicted is the same after a kill: an access that `get` has
    returned from counts.

    Why: a store that writes its order when it is closed evicts what is used most after a crash.
    """
    with folder() as path:
        DiskStore(path / "first", 40).close()
        new_example()

        def use_and_die() -> None:
            store = DiskStore(path / "second", 40)
            for name in (1, 2, 3):
                store.put(name, bytes([name]) * 10)
            for name in (3, 2, 1):
                store.get(name)
            os.kill(os.getpid(), signal.SIGKILL)

        note("in another process: put 1, 2 and 3, get 3, 2 and 1; then it is killed")
        _killed(in_a_child(use_and_die))
        again = opened(path / "second", "after a kill")
        same(list(again.names()), [3, 2, 1], "the names after the kill, the next to go first")
        same(again.used_bytes, 30, "the bytes in use")
        again.close()


def test_killed_at_any_point_a_put_is_whole_or_absent() -> None:
    """Wherever in put the process is killed, the store opens again, every name that it holds has
    its whole value, and no value is gone but for what put was about to evict.

    Why: a name that stands there without its value, or with half of it, is a hit on nothing. A
    server that is killed must not need an operator to start again.
    """
    _killed_anywhere("put a third value, for which the first must go", 7000,
                     lambda store: store.put(3, _NEW),
                     sure={2: (_OTHER,)}, perhaps={1: (_OLD,), 3: (_NEW,)}, points=3 * _POINTS)


def test_killed_at_any_point_a_value_is_the_old_or_the_new() -> None:
    """Wherever a process is killed in put under a name that is there, the name has its old value or
    its new one, or is gone; and the other values are there.

    Why: a value written over the old one is, for a moment, neither.
    """
    _killed_anywhere("put a second value in place of the first", 9000,
                     lambda store: store.put(1, _NEW),
                     sure={2: (_OTHER,)}, perhaps={1: (_OLD, _NEW)})


def test_killed_at_any_point_a_look_loses_nothing() -> None:
    """Wherever in get or discard a process is killed, all is there but what was to be discarded.

    Why: a look changes no more than an age. One that moves the value may lose it.
    """
    both: Values = {1: (_OLD,), 2: (_OTHER,)}
    _killed_anywhere("look at the first value", 7000, lambda store: store.get(1), sure=both,
                     perhaps={})
    _killed_anywhere("discard the first value", 7000, lambda store: store.discard(1),
                     sure={2: (_OTHER,)}, perhaps={1: (_OLD,)})


def test_killed_at_any_point_an_opening_loses_the_oldest_only() -> None:
    """Wherever a process is killed while it opens a store with less room than before, no value is
    gone but for those that had to go.

    Why: who starts with the wrong settings, and stops that at once, should not start cold.
    """
    _killed_anywhere("open the store with room for one of its two values", 4000, lambda store: None,
                     sure={2: (_OTHER,)}, perhaps={1: (_OLD,)}, opens=True)


def _killed_anywhere(what: str, capacity: int, call: Callable[[DiskStore], Any], sure: Values,
                     perhaps: Values, opens: bool = False, points: int = _POINTS) -> None:
    """Kill a call, or the opening before it, at many points, and judge what is left."""
    with folder() as path:
        new_example()
        template, live = path / "template", path / "live"
        _stored(template).close()

        def work(point: int, report: Path | None = None) -> None:
            store = None if opens else DiskStore(live, capacity)
            passed = 0

            def count(*_: Any) -> None:
                nonlocal passed
                if passed == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                passed += 1

            sys.setprofile(count)
            try:
                call(store or DiskStore(live, capacity))
            finally:
                sys.setprofile(None)
            if report:
                report.write_text(str(passed))

        shutil.copytree(template, live)
        note(what)
        same(in_a_child(lambda: work(-1, path / "points")), 0, f"how a child ends ({what})")
        calls = int((path / "points").read_text())
        for point in sorted({at * calls // points for at in range(points)}):
            new_example()
            shutil.rmtree(live)
            shutil.copytree(template, live)
            note(f"{what}; killed at call {point} of the {calls} that it makes")
            _killed(in_a_child(partial(work, point)))
            _whole(live, sure, perhaps, f"killed at call {point} ({what})")


def _stored(path: Path) -> DiskStore:
    store = DiskStore(path, 7000)
    store.put(1, _OLD)
    store.put(2, _OTHER)
    return store


def _killed(status: int | None) -> None:
    same(status, -signal.SIGKILL, "how the child ends: it is killed, and not stopped by an error")


def _whole(path: Path, sure: Values, perhaps: Values, when: str) -> None:
    """Judge that a store, opened again, has all of ``sure`` and maybe some of ``perhaps``."""
    store = opened(path, when)
    names, used = [int(name) for name in store.names()], 0
    for name in sure:
        demand(name in names, f"{when}: the value of {name}, put long before, is still there",
               say(sorted(sure)), say(names))
    for name in names:
        values = (sure | perhaps).get(name, ())
        demand(bool(values), f"{when}: a name that was ever put", say(sorted(sure | perhaps)),
               say(names))
        got = store.get(name)
        demand(got in values, f"{when}: the value of {name}, which is held",
               " or ".join(map(say, values)), say(got))
        used += len(got or b"")
    same(store.used_bytes, used, f"{when}: the bytes in use")
    store.close()
