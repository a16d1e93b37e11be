"""A bench: measure a module's code and the reference's in one run, and judge by ratios alone.

The module's manifest says which series count and what the budget is; its script measures, and
tells figures of these kinds:

    sample   a round of a series: cpu and wall seconds, exact counts
    ideal    the ratio that operation counts alone would give
    share    seconds of a series that one part of it takes, the module's own bookkeeping or another
    growth   points (size, seconds) of a series: how the bookkeeping grows
"""

import math
import statistics
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from grader import VERSION
from grader.course.model import Bench, Course, Module
from grader.grading.report import Failure
from grader.grading.script import ScriptResult, run_script
from grader.grading.target import NO_NATIVE, NativeOptions
from grader.sandbox.api import WorkerPool

SCHEMA = 1
CONTROL = (0.8, 1.25)
"""What the same thing measured twice may differ by, for a verdict to count."""
STEEP = 2**1.5
"""Twice the size costs 2 times where the work is linear, 4 where it is quadratic; this is between
them."""


class Verdict(StrEnum):
    """What became of a bench."""

    WITHIN = "within budget"
    BELOW = "below budget"
    UNSURE = "not to be trusted"  # the control differs from itself
    FAILED = "failed"  # the script did not come to its end


@dataclass
class Series:
    """Seconds of each round, and what was counted in it."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)


@dataclass
class Measured:
    """What a script told of one program; ``who`` is "yours" or "reference"."""

    who: str
    series: dict[str, Series] = field(default_factory=dict)
    ideal: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    growth: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    played: ScriptResult = field(default_factory=ScriptResult)

    @property
    def failure(self) -> Failure | None:
        return self.played.failure

    def take(self, figure: dict[str, Any]) -> None:
        """Take in one figure; what is of no known kind is passed over."""
        match figure:
            case {"kind": "sample", "series": name, "cpu": cpu, "wall": wall, "counts": counts}:
                series = self.series.setdefault(name, Series())
                series.cpu.append(float(cpu))
                series.wall.append(float(wall))
                for what, count in counts.items():
                    series.counts.setdefault(what, []).append(int(count))
            case {"kind": "ideal", "ratio": ratio}:
                self.ideal = float(ratio)
            case {"kind": "share", "series": name, "seconds": seconds}:
                self.shares[name] = float(seconds)
            case {"kind": "growth", "series": name, "points": points}:
                self.growth[name] = [(int(n), float(s)) for n, s in points]

    def ratios(self, base: str, over: str) -> list[float]:
        """Return CPU time of ``base`` / ``over`` in each round; none unless both had all rounds."""
        above, below = self.series.get(base, Series()).cpu, self.series.get(over, Series()).cpu
        if len(above) != len(below) or not all(s > 0 for s in below):
            return []
        return [a / b for a, b in zip(above, below, strict=True)]

    def steep(self) -> dict[str, float]:
        """Return the series whose bookkeeping grows too fast, with `doubling` of each."""
        return {name: factor for name, points in self.growth.items()
                if (factor := doubling(points)) is not None and factor >= STEEP}


@dataclass(frozen=True)
class BenchReport:
    """A whole bench. The first program measured is the one that is judged."""

    kit: str
    module: str
    binding: str
    bench: Bench
    measured: list[Measured]
    seconds: float

    @property
    def ratio(self) -> float | None:
        return median(self.measured[0].ratios(self.bench.base, self.bench.over))

    @property
    def control(self) -> float | None:
        return median(self.measured[0].ratios(self.bench.base, self.bench.control))

    @property
    def verdict(self) -> Verdict:
        """Never within budget without evidence."""
        if self.measured[0].failure or self.ratio is None or self.control is None:
            return Verdict.FAILED
        if not CONTROL[0] <= self.control <= CONTROL[1]:
            return Verdict.UNSURE
        return Verdict.WITHIN if self.ratio >= self.bench.budget else Verdict.BELOW

    def to_json(self) -> dict[str, Any]:
        """Return the report as `formats/bench-report.schema.json` has it."""
        bench = self.bench
        return {
            "schema": SCHEMA, "verdict": self.verdict.value, "kit": self.kit,
            "module": self.module, "binding": self.binding, "name": bench.name,
            "title": bench.title, "base": bench.base, "over": bench.over, "control": bench.control,
            "budget": bench.budget, "seconds": self.seconds,
            "measured": [_measured_json(m, bench) for m in self.measured],
        }


def measure(course: Course, module: Module, workers: WorkerPool, where: str, *,
            reference_needs: bool, tell: Callable[[str], None],
            pool: NativeOptions = NO_NATIVE, named: Collection[str] = ()) -> BenchReport:
    """Measure the code in ``where`` and, unless that is the reference, the reference beside it,
    which is Python whatever ``pool`` says.

    ``tell`` hears in a few words what is measured at the moment.
    """
    bench = module.bench
    assert bench is not None
    started = time.monotonic()
    measured = []
    for who, source in (("yours", where), ("reference", "reference")):
        judged = who == "yours"
        if not judged and where == "reference" and not pool.language:
            continue
        one = Measured(who if pool.language or source != "reference" else "reference")

        def take(figure: dict[str, Any], one: Measured = one) -> None:
            one.take(figure)
            tell(f"{one.who}: {figure.get('kind')} {figure.get('series', '')}")

        one.played = run_script(course, module, bench, workers, source,
                          reference_needs=reference_needs, figure=take,
                          pool=pool if judged else NO_NATIVE, named=named)
        measured.append(one)
        if one.failure:
            break  # there is nothing to compare with
    return BenchReport(VERSION, module.name, where, bench, measured, time.monotonic() - started)


def doubling(points: list[tuple[int, float]]) -> float | None:
    """Return how many times longer twice the size takes, by the largest sizes measured.

    The slope of log time over log size, fitted to the three largest points: small sizes say more
    about fixed costs than about growth.
    """
    points = [(n, s) for n, s in sorted(points) if n > 0 and s > 0][-3:]
    if len({n for n, _ in points}) < 2:
        return None
    slope = statistics.linear_regression([math.log(n) for n, _ in points],
                                         [math.log(s) for _, s in points]).slope
    return float(2**slope)


def median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _measured_json(measured: Measured, bench: Bench) -> dict[str, Any]:
    ratios = {name: measured.ratios(bench.base, name) for name in measured.series
              if name != bench.base}
    return {
        "who": measured.who,
        "series": {name: asdict(series) for name, series in measured.series.items()},
        "ratios": {name: {"median": median(r), "least": min(r), "most": max(r)}
                   for name, r in ratios.items() if r},
        "ideal": measured.ideal,
        "bookkeeping": measured.shares,
        "growth": {name: {"points": [list(p) for p in points], "doubling": doubling(points)}
                   for name, points in measured.growth.items()},
        "failure": measured.failure.what if measured.failure else None,
    }
