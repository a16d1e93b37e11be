"""`ol demo`: show a module at work."""

import sys

import click

from grader.cli.options import CC, MODULES, NATIVE_POOL, REF_DEPS, WHERE
from grader.cli.outputs import charts_folder, say_what_is_used, write_charts
from grader.course import manifest as courses
from grader.grading.script import modules_with, run_script
from grader.grading.target import NO_NATIVE, NativeOptions, check_options
from grader.render import console, failure
from grader.render import demo as stage
from grader.sandbox.api import WorkerPool


def demo(words: tuple[str, ...], where: str, reference_needs: bool,
         svg_folder: str | None = None, pool: NativeOptions = NO_NATIVE) -> int:
    """Play the demos of what ``words`` name, and write their charts to a folder if one is named; 0
    when all came to their end."""
    charts_folder(svg_folder)
    failed = False
    with WorkerPool() as workers:
        course = courses.load()
        check_options(course, words, pool)
        out = console.console()
        say_what_is_used(course, where)
        named = {m.name for m in course.named(words)}
        for module in modules_with(course, words, "demo"):
            assert module.demo is not None
            shown = stage.Stage(out)
            played = run_script(course, module, module.demo, workers, where,
                                reference_needs=reference_needs, figure=shown.show, pool=pool,
                                named=named)
            out.print()
            if played.failure:
                failed = True
                failure.stopped(f"{module.name}: the demo stopped", played.failure,
                                played.printed, out)
            else:
                failure.printed(played.printed, out)
                write_charts(shown.charts, svg_folder)
    return 1 if failed else 0


@click.command("demo")
@MODULES
@WHERE
@REF_DEPS
@NATIVE_POOL
@CC
@click.option("--svg", "svg_folder", metavar="FOLDER", help="Write its charts there, if any.")
def command(modules: tuple[str, ...], bind: str, ref_deps: bool, pool: str | None,
            cc: str | None, svg_folder: str | None) -> None:
    """Watch your code at work in a running engine."""
    sys.exit(demo(modules, bind, ref_deps, svg_folder, NativeOptions(pool, cc)))
