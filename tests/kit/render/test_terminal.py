"""What the terminal shows on a narrow screen, and how it counts."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from grader.render.console import indented
from grader.render.wording import count


def printed(width: int) -> list[str]:
    """Return the lines of a table with a wide cell, on a screen of ``width`` columns."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("block", "state", "LRU place"):
        table.add_column(column, no_wrap=True)
    table.add_row("0", "a state with a long text", "1 (oldest)")
    table.add_row("1", "", "2")
    stream = io.StringIO()
    indented(table, 4, Console(file=stream, width=width, color_system=None))
    return stream.getvalue().splitlines()


def test_a_table_that_fits_has_a_line_per_row() -> None:
    assert printed(60) == [
        "    block  state                     LRU place",
        "    0      a state with a long text  1 (oldest)",
        "    1                                2", ""]


@pytest.mark.parametrize("width", [40, 24])
def test_a_table_that_does_not_fit_has_a_line_per_cell_and_loses_no_word(width: int) -> None:
    lines = printed(width)
    assert max(map(cell_len, lines)) <= width
    assert " ".join(" ".join(lines).split()) == (
        "block 0 state a state with a long text LRU place 1 (oldest) block 1 LRU place 2")
    if width == 40:
        assert lines == ["    block      0", "    state      a state with a long text",
                         "    LRU place  1 (oldest)", "", "    block      1",
                         "    LRU place  2", ""]


def test_a_number_agrees_with_its_noun() -> None:
    assert [count(n, "test") for n in (0, 1, 2)] == ["0 tests", "1 test", "2 tests"]
