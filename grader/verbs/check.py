"""`ol check`: run, remember, print, write."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

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
    outputs = [Output(json_file, _json, b'{"schema"', "--json"),
               Output(junit_file, _junit, b"<?xml", "--junit")]
    with Nursery() as nursery:  # it warms up while the rest is read
        course = courses.load()
        workspace.source_of(wish.bind)
        for output in outputs:
            output.may_be_written()
        from grader.render import terminal

        out = terminal.console(error=json_file == "-")
        with terminal.watching(out) as tell:
            report = run(course, wish, nursery, tell)
    progress.record(report)
    terminal.show(report, course, out, verbose)
    for output in outputs:
        output.write(report)
    return 0 if report.passed else 1


class Output:
    """A file that a report is asked to be written to."""

    def __init__(self, name: str | None, form: Callable[[Report], bytes], begins: bytes,
                 option: str) -> None:
        self.name, self.form, self.begins, self.option = name, form, begins, option

    def may_be_written(self) -> None:
        """Refuse, before anything runs, what would destroy a file that is no report."""
        if self.name is None or self.name == "-":
            return
        path = Path(self.name)
        if path.is_dir():
            raise CallError(f"{self.option} {path}: that is a folder; name a file")
        if not path.parent.is_dir():
            raise CallError(f"{self.option} {path}: there is no folder {path.parent}")
        if path.exists() and path.stat().st_size and not path.read_bytes().lstrip().startswith(
                self.begins):
            raise CallError(f"{self.option} {path}: that file is there and is no earlier report, "
                            "so it is left alone; name another")

    def write(self, report: Report) -> None:
        if self.name == "-":
            sys.stdout.write(self.form(report).decode())
        elif self.name is not None:
            try:
                write_atomically(Path(self.name), self.form(report))
            except OSError as error:
                raise CallError(f"{self.option} {self.name}: {error.strerror}") from error


def _json(report: Report) -> bytes:
    data = report.to_json()
    ordered = {"schema": data.pop("schema"), "verdict": data.pop("verdict"), **data}
    # The first bytes are how an earlier report is known again, so they stand on one line.
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    return ('{"schema"' + text.removeprefix('{\n "schema"') + "\n").encode()


def _junit(report: Report) -> bytes:
    from grader.render import junit

    return junit.document(report)
