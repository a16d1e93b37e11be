"""What counts against a test's time: its own processor time, and not how busy the machine is."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.sandbox import processors
from grader.sandbox.allowance import Allowance
from grader.sandbox.api import Run, WorkerPool
from grader.sandbox.processes import Process
from grader.sandbox.worker_pool import Turns
from tests.kit.support.toys import FAST, SUITE, act, job, needs_proc, run


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as one:
        yield one


LEAVES_OUT = SUITE.replace("    act()\n", "    act()\n    left_out('no room')\n").replace(
    "from tinyllm", "from grader.assertions import left_out\nfrom tinyllm", 1)
PINNED = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("grader.sandbox.allowance.time.monotonic", lambda: self.now)

    def look(self, given: Allowance, passed: float, *processes: Process) -> None:
        self.now += passed
        given.charge(processes)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def busy(cpu: float, runnable: bool = True) -> Process:
    return Process(1 << 20, cpu, runnable)


def test_a_process_without_a_processor_is_not_charged(clock: Clock) -> None:
    """At a load of ten it gets a tenth: five seconds of its own take fifty."""
    given = Allowance(5.0, base=1.0)
    for look in range(1, 51):
        assert not given.over, look
        clock.look(given, 1.0, busy(1.0 + look / 10))
    assert given.over
    assert not given.certain
    assert given.spent == 5.0


def test_a_busy_loop_is_charged_all_its_time(clock: Clock) -> None:
    given = Allowance(2.0, base=0.0)
    for look in range(1, 17):
        clock.look(given, 0.125, busy(look / 8))
    assert given.over
    assert given.certain


def test_waiting_is_charged_while_no_process_wants_a_processor(clock: Clock) -> None:
    given = Allowance(2.0, base=0.5)
    for _ in range(16):
        clock.look(given, 0.125, busy(0.5, runnable=False))
    assert given.over
    assert given.certain


def test_a_late_look_does_not_charge_a_long_wait(clock: Clock) -> None:
    """The grader itself may have had no processor."""
    given = Allowance(2.0, base=0.5)
    clock.look(given, 30.0, busy(0.5, runnable=False))
    assert given.used == pytest.approx(0.2)


def test_many_processors_are_charged_as_one(clock: Clock) -> None:
    given = Allowance(5.0, base=0.0)
    clock.look(given, 1.0, *[busy(1.0)] * 8)
    assert given.used == 1.0


def test_a_child_that_was_not_waited_for_is_charged_once(clock: Clock) -> None:
    given = Allowance(5.0, base=0.0)
    clock.look(given, 1.0, busy(0.0, runnable=False), busy(1.0))
    clock.look(given, 0.1, busy(0.0))  # a zombie is not listed
    clock.look(given, 1.0, busy(1.0))
    assert given.used == 1.0


def test_a_process_that_never_gets_a_processor_has_an_end(clock: Clock) -> None:
    given = Allowance(5.0, base=0.0)
    for _ in range(599):
        clock.look(given, 0.1, busy(0.0))
    assert not given.over
    clock.look(given, 0.2, busy(0.0))
    assert given.over
    assert given.spent == 60.0
    assert not given.certain


def test_where_no_process_can_be_seen_all_time_counts(clock: Clock) -> None:
    given = Allowance(2.0)
    clock.look(given, 2.0)
    assert given.over


@needs_proc
def test_a_test_that_shares_its_processor_passes(workers: WorkerPool, tmp_path: Path) -> None:
    """It needs 0.6 of its 2 seconds, and shares one processor with nine others."""
    source = act(f"import os, time\n{PINNED}\nstart = time.process_time()\n"
                 "while time.process_time() - start < 0.6: pass\n"
                 "assert time.monotonic() - begun > 2, 'nothing else ran'").replace(
                     "import os, time", "import os, time\n    begun = time.monotonic()")
    crowd = [subprocess.Popen([sys.executable, "-c", f"import os\n{PINNED}\nwhile True: pass"],
                              start_new_session=True)  # else Linux may share by session
             for _ in range(9)]
    try:
        failure = run(workers, tmp_path, source).results["second"]["failure"]
    finally:
        for process in crowd:
            process.kill()
            process.wait()
    assert failure is None


def test_a_hang_that_may_be_the_machines_is_tried_again_alone(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try hangs, as if a machine had been busy; the second passes, and counts."""
    monkeypatch.setattr(Allowance, "certain", property(lambda self: False))
    mark = tmp_path / "mark"
    plan = job(tmp_path, act(f"import os, time\nif not os.path.exists({str(mark)!r}): "
                             "time.sleep(1000)"), LEAVES_OUT)
    alone = []
    whole = WorkerPool.worker

    def worker(self: WorkerPool, *args: Any, **kwargs: Any) -> Any:
        alone.append(kwargs["alone"])
        if len(alone) == 2:
            mark.touch()
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(WorkerPool, "worker", worker)
    outcome = Run(workers, plan, FAST).go()
    assert [r["failure"] for r in outcome.results.values()] == [None, None, None]
    assert alone[:2] == [False, True]
    assert outcome.left_out == ["no room"]


