"""`ol check`: run, print, write; then what is only advice, which can cost no more than a line."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import click
from rich.console import Console
from rich.text import Text

from grader.cli import completion
from grader.cli.options import CC, MODULES, NATIVE_POOL, REF_DEPS, WHERE
from grader.cli.outputs import Output, json_form, refuse_same_target, say_what_is_used
from grader.course import manifest as courses
from grader.course.model import Course
from grader.grading import next_steps, progress
from grader.grading.check import CheckOptions
from grader.grading.check import check as run
from grader.grading.mutation import own_tests_score
from grader.grading.report import OwnTests, Report
from grader.grading.target import NativeOptions, check_options
from grader.learner import workspace
from grader.sandbox.api import WorkerPool


def check(options: CheckOptions, json_file: str | None, junit_file: str | None,
          verbose: bool) -> int:
    """Carry out ``options`` and return the exit status."""
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(junit_file, _junit, b'<testsuites name="ol check"', "--junit")]
    refuse_same_target(outputs)
    with WorkerPool() as workers:  # it warms up while the rest is read
        course = courses.load()
        check_options(course, options.names, options.pool)
        workspace.source_of(options.bind)
        for output in outputs:
            output.check_writable()
        from grader.render import console, terminal

        out = console.console(error=json_file == "-")
        failed: list[tuple[str, Exception]] = []
        with console.watching(out) as tell:
            report = run(course, options, workers, tell, lambda *what: failed.append(what))
        terminal.show(report, course, out, verbose)
        for output in outputs:
            output.write(report)
        for what, error in failed:
            _say(what, error)
        with _advice("the provided files could not be compared"):
            say_what_is_used(course, options.bind)
        with _advice("this check could not be remembered"):
            progress.record(course, report)
        _grade_own_tests(course, report, workers, options.pool.cc, outputs, out)
    return 0 if report.passed else 1


def _grade_own_tests(course: Course, report: Report, workers: WorkerPool, cc: str | None,
                     outputs: Sequence[Output[Report]], out: Console) -> None:
    """Say what the learner's own tests are worth, and write the reports once more with it. What
    went to the standard output has gone: it waits for no advice."""
    from grader.render import console

    worth: dict[str, OwnTests] = {}
    with _advice("your own tests were not graded"):
        for module in own_tests_score.gradable(course, report):
            with _advice(f"your own tests of {module.name} were not graded"):
                with console.watching(out) as tell:
                    own = own_tests_score.worth(course, module, workers, tell, cc)
                worth[module.name] = own
                for line in next_steps.own_tests(module.name, own):
                    out.print(Text(line), soft_wrap=True)
                with _advice("their score could not be remembered"):
                    own_tests_score.remember(course, module, own, cc)
    if worth:
        whole = replace(report, modules=[replace(m, own_tests=worth.get(m.name))
                                         for m in report.modules])
        with _advice("the report has no score of your own tests"):
            for output in outputs:
                if output.name != "-":
                    output.write(whole)


@contextlib.contextmanager
def _advice(what: str) -> Iterator[None]:
    """Let what fails in the block cost one line, and no verdict."""
    try:
        yield
    except Exception as error:
        _say(what, error)


def _say(what: str, error: Exception) -> None:
    """Say in one line what advice is missing, and why."""
    if os.environ.get("OL_DEBUG"):
        raise error
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    click.echo(f"ol: {what}: {' '.join(reason.split()) or type(error).__name__}.", err=True)


def _json(report: Report) -> bytes:
    return json_form(report.to_json())


def _junit(report: Report) -> bytes:
    from grader.render import junit

    return junit.document(report)


@click.command("check")
@MODULES
@WHERE
@REF_DEPS
@click.option("-k", "only", metavar="NAME", shell_complete=completion.complete_tests,
              help="Only the test of this name, or those with NAME in theirs.")
@click.option("--all", "everything", is_flag=True, help="Judge modules that are not begun, too.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
              help="The seed of the property tests.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON ('-': print).")
@click.option("--junit", "junit_file", metavar="FILE", help="Write the report as JUnit XML.")
@click.option("-v", "--verbose", is_flag=True, help="Show every failure whole.")
@NATIVE_POOL
@CC
def command(modules: tuple[str, ...], bind: str, ref_deps: bool, only: str | None,
            everything: bool, seed: int, json_file: str | None, junit_file: str | None,
            verbose: bool, pool: str | None, cc: str | None) -> None:
    """Judge modules: exit status 0 when all that was asked passed, 1 when something did not."""
    options = CheckOptions(modules, bind, ref_deps, only, everything, seed, NativeOptions(pool, cc))
    sys.exit(check(options, json_file, junit_file, verbose))
