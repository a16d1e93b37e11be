"""Running one set of tests on many programs of a module: a fork a program, from one suite
server."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from grader import ROOT
from grader.binding import compiler
from grader.binding.finder import Binding, bind
from grader.binding.native_module import Built
from grader.course.model import PACKAGE, Course, Module
from grader.course.planted_bugs import reference_of
from grader.errors import KitError
from grader.grading.mutation.candidates import REFERENCE, Program, bound
from grader.grading.mutation.function_patch import Patch
from grader.grading.mutation.test_suite import Suite, own
from grader.grading.target import modules_of, recorded_calls
from grader.sandbox.api import TrialRun, Tried, WorkerPool
from grader.sandbox.limits import Limits
from grader.sandbox.processors import processors

Thing = TypeVar("Thing")
Result = TypeVar("Result")
PROCESSES = processors()


class Trials:
    """Runs ``suite`` on programs of ``module``, on several at once. Its suite server lives as long
    as the `with` block; ``nested=False`` takes a fresh worker for each program instead, which is
    slower and comes to the same. ``cc`` names the compiler for programs that are built; without any
    it is ``NoCompiler``."""

    def __init__(self, workers: WorkerPool, course: Course, module: Module, suite: Suite, *,
                 processes: int = PROCESSES, nested: bool = True, seed: int = 0,
                 limits: Limits | None = None, cc: str | None = None) -> None:
        self.course, self.module, self.suite = course, module, suite
        self.processes, self.seed = processes, seed
        self.limits = limits or Limits(seconds=max(Limits().seconds, module.seconds))
        self.tests = suite.to_json()
        self.compiler = compiler.find(cc) if module.program else None
        self.workers = workers.suite_server(self._server_job()) if nested else workers
        self.nested = nested
        self.patch_server: WorkerPool | None = None

    def run(self, program: Program, tests: Sequence[str] = (), *, first: bool = False,
            each: dict[str, float] | None = None, calls: bool = False) -> Tried:
        """Run ``tests`` in this order, all without any, and say what came of it. With ``first``
        it is over with the first kill. ``each`` has time limits of single tests. ``calls`` asks
        for the functions that each test calls."""
        job = {**self._bound(program), "first": first,
               "calls": self.module.name if calls else None,
               "tests": list(tests or self.suite.names)}
        return TrialRun(self.workers, job, self.limits, each).go()

    def serve_patches(self, base: Program, cases: Sequence[str]) -> None:
        """Have ``base`` and its tests imported once, for `run_patch`."""
        if self.nested and cases:
            limits = replace(self.limits, cpu=None)  # it is there for long
            self.patch_server = self.workers.suite_server({
                **self._bound(base), "first": True, "calls": None, "tests": list(cases),
                "without": [], "mark": "", "limits": limits.to_json()})

    def run_patch(self, patch: Patch, tests: Sequence[str], each: dict[str, float]) -> Tried | None:
        """Run ``tests`` on a mutant of the base that was hatched, until the first kill; None where
        that cannot be."""
        if self.patch_server is None:
            return None
        job = {"patch": patch.to_json(), "module": self.module.name, "tests": list(tests),
               "first": True, "texts": {}, "watch": {},
               **{key: self.tests[key] for key in ("folder", "lines")}}
        try:
            tried = TrialRun(self.patch_server, job, self.limits, each).go()
        except KitError:
            self.patch_server = None  # it could not be made
            return None
        failures = [r["failure"] for r in tried.results.values()]
        if tried.unjudged:
            self.patch_server = None  # some test kills it
        whole = len(failures) == len(tests) or any(failures)
        return tried if whole and not tried.broken and not tried.unjudged else None

    def run_bound(self, source: Path, built: Built | None, *, reference_needs: bool,
                  named: Collection[str] = ()) -> Tried:
        """Run all tests on the module as it lies in ``source``, and tell the steps of a failure;
        on what was ``built`` of it, where it is a program in another language."""
        binding = bind(self.course, ROOT, self.module, source, reference_needs=reference_needs,
                       named=named)
        if built:
            binding = built.bind(binding)
        own = [binding.files[name] for name in binding.own]
        return TrialRun(self.workers, {
            **self._job(binding), "watch": recorded_calls(self.course, self.module, built),
            "places": built.places if built else {}, "first": False, "calls": None, "tests": [],
            "lines": [*self.tests["lines"], *own]}, self.limits).go()

    def all(self, do: Callable[[Thing], Result], things: Iterable[Thing]) -> list[Result]:
        """Do something with each thing, as many at once as there are processes."""
        return self.workers.all(do, things, self.processes)

    def _server_job(self) -> dict[str, Any]:
        """Return what the suite server must know: the tests, and what stands under every
        program."""
        name = self.module.name
        reference = Program(REFERENCE, reference_of(self.module))
        binding = bound(self.course, self.module, reference, self.compiler)
        files = {part: Path(file) for part, file in binding.files.items()}
        start = [files[m.name] for m in self.module.shared or (self.module,)]
        wanted = _reached([*start, *self.suite.files], files)
        under = [part for part in sorted(wanted) if name not in _reached([files[part]], files)]
        return {**self.tests, "files": {part: str(files[part]) for part in wanted},
                "modules": [part for part in under if part != name],
                "tests_room": binding.tests, "seed": self.seed}

    def _bound(self, program: Program) -> dict[str, Any]:
        """Return a job on ``program``."""
        return {**self._job(bound(self.course, self.module, program, self.compiler)),
                "afresh": program.needs is not None}

    def _job(self, binding: Binding) -> dict[str, Any]:
        return {**self.tests, "files": binding.files, "own": [], "texts": binding.texts,
                "modules": [m.name for m in modules_of(self.course, self.module)], "afresh": False,
                "watch": {}, "view": None, "trial": True, "tests_room": binding.tests,
                "seed": self.seed}

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *_: object) -> None:
        if self.patch_server:
            self.patch_server.close()
        if self.nested:
            self.workers.close()


def failures(workers: WorkerPool, course: Course, module: Module, sources: Mapping[str, str],
             suite: Suite | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """Return, for each of some sources of a module, the tests that fail on it and how: the module's
    own tests, or those of ``suite``. A source that cannot be imported fails them all."""
    with Trials(workers, course, module, suite or own(module)) as trials:
        tests = list(trials.suite.names) or list(
            trials.run(Program("", reference_of(module))).tests)

        def tried(source: tuple[str, str]) -> tuple[str, dict[str, dict[str, Any]]]:
            done = trials.run(Program(*source), tests)
            if done.broken:
                return source[0], dict.fromkeys(tests, done.broken[1])
            return source[0], {test: result["failure"] for test, result in done.results.items()
                               if result["failure"]}

        return dict(trials.all(tried, sources.items()))


def _reached(start: list[Path], files: dict[str, Path]) -> set[str]:
    """Return the modules of the package that these files import, or what they import does."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        if (file := waiting.pop()).suffix != ".py":
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        new = set(re.findall(rf"\b{PACKAGE}\.(\w+)", text)) & set(files) - found
        found |= new
        waiting += [files[part] for part in new]
    return found
