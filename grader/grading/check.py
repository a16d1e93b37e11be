"""A check: choose what to judge, bind it, run it, and gather a report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grader import ROOT, VERSION
from grader.binding.compiler import NoCompiler
from grader.binding.finder import bind
from grader.binding.native_module import Built
from grader.course.model import Course, Module, Test
from grader.course.test_selection import dotted, select
from grader.errors import CallError
from grader.grading.diagnosis import suspects
from grader.grading.report import Failure, Lesson, ModuleResult, Report, Status, TestResult, Verdict
from grader.grading.target import (
    NO_NATIVE,
    NativeOptions,
    Uncompiled,
    build,
    modules_of,
    recorded_calls,
    target_of,
)
from grader.learner import workspace
from grader.learner.snapshots import said_of, way_back
from grader.learner.unchanged_stub import untouched
from grader.learner.workspace import State, digest, source_of, state_of
from grader.sandbox.limits import Limits
from grader.sandbox.run import Outcome, Run
from grader.sandbox.worker_pool import WorkerPool


@dataclass(frozen=True)
class CheckOptions:
    """What a check was asked to do. ``names`` are words of the command line."""

    names: tuple[str, ...] = ()
    bind: str = "work"
    reference_needs: bool = False
    only: str | None = None
    all: bool = False
    seed: int = 0
    pool: NativeOptions = NO_NATIVE
    limits: Limits = field(default_factory=Limits)
    shorten: bool = True  # the examples that random tests fail on

    def named(self, course: Course) -> frozenset[str]:
        """Return the modules that are named: they come from ``bind``, whatever else does not."""
        return frozenset(m.name for m in course.named(self.names))


def check(course: Course, options: CheckOptions, workers: WorkerPool,
          tell: Callable[[str, str], None] = lambda module, test: None,
          warn: Callable[[str, Exception], None] = lambda what, error: None) -> Report:
    """Judge what ``options`` ask for and return the report. Nothing is printed or written; ``warn``
    hears what advice of the report failed, and by which error."""
    started = time.monotonic()
    source = source_of(options.bind)
    named = course.named(options.names) if options.names else tuple(course)
    # With --ref-deps, to name a module says whose it is, also where another one's test runs.
    tests = select(named, options.only, bool(options.names) and not options.reference_needs)
    behind = {m.name: target_of(course, options.pool.language, m) for m in course}
    states = {m.name: state_of(behind[m.name], source) for m in course}
    digests = {m.name: digest(source / behind[m.name].file_name) for m in course}
    wanted = options.all or options.only or options.bind == "stubs"
    asked = [m for m in named if m.name in tests and (
        options.names or states[m.name] in (State.BEGUN, State.UNREADABLE)
        or (wanted and not m.optional))]
    shown = [m for m in named if m in asked or not (options.names or options.only or m.optional)]

    def judge(module: Module) -> ModuleResult:
        if module not in asked:
            return _plain(options, course, module, Status.NOT_BEGUN,
                          _state(options, behind[module.name], states[module.name]))
        return _judge(course, options, source, workers, module, tests[module.name], states, tell)

    results = [replace(r, sha256=digests[r.name]) for r in workers.all(judge, shown)]
    results = [_diagnosed(course.module(r.name), r, options, warn)
               for r in _blame(course, options, results)]
    lessons = [x for x in course.lessons if any(m.lesson == x.id for m in shown)]
    return Report(
        kit=VERSION, binding=options.bind, pool=options.pool.language, seed=options.seed,
        asked=[m.name for m, r in zip(shown, results, strict=True) if m in asked and (
            options.names or not m.optional or r.status is not Status.NEEDS)],
        modules=results, only=options.only,
        reference_needs=options.reference_needs,
        lessons=[Lesson(x.id, list(x.passes)) for x in lessons],
        seconds=time.monotonic() - started,
    )


def judge(course: Course, options: CheckOptions, workers: WorkerPool, module: Module,
          tests: list[Test]) -> ModuleResult:
    """Judge one module by these of its tests, whoever asks; nothing is blamed or diagnosed."""
    source = source_of(options.bind)
    states = {m.name: state_of(m, source) for m in course}
    return _judge(course, options, source, workers, module, tests, states,
                  lambda module, test: None)


def _judge(course: Course, options: CheckOptions, source: Path, workers: WorkerPool, module: Module,
           tests: list[Test], states: dict[str, State],
           tell: Callable[[str, str], None]) -> ModuleResult:
    state, judged = states[module.name], target_of(course, options.pool.language, module)
    if state is State.UNREADABLE:
        return _plain(options, course, module, Status.BROKEN,
                      _why_unreadable(source / judged.file_name))
    if state is State.MISSING:
        return _plain(options, course, module, Status.BROKEN, f"there is no {judged.file_name}: "
                      + (_ways(judged) if options.bind == "work" else f"looked for in {source}"))
    named = options.named(course)
    unmet = [m.name for m in course.closure(module) if states[m.name] is not State.BEGUN
             and (m.name in named or not options.reference_needs)]
    if unmet and options.bind != "stubs":
        return _plain(options, course, module, Status.NEEDS, f"needs {', '.join(unmet)}: " + (
            "build it, or do not name it beside --ref-deps" if options.reference_needs
            else "build it, or pass --ref-deps") + _lost(course, options, unmet, states))
    try:
        built = build(course, module, tests, source, options.pool,
                      reference_needs=options.reference_needs, named=named)
    except NoCompiler as missing_tool:
        return _plain(options, course, module, Status.NEEDS, f"needs {missing_tool}")
    except Uncompiled as error:
        return replace(_plain(options, course, module, Status.BROKEN, ""), failure=error.failure)
    run = Run(workers, job(course, options, source, module, tests, built), replace(
        options.limits, seconds=max(options.limits.seconds, module.seconds),
        mapped=module.program is None), lambda test: tell(module.name, test))
    outcome = run.go()
    if untouched(judged, workspace.read(source / judged.file_name) or b""):
        state = State.STUB
    result = _result(module, str(source / judged.file_name), tests, outcome, state)
    unseen = [f"{reason}: what needs that was not judged" for reason in (
        *(() if built is None or built.sanitized else ("this compiler has no sanitizers",)),
        *outcome.left_out)]
    return result if result.sentence else replace(result, sentence="; ".join(unseen))


def _state(options: CheckOptions, module: Module, state: State) -> str:
    return said_of(module, state) if options.bind == "work" else state.sentence


def _lost(course: Course, options: CheckOptions, names: list[str], states: dict[str, State]) -> str:
    """Return how those of the modules come back whose files are gone."""
    gone = [course.module(name) for name in names
            if options.bind == "work" and states[name] is State.MISSING]
    return "".join(f"; the file of {m.name} is not there: {way_back(m)}" for m in gone
                   if way_back(m))


def _ways(module: Module) -> str:
    """Return how the learner's file of a module, which is not there, may come to be there."""
    back = way_back(module)
    return (f"{back}; " if back else "") + "`ol start` lays out a fresh one"


