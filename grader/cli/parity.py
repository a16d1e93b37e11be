"""`ol parity`: hold every program that there is against one reading of a format."""

import sys

import click
from rich.console import Console
from rich.text import Text

from grader.cli.options import CC
from grader.course import manifest as courses
from grader.errors import CallError
from grader.grading import parity as parities
from grader.grading.parity import Compared, Contender, compare, contenders, lacking
from grader.render import console, failure
from grader.sandbox.api import WorkerPool


def parity(name: str | None, cc: str | None) -> int:
    """Compare, print, and return the exit status: 0 when all programs agree on everything."""
    with WorkerPool() as workers:
        course = courses.load()
        if name is None:
            known = ", ".join(m.parity.name for m in course if m.parity)
            raise CallError(f"say which parity suite: {known}")
        module = parities.named(course, name)
        assert module.parity is not None
        out = console.console()
        lacks = {one: lacking(course, module, one) for one in contenders(course, module, cc)}
        there = [one for one, not_begun in lacks.items() if not not_begun]
        mine = [one for one in there if one.where == "work"]
        with console.watching(out) as tell:

            def compared(some: list[Contender]) -> list[Compared]:
                return workers.all(lambda one: compare(
                    course, module, workers, one, lambda what: tell(name, what)), some)

            results = compared(mine)  # first: where one cannot be run, nobody waits for the others
            stopped = any(r.played.failure and not r.counts and not _left_out(r) for r in results)
            results += [] if stopped else compared([one for one in there if one not in mine])
    out.print(Text(f"\n{name}: {module.parity.title}\n", "bold"), soft_wrap=True)
    for result in results:
        _row(result, out)
    for one, not_begun in lacks.items():
        if not_begun:
            _line("·", one, f"took no part: {', '.join(m.name for m in not_begun)} not begun", out)
    out.print()
    for result in results:
        _differences(result, out)
    judged = [result for result in results if not _left_out(result)]
    agree = bool(judged) and all(result.agrees for result in judged) and not stopped
    said = "All of them agree." if agree else "They do not agree."
    if stopped:
        said = "Nothing else was compared: mend that first."
    elif not any(result.contender in mine for result in judged):
        said += " None of them is yours."
    out.print(Text(said), soft_wrap=True)
    return 0 if agree else 1


def _left_out(result: Compared) -> bool:
    """True where it is no fault of a program's that nothing came of it."""
    return result.played.failure is not None and result.played.failure.cause == "needs"


def _row(result: Compared, out: Console) -> None:
    if (reason := result.played.failure) and reason.cause == "needs":
        said = f"left out: {reason.what}"
    else:
        said = "  ".join(f"{what} {count}" + (f", {different} differ" if different else "")
                         for what, (count, different) in result.counts.items())
    _line("✓" if result.agrees else "✗", result.contender, said, out)


def _line(mark: str, contender: Contender, said: str, out: Console) -> None:
    out.print(Text(f"  {mark} {contender.name:<20} {said}".rstrip()), soft_wrap=True)


def _differences(result: Compared, out: Console) -> None:
    for difference in result.differences:
        out.print(Text(f"✗ {result.contender.name}: {difference['what']}", "bold"), soft_wrap=True)
        for label, key in (("where", "where"), ("expected", "expected"), ("got", "got")):
            out.print(Text(f"    {label:<9} {difference.get(key, '')}"), soft_wrap=True)
        out.print()
    reason = result.played.failure
    if reason and reason.cause != "needs":
        failure.stopped(f"{result.contender.name}: the comparison stopped", reason,
                        result.played.printed, out)


@click.command("parity")
@click.argument("name", required=False)
@CC
def command(name: str | None, cc: str | None) -> None:
    """Hold every program that there is against one reading of a format, byte for byte."""
    sys.exit(parity(name, cc))
