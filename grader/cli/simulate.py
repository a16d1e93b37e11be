"""`ol simulate`: a module's study of some files, as tables, as JSON, as one HTML page."""

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from grader.cli.outputs import Output, charts_folder, json_form, refuse_same_target, write_charts
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.errors import CallError
from grader.grading import progress
from grader.grading.script import modules_with
from grader.grading.study import Study, StudyReport
from grader.learner import workspace
from grader.learner.workspace import State
from grader.sandbox.api import WorkerPool

_OFTEN = 10.0  # seconds between two tellings of how far it is


def simulate(options: dict[str, Any], where: str | None, jobs: int | None, json_file: str | None,
             html_file: str | None, svg_folder: str | None) -> int:
    """Study what ``options`` names and return the exit status: 1 when the code under it failed."""
    charts_folder(svg_folder)
    outputs = [Output(json_file, _json, b'{"schema": 1, "verdict"', "--json"),
               Output(html_file, _html, b"<!doctype html>", "--html")]
    refuse_same_target(outputs)
    with WorkerPool() as workers:
        course = courses.load()
        (module,) = modules_with(course, (), "study")
        bound = where or _whose(module)
        workspace.source_of(bound)
        for output in outputs:
            output.check_writable()
        from grader.render import console, failure
        from grader.render import study as render

        out = console.console(error="-" in (json_file, html_file))
        with _bar(out) as bar:
            report = Study(course, module, workers, bound, options, jobs=jobs, progress=bar).run()
    report = replace(report, passed=_passed(module, bound, course))
    if report.failure:
        failure.stopped(f"{module.name}: the study stopped", report.failure,
                        report.played.printed, out)
    else:
        render.show(report, out)
        out.print(_by(report, module), style="dim", soft_wrap=True)
    for output in outputs:
        if not report.failure or output.name == json_file:
            output.write(_Made(report, _by(report, module)))
    if not report.failure:
        write_charts([f for f in report.shown if f["kind"] == "chart"], svg_folder)
    return 1 if report.failure else 0


def _whose(module: Module) -> str:
    """Return the learner's work once it is begun; before that the tool works all the same."""
    begun = workspace.state_of(module, workspace.work()) is State.BEGUN
    return "work" if begun else "reference"


def _passed(module: Module, bound: str, course: Course) -> bool | None:
    """Say whether what was bound has passed its checks; None where no record is kept."""
    if bound == "reference":
        return True
    if bound != "work":
        return None
    known = progress.standings(course).get(module.name)
    return known is not None and known.green and known.current


def _by(report: StudyReport, module: Module) -> str:
    """Say whose code the figures are of, and what they are worth."""
    who = {"work": f"your work/{module.file_name}",
           "reference": "the reference"}.get(report.binding, f"{report.binding}/{module.file_name}")
    if report.passed is False:
        return (f"Simulated by {who}, which has not passed `ol check {module.name}` as it is now: "
                "these figures may be wrong.")
    return f"Simulated by {who}."


class _Made(NamedTuple):
    """A report, and by whose code it was made."""
    report: StudyReport
    by: str


