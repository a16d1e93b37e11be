"""`ol parity`: hold every program that there is against one reading of a format."""

import os
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.text import Text

from grader import course as courses
from grader import parity as parities
from grader.errors import CallError
from grader.parity import Compared, compare, contenders
from grader.render import terminal
from grader.worker.session import Nursery


def parity(name: str | None, cc: str | None) -> int:
    """Compare, print, and return the exit status: 0 when all programs agree on everything."""
    with Nursery() as nursery:
        course = courses.load()
        if name is None:
            known = ", ".join(m.parity.name for m in course if m.parity)
            raise CallError(f"say which parity suite: {known}")
        module = parities.named(course, name)
        assert module.parity is not None
        out = terminal.console()
        with terminal.watching(out) as tell, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = list(pool.map(
                lambda one: compare(course, module, nursery, one, lambda what: tell(name, what)),
                contenders(course, module, cc)))
    out.print(Text(f"\n{name}: {module.parity.title}\n", "bold"), soft_wrap=True)
    for result in results:
        _row(result, out)
    out.print()
    for result in results:
        _differences(result, out)
    agree = all(result.agrees for result in results)
    out.print(Text(f"All {len(results)} agree." if agree else "They do not agree."))
    return 0 if agree else 1


def _row(result: Compared, out: Console) -> None:
    if result.played.failure and result.played.failure.cause == "needs":
        said = f"left out: {result.played.failure.what}"
    else:
        said = "  ".join(f"{what} {count}" + (f", {different} differ" if different else "")
                         for what, (count, different) in result.counts.items())
    mark = "✓" if result.agrees else "✗"
    out.print(Text(f"  {mark} {result.contender.name:<20} {said}"), soft_wrap=True)


def _differences(result: Compared, out: Console) -> None:
    for difference in result.differences:
        out.print(Text(f"✗ {result.contender.name}: {difference['what']}", "bold"), soft_wrap=True)
        for label, key in (("where", "where"), ("expected", "expected"), ("got", "got")):
            out.print(Text(f"    {label:<9} {difference.get(key, '')}"), soft_wrap=True)
        out.print()
    failure = result.played.failure
    if failure and failure.cause != "needs":
        terminal.stopped(f"{result.contender.name}: the comparison stopped", failure,
                         result.played.printed, out)
