"""`ol mutation`: grade the learner's own tests by the bugs that they catch."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from grader import VERSION
from grader.cli.options import CC, MODULES
from grader.cli.outputs import Output, json_form
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.errors import CallError
from grader.grading.mutation.grade import Plan, grade
from grader.grading.mutation.report import SCHEMA, MutationReport
from grader.grading.mutation.test_suite import in_python, no_tests
from grader.grading.target import missing_tool
from grader.learner import workspace
from grader.learner.workspace import State
from grader.sandbox.api import WorkerPool


@dataclass(frozen=True)
class MutationOptions:
    """What a run was asked to do. ``words`` are words of the command line."""
    words: tuple[str, ...]
    matrix: bool = False
    generated: bool = False
    spoil: bool = False
    mine: bool = False
    verbose: bool = False
    cc: str | None = None


def mutation(options: MutationOptions, json_file: str | None) -> int:
    """Carry out ``options`` and return the exit status: 0 when all tests asked for are good
    enough."""
    output = Output(json_file, _json, b'{"schema": 1, "verdict"', "--json")
    with WorkerPool() as workers:
        course = courses.load()
        modules = _with_tests(course, options)
        plan = Plan(options.matrix, options.generated, options.spoil,
                    _own_code(course, modules) if options.mine else None, options.cc)
        output.check_writable()
        from grader.render import console
        from grader.render import mutation as rendered

        out = console.console(error=json_file == "-")
        reports = []
        for module in modules:
            with console.watching(out) as tell:
                report = grade(course, module, workspace.tests_of(module), workers, plan,
                               partial(tell, module.name))
            rendered.show(report, out, options.verbose)
            reports.append(report)
    output.write(reports)
    return 0 if all(r.passed for r in reports) else 1


def _own_code(course: Course, modules: tuple[Module, ...]) -> Path:
    """Return the folder of the learner's code, if all that is needed is begun."""
    for module in (part for m in modules for part in (*course.closure(m), m)):
        state = workspace.state_of(module, workspace.work())
        if state is not State.BEGUN:
            raise CallError(f"--mine changes your own code, and of {module.name} {state.sentence}")
    return workspace.work()


def _with_tests(course: Course, options: MutationOptions) -> tuple[Module, ...]:
    """Return the modules of the words, of the course without any, that a learner has tests of. One
    named by itself must have some. Without words, one that is optional must be begun."""
    words = options.words
    named = course.named(words) if words else tuple(
        m for m in course if not m.optional
        or workspace.state_of(m, workspace.work()) is State.BEGUN)
    if options.generated or options.mine:
        named = in_python(named, bool(words))
    named = tuple(m for m in named if not _lacking(m, options))
    found = tuple(m for m in named if workspace.has_tests(m))
    if found and not (len(named) == len(words) and len(found) < len(named)):
        return found
    first = next(m for m in named if m not in found)
    raise CallError(no_tests(workspace.tests_of(first), first.test_rooms))


def _lacking(module: Module, options: MutationOptions) -> bool:
    """Say whether a module must be left out, and tell it; refuse one that was asked for."""
    if (needed := missing_tool(module, options.cc)) is None:
        return False
    if options.words:
        raise CallError(needed)
    click.echo(f"ol: {needed}; it is left out.", err=True)
    return True


def _json(reports: list[MutationReport]) -> bytes:
    data: dict[str, Any] = {
        "schema": SCHEMA, "kit": VERSION,
        "verdict": "passed" if all(r.passed for r in reports) else "failed",
        "modules": [r.to_json() for r in reports]}
    return json_form(data)


@click.command("mutation")
@MODULES
@click.option("--matrix", is_flag=True, help="Try every test on every bug, not just until one "
              "catches it.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON ('-': print).")
@click.option("--generated", is_flag=True, help="Try generated mutants of the reference, too.")
@click.option("--spoil", is_flag=True, help="Show the lines of those: parts of the solution.")
@click.option("--mine", is_flag=True, help="Try generated mutants of your own code, too.")
@click.option("-v", "--verbose", is_flag=True, help="Show every bug, caught or not.")
@CC
def command(modules: tuple[str, ...], matrix: bool, json_file: str | None, generated: bool,
            spoil: bool, mine: bool, verbose: bool, cc: str | None) -> None:
    """Grade your own tests by the planted bugs that they catch."""
    options = MutationOptions(modules, matrix, generated or spoil, spoil, mine, verbose, cc)
    sys.exit(mutation(options, json_file))