@contextmanager
def _bar(out: Console) -> Iterator[Callable[[float], None]]:
    """Show a bar while a study runs; elsewhere, print the progress every few seconds."""
    if not out.is_terminal:
        yield Telling()
        return
    with Progress(TextColumn("simulating"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                  TimeRemainingColumn(), console=out, transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=share)


class Telling:
    """Says on standard error how much is done, every few seconds."""

    def __init__(self) -> None:
        self.said = monotonic()

    def __call__(self, share: float) -> None:
        if monotonic() - self.said > _OFTEN and share < 1:
            self.said = monotonic()
            click.echo(f"ol: {100 * share:.0f} % simulated.", err=True)


def _json(made: _Made) -> bytes:
    return json_form(made.report.to_json())


def _html(made: _Made) -> bytes:
    from grader.render import study_page

    return study_page.document(made.report, made.by, shlex.join(["ol", *sys.argv[1:]]))


def _list(of: type) -> Callable[[Any, Any, str | None], list[Any]]:
    """Return what reads values with commas between them."""

    def read(_: Any, option: click.Parameter, text: str | None) -> list[Any]:
        try:
            values = [of(word) for word in (text or "").split(",") if word]
        except ValueError:
            raise CallError(f"--{option.name} takes numbers, with commas between several, not "
                            f"{text!r}") from None
        if any(isinstance(value, int) and value < 1 for value in values):
            raise CallError(f"--{option.name} takes numbers from 1 on, not {text!r}")
        return list(dict.fromkeys(values))
    return read


def _finite(_: Any, option: click.Parameter, value: float | None) -> float | None:
    """Refuse what Python takes for a number and is none."""
    if value is not None and not math.isfinite(value):
        name = str(option.name).replace("_", "-")
        raise CallError(f"--{name} takes a number above 0, not {value}")
    return value


@click.command("simulate")
@click.argument("traces", nargs=-1, metavar="TRACE…", required=True)
@click.option("--blocks", callback=_list(int), metavar="N[,N…]",
              help="Blocks of the pool; of several the first, and the others beside it.")
@click.option("--pool-gb", type=click.FloatRange(0, min_open=True), metavar="GIB",
              callback=_finite, help="The pool's size instead, in GiB. Without either it is 8, or "
              "four times what the longest request needs, if that is more.")
@click.option("--block-tokens", callback=_list(int), metavar="N[,N…]",
              help="Tokens of a block; of several the first, and the others beside it.")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a block that a Mooncake trace names. Without it 512.")
@click.option("--policy", metavar="NAME",
              help="Eviction: lru, lru-tail, lfu, length, belady. Without it lru, or the first "
              "that --compare names.")
@click.option("--compare", callback=_list(str), metavar="NAME[,NAME…]",
              help="These of slot, pow2, oracle, paged, the policies and preemption, or all. "
              "Without it slot, paged, lru and belady.")
@click.option("--victim", default="lifo", show_default=True,
              type=click.Choice(["lifo", "fifo", "largest", "least-lost"]))
@click.option("--preemption", default="recompute", show_default=True,
              type=click.Choice(["recompute", "swap"]))
@click.option("--max-len", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a slot. Without it, a power of two that the longest request fits.")
@click.option("--max-running", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--kv-kib", type=click.FloatRange(0, min_open=True), default=128.0,
              callback=_finite, show_default=True, help="KiB of K and V a token.")
@click.option("--step-us", type=click.IntRange(min=1), default=8000, show_default=True,
              help="What a step takes in any case.")
@click.option("--token-us", type=click.IntRange(min=0), default=100, show_default=True,
              help="And for each position that it computes.")
@click.option("--swap-us", type=click.IntRange(min=0), default=5, show_default=True,
              help="And for each position copied to the host or back.")
@click.option("--requests", type=click.IntRange(min=1), default=3000, show_default=True,
              help="How many to make up for a preset.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--skip-bad", is_flag=True, help="Count bad lines and go on.")
@click.option("--bind", default=None, metavar="WHERE",
              help="Whose code: work, reference, or a folder. Without it, yours once begun.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N",
              help="Parts side by side. Without it, one a processor.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures as JSON ('-': print).")
@click.option("--html", "html_file", metavar="FILE", help="Write a page of charts ('-': print).")
@click.option("--svg", "svg_folder", metavar="FOLDER", help="Write each chart as a file.")
def command(traces: tuple[str, ...], bind: str | None, jobs: int | None, json_file: str | None,
            html_file: str | None, svg_folder: str | None, step_us: int, token_us: int,
            swap_us: int, **options: Any) -> None:
    """Run traces through a server's memory: what paging, a cache, and more of it would buy.

    A TRACE is a file in the kit's format, Mooncake's or Azure's, or preset:chat, preset:code,
    preset:agents, preset:retrieval.
    """
    if options["blocks"] and options["pool_gb"]:
        raise CallError("--blocks and --pool-gb both say how large the pool is; give one of them")
    options["traces"] = [t if t.startswith("preset:") else os.path.abspath(t) for t in traces]
    options["cost"] = {"step_us": step_us, "token_us": token_us, "swap_us": swap_us}
    sys.exit(simulate(options, bind, jobs, json_file, html_file, svg_folder))
