"""Trying tests on programs with a bug each: what catches it, or whether anything does.

A kill is an assertion, an exception or a hang in a test that passes on right programs. What may
come of a crowded machine is tried once more before it counts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from grader.mutation.fairness import test_of
from grader.mutation.grafts import Graft, graft
from grader.mutation.programs import Program
from grader.mutation.trials import Trials
from grader.worker.endings import kills
from grader.worker.session import Tried

_DOUBTFUL = ("time", "memory", "processes", "signal")


class Hunt:
    """Tries the tests that count on programs with a bug each."""

    def __init__(self, trials: Trials, cases: Sequence[str], seconds: dict[str, float]) -> None:
        """``cases`` are the tests that count, in their order; ``seconds`` is what each takes on a
        right program."""
        self.trials = trials
        self.cases = list(cases)
        self.seconds = seconds
        self.soon = {c: 0.3 + 10 * seconds[c] for c in self.cases}
        self.late = {c: max(2.0, 30 * seconds[c]) for c in self.cases}
        self.files = {c: c.split("::")[0] for c in self.cases}
        self.kills: Counter[str] = Counter()

    def first(self, bugs: list[Program]) -> list[dict[str, str]]:
        """Return for each bug the first test in order that catches it, with what it said."""
        return self.trials.all(lambda bug: dict([x]) if (x := self.caught(bug)) else {}, bugs)

    def matrix(self, bugs: list[Program]) -> list[dict[str, str]]:
        """Return for each bug every test that catches it, with what it said."""
        return self.trials.all(self._row, bugs)

    def survivors(self, base: str, mutants: list[Program],
                  calls: dict[str, set[str]]) -> list[Program]:
        """Return the mutants of ``base`` that no test catches, each of the function named in its
        ``what``.

        By ``calls`` a test is tried only where it calls that function. Those go first that take
        the least time for the kills they have made. Which test it is that catches a mutant depends
        on that order; whether any does, does not.
        """
        def lives(mutant: Program) -> bool:
            concerned = [c for c in self.cases if self._concerns(c, mutant.what, calls)]
            concerned.sort(key=lambda c: (self.seconds[c] + 0.001) / (self.kills[c] + 1))
            if not concerned:
                return True
            at_import = any(_calls(calls.get(of, ()), mutant.what) for of in calls
                            if of == "" or of.endswith(".py"))
            part = None if at_import else graft(base, mutant.text, mutant.what)
            if (caught := self.caught(mutant, concerned, part)) is None:
                return True
            self.kills[caught[0]] += 1
            return False

        lived = self.trials.all(lives, mutants)
        return [m for m, alive in zip(mutants, lived, strict=True) if alive]

    def _concerns(self, case: str, function: str, calls: dict[str, set[str]]) -> bool:
        """True when a test, its file or the program itself calls a function, or one inside it."""
        own = str(self.trials.suite.root / self.files[case])
        return any(_calls(calls.get(of, ()), function) for of in ("", case, own))

    def caught(self, bug: Program, cases: list[str] | None = None,
               part: Graft | None = None) -> tuple[str, str] | None:
        """Return the first test in order that catches a bug, and what it said. ``part`` is all of
        the bug, where it is one in the body of a function that no import calls."""
        left = self.cases if cases is None else cases
        while left:
            tried = part and self.trials.run_graft(part, left, self.soon)
            tried = tried or self.trials.run(bug, left, first=True, each=self.soon)
            if everywhere := self._at_once(tried, left):
                return everywhere
            killing = [(c, r["failure"]) for c, r in tried.results.items()
                       if r["failure"] and kills(r["failure"])]
            if not killing:
                return None
            ((case, failure),) = killing
            if self._confirmed(bug, case, failure):
                return test_of(case), failure["what"]
            left = left[left.index(case) + 1 :]
        return None

    def idle(self, bugs: list[Program], rows: list[dict[str, str]]) -> set[str]:
        """Return the tests that catch no bug at all, not even one that others catch first."""
        idle = {test_of(c) for c in self.cases} - {t for row in rows for t in row}

        def look(bug: Program) -> None:
            if wanted := [c for c in self.cases if test_of(c) in idle]:
                idle.difference_update(self._row(bug, wanted))

        self.trials.all(look, [bug for bug, row in zip(bugs, rows, strict=True) if row])
        return idle

    def _row(self, bug: Program, cases: list[str] | None = None) -> dict[str, str]:
        """Return the tests that catch a bug, in order, with what they said."""
        cases = self.cases if cases is None else cases
        tried = self.trials.run(bug, cases, each=self.soon) if cases else Tried()
        if everywhere := self._at_once(tried, cases):
            return {test_of(c): everywhere[1] for c in cases
                    if tried.broken or self.files[c] == everywhere[0].split("::")[0]}
        row: dict[str, str] = {}
        for case in cases:
            failure = tried.results.get(case, {}).get("failure")
            if failure and kills(failure) and self._confirmed(bug, case, failure):
                row.setdefault(test_of(case), failure["what"])
        return row

    def _at_once(self, tried: Tried, cases: list[str]) -> tuple[str, str] | None:
        """Return the first test of all, or of a file, that a bug does not even let be imported."""
        if cases and tried.broken:
            return test_of(cases[0]), tried.broken[1]["what"]
        root = self.trials.suite.root
        for case in cases:
            account = tried.files.get(str(root / self.files[case]))
            if account and kills(account):
                return test_of(case), account["what"]
        return None

    def _confirmed(self, bug: Program, case: str, failure: dict[str, Any]) -> bool:
        """True when a failure is certain; what may be the machine's is tried once more, with a
        larger limit."""
        if failure["cause"] not in _DOUBTFUL:
            return True
        again = self.trials.run(bug, [case], each=self.late).results.get(case, {}).get("failure")
        return again is not None and kills(again)


def _calls(names: Iterable[str], function: str) -> bool:
    """True when a function, or one inside it, is among those called."""
    return any(name == function or name.startswith(function + ".") for name in names)
