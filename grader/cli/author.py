"""`ol author`: what those who write chapters ask for."""

import sys
import time

import click
from rich.console import Console

from grader.authoring import dynamic_gates, static_gates
from grader.authoring.finding import Finding
from grader.authoring.kill_matrix import Matrix, matrix_of
from grader.authoring.suite_results import Tell, Trials
from grader.cli.options import MODULES
from grader.cli.outputs import Output
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.errors import CallError
from grader.grading import failure_signatures as known
from grader.grading.target import missing_tool
from grader.learner.atomic_files import display_path
from grader.render import console
from grader.render import matrix as forms
from grader.sandbox.api import WorkerPool


def kills(words: tuple[str, ...]) -> None:
    """Bring `kills.json` of these modules, of all without any, up to date."""
    course = courses.load()
    out = console.console()
    with WorkerPool() as workers, console.watching(out) as tell:
        for module in _named(course, words):
            text = known.text_of(Trials(course, workers, module, tell).kills())
            path = known.file_of(module)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8", newline="\n")
                click.echo(f"wrote {display_path(str(path))}")


def check(words: tuple[str, ...], matrix: bool, html_file: str | None) -> int:
    """Hold these modules, all without any, to every gate; 0 when all of them hold, else 1."""
    course = courses.load()
    output = Output(html_file, forms.page, forms.MARK, "--html")
    output.check_writable()
    out = console.console(error=html_file == "-")
    modules = _named(course, words)
    matrices, faults = list[Matrix](), 0
    with WorkerPool() as workers:
        for module in modules:
            with console.watching(out) as tell:
                found, drawn = _judged(course, workers, module, tell, out)
            faults += len(found)
            matrices += [drawn]
            _say(found, out)
            if matrix:
                _lines(["", *forms.text(drawn), ""], out)
    if found := static_gates.of_course(course, modules):
        _say(found, out)
    faults += len(found)
    output.write(matrices)
    _lines(["Every gate holds." if not faults else
            f"{faults} thing{'s' if faults > 1 else ''} to mend."], out)
    return 1 if faults else 0


def _named(course: Course, words: tuple[str, ...]) -> tuple[Module, ...]:
    """Return the modules of ``words``, or all. A program that cannot be built here is left out,
    which is said, or refused where it was named."""
    found = []
    for module in course.named(words) if words else course.modules:
        if (needed := missing_tool(module)) is None:
            found.append(module)
        elif words:
            raise CallError(needed)
        else:
            click.echo(f"ol: {needed}; it is left out.", err=True)
    return tuple(found)


def _judged(course: Course, workers: WorkerPool, module: Module, tell: Tell,
            out: Console) -> tuple[list[Finding], Matrix]:
    """Hold one module to its gates, and say in a line how that went."""
    started = time.monotonic()
    trials = Trials(course, workers, module, tell)
    found = [*static_gates.of_module(course, module), *dynamic_gates.of_module(trials)]
    drawn = matrix_of(trials)
    mark = "✗" if found else "✓"
    _lines([f"{mark} {module.name:<16} {len(module.tests):>3} tests, {len(drawn.bugs):>3} planted "
            f"bugs, {len(trials.right):>2} right programs   {time.monotonic() - started:5.1f} s"],
           out)
    if idle := drawn.idle():
        console.paragraph(out, f"no planted bug needs {', '.join(idle)}", "dim")
    return found, drawn


def _say(found: list[Finding], out: Console) -> None:
    for finding in found:
        console.paragraph(out, str(finding))


def _lines(lines: list[str], out: Console) -> None:
    for line in lines:
        out.print(line, soft_wrap=True)


@click.group("author")
def command() -> None:
    """For authors of chapters."""


@command.command("write")
def write_command() -> None:
    """Write the stubs and the chapters' tables from the reference and the manifests."""
    from grader.authoring import chapter_tables, python_stub
    from grader.course import manifest
    from grader.learner.atomic_files import display_path

    loaded = manifest.load()
    for path in [*python_stub.write(loaded), *chapter_tables.write(loaded)]:
        click.echo(f"wrote {display_path(str(path))}")


@command.command("check")
@MODULES
@click.option("--matrix", is_flag=True, help="Print which test catches which planted bug.")
@click.option("--html", "html_file", metavar="FILE",
              help="Write the matrices as one HTML page ('-': print).")
def check_command(modules: tuple[str, ...], matrix: bool, html_file: str | None) -> None:
    """Hold modules to every gate: exit status 1 when something must be mended."""
    sys.exit(check(modules, matrix, html_file))


@command.command("mutants")
@MODULES
def mutants_command(modules: tuple[str, ...]) -> None:
    """Generate the mutants of the reference, and try the module's own suite on them."""
    from grader.cli import mutants as verb

    sys.exit(verb.mutants(modules))


@command.command("kills")
@MODULES
def kills_command(modules: tuple[str, ...]) -> None:
    """Write kills.json: which tests each planted bug fails, and how."""
    kills(modules)
