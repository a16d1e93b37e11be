"""Where a command is asked to write: reports, and pictures of them."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from grader.course.model import Course
from grader.errors import CallError
from grader.learner import workspace
from grader.learner.atomic_files import write_atomically

Told = TypeVar("Told")


class Output(Generic[Told]):
    """A place that a report is asked to be written to. ``mark`` is in the front of any report of
    this form that was written before."""

    def __init__(self, name: str | None, form: Callable[[Told], bytes], mark: bytes,
                 option: str) -> None:
        self.name, self.form, self.mark, self.option = name, form, mark, option

    def check_writable(self) -> None:
        """Refuse, before anything runs, what would destroy a file that is no report."""
        if self.name is None or self.name == "-":
            return
        path = Path(self.name)
        if path.is_dir():
            raise CallError(f"{self.option} {path}: that is a folder; name a file")
        if not path.parent.is_dir():
            raise CallError(f"{self.option} {path}: there is no folder {path.parent}")
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                front = file.read(200)
            if self.mark not in front:
                raise CallError(f"{self.option} {path}: that file is there and is no earlier "
                                "report, so it is left alone; name another")

    def write(self, report: Told) -> None:
        """Write the report: a file at one stroke, a pipe or a device as it comes."""
        if self.name is None:
            return
        data = self.form(report)
        if self.name == "-":
            sys.stdout.write(data.decode())
            return
        path = Path(self.name).resolve()  # through a link, not in its place
        try:
            if path.exists() and not path.is_file():
                path.write_bytes(data)
            else:
                write_atomically(path, data)
        except OSError as error:
            raise CallError(f"{self.option} {self.name}: {error.strerror}") from error


def refuse_same_target(outputs: Sequence[Output[Any]]) -> None:
    """Refuse two reports in one place: the second would destroy the first."""
    taken: dict[object, Output[Any]] = {}
    for output in outputs:
        if output.name is None:
            continue
        place = "-" if output.name == "-" else Path(output.name).resolve()
        if (other := taken.setdefault(place, output)) is not output:
            raise CallError(f"{other.option} and {output.option} both say {output.name}: give each "
                            "a file of its own")


def charts_folder(folder: str | None) -> None:
    """Refuse, before anything runs, a folder for charts that is not there."""
    if folder is not None and not Path(folder).is_dir():
        raise CallError(f"--svg {folder}: there is no such folder")


def write_charts(charts: list[dict[str, Any]], folder: str | None) -> None:
    """Write each chart as a file named after it, of several with one name the first. What is there
    and is no chart is left alone."""
    if folder is None:
        return
    from grader.render import charts as render

    drawn: dict[str, str] = {}
    for number, figure in enumerate(charts):
        drawn.setdefault(f"{figure['id']}.svg", render.svg(figure, number, alone=True))
    outputs = [Output[str](str(Path(folder) / name), str.encode, b'class="chart"', "--svg")
               for name in drawn]
    for output in outputs:
        output.check_writable()
    for output, picture in zip(outputs, drawn.values(), strict=True):
        output.write(picture)


def say_what_is_used(course: Course, where: str) -> None:
    """Say in a line which provided files are the kit's own, though others are in ``where``."""
    if said := workspace.used_instead(course, workspace.source_of(where)):
        click.echo(f"ol: {said}.", err=True)


def json_form(data: dict[str, Any]) -> bytes:
    """Return a report as JSON, its schema and its verdict first."""
    ordered = {"schema": data["schema"], "verdict": data["verdict"], **data}
    text = json.dumps(ordered, indent=1)
    # The first line is how an earlier report is known again.
    return (re.sub(r'^\{\s+("schema": \d+),\s+', r"{\1, ", text) + "\n").encode()
