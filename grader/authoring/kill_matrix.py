"""The kill matrix of a module: which test fails on which planted bug."""

from dataclasses import dataclass
from enum import StrEnum

from grader.authoring.suite_results import Trials
from grader.course.model import Module
from grader.course.planted_bugs import Mutant, mutants_of
from grader.grading.report import Verdict


class Cell(StrEnum):
    """What a test says of a bug. The value is how it is written."""

    EXPECTED = "X"  # it fails, as the bug's row says
    SURVIVED = "!"  # it passes, and the row says that it fails
    EXTRA = "x"  # it fails, too
    PASSED = "·"
    NOT_RUN = " "  # a random test that the row does not name


@dataclass(frozen=True)
class Matrix:
    """A row for each test of the catalogue, a cell in it for each bug."""

    module: Module
    bugs: tuple[Mutant, ...]
    rows: dict[str, tuple[Cell, ...]]

    def idle(self) -> list[str]:
        """Return the module's own tests that ran on every bug and caught none."""
        return [test.name for test in self.module.tests if self.module.holds(test)
                and all(cell is Cell.PASSED for cell in self.rows[test.name])]


def matrix_of(trials: Trials) -> Matrix:
    bugs = tuple(m for m in mutants_of(trials.module) if m.id in trials.bugs)
    verdicts = {bug.id: {t.name: t.verdict for t in trials.bugs[bug.id].tests} for bug in bugs}
    return Matrix(trials.module, bugs, {
        test.name: tuple(_cell(bug, test.name, verdicts[bug.id].get(test.name)) for bug in bugs)
        for test in trials.module.tests})


def _cell(bug: Mutant, test: str, verdict: Verdict | None) -> Cell:
    if verdict is None:
        return Cell.NOT_RUN
    if test in bug.caught_by:
        return Cell.EXPECTED if verdict is Verdict.FAILED else Cell.SURVIVED
    return Cell.PASSED if verdict is Verdict.PASSED else Cell.EXTRA
