"""Charts as SVG: lines, areas that stand on each other, bars of parts. No script, no font, no
address; light or dark as the page is; told apart without colour by dashes and by their order."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

Chart = dict[str, Any]
Scale = Callable[[float], float]

WIDTH, HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 28, 12, 78
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2")
STYLE = """
.chart { --ink: #1b1b1f; --dim: #5b5b66; --grid: #dcdce3; --paper: #ffffff;
  --c0: #1f6fb2; --c1: #c2571a; --c2: #2e7d4f; --c3: #7b4fa3; --c4: #8a6d00; --c5: #a9b0ba; }
@media (prefers-color-scheme: dark) { .chart { --ink: #ececf1; --dim: #a9a9b6; --grid: #3a3a44;
  --paper: #17171b; --c0: #6bb3ec; --c1: #f0965e; --c2: #6fcb95; --c3: #c39be6; --c4: #dcbf55;
  --c5: #5d6570; } }
.chart text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.chart .dim { fill: var(--dim); }
.chart .grid { stroke: var(--grid); stroke-width: 1; }
.chart .line { fill: none; stroke-width: 2; }
.chart .edge { stroke: var(--paper); stroke-width: 1; }
""" + "".join(f".chart .s{n} {{ stroke: var(--c{n}); }} .chart .f{n} {{ fill: var(--c{n}); }}\n"
              for n in range(len(_DASHES)))


def svg(chart: Chart, number: int, alone: bool = False) -> str:
    """Return one chart. ``number`` makes its ids differ from others' on the page; ``alone``: it is
    a file of its own, with its style."""
    draw = {"lines": _lines, "areas": _areas, "bars": _bars}[chart["form"]]
    title = f"chart-{number}"
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" '
            f'aria-labelledby="{title} {title}-says">')
    parts = [head, f'<title id="{title}">{escape(chart["title"])}</title>',
             f'<desc id="{title}-says">{escape(chart["says"])}</desc>']
    if alone:
        parts.append(f"<style>{STYLE}</style>")
    return "\n".join([*parts, *draw(chart), *_legend(chart), "</svg>"]) + "\n"


def _lines(chart: Chart) -> list[str]:
    points = [p for series in chart["series"] for p in series["points"]]
    across, up, axes = _axes(chart, [x for x, _ in points], max((y for _, y in points), default=1))
    parts = axes
    for number, series in enumerate(chart["series"]):
        path = _path([(across(x), up(y)) for x, y in series["points"]], chart.get("steps", False))
        dash = _DASHES[number % len(_DASHES)]
        parts.append(f'<path class="line s{number % len(_DASHES)}" stroke-dasharray="{dash}" '
                     f'd="{path}"/>')
        if chart.get("dots"):
            parts += [f'<circle class="f{number % len(_DASHES)}" cx="{across(x):.1f}" '
                      f'cy="{up(y):.1f}" r="3"/>' for x, y in series["points"]]
    return parts


def _areas(chart: Chart) -> list[str]:
    """Draw series on top of each other; they share their x."""
    xs = [x for x, _ in chart["series"][0]["points"]]
    layers = [[0.0] * len(xs)]
    for series in chart["series"]:
        layers.append([below + y for below, (_, y) in zip(layers[-1], series["points"],
                                                          strict=True)])
    across, up, parts = _axes(chart, xs, max(layers[-1], default=1.0))
    for number, (low, high) in enumerate(pairwise(layers)):
        edge = [(across(x), up(y)) for x, y in zip(xs, high, strict=True)]
        back = [(across(x), up(y)) for x, y in zip(xs, low, strict=True)][::-1]
        parts.append(f'<path class="f{number % len(_DASHES)} edge" '
                     f'd="{_path(edge + back)} Z"/>')
    return parts


def _bars(chart: Chart) -> list[str]:
    """Draw a bar for each of the categories, made of a part for each series."""
    names, series = chart["categories"], chart["series"]
    sums = [sum(s["values"][at] for s in series) for at in range(len(names))]
    across, up, parts = _axes({**chart, "ticks_x": False}, [0, len(names)], max(sums, default=1))
    wide = (across(1) - across(0)) * 0.62
    for at, name in enumerate(names):
        middle, base = across(at + 0.5), 0.0
        for number, one in enumerate(series):
            top = base + one["values"][at]
            parts.append(f'<rect class="f{number % len(_DASHES)} edge" x="{middle - wide / 2:.1f}" '
                         f'y="{up(top):.1f}" width="{wide:.1f}" '
                         f'height="{max(up(base) - up(top), 0):.1f}"/>')
            base = top
        parts.append(_text(middle, HEIGHT - _BOTTOM + 18, name, "middle"))
    return parts


def _axes(chart: Chart, xs: Sequence[float], most: float) -> tuple[Scale, Scale, list[str]]:
    """Return the scales of both axes, and the axes."""
    log = chart.get("log_x", False)
    low, high = (min(xs, default=0), max(xs, default=1))
    place = (lambda x: math.log(x)) if log else (lambda x: x)
    span = (place(high) - place(low)) or 1.0
    top = chart.get("most") or _ticks(most or 1.0)[-1]

    def across(x: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (place(x) - place(low)) / span

    def up(y: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(y / top, 1.0)

    parts = []
    for tick in _ticks(top):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{up(tick):.1f}" '
                     f'y2="{up(tick):.1f}"/>')
        parts.append(_text(_LEFT - 8, up(tick) + 4, _said(tick, chart.get("percent", False)), "end",
                           "dim"))
    if chart.get("ticks_x", True):
        for x in _marks(chart, xs):
            if low <= x <= high:
                said = chart.get("names", {}).get(str(x)) or _said(x, False)
                parts.append(_text(across(x), HEIGHT - _BOTTOM + 18, said, "middle", "dim"))
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - _BOTTOM + 36, chart["x"], "middle",
                       "dim"))
    parts.append(f'<text class="dim" text-anchor="middle" transform="rotate(-90)" '
                 f'x="{-(HEIGHT - _BOTTOM + _TOP) / 2:.0f}" y="14">{escape(chart["y"])}</text>')
    return across, up, parts


def _legend(chart: Chart) -> list[str]:
    """Name the series, in a row under the chart."""
    if len(chart["series"]) < 2:
        return []
    parts, x, y = [], float(_LEFT), HEIGHT - 14
    for number, series in enumerate(chart["series"]):
        at = number % len(_DASHES)
        if chart["form"] == "lines":
            parts.append(f'<line class="line s{at}" stroke-dasharray="{_DASHES[at]}" x1="{x:.0f}" '
                         f'x2="{x + 26:.0f}" y1="{y - 4}" y2="{y - 4}"/>')
        else:
            parts.append(f'<rect class="f{at}" x="{x + 8:.0f}" y="{y - 10}" width="12" '
                         f'height="12"/>')
        parts.append(_text(x + 32, y, series["name"], "start"))
        x += 48 + 7 * len(series["name"])
    return parts


def _path(points: Sequence[tuple[float, float]], steps: bool = False) -> str:
    """Return a path through points; in ``steps`` each height is kept up to the next point."""
    said: list[str] = []
    for at, (x, y) in enumerate(points):
        if steps and at:
            said.append(f"H{x:.1f}")
        said.append(f"{'L' if at else 'M'}{x:.1f} {y:.1f}")
    return " ".join(said)


def _ticks(most: float) -> list[float]:
    """Return about five round numbers from 0 to at least ``most``."""
    power = 10.0 ** math.floor(math.log10(most / 4)) if most > 0 else 1.0
    step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n * 5 >= most * 0.999)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def _marks(chart: Chart, xs: Sequence[float]) -> list[float]:
    """Return where an axis across is marked: at what was measured, where that is shown by dots;
    else at round numbers."""
    low, high = (min(xs, default=0), max(xs, default=1))
    if chart.get("dots"):
        return _unlike(xs)
    if chart.get("log_x", False):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [low + tick for tick in _ticks(high - low)]


def _unlike(xs: Sequence[float]) -> list[float]:
    """Return the different x, at most about ten of them."""
    different = sorted(set(xs))
    return different[:: max(1, -(-len(different) // 10))]


def _said(value: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.3g} %"
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _text(x: float, y: float, words: str, anchor: str, cls: str = "") -> str:
    kind = f' class="{cls}"' if cls else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
