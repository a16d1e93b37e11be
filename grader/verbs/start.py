"""`ol start`: lay out the learner's files, show the first red test, say what to do next."""

import click

from grader import ROOT, advice, progress, workspace
from grader import course as courses
from grader.check import Wish
from grader.course import Course, Module
from grader.workspace import State


def start(words: tuple[str, ...]) -> None:
    """Lay out ``words``' modules (all without any); what is there already stays as it is."""
    course = courses.load()
    modules = course.named(words) if words else tuple(course)
    laid = workspace.lay_out(course, modules)
    for path in laid.created:
        if path.suffix == ".py":
            click.echo(f"laid out  {path.relative_to(ROOT)}")
    first = _where_to_go(course, modules)
    if first is None:
        click.echo("Every module is green. `ol check` judges them again.")
        return
    if any(path.suffix == ".py" for path in laid.created):
        _first_red(first)
    _say(course, first)


def _where_to_go(course: Course, modules: tuple[Module, ...]) -> Module | None:
    """Return the module to work on: the one with the earliest pass among those not green."""
    open_ = [m for m in modules if not _green(m)]
    return min(open_, key=lambda m: advice.order(course, m), default=None)


def _green(module: Module) -> bool:
    known = progress.standing(module)
    return known is not None and known.green and known.current


def _first_red(module: Module) -> None:
    """Run the module's first test, so that the learner has seen a verdict before any work."""
    from grader.verbs import check as verb

    click.echo(f"\nThe first test, on the file as it is (`ol check {module.name} "
               f"-k {module.tests[0].name}`):")
    verb.check(Wish((module.name,), only=module.tests[0].name), None, None, False)


def _say(course: Course, module: Module) -> None:
    lesson = course.lesson(module)
    stage = min(f.pass_ for f in module.fills)
    state = workspace.state_of(module, workspace.work())
    known = progress.standing(module)
    click.echo(f"\n{lesson.id}, {lesson.title}: {', '.join(lesson.modules)}")
    if state is State.BEGUN:
        tally = f"{known.passed} of {known.total} tests passed" if known else "not checked yet"
        click.echo(f"{module.name} is begun: {tally}.")
    click.echo(f"""
  read   course/{module.name}/chapter.md
  edit   work/{module.file_name}
  check  make check M={module.name}     (or: ol check {module.name})

Pass {stage} of {len(lesson.passes)} first: {lesson.passes[stage - 1]}. `ol tests {module.name}` lists what will be judged.
`. .venv/bin/activate` makes the short command `ol` yours in this shell; `make` alone shows the rest.""")  # noqa: E501
