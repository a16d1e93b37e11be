"""`ol check`: run, remember, print, write."""

import click

from grader import course as courses
from grader import progress, workspace
from grader.check import Wish
from grader.check import check as run
from grader.mutation.standing import with_own_tests
from grader.report import Report
from grader.standing import heed
from grader.verbs.outputs import Output, apart, json_form
from grader.worker.session import Nursery


def check(wish: Wish, json_file: str | None, junit_file: str | None, verbose: bool) -> int:
    """Carry out ``wish`` and return the exit status."""
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(junit_file, _junit, b'<testsuites name="ol check"', "--junit")]
    apart(outputs)
    with Nursery() as nursery:  # it warms up while the rest is read
        course = courses.load()
        heed(course, wish.names, wish.pool)
        workspace.source_of(wish.bind)
        for output in outputs:
            output.may_be_written()
        from grader.render import terminal

        out = terminal.console(error=json_file == "-")
        with terminal.watching(out) as tell:
            report = with_own_tests(course, run(course, wish, nursery, tell), nursery, tell,
                                    wish.pool.cc)
    terminal.show(report, course, out, verbose)
    for output in outputs:
        output.write(report)
    try:
        progress.record(course, report)
    except OSError as error:  # a verdict stands without it
        click.echo(f"ol: this check could not be remembered: {error.strerror}.", err=True)
    return 0 if report.passed else 1


def _json(report: Report) -> bytes:
    return json_form(report.to_json())


def _junit(report: Report) -> bytes:
    from grader.render import junit

    return junit.document(report)
