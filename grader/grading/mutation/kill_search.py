"""Trying tests on programs with a bug each: what catches it, or whether anything does.

A kill is an assertion, an exception or a hang in a test that passes on right programs. What may
come of a crowded machine is tried once more before it counts. And every kill must repeat, on the
bug and not on a right program in between: a test that fails at random catches nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from grader.grading.mutation.candidates import Program, right
from grader.grading.mutation.function_patch import Patch, patch
from grader.grading.mutation.suite_runner import Trials
from grader.sandbox.api import Tried
from grader.sandbox.exit_reasons import kills
from grader.sandbox.test_names import file_of, test_of

_ROUNDS = 3  # times that a kill must repeat: one in twenty by chance is then one in 160,000
_DOUBTFUL = ("time", "memory", "processes", "signal")


class KillSearch:
    """Tries the tests that count on programs with a bug each."""

    def __init__(self, trials: Trials, cases: Sequence[str], seconds: dict[str, float]) -> None:
        """``cases`` are the tests that count, in their order; ``seconds`` is what each takes on a
        right program."""
        self.trials = trials
        self.cases = list(cases)
        self.seconds = seconds
        self.soon = {c: 0.3 + 10 * seconds[c] for c in self.cases}
        self.late = {c: max(2.0, 30 * seconds[c]) for c in self.cases}
        self.files = {c: file_of(c) for c in self.cases}
        self.kills: Counter[str] = Counter()
        self.after_others: set[tuple[str, str]] = set()  # bugs, and cases that miss them alone
        self.flaky: dict[str, str] = {}  # tests that failed once and passed once -> on what

    def first(self, bugs: list[Program]) -> list[dict[str, str]]:
        """Return for each bug the first test in order that catches it, with what it said."""
        return self._repeated(bugs, lambda bug: dict([x]) if (x := self.caught(bug)) else {})

    def matrix(self, bugs: list[Program]) -> list[dict[str, str]]:
        """Return for each bug every test that catches it, with what it said."""
        return self._repeated(bugs, self._row)

    def _repeated(self, bugs: list[Program], search: Callable[[Program], dict[str, str]]
                  ) -> list[dict[str, str]]:
        """Try each bug, and try it again without the tests whose kills do not repeat."""
        rows: list[dict[str, str]] = [{}] * len(bugs)
        open_ = list(range(len(bugs)))
        while open_:
            for at, row in zip(open_, self.trials.all(search, [bugs[at] for at in open_]),
                               strict=True):
                rows[at] = row
            known = len(self.flaky)
            for number in range(_ROUNDS):
                self._between(number, {case for at in open_ for case in rows[at]})
                for at, row in zip(open_, self.trials.all(
                        partial(self._again, bugs, rows, number), open_), strict=True):
                    rows[at] = row
            # A test may have been found out after it was credited with another bug.
            open_ = [at for at, row in enumerate(rows) if test_of(next(iter(row), "")) in self.flaky
                     or (at in open_ and not row and len(self.flaky) > known)]
        return [_by_test(row, self.flaky) for row in rows]

    def _again(self, bugs: list[Program], rows: list[dict[str, str]], number: int,
               at: int) -> dict[str, str]:
        return self._still(bugs[at], rows[at], number)

    def _between(self, number: int, cases: Collection[str]) -> None:
        """Find out the tests that fail on a right program after all."""
        programs = right(self.trials.course, self.trials.module)
        program = programs[number % len(programs)]
        left = [c for c in self.cases if c in cases]
        for case in self._failing(self.trials.run(program, left, each=self.late), left):
            self.flaky.setdefault(test_of(case), f"the right program `{program.id}`")

    def _still(self, bug: Program, row: dict[str, str], number: int = 0) -> dict[str, str]:
        """Return what of a row happens again, in this round."""
        if not row:
            return row
        left = [c for c in self.cases if c in row]
        alone = [c for c in left if (bug.id, c) not in self.after_others]
        tried = self.trials.run(bug, alone, each=self.soon) if alone else Tried()
        failing = self._failing(tried, alone)
        if more := [c for c in left if c not in failing and (number == 0 or c not in alone)]:
            # A bug in what all tests share is seen only by a test that others ran before.
            whole = self.cases[: self.cases.index(more[-1]) + 1]
            again = self._failing(self.trials.run(bug, whole, each=self.soon), whole) & set(more)
            self.after_others |= {(bug.id, c) for c in again}
            failing |= again
        if bug.steady:
            for case in set(left) - set(failing):
                self.flaky.setdefault(test_of(case), f"a program with the bug {bug.id}")
        return {case: how for case, how in row.items() if case in failing}

    def _failing(self, tried: Tried, cases: Sequence[str]) -> set[str]:
        """Return the cases that judged a program wrong, also by not letting it be imported."""
        if tried.broken:
            return set(cases)
        root = self.trials.suite.root
        files = {f for f in set(self.files.values())
                 if (account := tried.files.get(str(root / f))) and kills(account)}
        return {c for c in cases if self.files[c] in files or (
            (failure := tried.results.get(c, {}).get("failure")) and kills(failure))}

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
            part = None if at_import else patch(base, mutant.text, mutant.what)
            while (caught := self.caught(mutant, concerned, part)) is not None:
                again = self.trials.run(mutant, [caught[0]], each=self.soon)
                if self._failing(again, [caught[0]]):
                    self.kills[caught[0]] += 1
                    return False
                concerned = concerned[concerned.index(caught[0]) + 1 :]
            return True

        lived = self.trials.all(lives, mutants)
        return [m for m, alive in zip(mutants, lived, strict=True) if alive]

    def _concerns(self, case: str, function: str, calls: dict[str, set[str]]) -> bool:
        """True when a test, its file or the program itself calls a function, or one inside it."""
        own = str(self.trials.suite.root / self.files[case])
        return any(_calls(calls.get(of, ()), function) for of in ("", case, own))

    def caught(self, bug: Program, cases: list[str] | None = None,
               part: Patch | None = None) -> tuple[str, str] | None:
        """Return the first case in order that catches a bug, and what it said. ``part`` is all of
        the bug, where it is one in the body of a function that no import calls."""
        left = self._sound() if cases is None else cases
        while left:
            tried = part and self.trials.run_patch(part, left, self.soon)
            tried = tried or self.trials.run(bug, left, first=True, each=self.soon)
            if everywhere := self._at_once(tried, left):
                return everywhere
            killing = [(c, r["failure"]) for c, r in tried.results.items()
                       if r["failure"] and kills(r["failure"])]
            if not killing:
                return None
            ((case, failure),) = killing
            if self._confirmed(bug, case, failure):
                return case, failure["what"]
            left = left[left.index(case) + 1 :]
        return None

    def idle(self, bugs: list[Program], rows: list[dict[str, str]]) -> set[str]:
        """Return the tests that catch no bug at all, not even one that others catch first."""
        idle = {test_of(c) for c in self.cases} - {t for row in rows for t in row}

        def look(bug: Program) -> None:
            if wanted := [c for c in self._sound() if test_of(c) in idle]:
                found = self._still(bug, self._row(bug, wanted))
                idle.difference_update(map(test_of, found))

        self.trials.all(look, [bug for bug, row in zip(bugs, rows, strict=True) if row])
        return idle

    def _row(self, bug: Program, cases: list[str] | None = None) -> dict[str, str]:
        """Return the cases that catch a bug, in order, with what they said."""
        cases = self._sound() if cases is None else cases
        tried = self.trials.run(bug, cases, each=self.soon) if cases else Tried()
        if everywhere := self._at_once(tried, cases):
            return {c: everywhere[1] for c in cases
                    if tried.broken or self.files[c] == file_of(everywhere[0])}
        row: dict[str, str] = {}
        for case in cases:
            failure = tried.results.get(case, {}).get("failure")
            if failure and kills(failure) and self._confirmed(bug, case, failure):
                row[case] = failure["what"]
        return row

    def _sound(self) -> list[str]:
        """Return the cases that have not been found out."""
        return [c for c in self.cases if test_of(c) not in self.flaky]

    def _at_once(self, tried: Tried, cases: list[str]) -> tuple[str, str] | None:
        """Return the first case of all, or of a file, that a bug does not even let be imported."""
        if cases and tried.broken:
            return cases[0], tried.broken[1]["what"]
        root = self.trials.suite.root
        for case in cases:
            account = tried.files.get(str(root / self.files[case]))
            if account and kills(account):
                return case, account["what"]
        return None

    def _confirmed(self, bug: Program, case: str, failure: dict[str, Any]) -> bool:
        """True when a failure is certain; what may be the machine's is tried once more, with a
        larger limit."""
        if failure["cause"] not in _DOUBTFUL:
            return True
        again = self.trials.run(bug, [case], each=self.late).results.get(case, {}).get("failure")
        return again is not None and kills(again)


def _by_test(row: dict[str, str], without: Collection[str]) -> dict[str, str]:
    """Return test -> what its first case said."""
    found: dict[str, str] = {}
    for case, how in row.items():
        if test_of(case) not in without:
            found.setdefault(test_of(case), how)
    return found


def _calls(names: Iterable[str], function: str) -> bool:
    """True when a function, or one inside it, is among those called."""
    return any(name == function or name.startswith(function + ".") for name in names)