def test_a_hang_that_is_tried_again_and_hangs_counts_once(
    workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Allowance, "certain", property(lambda self: False))
    told: list[str] = []
    outcome = Run(workers, job(tmp_path, act("while True: pass")), FAST, told.append).go()
    assert outcome.results["second"]["failure"]["cause"] == "time"
    assert outcome.results["third"]["failure"] is None
    assert told == ["first", "second", "third"]


# ---- turns ---------------------------------------------------------------------------------------


def test_a_worker_that_must_be_alone_is_alone() -> None:
    turns, living, worst = Turns(), [0], [0]
    lock, begun = threading.Lock(), threading.Barrier(7)

    def one(alone: bool) -> None:
        begun.wait(timeout=60)
        for _ in range(200):
            with turns.take(alone):
                with lock:
                    living[0] += 1
                    if alone:
                        worst[0] = max(worst[0], living[0])
                with lock:
                    living[0] -= 1

    threads = [threading.Thread(target=one, args=(n < 2,), daemon=True) for n in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert worst[0] == 1


def test_a_thread_that_waits_for_its_turn_is_let_go_at_the_end() -> None:
    turns = Turns()
    with turns.take(alone=True):
        waiting = [threading.Thread(target=lambda a=a: turns.take(a).__enter__(), daemon=True)
                   for a in (True, False)]
        for thread in waiting:
            thread.start()
        turns.close()
        for thread in waiting:
            thread.join(timeout=60)
            assert not thread.is_alive()


# ---- how many processors there are ---------------------------------------------------------------

QUOTAS = {
    "none": ({"self/cgroup": "0::/\n"}, {}, 8),
    "version 2": ({"self/cgroup": "0::/a/b\n"}, {"a/b/cpu.max": "150000 100000\n"}, 2),
    "version 2, of a group above": ({"self/cgroup": "0::/a/b\n"}, {
        "a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
    "version 2, in a container": ({"self/cgroup": "0::/host/only\n"}, {
        "cpu.max": "50000 100000\n"}, 1),
    "version 1": ({"self/cgroup": "3:cpu,cpuacct:/x\n0::/\n"}, {
        "cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n",
        "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n"}, 4),
    "version 1, without a limit": ({"self/cgroup": "3:cpu:/\n"}, {
        "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    "more than the affinity": ({"self/cgroup": "0::/\n"}, {"cpu.max": "1600000 100000\n"}, 8),
    "nonsense": ({"self/cgroup": "0::/\n"}, {"cpu.max": "many\n"}, 8),
    "no /proc": ({}, {}, 8),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_a_quota_bounds_the_processors(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proc, groups, expected = QUOTAS[name]
    for folder, files in (("proc", proc), ("groups", groups)):
        for file, text in files.items():
            path = tmp_path / folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.setattr(processors, "PROC", tmp_path / "proc")
    monkeypatch.setattr(processors, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(processors, "_affinity", lambda: 8)
    assert processors.processors() == expected


def test_the_affinity_bounds_the_processors() -> None:
    code = ("import os\nfrom grader.sandbox.processors import processors\n"
            "if hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, "
            "{min(os.sched_getaffinity(0))})\n"
            "else: os.cpu_count = lambda: 1\nprint(processors())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(processors.__file__).parents[2])
    assert done.stdout == "1\n"
