"""A report for a person at a terminal."""

import contextlib
import itertools
import os
import sys
import textwrap
from collections.abc import Callable, Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.course.model import Course
from grader.grading import next_steps
from grader.grading.diagnosis import one_error
from grader.grading.report import (
    Failure,
    ModuleResult,
    Picture,
    Report,
    Status,
    TestResult,
    Verdict,
)
from grader.learner.atomic_files import display_path
from grader.render.wording import again, byte_rows, count, step_rows, unwritten

_DETAILED = 3  # failures shown whole
_PRINTED = 12  # lines shown of what a program printed
_MARKS = {Status.PASSED: ("✓", "green"), Status.FAILED: ("✗", "red"),
          Status.BROKEN: ("✗", "red"), Status.NEEDS: ("·", "yellow"),
          Status.NOT_BEGUN: ("·", "dim")}


def console(error: bool = False) -> Console:
    """Return a console that is plain where nobody looks at it. rich keeps NO_COLOR itself."""
    stream = sys.stderr if error else sys.stdout
    columns = os.environ.get("COLUMNS", "")
    wanted = int(columns) if columns.isdecimal() and 20 <= int(columns) <= 1000 else 100
    width = None if stream.isatty() else wanted
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width,
                   color_system=None if plain else "auto")


@contextlib.contextmanager
def watching(out: Console) -> Iterator[Callable[[str, str], None]]:
    """Show on a terminal which test was judged last, while a check runs."""
    if not out.is_terminal:
        yield lambda module, test: None
        return
    done = itertools.count(1)
    with out.status("starting") as status:
        yield lambda module, test: status.update(
            Text(f"{count(next(done), 'test')} done; {module}: {test}", "dim"))


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


def stopped(what: str, failure: Failure, said: str, out: Console) -> None:
    """Print why a script did not come to its end, and what was printed until then."""
    if failure.cause == "needs":
        paragraph(out, failure.what)
        out.print()
        return
    out.print(Text(f"✗ {what}\n", "bold"))
    told(failure, out)
    printed(said, out)


def printed(text: str, out: Console) -> None:
    """Print what a program printed, its beginning and its end."""
    if text.strip():
        _block("Your program printed", _ends(text.rstrip().splitlines()), out)


def told(failure: Failure, out: Console) -> None:
    """Print what was wrong, the steps, the picture, and the learner's lines."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("Wrong", Text(failure.what, "bold"))
    if failure.expected is not None:
        facts.add_row("Expected", Text(failure.expected))
    if failure.got is not None:
        facts.add_row("Got", Text(failure.got, "red"))
    indented(facts, 2, out)
    _block("Bytes", byte_rows(failure), out)
    _steps(failure, out)
    for picture in failure.pictures:
        _picture(picture, out)
    _block("Your code", code_rows(failure), out)


def _steps(failure: Failure, out: Console) -> None:
    if not failure.steps:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, text in step_rows(failure):
        table.add_row(number, Text(text))
    out.print(Text("  Steps"))
    indented(table, 4, out)


def code_rows(failure: Failure) -> list[str]:
    """Return the learner's lines, the innermost last."""
    rows = []
    for line in failure.code:
        rows.append(f"{display_path(line.file)}:{line.line}" + (f", in {line.function}"
                                                          if line.function else ""))
        if line.text:
            rows.append(f"    {line.text}")
    return rows


def _block(title: str, rows: list[str], out: Console) -> None:
    if rows:
        out.print(Text(f"  {title}"))
        for row in rows:
            out.print(Text(f"    {row}"), soft_wrap=True)
        out.print()


def indented(table: Table, by: int, out: Console) -> None:
    """Print a table with nothing but line ends behind its last column. One whose columns cannot
    be folded and do not fit is printed with a line for each cell."""
    if all(column.no_wrap for column in table.columns) and _width(table) > out.width - by:
        table = _stacked(table)
    with out.capture() as captured:
        out.print(Padding(table, (0, 0, 0, by), expand=False))
    for line in captured.get().splitlines():
        out.print(Text.from_ansi(line.rstrip()), soft_wrap=True)
    out.print()


def _width(table: Table) -> int:
    """Return the columns of the terminal that a table takes with all of its text."""
    _, right, _, left = table.padding
    return sum(left + right + max(cell_len(line) for text in (column.header, *column.cells)
                                  for line in str(text).split("\n")) for column in table.columns)


def _stacked(table: Table) -> Table:
    """Return a table of two columns, with a row for each cell that has a text: the head of its
    column, and the text."""
    heads = [" ".join(str(column.header).split()) for column in table.columns]
    stacked = Table.grid(padding=(0, 2, 0, 0))
    stacked.add_column(no_wrap=True, style="dim")
    stacked.add_column(overflow="fold")
    for number, row in enumerate(zip(*(column.cells for column in table.columns), strict=True)):
        if number:
            stacked.add_row("", "")
        for head, cell in zip(heads, row, strict=True):
            if str(cell):
                stacked.add_row(head, cell)
    return stacked


def _ends(lines: list[str]) -> list[str]:
    """Return the first and the last lines of many."""
    if len(lines) <= _PRINTED + 2:
        return lines
    return [*lines[: _PRINTED - 3], f"[… {len(lines) - _PRINTED} lines …]", *lines[-3:]]


def _picture(picture: Picture, out: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in picture.columns:
        table.add_column(column, no_wrap=True)
    for row in picture.rows:
        table.add_row(*(Text(cell) for cell in row))
    paragraph(out, picture.title)
    indented(table, 4, out)


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


def paragraph(out: Console, text: str, style: str = "", by: int = 2) -> None:
    """Print a text in lines that fit, indented, with nothing behind their last word."""
    for line in textwrap.wrap(text, max(out.width - by, 20), break_on_hyphens=False):
        out.print(Text(" " * by + line, style), soft_wrap=True)
