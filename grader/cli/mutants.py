"""`ol author mutants`: generated mutants as data, and what the module's own suite leaves alive."""

import click

from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.course.planted_bugs import reference_of
from grader.errors import KitError
from grader.grading.mutation import generated_mutants
from grader.grading.mutation.candidates import REFERENCE, Program
from grader.grading.mutation.grade import search_generated
from grader.grading.mutation.report import Generated
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import in_python, own
from grader.sandbox.api import WorkerPool


def mutants(words: tuple[str, ...]) -> int:
    """Make the mutants of these modules, of all without any; 0 when each is caught or left out."""
    alive = 0
    with WorkerPool() as workers:
        course = courses.load()
        for module in in_python(course.named(words) if words else tuple(course), bool(words)):
            made = generated_mutants.make(workers, reference_of(module))
            new, gone = generated_mutants.write(module, made)
            click.echo(f"{module.name}: {len(made)} mutants, {new} new, {gone} gone")
            tried = caught_by_suite(course, module, workers)
            click.echo(f"  {tried.caught} of {tried.tried} caught, {tried.left_out} left out")
            for one in tried.survivors:
                click.echo(f"  alive: {one.id}, line {one.line}\n"
                           + "".join(f"    - {line.strip()}\n" for line in one.was)
                           + "\n".join(f"    + {line.strip()}" for line in one.now))
            alive += len(tried.survivors)
    return 1 if alive else 0


def caught_by_suite(course: Course, module: Module, workers: WorkerPool) -> Generated:
    """Try a module's own suite on its generated mutants."""
    suite = own(module)
    with Trials(workers, course, module, suite) as trials:
        base = Program(REFERENCE, reference_of(module))
        tried = search_generated(trials, list(suite.names), base,
                               generated_mutants.load(module), True)
    if tried.failing:
        raise KitError(f"the reference fails {', '.join(tried.failing)}")
    return tried
