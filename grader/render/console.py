"""The terminal: a console that is plain where nobody looks at it, and texts and tables that fit."""

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

from grader.render.wording import count


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


def paragraph(out: Console, text: str, style: str = "", by: int = 2) -> None:
    """Print a text in lines that fit, indented, with nothing behind their last word."""
    for line in textwrap.wrap(text, max(out.width - by, 20), break_on_hyphens=False):
        out.print(Text(" " * by + line, style), soft_wrap=True)


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


def block(title: str, rows: list[str], out: Console) -> None:
    """Print a title, and rows under it, if there are any."""
    if rows:
        out.print(Text(f"  {title}"))
        for row in rows:
            out.print(Text(f"    {row}"), soft_wrap=True)
        out.print()
