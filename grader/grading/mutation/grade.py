"""The whole judgement of a learner's tests: which count, what they catch, what gets away."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader import VERSION
from grader.course.model import Course, Module
from grader.course.planted_bugs import gradable, mutants_of, reference_of
from grader.errors import CallError
from grader.grading.mutation import candidates, generated_mutants, validity
from grader.grading.mutation.candidates import Program
from grader.grading.mutation.kill_search import KillSearch
from grader.grading.mutation.report import (
    Bug,
    Generated,
    MutationReport,
    Standing,
    Survivor,
    TestJudged,
    Unseen,
)
from grader.grading.mutation.suite_runner import PROCESSES, Trials
from grader.grading.mutation.test_suite import learners
from grader.grading.mutation.validity import ValidityReport
from grader.sandbox.api import Tried, WorkerPool
from grader.sandbox.test_names import within

_PATIENCE = 8  # times the usual limit, for a run that is looked at closely


@dataclass(frozen=True)
class Plan:
    """What a run is asked for beside the planted bugs: every test on every bug; the generated
    mutants of the reference, whose lines are a part of the solution; mutants of the code that
    lies in the folder ``mine``."""

    matrix: bool = False
    generated: bool = False
    spoil: bool = False
    mine: Path | None = None
    cc: str | None = None  # the compiler, of a program that is built
    processes: int = PROCESSES
    nested: bool = True


def grade(course: Course, module: Module, folder: Path, workers: WorkerPool, plan: Plan = Plan(),
          tell: Callable[[str], None] = lambda doing: None) -> MutationReport:
    """Judge the tests in ``folder`` by the planted bugs of ``module``."""
    started = time.monotonic()
    suite = learners(folder, module.test_rooms)
    with Trials(workers, course, module, suite, processes=plan.processes,
                nested=plan.nested, cc=plan.cc) as trials:
        judged = validity.judge(trials, tell)
        tell("on planted bugs")
        search = KillSearch(trials, judged.valid(), judged.seconds)
        bugs = candidates.planted(module)
        rows = search.matrix(bugs) if plan.matrix else search.first(bugs)
        idle = set() if plan.matrix else search.idle(bugs, rows)
        for test, what in search.flaky.items():
            judged.standings[test] = (Standing.FLAKY, "it passed and failed on the same "
                                      f"program, {what}: it depends on chance")
        more = _generated(workers, trials, judged.valid(), plan, tell)
    return MutationReport(
        kit=VERSION, module=module.name, folder=str(folder), threshold=module.mutation.threshold,
        tests=_tests(judged, [b.id for b in bugs], rows, idle, plan.matrix), files=judged.files,
        bugs=_bugs(module, rows), missing=_missing(module, judged), right=judged.right,
        controls=judged.controls, matrix=plan.matrix,
        generated=more, unseen=_unseen(module), seconds=time.monotonic() - started)


def _generated(workers: WorkerPool, trials: Trials, cases: list[str], plan: Plan,
               tell: Callable[[str], None]) -> list[Generated]:
    """Try the tests that count on generated mutants, where that is asked for."""
    module, found = trials.module, []
    if plan.generated:
        tell("on generated mutants of the reference")
        base = Program(candidates.REFERENCE, reference_of(module))
        found.append(search_generated(trials, cases, base, generated_mutants.load(module),
                                    plan.spoil))
    if plan.mine:
        tell("on generated mutants of your code")
        text = (plan.mine / module.file_name).read_text(encoding="utf-8")
        base = Program("yours", text, needs=plan.mine)
        found.append(search_generated(trials, cases, base, generated_mutants.make(workers, text),
                                    True))
    return found


def search_generated(trials: Trials, cases: list[str], base: Program, mutants: list[dict[str, Any]],
                   told: bool) -> Generated:
    """Try ``cases`` on mutants of ``base``. Only where ``told`` are the lines of survivors kept."""
    # To note every call takes its time, and a crowded machine its own.
    patient = dict.fromkeys(cases, _PATIENCE * trials.limits.seconds)
    clean = trials.run(base, cases, each=patient, calls=True) if cases else Tried()
    if clean.broken:
        raise CallError(f"{clean.broken[0]} cannot be imported, so nothing can be made of it: "
                        f"{clean.broken[1]['what']}")
    seconds = {c: r["seconds"] for c, r in clean.results.items() if r["failure"] is None}
    passing = [c for c in cases if c in seconds]
    trials.serve_patches(base, passing)
    changed = generated_mutants.programs(base, mutants)
    known = {m["id"]: m for m in mutants}
    survivors = [
        Survivor(p.id, p.what, *([known[p.id][k] for k in ("line", "was", "now")] if told else []))
        for p in KillSearch(trials, passing, seconds).survivors(base.text, changed, clean.calls)]
    return Generated(base.id, len(changed), survivors, len(mutants) - len(changed),
                     [c for c in cases if c not in seconds])


def _tests(judged: ValidityReport, bugs: list[str], rows: list[dict[str, str]], idle: set[str],
           matrix: bool) -> list[TestJudged]:
    found = []
    for name, (standing, sentence) in judged.standings.items():
        catches = [bug for bug, row in zip(bugs, rows, strict=True) if name in row]
        first = sum(next(iter(row), "") == name for row in rows)
        useful = bool(catches) if matrix else standing is Standing.VALID and name not in idle
        found.append(TestJudged(name, standing, sentence, first, useful,
                                catches if matrix else None))
    return found


def _bugs(module: Module, rows: list[dict[str, str]]) -> list[Bug]:
    found = []
    for mutant, row in zip(gradable(module), rows, strict=True):
        rules = module.mutation
        bug = Bug(mutant.id, mutant.pitfall, mutant.symptom, rules.weights.get(mutant.id, 1.0),
                  mutant.id in rules.required)
        if row:
            test, how = next(iter(row.items()))
            bug = replace(bug, caught_by=test, how=how)
        found.append(bug)
    return found


def _unseen(module: Module) -> list[Unseen]:
    """Return the bugs that are left out, by the reason."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of(module):
        if mutant.unseen:
            found.setdefault(mutant.unseen, []).append(mutant.id)
    return [Unseen(why, bugs) for why, bugs in found.items()]


def _missing(module: Module, judged: ValidityReport) -> list[str]:
    """Return the names that the lesson asks for and no test has."""
    names = {within(test)[-1].removeprefix("test_") for test in judged.cases}
    return [name for name in module.mutation.names if name not in names]
