"""Scripts in workers: what they tell arrives at once, and whatever they do ends in a sentence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.sandbox.api import Outcome, Run, WorkerPool
from grader.sandbox.limits import MIB, Limits
from tests.kit.support.toys import act, job

LIMITS = Limits(seconds=2.0, import_seconds=3.0, memory=128 * MIB, cpu=None)


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as one:
        yield one


def run_script(
    workers: WorkerPool, folder: Path, body: str
) -> tuple[list[dict[str, Any]], Outcome]:
    """Run the toy script over a toy whose `act` has this body."""
    figures: list[dict[str, Any]] = []
    plan = {**job(folder, act(body)), "tests": ["toy_script"], "watch": {},
            "script": "tests.kit.support.toy_script"}
    return figures, Run(workers, plan, LIMITS, figure=figures.append).go()


def test_what_a_script_tells_arrives_as_plain_data(workers: WorkerPool, tmp_path: Path) -> None:
    figures, outcome = run_script(workers, tmp_path, "print('hello')")
    assert figures == [{"kind": "before", "recorded": False},
                       {"kind": "after", "numbers": [1, 2.5], "word": "ünï\\x1b[31m"}]
    (result,) = outcome.results.values()
    assert result["failure"] is None
    assert result["printed"] == "hello\n"


BEHAVIOURS = {
    "an exception": ("{}[5]", "error", "raised KeyError: 5"),
    "code not written": ("raise NotImplementedError('toy: act')", "todo", "not written yet"),
    "an endless loop": ("while True: pass", "time", "not done after 2 seconds"),
    "sys.exit": ("import sys\nsys.exit(0)", "exit", "sys.exit(0)"),
    "os._exit": ("import os\nos._exit(0)", "ended", "exit status 0"),
    "a segmentation fault": ("import ctypes\nctypes.string_at(0)", "signal", "segmentation fault"),
    "a flood of output": ("while True: print('x' * 100000)", "time", "not done after"),
}


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_script_that_is_stopped_says_why(workers: WorkerPool, tmp_path: Path, name: str) -> None:
    body, cause, words = BEHAVIOURS[name]
    figures, outcome = run_script(workers, tmp_path, body)
    assert [f["kind"] for f in figures] == ["before"], "it runs once, and stops there"
    failure = outcome.results["toy_script"]["failure"]
    assert (failure["cause"], words in failure["what"]) == (cause, True), failure


def test_a_module_that_cannot_be_imported_runs_no_script(
    workers: WorkerPool, tmp_path: Path
) -> None:
    figures: list[dict[str, Any]] = []
    plan = {**job(tmp_path, "1 / 0"), "tests": ["toy_script"],
            "script": "tests.kit.support.toy_script", "watch": {}}
    outcome = Run(workers, plan, LIMITS, figure=figures.append).go()
    assert outcome.broken is not None
    assert outcome.broken[0] == "toy"
    assert not figures
