"""A bench for a person at a terminal: medians, bars, ratios, and what they mean."""

from textwrap import wrap

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.course.model import Bench
from grader.grading.bench import CONTROL, BenchReport, Measured, Series, Verdict, doubling, median
from grader.render.console import indented, paragraph
from grader.render.failure import stopped

_BAR = 40  # characters of the longest bar
_HEAD = 9  # characters of a line in the head of a column
_MUCH = 0.2  # of a time, for bookkeeping
_EIGHTHS = " ▏▎▍▌▋▊▉"


def show(report: BenchReport, out: Console) -> None:
    """Print the whole report."""
    bench = report.bench
    rounds = max((len(s.cpu) for m in report.measured for s in m.series.values()), default=0)
    out.print()
    how = f"   {rounds} rounds, {report.seconds:.1f} s in all" if rounds else ""
    out.print(Text(f"{report.module}: {bench.title}", "bold").append(how, "not bold dim"),
              soft_wrap=True)
    out.print()
    for one in report.measured:
        if one.failure:
            stopped(f"{one.who}: the bench stopped", one.failure, one.played.printed, out)
    shown = [m for m in report.measured if not m.failure]
    if shown:
        indented(_times(shown), 2, out)
        _bars(shown, out)
        indented(_ratios(report, shown), 2, out)
        for line in _legend(report, shown):
            paragraph(out, line, "dim")
        out.print()
    for sentence in sentences(report):
        paragraph(out, sentence, by=0)


def sentences(report: BenchReport) -> list[str]:
    """Return what the figures mean: the verdict, and what the bookkeeping's growth tells."""
    said = [_verdict(report)]
    for name, factor in report.measured[0].steep().items():
        said.append(f"In {name}, twice the size costs {factor:.1f} times the bookkeeping: it grows "
                    "like the square. Look for a walk over all blocks inside a walk over blocks.")
    return said


def milliseconds(seconds: float) -> str:
    """Return a time with three digits or so, always in the same unit."""
    figure = 1e3 * seconds
    decimals = next((n for n, least in ((0, 100), (1, 10), (2, 1)) if figure >= least), 3)
    return f"{figure:.{decimals}f} ms"


def counted(values: list[int]) -> str:
    """Return a count that is the same in every round, or its range."""
    return str(values[0]) if min(values) == max(values) else f"{min(values)} to {max(values)}"


def _verdict(report: BenchReport) -> str:
    bench, ratio = report.bench, report.ratio
    pair = f"{bench.base} / {bench.over}"
    match report.verdict:
        case Verdict.WITHIN:
            return f"Within budget: {pair} is {ratio:.1f}, and at least {bench.budget:g} is asked."
        case Verdict.BELOW:
            return (f"Below budget: {pair} is {ratio:.2f}, and at least {bench.budget:g} is asked. "
                    + _why(report.measured[0], bench))
        case Verdict.UNSURE:
            return (f"No verdict: {bench.base} against itself is {report.control:.2f}, which must "
                    f"lie in {CONTROL[0]} to {CONTROL[1]}. This machine has too much else to do: "
                    "run it again.")
        case _:
            return "No verdict: it could not be measured."


def _why(measured: Measured, bench: Bench) -> str:
    """Say whether the work was done all the same, or whether something else took the time."""
    above, below = measured.series[bench.base].counts, measured.series[bench.over].counts
    for what, values in below.items():
        if values == above.get(what):
            return f"Both have {counted(values)} {what}: nothing was saved."
    share = _share(measured, bench.over) or 0.0
    if share >= _MUCH:
        return f"The work is saved, but {bench.share} takes {share:.0%} of {bench.over}."
    return "The work is saved and the time is not: look at what else your code does in a step."


def _times(shown: list[Measured]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    counts = list(dict.fromkeys(c for m in shown for s in m.series.values() for c in s.counts))
    for name in ("", "", "CPU, median", "least to most", "wall, median", *counts):
        table.add_column("\n".join(wrap(name, _HEAD)), no_wrap=True, vertical="bottom",
                         justify="right" if "median" in name else "left")
    for one in shown:
        for number, (name, series) in enumerate(one.series.items()):
            table.add_row(one.who if number == 0 else "", name, *_row(series, counts))
    return table


def _row(series: Series, counts: list[str]) -> list[str]:
    return [milliseconds(median(series.cpu) or 0.0),
            f"{milliseconds(min(series.cpu))[:-3]} to {milliseconds(max(series.cpu))}",
            milliseconds(median(series.wall) or 0.0),
            *(counted(series.counts[c]) if c in series.counts else "" for c in counts)]


def _bars(shown: list[Measured], out: Console) -> None:
    times = [(one.who, name, median(s.cpu) or 0.0) for one in shown
             for name, s in one.series.items()]
    longest = max(seconds for _, _, seconds in times)
    width = max(len(name) for _, name, _ in times)
    for who in dict.fromkeys(who for who, _, _ in times):
        for name, seconds in [(n, s) for w, n, s in times if w == who]:
            line = Text(f"  {who:<9}  {name:<{width}}  ")
            line.append(_bar(seconds / longest), "cyan" if who == "yours" else "dim")
            out.print(line.append(f" {milliseconds(seconds)}"), soft_wrap=True)
    out.print()


def _bar(share: float) -> str:
    whole, part = divmod(round(share * _BAR * 8), 8)
    return "█" * whole + _EIGHTHS[part].strip()


def _ratios(report: BenchReport, shown: list[Measured]) -> Table:
    bench = report.bench
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("", *(m.who for m in shown)):
        table.add_column(name, no_wrap=True)
    others = [n for n in shown[0].series if n not in (bench.base, bench.over, bench.control)]
    for name in (bench.over, *others, bench.control):
        table.add_row(f"{bench.base} / {name}",
                      *(_spread(m.ratios(bench.base, name)) for m in shown))
    if any(m.ideal for m in shown):
        table.add_row("by operations", *(f"{m.ideal:.1f}" if m.ideal else "" for m in shown))
    for name in shown[0].shares:
        table.add_row(f"{bench.share}, {name}", *(_said_share(m, name) for m in shown))
    for name in shown[0].growth:
        table.add_row(f"growth, {name}", *(_said_growth(m, name) for m in shown))
    return table


def _legend(report: BenchReport, shown: list[Measured]) -> list[str]:
    """Return what the rows of `_ratios` mean, a line each."""
    bench = report.bench
    lines = [f"{bench.base} / {bench.over}: the budget is at least {bench.budget:g}, in the median",
             f"{bench.base} / {bench.control}: the same thing twice; {CONTROL[0]} to {CONTROL[1]}, "
             "or there is no verdict"]
    if any(m.ideal for m in shown):
        lines.append(f"by operations: {bench.base} / {bench.over} if nothing but the counted "
                     "operations took time")
    if shown[0].shares:
        lines.append(f"{bench.share}: CPU time in that alone, and its share of the whole")
    if shown[0].growth:
        lines.append("growth: what bookkeeping costs for twice the size; × 2 is linear, × 4 is "
                     "like the square")
    return lines


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return "–"
    return f"{median(ratios):.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"


def _share(measured: Measured, name: str) -> float | None:
    whole = median(measured.series.get(name, Series()).cpu)
    return measured.shares[name] / whole if whole and name in measured.shares else None


def _said_share(measured: Measured, name: str) -> str:
    share = _share(measured, name)
    return "–" if share is None else f"{milliseconds(measured.shares[name])}, {share:.1%}"


def _said_growth(measured: Measured, name: str) -> str:
    factor = doubling(measured.growth.get(name, []))
    return "–" if factor is None else f"× {factor:.1f}"
