"""`ol simulate`: a module's study of some files, as tables, as JSON, as one HTML page."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from grader import course as courses
from grader import workspace
from grader.course import Course, Module
from grader.scripts import those_with
from grader.study import Study, StudyReport
from grader.verbs.outputs import Output, charts_folder, json_form, write_charts
from grader.worker.session import Nursery
from grader.workspace import State


def simulate(wish: dict[str, Any], where: str | None, jobs: int | None, json_file: str | None,
             html_file: str | None, svg_folder: str | None) -> int:
    """Study what ``wish`` names and return the exit status: 1 when the code under it failed."""
    charts_folder(svg_folder)
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(html_file, _html, b"<!doctype html>", "--html")]
    with Nursery() as nursery:
        course = courses.load()
        (module,) = those_with(course, (), "study")
        bound = where or _whose(module)
        workspace.source_of(bound)
        for output in outputs:
            output.may_be_written()
        from grader.render import study as render
        from grader.render import terminal

        out = terminal.console(error="-" in (json_file, html_file))
        with _bar(out) as progress:
            report = Study(course, module, nursery, bound, wish, jobs=jobs,
                           progress=progress).run()
    if report.failure:
        terminal.stopped(f"{module.name}: the study stopped", report.failure,
                         report.played.printed, out)
    else:
        render.show(report, out)
        out.print(f"Simulated by {_said(module, bound, course)}.", style="dim", soft_wrap=True)
    for output in outputs:
        if not report.failure or output.name == json_file:
            output.write(report)
    if not report.failure:
        write_charts([f for f in report.shown if f["kind"] == "chart"], svg_folder)
    return 1 if report.failure else 0


def _whose(module: Module) -> str:
    """Return the learner's work once it is begun; before that the tool works all the same."""
    begun = workspace.state_of(module, workspace.work()) is State.BEGUN
    return "work" if begun else "reference"


def _said(module: Module, bound: str, course: Course) -> str:
    return {"work": f"your work/{module.file_name}",
            "reference": "the reference"}.get(bound, f"{bound}/{module.file_name}")


@contextmanager
def _bar(out: Console) -> Iterator[Any]:
    """Show a bar while a study runs, where somebody watches."""
    if not out.is_terminal:
        yield lambda share: None
        return
    with Progress(TextColumn("simulating"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                  TimeRemainingColumn(), console=out, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _json(report: StudyReport) -> bytes:
    return json_form(report.to_json())


def _html(report: StudyReport) -> bytes:
    from grader.render import page

    return page.document(report)