def job(course: Course, options: CheckOptions, source: Path, module: Module, tests: list[Test],
        built: Built | None = None) -> dict[str, Any]:
    """Return what a worker must know, as plain data."""
    binding = bind(course, ROOT, module, source, reference_needs=options.reference_needs,
                   named=options.named(course))
    view = module.view
    # A program's own tests run first: they name the line of what would only crash in a shared one,
    # and too many crashes end the run.
    names = [t.name for t in sorted(tests, key=lambda t: not module.holds(t))]
    if built:
        binding = built.bind(binding)
    return {
        "root": str(ROOT),
        "files": binding.files, "own": list(binding.own), "tests": names,
        "suite": sorted({str(t.file) for t in tests}), "seed": options.seed,
        "where": {t.name: str(t.file) for t in tests},
        "modules": [m.name for m in modules_of(course, module)],
        "watch": recorded_calls(course, module, built),
        "places": built.places if built else {},
        "view": {"class": view.cls, "module": dotted(view.file)} if view else None,
        "tests_room": binding.tests, "shorten": options.shorten,
    }


def _plain(options: CheckOptions, course: Course, module: Module, status: Status,
           sentence: str) -> ModuleResult:
    file = source_of(options.bind) / target_of(course, options.pool.language, module).file_name
    return ModuleResult(module.name, module.title, module.lesson, str(file), status, sentence)


