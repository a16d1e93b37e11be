"""`ol start`: lay out the learner's files, show the first red test, say what to do next."""

from textwrap import fill

import click

from grader import ROOT
from grader.cli.options import MODULES
from grader.course import manifest as courses
from grader.course.model import Module
from grader.grading import progress
from grader.grading.check import CheckOptions
from grader.grading.learning_path import Milestone, next_milestone
from grader.grading.progress import Standing
from grader.learner import workspace
from grader.learner.snapshots import way_back
from grader.learner.workspace import State

_READABLE = (".py", ".h")  # of what is given


def start(words: tuple[str, ...]) -> None:
    """Lay out ``words``' modules (all that are not optional, without any); what is there already
    stays as it is."""
    course = courses.load()
    modules = course.named(words) if words else tuple(m for m in course if not m.optional)
    laid = workspace.lay_out(course, modules)
    own = {workspace.work() / m.file_name: m for m in course}
    given = [path.name for path in laid.created if path not in own and path.suffix in _READABLE]
    for path in laid.created:
        if path in own:
            click.echo(f"laid out  {path.relative_to(ROOT)}" + _earlier(own[path]))
    if given:
        click.echo(fill(f"to read   {', '.join(given)}, which are given", 88,
                        subsequent_indent=" " * 10))
    known = progress.standings(course)
    stop = next_milestone(course, modules, known)
    if stop is None:
        click.echo("All of it was green at the last check. `ol check` judges it again.")
        return
    if any(path in own for path in laid.created):
        _first_red(stop.module)
    _say(stop, known.get(stop.module.name))


def _earlier(module: Module) -> str:
    """Say where an earlier version of a file is that was not there."""
    way = way_back(module)
    return f" (there was one before: {way})" if way else ""


def _first_red(module: Module) -> None:
    """Run the module's first test, so that the learner has seen a verdict before any work."""
    from grader.cli import check as verb

    click.echo(f"\nThe first test, on the file as it is (`ol check {module.name} "
               f"-k {module.tests[0].name}`):")
    verb.check(CheckOptions((module.name,), only=module.tests[0].name), None, None, False)


def _say(stop: Milestone, known: Standing | None) -> None:
    module, lesson = stop.module, stop.lesson
    click.echo(f"\n{lesson.id}, {lesson.title}: {', '.join(lesson.modules)}")
    if workspace.state_of(module, workspace.work()) is State.BEGUN:
        tally = f"{known.passed} of {known.total} tests passed" if known else "not checked yet"
        click.echo(f"{module.name} is begun: {tally}.")
    click.echo(f"""
  read   course/modules/{module.name}/chapter.md
  edit   work/{module.file_name}
  check  make check M={module.name}     (or: ol check {module.name})

Next is {stop.title}. `ol tests {module.name}` lists what will be judged.
`. .venv/bin/activate` makes the short command `ol` yours in this shell; `make` alone shows the rest.""")  # noqa: E501


@click.command("start")
@MODULES
def command(modules: tuple[str, ...]) -> None:
    """Lay out work/, run the first check, and say what to do next."""
    start(modules)
