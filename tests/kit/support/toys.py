"""A toy module with a toy suite, to try the worker on one behaviour at a time."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader import ROOT
from grader.sandbox.api import Outcome, Run, WorkerPool
from grader.sandbox.limits import MIB, Limits

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="only /proc shows these processes and descriptors")
needs_subreaper = pytest.mark.skipif(
    sys.platform != "linux", reason="a process that leaves its group is found only by Linux's "
    "prctl(PR_SET_CHILD_SUBREAPER)")

SUITE = '''
from tinyllm.toy import act, good

def test_first():
    assert good() == 1

def test_second():
    act()

def test_third():
    assert good() == 1
'''

FAST = Limits(seconds=2.0, import_seconds=3.0, memory=128 * MIB)


def job(folder: Path, source: str | bytes, suite: str = SUITE) -> dict[str, Any]:
    """Return a job that judges ``source`` as `tinyllm.toy` by ``suite``."""
    folder.mkdir(parents=True, exist_ok=True)
    module, tests = folder / "toy.py", folder / "test_toy.py"
    module.write_bytes(source.encode() if isinstance(source, str) else source)
    tests.write_text(suite, encoding="utf-8")
    names = [line.split("(")[0].removeprefix("def test_")
             for line in suite.splitlines() if line.startswith("def test_")]
    return {
        "root": str(ROOT), "files": {"toy": str(module)}, "own": ["toy"], "modules": ["toy"],
        "tests": names, "suite": [str(tests)], "where": {}, "seed": 0, "view": None,
        "watch": {"toy": {"names": ["good", "act"], "queries": []}},
        "tests_room": str(ROOT / "tests"), "signals": False,
    }


def run(workers: WorkerPool, folder: Path, source: str | bytes, suite: str = SUITE,
        limits: Limits = FAST) -> Outcome:
    """Judge ``source`` and return what came of it."""
    return Run(workers, job(folder, source, suite), limits).go()


def act(body: str) -> str:
    """Return a toy whose `act` has this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def good():\n    return 1\n\ndef act():\n{lines}\n"


def processes(scratch: str) -> list[str]:
    """Return the command lines of processes that live below a scratch folder (Linux)."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str((folder / "cwd").readlink()).startswith(scratch):
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until something has happened, a minute at most."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_gone(scratch: str) -> None:
    """Wait until nothing that a worker started is running, and its folder is gone."""
    wait_for(lambda: not processes(scratch) and not Path(scratch).exists())
