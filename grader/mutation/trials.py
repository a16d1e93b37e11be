"""Running one set of tests on many programs of a module: a fork a program, from one nest."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from grader import ROOT
from grader.binding import bind
from grader.course import Course, Module
from grader.mutation.programs import Program
from grader.mutation.suites import Suite
from grader.worker.limits import Limits
from grader.worker.session import Nursery, TrialRun, Tried

Thing = TypeVar("Thing")
Result = TypeVar("Result")
PROCESSES = os.cpu_count() or 1


class Trials:
    """Runs ``suite`` on programs of ``module``, on several at once. Its nest lives as long as the
    `with` block; ``nested=False`` takes a fresh worker for each program instead, which is slower
    and comes to the same."""

    def __init__(self, nursery: Nursery, course: Course, module: Module, suite: Suite, *,
                 processes: int = PROCESSES, nested: bool = True, seed: int = 0,
                 limits: Limits | None = None) -> None:
        self.course, self.module, self.suite = course, module, suite
        self.processes, self.seed = processes, seed
        self.limits = limits or Limits(seconds=max(Limits().seconds, module.seconds))
        self.nursery = nursery.nest(self._nest()) if nested else nursery
        self.nested = nested

    def run(self, program: Program, tests: Sequence[str] = (), *, first: bool = False,
            each: dict[str, float] | None = None, calls: bool = False) -> Tried:
        """Run ``tests`` in this order, all without any, and say what came of it. With ``first``
        it is over with the first kill. ``each`` has time limits of single tests. ``calls`` asks
        for the functions that each test calls."""
        job = {**self._job(program), "first": first, "calls": self.module.name if calls else None,
               "tests": list(tests or self.suite.names)}
        return TrialRun(self.nursery, job, self.limits, each).go()

    def run_bound(self, source: Path, *, reference_needs: bool) -> Tried:
        """Run all tests on the module as it lies in ``source``, and tell the steps of a failure."""
        binding = bind(self.course, ROOT, self.module, source, reference_needs=reference_needs)
        job = self._job(Program("", "", needs=source))
        watch = {m.name: {"names": [f.name for f in m.fills],
                          "queries": [f.name for f in m.fills if f.query]}
                 for m in (*self.course.closure(self.module), self.module)}
        own = [binding.files[name] for name in binding.own]
        return TrialRun(self.nursery, {
            **job, "files": binding.files, "texts": {}, "watch": watch, "first": False,
            "tests": [], "lines": [*job["lines"], *own]}, self.limits).go()

    def all(self, do: Callable[[Thing], Result], things: Iterable[Thing]) -> list[Result]:
        """Do something with each thing, as many at once as there are processes."""
        with ThreadPoolExecutor(max_workers=self.processes) as pool:
            try:
                return list(pool.map(do, things))
            except BaseException:
                self.nursery.close()  # every run ends at once: the pool has none to wait for
                raise

    def _nest(self) -> dict[str, Any]:
        """Return what the nest must know: the tests, and what stands under every program."""
        needs = self.course.closure(self.module)
        files = bind(self.course, ROOT, self.module, ROOT / "reference",
                     reference_needs=True).files
        files.pop(self.module.name)
        return {**self.suite.to_json(), "files": files, "modules": [m.name for m in needs],
                "tests_room": str(ROOT / "tests"), "seed": self.seed}

    def _job(self, program: Program) -> dict[str, Any]:
        binding = bind(self.course, ROOT, self.module, program.needs or ROOT / "reference",
                       reference_needs=program.needs is None)
        bound = (*self.course.closure(self.module), self.module)
        return {**self.suite.to_json(), "files": binding.files, "own": [],
                "texts": {self.module.name: program.text}, "modules": [m.name for m in bound],
                "afresh": program.needs is not None, "watch": {}, "view": None, "trial": True,
                "tests_room": binding.tests, "seed": self.seed}

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *_: object) -> None:
        if self.nested:
            self.nursery.close()
