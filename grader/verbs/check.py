"""`ol check`: run, remember, print, write."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import click

from grader import course as courses
from grader import progress, workspace
from grader.check import Wish
from grader.check import check as run
from grader.errors import CallError
from grader.files import write_atomically
from grader.report import Report
from grader.worker.session import Nursery


def check(wish: Wish, json_file: str | None, junit_file: str | None, verbose: bool) -> int:
    """Carry out ``wish`` and return the exit status."""
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(junit_file, _junit, b'<testsuites name="ol check"', "--junit")]
    with Nursery() as nursery:  # it warms up while the rest is read
        course = courses.load()
        workspace.source_of(wish.bind)
        for output in outputs:
            output.may_be_written()
        from grader.render import terminal

        out = terminal.console(error=json_file == "-")
        with terminal.watching(out) as tell:
            report = run(course, wish, nursery, tell)
    terminal.show(report, course, out, verbose)
    for output in outputs:
        output.write(report)
    try:
        progress.record(course, report)
    except OSError as error:  # a verdict stands without it
        click.echo(f"ol: this check could not be remembered: {error.strerror}.", err=True)
    return 0 if report.passed else 1


class Output:
    """A place that a report is asked to be written to. ``mark`` is in the front of any report of
    this form that was written before."""

    def __init__(self, name: str | None, form: Callable[[Report], bytes], mark: bytes,
                 option: str) -> None:
        self.name, self.form, self.mark, self.option = name, form, mark, option

    def may_be_written(self) -> None:
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

    def write(self, report: Report) -> None:
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


def _json(report: Report) -> bytes:
    data = report.to_json()
    ordered = {"schema": data.pop("schema"), "verdict": data.pop("verdict"), **data}
    text = json.dumps(ordered, indent=1)
    # The first line is how an earlier report is known again.
    return (re.sub(r'^\{\s+("schema": \d+),\s+', r"{\1, ", text) + "\n").encode()


def _junit(report: Report) -> bytes:
    from grader.render import junit

    return junit.document(report)
