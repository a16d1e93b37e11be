"""Tests first: red on the stub, green on the learner's own code.

A test that passes while nothing is written checks nothing; one that fails for a mistake of its own
says nothing about the module. So red is asked for with its reason.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from grader import ROOT
from grader.course.model import Course, Module
from grader.grading.mutation.report import FileTrouble
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import learners
from grader.grading.mutation.validity import said, troubles
from grader.grading.report import Failure
from grader.grading.target import NativeOptions, Uncompiled, build
from grader.sandbox.api import Tried, WorkerPool


class Stage(StrEnum):
    """What the tests must be."""

    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Rehearsed:
    """A test: whether it did what its stage asks for, and what became of it."""

    name: str
    right: bool
    sentence: str
    failure: Failure | None = None
    printed: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """All tests of a module in one stage; ``broken`` says why the module itself cannot be run."""

    module: str
    stage: Stage
    tests: list[Rehearsed] = field(default_factory=list)
    files: list[FileTrouble] = field(default_factory=list)
    broken: Failure | None = None

    @property
    def passed(self) -> bool:
        return bool(self.tests) and not self.files and all(t.right for t in self.tests)


def rehearse(course: Course, module: Module, folder: Path, workers: WorkerPool, stage: Stage,
             source: Path, *, reference_needs: bool, cc: str | None = None,
             named: Collection[str] = ()) -> Rehearsal:
    """Run the tests in ``folder``: on the stub when they must be red, else on ``source``. ``cc``
    names the compiler, where there is something to build."""
    if stage is Stage.RED:
        source, reference_needs, named = ROOT / "stubs", True, ()
    suite = learners(folder, module.test_rooms)
    try:
        built = build(course, module, [], source, NativeOptions(cc=cc),
                      reference_needs=reference_needs, named=named)
    except Uncompiled as error:
        return Rehearsal(module.name, stage, broken=error.failure)
    with Trials(workers, course, module, suite, nested=False, cc=cc) as trials:
        tried = trials.run_bound(source, built, reference_needs=reference_needs, named=named)
    if tried.broken:
        return Rehearsal(module.name, stage, broken=Failure.from_json(tried.broken[1]))
    say = _red if stage is Stage.RED else _green
    return Rehearsal(module.name, stage, [say(name, tried) for name in tried.tests],
                     troubles(tried, suite))


def _red(name: str, tried: Tried) -> Rehearsed:
    result = tried.results.get(name)
    if result is None:
        return Rehearsed(name, False, f"not judged: {tried.unjudged or 'it did not run'}")
    failure = result["failure"]
    if failure is None:
        return Rehearsed(name, False, "passes on the stub, where nothing is written: it checks "
                                      "nothing of the module")
    what, cause = failure["what"], failure["cause"]
    if (cause == "todo" and what.endswith(" is not written yet")) or failure.get("asserted"):
        return Rehearsed(name, True, f"red: {what}")
    return Rehearsed(name, False, f"fails for a reason of its own: {said(failure)}")


def _green(name: str, tried: Tried) -> Rehearsed:
    result = tried.results.get(name)
    if result is None:
        return Rehearsed(name, False, f"not judged: {tried.unjudged or 'it did not run'}")
    if result["failure"] is None:
        return Rehearsed(name, True, "green")
    failure = Failure.from_json(result["failure"])
    # pytest's own advice, which is for its own command line.
    what = re.sub(r"\s+Use -v to get more diff", "", failure.what)
    return Rehearsed(name, False, "", replace(failure, what=what), result["printed"])
