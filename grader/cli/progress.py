"""`ol progress`: where the learner is in the course."""

import click
from rich.text import Text

from grader.course import manifest as courses
from grader.course.model import Course
from grader.grading import progress
from grader.learner import workspace
from grader.learner.snapshots import said_of
from grader.learner.workspace import State
from grader.render.console import console


def progress_rows(course: Course) -> list[tuple[str, str, str]]:
    """Return (module, title, what the last check said) for every module."""
    rows = []
    standings = progress.standings(course)
    for module in course:
        state = workspace.state_of(module, workspace.work())
        known = standings.get(module.name)
        if state is not State.BEGUN and module.optional:
            said = f"optional: {said_of(module, state)}"
        elif state is not State.BEGUN:
            said = f"not begun: {said_of(module, state)}"
        elif known is None:
            said = "begun, not checked yet"
        elif known.broken:
            said = f"could not be judged: {known.broken}"
        else:
            said = ("✓ " if known.green else "") + f"{known.passed} of {known.total} tests passed"
            said += "" if known.current else ", before your last change"
        rows.append((module.name, module.title, said))
    return rows


def show_progress() -> None:
    """Print where the learner is."""
    out = console()
    rows = progress_rows(courses.load())
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, title, said in rows:
        out.print(Text(f"{name:<{widths[0]}}   {title:<{widths[1]}}   {said}"), soft_wrap=True)


@click.command("progress")
def command() -> None:
    """Show where you are in the course."""
    show_progress()
