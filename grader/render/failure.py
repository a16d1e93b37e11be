"""A failure for a person at a terminal: what was wrong, the steps, the picture, the lines."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.grading.report import Failure, Picture
from grader.learner.atomic_files import display_path
from grader.render.console import block, indented, paragraph
from grader.render.wording import byte_rows, step_rows

_PRINTED = 12  # lines shown of what a program printed


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
        block("Your program printed", _ends(text.rstrip().splitlines()), out)


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
    block("Bytes", byte_rows(failure), out)
    _steps(failure, out)
    for picture in failure.pictures:
        _picture(picture, out)
    block("Your code", code_rows(failure), out)


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


def _picture(picture: Picture, out: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in picture.columns:
        table.add_column(column, no_wrap=True)
    for row in picture.rows:
        table.add_row(*(Text(cell) for cell in row))
    paragraph(out, picture.title)
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


def _ends(lines: list[str]) -> list[str]:
    """Return the first and the last lines of many."""
    if len(lines) <= _PRINTED + 2:
        return lines
    return [*lines[: _PRINTED - 3], f"[… {len(lines) - _PRINTED} lines …]", *lines[-3:]]
