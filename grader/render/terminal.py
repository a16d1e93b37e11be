"""A report for a person at a terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.course.model import Course
from grader.grading import next_steps
from grader.grading.diagnosis import one_error
from grader.grading.report import ModuleResult, Report, Status, TestResult, Verdict
from grader.render.console import indented, paragraph
from grader.render.failure import printed, told
from grader.render.wording import again, count, unwritten

_DETAILED = 3  # failures shown whole
_MARKS = {Status.PASSED: ("✓", "green"), Status.FAILED: ("✗", "red"),
          Status.BROKEN: ("✗", "red"), Status.NEEDS: ("·", "yellow"),
          Status.NOT_BEGUN: ("·", "dim")}


def show(report: Report, course: Course, out: Console, everything: bool = False) -> None:
    """Print the report: a line a module, the failures that matter now, what to do next."""
    out.print()
    for module in report.modules:
        _module(module, out)
    out.print()
    whole = list(next_steps.failures(report, everything))[: None if everything else _DETAILED]
    for module, test in whole:
        _failure(module, test, report, out)
    for module in report.modules:
        for test in module.tests:
            if test.verdict is Verdict.PASSED and (everything or report.only):
                printed(test.printed, out)
    _rest(report, {(m.name, t.name) for m, t in whole}, out)
    for module in report.modules:
        if module.failure:
            _broken(module, out)
        if error := one_error(module):
            paragraph(out, f"Every failing test of {module.name} ends the same way: {error}. "
                      "Fix that first.")
            out.print()
        if module.suspects:
            _suspects(module, out)
    for line in next_steps.next_steps(report, course):
        out.print(Text(line), soft_wrap=True)


def _module(module: ModuleResult, out: Console) -> None:
    mark, style = _MARKS[module.status]
    passed, total = module.count(Verdict.PASSED), len(module.tests)
    line = Text(f"  {module.name:<16} ")
    # A module that needs another says so itself.
    status = "" if module.status is Status.NEEDS else f"{module.status.value:<10}"
    line.append(f"{mark} {status}", style)
    if total:
        line.append(f" {passed:>3} of {total:<3} {module.seconds:5.1f} s   ")
        line.append(_passes(module))
    elif module.sentence:
        line.append(module.sentence if module.status is Status.NEEDS else f" {module.sentence}")
    out.print(line, soft_wrap=True)
    if total and module.sentence and not module.failure:
        out.print(Text(f"  {'':<16}   {module.sentence}", "yellow"), soft_wrap=True)


def _passes(module: ModuleResult) -> Text:
    """Return how far each pass of the module is."""
    text = Text()
    for number in sorted({t.pass_ for t in module.tests}):
        tests = [t for t in module.tests if t.pass_ == number]
        passed = sum(t.verdict is Verdict.PASSED for t in tests)
        text.append(("  " if text else "") + f"pass {number}: {passed}/{len(tests)}",
                    "green" if passed == len(tests) else "")
    return text


def _failure(module: ModuleResult, test: TestResult, report: Report, out: Console) -> None:
    failure = test.failure
    assert failure is not None
    head = Text("✗ ", "red")
    head.append(f"{module.name}: {test.name}", "bold")
    head.append(f"   {', '.join(test.kinds)}; pass {test.pass_}", "dim")
    out.print(head)
    paragraph(out, test.sentence)
    if test.why:
        paragraph(out, f"Why it matters: {test.why}", "dim")
    out.print()
    told(failure, out)
    printed(test.printed, out)
    out.print(Text(f"  Again  {again(module, test, report)}\n"), soft_wrap=True)


def _broken(module: ModuleResult, out: Console) -> None:
    assert module.failure is not None
    head = Text("✗ ", "red")
    head.append(f"{module.name} could not be judged", "bold")
    out.print(head)
    if module.sentence:
        paragraph(out, module.sentence)
    out.print()
    told(module.failure, out)


def _rest(report: Report, shown: set[tuple[str, str]], out: Console) -> None:
    """Print in a line each what was not shown whole: failures, the unwritten, the unjudged."""
    for module in report.modules:
        lines = []
        hidden = [t.name for t in _failing(module, report, False, shown)]
        later = len(_failing(module, report, True, shown)) - len(hidden)
        if later:
            hidden.append(f"{later} of later passes")
        if hidden:
            lines.append(f"also failing: {', '.join(hidden)}")
        for what, tests in unwritten(module).items():
            wait = "waits" if len(tests) == 1 else "wait"
            lines.append(f"{what}; {count(len(tests), 'test')} {wait} for it")
        blocked = [t for t in module.tests if t.verdict is Verdict.BLOCKED]
        if blocked and not module.failure:
            reason = blocked[0].failure.what if blocked[0].failure else ""
            were = "was" if len(blocked) == 1 else "were"
            lines.append(f"{count(len(blocked), 'test')} {were} not judged: {reason}")
        for line in lines:
            paragraph(out, f"{module.name}: {line}")
        if lines:
            out.print()


def _failing(module: ModuleResult, report: Report, everything: bool,
             shown: set[tuple[str, str]]) -> list[TestResult]:
    """Return a module's failing tests that were not shown, in the pass in hand or in all."""
    return [t for m, t in next_steps.failures(report, everything)
            if m is module and (m.name, t.name) not in shown]


def _suspects(module: ModuleResult, out: Console) -> None:
    """Print which classic bugs a module's failures look like, in the pitfalls' words."""
    failing = sum(test.verdict is Verdict.FAILED for test in module.tests)
    paragraph(out, next_steps.looks_like(module))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for suspect in module.suspects:
        table.add_row(suspect.sure.value, Text(suspect.pitfall))
        table.add_row("", Text(suspect.symptom, "dim"))
        if 0 < len(suspect.tests) < failing:
            table.add_row("", Text(f"fits {_some(suspect.tests)}", "dim"))
    indented(table, 4, out)


def _some(tests: list[str]) -> str:
    """Return the first of some tests, and how many more there are."""
    more = len(tests) - 1
    return f"{tests[0]} and {more} more" if more else tests[0]
