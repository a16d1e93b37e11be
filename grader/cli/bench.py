"""`ol bench`: measure, print, write; judge only when asked."""

import sys

import click

from grader.cli.options import CC, MODULES, NATIVE_POOL, REF_DEPS, WHERE
from grader.cli.outputs import Output, json_form, say_what_is_used
from grader.course import manifest as courses
from grader.errors import CallError
from grader.grading.bench import BenchReport, Verdict, measure
from grader.grading.script import modules_with
from grader.grading.target import NO_NATIVE, NativeOptions, check_options
from grader.sandbox.api import WorkerPool


def bench(words: tuple[str, ...], where: str, reference_needs: bool, must_pass: bool,
          json_file: str | None, svg_file: str | None, pool: NativeOptions = NO_NATIVE) -> int:
    """Run the bench of what ``words`` name and return the exit status: 1 when nothing could be
    measured or, with ``must_pass``, when it is not within its budget."""
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(svg_file, _svg, b"<svg", "--svg")]
    with WorkerPool() as workers:
        course = courses.load()
        check_options(course, words, pool)
        module, *more = modules_with(course, words, "bench")
        if more:
            raise CallError("one bench at a time, please: "
                            + ", ".join(m.name for m in (module, *more)))
        say_what_is_used(course, where)
        for output in outputs:
            output.check_writable()
        from grader.render import bench as figures
        from grader.render import console

        out = console.console(error="-" in (json_file, svg_file))
        with console.watching(out) as tell:
            report = measure(course, module, workers, where, reference_needs=reference_needs,
                             tell=lambda doing: tell(module.name, doing), pool=pool,
                             named={m.name for m in course.named(words)})
    figures.show(report, out)
    for output in outputs:
        output.write(report)
    if report.verdict is Verdict.FAILED:
        return 1
    return 1 if must_pass and report.verdict is not Verdict.WITHIN else 0


def _json(report: BenchReport) -> bytes:
    return json_form(report.to_json())


def _svg(report: BenchReport) -> bytes:
    from grader.render import svg

    return svg.document(report)


@click.command("bench")
@MODULES
@WHERE
@REF_DEPS
@click.option("--assert", "must_pass", is_flag=True,
              help="Exit status 1 unless it is within its budget.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures as JSON ('-': print).")
@click.option("--svg", "svg_file", metavar="FILE", help="Draw them as an SVG picture ('-': print).")
@NATIVE_POOL
@CC
def command(modules: tuple[str, ...], bind: str, ref_deps: bool, must_pass: bool,
            json_file: str | None, svg_file: str | None, pool: str | None, cc: str | None) -> None:
    """Measure your code beside the reference; no check ever asks for it."""
    sys.exit(bench(modules, bind, ref_deps, must_pass, json_file, svg_file,
                   NativeOptions(pool, cc)))
