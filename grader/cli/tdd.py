"""`ol tdd red` and `ol tdd green`: the learner's own tests before and after the work."""

import sys

import click

from grader.cli.options import CC, MODULES, REF_DEPS, WHERE
from grader.course import manifest as courses
from grader.errors import CallError
from grader.grading.mutation.tdd import Stage, rehearse
from grader.grading.target import missing_tool
from grader.learner import workspace
from grader.sandbox.api import WorkerPool


def tdd(stage: str, words: tuple[str, ...], where: str, reference_needs: bool,
        cc: str | None) -> int:
    """Run the learner's tests of these modules and return the exit status: 0 when all were as the
    stage asks."""
    with WorkerPool() as workers:
        course = courses.load()
        modules = course.named(words)
        if not modules:
            raise CallError(f"say which module: `ol tdd {stage} {course.modules[0].name}`")
        for needed in filter(None, (missing_tool(m, cc) for m in modules)):
            raise CallError(needed)
        source = workspace.source_of(where)
        from grader.render import console, mutation

        out = console.console()
        passed = True
        for module in modules:
            rehearsal = rehearse(course, module, workspace.tests_of(module), workers, Stage(stage),
                                 source, reference_needs=reference_needs, cc=cc,
                                 named={m.name for m in modules})
            mutation.show_rehearsal(rehearsal, module, out)
            passed = passed and rehearsal.passed
    return 0 if passed else 1


@click.command("tdd")
@click.argument("stage", type=click.Choice(["red", "green"]))
@MODULES
@WHERE
@REF_DEPS
@CC
def command(stage: str, modules: tuple[str, ...], bind: str, ref_deps: bool,
            cc: str | None) -> None:
    """Run your own tests: red before the work, green after it."""
    sys.exit(tdd(stage, modules, bind, ref_deps, cc))
