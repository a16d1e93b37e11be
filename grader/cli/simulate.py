"""`ol simulate`: a module's study of some files, as tables, as JSON, as one HTML page."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from grader.cli.outputs import Output, charts_folder, json_form, refuse_same_target, write_charts
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.grading import progress
from grader.grading.script import modules_with
from grader.grading.study import Study, StudyReport
from grader.learner import workspace
from grader.learner.workspace import State
from grader.sandbox.api import WorkerPool

_OFTEN = 10.0  # seconds between two tellings of how far it is


def simulate(options: dict[str, Any], where: str | None, jobs: int | None, json_file: str | None,
             html_file: str | None, svg_folder: str | None) -> int:
    """Study what ``options`` names and return the exit status: 1 when the code under it failed."""
    charts_folder(svg_folder)
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(html_file, _html, b"<!doctype html>", "--html")]
    refuse_same_target(outputs)
    with WorkerPool() as workers:
        course = courses.load()
        (module,) = modules_with(course, (), "study")
        bound = where or _whose(module)
        workspace.source_of(bound)
        for output in outputs:
            output.check_writable()
        from grader.render import console, failure
        from grader.render import study as render

        out = console.console(error="-" in (json_file, html_file))
        with _bar(out) as bar:
            report = Study(course, module, workers, bound, options, jobs=jobs, progress=bar).run()
    report = replace(report, passed=_passed(module, bound, course))
    if report.failure:
        failure.stopped(f"{module.name}: the study stopped", report.failure,
                         report.played.printed, out)
    else:
        render.show(report, out)
        out.print(_by(report, module), style="dim", soft_wrap=True)
    for output in outputs:
        if not report.failure or output.name == json_file:
            output.write(_Made(report, _by(report, module)))
    if not report.failure:
        write_charts([f for f in report.shown if f["kind"] == "chart"], svg_folder)
    return 1 if report.failure else 0


def _whose(module: Module) -> str:
    """Return the learner's work once it is begun; before that the tool works all the same."""
    begun = workspace.state_of(module, workspace.work()) is State.BEGUN
    return "work" if begun else "reference"


def _passed(module: Module, bound: str, course: Course) -> bool | None:
    """Say whether what was bound has passed its checks; None where nobody keeps account of it."""
    if bound == "reference":
        return True
    if bound != "work":
        return None
    known = progress.standings(course).get(module.name)
    return known is not None and known.green and known.current


def _by(report: StudyReport, module: Module) -> str:
    """Say whose code the figures are of, and what they are worth."""
    who = {"work": f"your work/{module.file_name}",
           "reference": "the reference"}.get(report.binding, f"{report.binding}/{module.file_name}")
    if report.passed is False:
        return (f"Simulated by {who}, which has not passed `ol check {module.name}` as it is now: "
                "these figures may be wrong.")
    return f"Simulated by {who}."


class _Made(NamedTuple):
    """A report, and by whose code it was made."""

    report: StudyReport
    by: str


@contextmanager
def _bar(out: Console) -> Iterator[Callable[[float], None]]:
    """Show a bar while a study runs; where nobody watches, say now and then how far it is."""
    if not out.is_terminal:
        yield Telling()
        return
    with Progress(TextColumn("simulating"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                  TimeRemainingColumn(), console=out, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=share)


class Telling:
    """Says on standard error how much is done, every few seconds."""

    def __init__(self) -> None:
        self.said = monotonic()

    def __call__(self, share: float) -> None:
        if monotonic() - self.said > _OFTEN and share < 1:
            self.said = monotonic()
            click.echo(f"ol: {100 * share:.0f} % simulated.", err=True)


def _json(made: _Made) -> bytes:
    return json_form(made.report.to_json())


def _html(made: _Made) -> bytes:
    from grader.render import study_page

    return study_page.document(made.report, made.by, shlex.join(["ol", *sys.argv[1:]]))
