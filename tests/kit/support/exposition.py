"""A reader of the Prometheus text format, strict where a scraper would drop a sample."""

import math
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_ENDINGS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


@dataclass
class Metric:
    """A family as it was read: samples by their name and labels."""

    kind: str
    help: str
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]


def read(text: str) -> dict[str, Metric]:
    """Return the families of a text; anything out of order is an AssertionError."""
    assert text.endswith("\n"), "the last line has no end"
    found: dict[str, Metric] = {}
    name = help_ = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, name, help_ = line.split(" ", 3)
            assert re.fullmatch(_NAME, name)
            assert name not in found, f"{name} comes twice"
            assert re.fullmatch(r"(?:[^\\]|\\[\\n])*", help_)
        elif line.startswith("# TYPE "):
            _, _, same, kind = line.split(" ")
            assert same == name, "TYPE does not follow its HELP"
            assert kind in _ENDINGS
            found[name] = Metric(kind, help_)
        else:
            _take(found[name], name, line)
    for name, metric in found.items():
        assert metric.samples, f"{name} has no sample"
        assert metric.kind != "counter" or name.endswith("_total"), name
        if metric.kind == "histogram":
            _check_histogram(name, metric)
    return found


def _take(metric: Metric, name: str, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match, f"no sample: {line!r}"
    assert match[1] in [name + ending for ending in _ENDINGS[metric.kind]], line
    labels, rest = [], match[2] or ""
    while rest:
        label = _LABEL.match(rest)
        assert label, f"bad labels: {line!r}"
        labels.append((label[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), label[2])))
        rest = rest[label.end() :]
    key = match[1], tuple(sorted(labels))
    assert key not in metric.samples, f"{line!r} comes twice"
    metric.samples[key] = float(match[3])


def _check_histogram(name: str, metric: Metric) -> None:
    """Buckets never fall, the last one is +Inf, and it is the count."""
    buckets = [(float(dict(labels)["le"]), value)
               for (sample, labels), value in metric.samples.items() if sample.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert [v for _, v in buckets] == sorted(v for _, v in buckets)
    assert buckets[-1] == (math.inf, metric.value(f"{name}_count"))
    assert metric.value(f"{name}_sum") >= 0
