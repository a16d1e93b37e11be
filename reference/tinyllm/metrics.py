"""Metrics as Prometheus reads them: the text exposition format, version 0.0.4."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What a server says that it sends when it sends this text."""


class Sample(NamedTuple):
    """One line: what comes behind the family's name, the labels, the value."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""


class Family(NamedTuple):
    """One metric: its name, its kind (counter, gauge or histogram), what it means, its samples."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


class Histogram:
    """Counts how many values were at most each of some bounds."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = sorted(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last one: above all bounds
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def samples(self) -> list[Sample]:
        """Return the buckets, each with all that the ones before it have, then sum and count."""
        uppers = [*(_number(b) for b in self.bounds), "+Inf"]
        buckets = [Sample(count, {"le": upper}, "_bucket")
                   for upper, count in zip(uppers, accumulate(self.counts), strict=True)]
        return [*buckets, Sample(self.sum, suffix="_sum"),
                Sample(sum(self.counts), suffix="_count")]


def exposition(families: Iterable[Family]) -> str:
    """Return the text: HELP, TYPE and the samples of each family, every line with its end."""
    lines = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for value, labels, suffix in family.samples:
            said = ",".join(f'{k}="{_escaped(v, quotes=True)}"' for k, v in labels.items())
            lines.append(f"{family.name}{suffix}{'{' + said + '}' if said else ''} "
                         f"{_number(value)}")
    return "".join(line + "\n" for line in lines)


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
