"""Which tests may count: those that every right program passes, twice, and that look at nothing but
what a program does.

A test is tried on several right programs of different inner design. One that fails on a right
program asks for more than the contract. Each program is tried in the files' order and once more in
the reverse, so that a test that depends on chance, or on the tests before it, is found out.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.errors import KitError
from grader.grading.mutation.candidates import REFERENCE, Program, controls, right
from grader.grading.mutation.report import FileTrouble, Standing
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import Suite
from grader.sandbox.api import Tried
from grader.sandbox.test_names import test_of

Failure = dict[str, Any]

_BY_CAUSE = {"skipped": Standing.SKIPS, "exit": Standing.LEAVES, "ended": Standing.LEAVES,
             "refused": Standing.REFUSED, "time": Standing.HANGS, "flaky": Standing.FLAKY}
_MORE = 3  # runs of a test that failed, on the program that failed it
_AGAIN = ("wrong", "error", "recursion", "flaky")  # of a failure that may be chance


@dataclass
class ValidityReport:
    """The tests in their order (cases of one function are one test, `cases` has them all), the
    standing of each, and the seconds that each case took on the slowest right program."""

    cases: dict[str, list[str]] = field(default_factory=dict)
    standings: dict[str, tuple[Standing, str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    files: list[FileTrouble] = field(default_factory=list)
    right: int = 0
    controls: int = 0

    def valid(self) -> list[str]:
        """Return the cases that may count, in their order."""
        return [case for test, cases in self.cases.items()
                if self.standings[test][0] is Standing.VALID for case in cases]


def judge(trials: Trials, tell: Callable[[str], None] = lambda doing: None) -> ValidityReport:
    """Try the tests on the right programs and the controls, and say which may count."""
    reference, *others = right(trials.course, trials.module)
    tell("on the reference")
    first = trials.run(reference)
    if first.broken or (first.unjudged and not first.results and not first.files):
        raise KitError(f"the tests could not be tried on the reference: "
                       f"{first.broken or first.unjudged}")
    judged = ValidityReport(cases=_grouped(first.tests), right=1 + len(others),
                    files=troubles(first, trials.suite))
    tell("on other right programs")
    wanted = [c for c, r in first.results.items()
              if not r["failure"] or r["failure"]["cause"] in _AGAIN]
    runs = _runs(trials, [reference, *others], wanted)
    runs[REFERENCE].insert(0, first)
    _settle(judged, runs, {p.id: p for p in others}, first)
    tell("on programs that it has not seen")
    _controls(judged, trials, [reference, *others])
    return judged


def _runs(trials: Trials, programs: list[Program], cases: list[str]) -> dict[str, list[Tried]]:
    """Run the cases on each program in their order and in the reverse; on the first program, where
    they were run once, only in the reverse. What fails is run some more times, because whether it
    always does is what tells an unfair test from a flaky one."""
    if not cases:
        return {p.id: [] for p in programs}
    plan = [(p, order) for p in programs for order in (cases, cases[::-1])][1:]
    runs: dict[str, list[Tried]] = {p.id: [] for p in programs}
    for (program, _), tried in zip(plan, trials.all(lambda x: trials.run(*x), plan), strict=True):
        runs[program.id].append(tried)
    failing = [(p, [c for c in cases if any(_failed(t, c) for t in runs[p.id])]) for p in programs]
    more = [(p, some) for p, some in failing if some for _ in range(_MORE)]
    for (program, _), tried in zip(more, trials.all(lambda x: trials.run(*x), more), strict=True):
        runs[program.id].append(tried)
    return runs


def _failed(tried: Tried, case: str) -> bool:
    return bool(tried.results.get(case, {}).get("failure"))


def _settle(judged: ValidityReport, runs: dict[str, list[Tried]], others: dict[str, Program],
            first: Tried) -> None:
    """Give each test its standing."""
    for test, cases in judged.cases.items():
        found = [x for case in cases if (x := _standing(case, runs, others, first))]
        judged.standings[test] = found[0] if found else (Standing.VALID, "")
    for tried in (t for ts in runs.values() for t in ts):
        for case, result in tried.results.items():
            judged.seconds[case] = max(judged.seconds.get(case, 0.0), result["seconds"])


def _standing(case: str, runs: dict[str, list[Tried]], others: dict[str, Program],
              first: Tried) -> tuple[Standing, str] | None:
    """Return why a case may not count; None where it may."""
    on = {program: [t.results[case]["failure"] for t in tried if case in t.results]
          for program, tried in runs.items()}
    if not on[REFERENCE]:
        return Standing.UNJUDGED, f"not judged: {first.unjudged or 'it did not run'}"
    for program, failures in on.items():
        if None in failures and any(failures):
            once = said(next(f for f in failures if f))
            return Standing.FLAKY, (f"it passed and failed on the same program, "
                                    f"{_called(program)}: it depends on chance, or on the tests "
                                    f"before it. It said: {once}")
    if failure := next((f for f in on[REFERENCE] if f), None):
        return _BY_CAUSE.get(failure["cause"], Standing.BROKEN), said(failure)
    for name, other in others.items():
        if failure := next((f for f in on[name] if f), None):
            standing = _BY_CAUSE.get(failure["cause"], Standing.UNFAIR)
            return standing, (f"the right program `{name}` fails it: {said(failure)}. How that "
                              f"program is made: {other.what}")
        if len(on[name]) < 2:
            return Standing.UNJUDGED, f"it could not be judged on the right program `{name}`"
    return None


def _controls(judged: ValidityReport, trials: Trials, programs: list[Program]) -> None:
    """Try the tests that may count on right programs with another text and other bytecode."""
    hidden = controls(trials.module, programs)
    judged.controls = len(hidden)
    cases = judged.valid()
    if not cases:
        return
    tried = trials.all(lambda program: trials.run(program, cases), hidden)
    for program, one in zip(hidden, tried, strict=True):
        failed = {c: r["failure"] for c, r in one.results.items() if r["failure"]}
        again = trials.run(program, list(failed)) if failed else Tried()
        for case, failure in failed.items():
            second = again.results.get(case, {}).get("failure")
            judged.standings[test_of(case)] = (
                Standing.FLAKY, "it passed and failed on the same program: it depends on chance. "
                f"It said: {said(failure)}"
            ) if second is None else (
                Standing.RECOGNISES, "it passes on a right program, and fails on one that differs "
                f"from that in nothing but its text. It said: {said(failure)}")


def _grouped(cases: Iterable[str]) -> dict[str, list[str]]:
    """Return test -> its cases: one, or as many as its parameters make."""
    grouped: dict[str, list[str]] = {}
    for case in cases:
        grouped.setdefault(test_of(case), []).append(case)
    return grouped


def _called(program: str) -> str:
    return "the reference" if program == REFERENCE else f"`{program}`"


def troubles(tried: Tried, suite: Suite) -> list[FileTrouble]:
    """Return the files that could not be collected, each with a sentence."""
    return [FileTrouble(os.path.relpath(file, suite.root), said(account))
            for file, account in tried.files.items()]


def said(failure: Failure) -> str:
    """Return what a failure says of a test in a line, and where in the tests."""
    what = failure["what"].partition("\n")[0].removesuffix(" (unknown location)")
    where = "".join(f", at {Path(x['file']).name}:{x['line']}"
                    for x in failure.get("code", [])[-1:])
    match failure["cause"]:
        case "skipped":
            return f"it skips itself, which is neither a pass nor a catch{where}"
        case "exit" | "ended":
            return f"{what}{where}; that is neither a pass nor a catch"
    return f"{what}{where}"
