"""A study for a person at a terminal: its texts and tables; charts are for the HTML page."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.render.terminal import indented
from grader.study import Figure, StudyReport


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
                indented(_table(figure), 2, out)
            case "chart":
                charts += 1
    if charts:
        out.print()
        out.print(f"--html FILE draws this as {charts} charts, with every definition.",
                  style="dim", soft_wrap=True)


def _table(figure: Figure) -> Table:
    """Return a table; all but its first column are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for at, head in enumerate(figure["head"]):
        table.add_column(head, no_wrap=True, justify="right" if at else "left")
    for row in figure["rows"]:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
