"""A study for a person at a terminal: its texts and tables; charts are for the HTML page."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.grading.study import Figure, StudyReport
from grader.render.console import indented

_BY, _GAP = 2, 2  # columns in front of a table, and between two of its columns


def show(report: StudyReport, out: Console) -> None:
    """Print the report, without its charts."""
    charts = 0
    for figure in report.shown:
        match figure["kind"]:
            case "section":
                out.print()
                out.print(Text(figure["title"], "bold"), soft_wrap=True)
            case "text":
                out.print(Text(figure["text"]))
            case "table" if not figure.get("page"):
                out.print()
                out.print(Text(figure["title"]), soft_wrap=True)
                for part in _parts(figure, out.width - _BY):
                    indented(_table(part), _BY, out)
            case "chart":
                charts += 1
    if charts:
        out.print()
        drawn = "1 chart" if charts == 1 else f"{charts} charts"
        out.print(f"--html FILE draws this as {drawn}, with every definition.",
                  style="dim", soft_wrap=True)


def _parts(figure: Figure, width: int) -> Iterator[Figure]:
    """Cut a table that is wider than ``width`` into several, each with the first column."""
    widths = [max(cell_len(str(row[at])) for row in (figure["head"], *figure["rows"])) + _GAP
              for at in range(len(figure["head"]))]
    columns: list[int] = []
    for at in range(1, len(widths)):
        if columns and widths[0] + sum(widths[c] for c in columns) + widths[at] > width:
            yield _columns(figure, columns)
            columns = []
        columns.append(at)
    yield _columns(figure, columns)


def _columns(figure: Figure, columns: list[int]) -> Figure:
    """Return the table of these columns and the first."""
    return {"head": [figure["head"][at] for at in (0, *columns)],
            "rows": [[row[at] for at in (0, *columns)] for row in figure["rows"]]}


def _table(figure: Figure) -> Table:
    """Return a table; all but its first column are numbers."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim")
    for at, head in enumerate(figure["head"]):
        table.add_column(head, no_wrap=True, justify="right" if at else "left")
    for row in figure["rows"]:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