def _result(module: Module, file: str, tests: list[Test], outcome: Outcome,
            state: State) -> ModuleResult:
    """Turn what a run brought into results: no verdict without positive evidence."""
    broken = outcome.broken
    reason = outcome.unjudged or "it was not judged"
    if broken:
        name, account = broken
        own = name in (module.name, *(m.name for m in module.shared))
        reason = f"{name} could not be judged"
    results = [_test(t, outcome.results.get(t.name), reason) for t in tests]
    if state is not State.BEGUN:  # nothing is written that could pass
        results = [_unwritten(r, state) for r in results]
    passed = bool(results) and all(r.verdict is Verdict.PASSED for r in results)
    status = Status.PASSED if passed else Status.FAILED
    sentence = state.sentence if state is not State.BEGUN else ""
    failure = None
    if broken:
        failure = Failure.from_json(account)
        status = Status.BROKEN
        if not own:
            status = Status.NEEDS
            sentence = f"needs {name}, which could not be judged: mend that first"
    return ModuleResult(module.name, module.title, module.lesson, file,
                        status, sentence, failure, results, outcome.seconds)


def _test(test: Test, result: dict[str, Any] | None, reason: str) -> TestResult:
    verdict, failure, seconds, printed = Verdict.BLOCKED, None, 0.0, ""
    if result is None:
        failure = Failure("not judged", reason)
    else:
        seconds, printed = float(result["seconds"]), result["printed"]
        if result["failure"] is None:
            verdict = Verdict.PASSED
        else:
            failure = Failure.from_json(result["failure"])
            verdict = Verdict.TODO if failure.cause == "todo" else Verdict.FAILED
    return TestResult(test.name, list(test.kinds), test.pass_, test.sentence, test.why, verdict,
                      seconds, failure, printed)


def _unwritten(result: TestResult, state: State) -> TestResult:
    """Take back a pass, whatever was told of how it came."""
    if result.verdict is not Verdict.PASSED:
        return result
    return replace(result, verdict=Verdict.TODO, failure=Failure("todo", state.sentence))


def _why_unreadable(path: Path) -> str:
    try:
        workspace.read(path)
    except CallError as error:
        return str(error)
    return State.UNREADABLE.sentence  # just now it could not be


def _blame(course: Course, options: CheckOptions,
           results: list[ModuleResult]) -> list[ModuleResult]:
    """Say where a module's failures may come from one that it needs."""
    failed = {r.name for r in results if r.status in (Status.FAILED, Status.BROKEN)
              and (not options.reference_needs or r.name in options.named(course))}
    return [
        replace(r, sentence=f"{', '.join(bad)} failed too, and this needs it: "
                f"`ol check {r.name} --ref-deps` judges this module alone")
        if r.status is Status.FAILED and not r.sentence
        and (bad := [m.name for m in course.closure(course.module(r.name)) if m.name in failed])
        else r for r in results]


def _diagnosed(module: Module, result: ModuleResult, options: CheckOptions,
               warn: Callable[[str, Exception], None]) -> ModuleResult:
    """Add the planted bugs that a failure looks like. They are advice: what fails there costs the
    guess, and no report."""
    try:
        return replace(result, suspects=suspects(module, result, part=options.only is not None))
    except Exception as error:
        warn(f"the failures of {module.name} were not compared with the planted bugs", error)
        return result
