"""A bench as one SVG picture: a bar a series, its spread as a line; light or dark as its page."""

from textwrap import wrap
from xml.sax.saxutils import escape

from grader.grading.bench import BenchReport, median
from grader.render.bench import milliseconds, sentences

_LINE = 100  # characters of a line of text
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 760, 170, 110, 26, 64
_STYLE = """
    text { font: 13px sans-serif; fill: #1b1b1f; }
    .title { font-size: 16px; font-weight: bold; }
    .dim { fill: #5b5b66; }
    .yours { fill: #1f6fb2; } .reference { fill: #9aa5b1; }
    line { stroke: #1b1b1f; stroke-width: 1.5; } .halo { stroke: #ffffff; stroke-width: 4; }
    @media (prefers-color-scheme: dark) {
      text { fill: #ececf1; } .dim { fill: #a9a9b6; }
      line { stroke: #ececf1; } .halo { stroke: #1b1b1f; }
      .yours { fill: #5aa9e6; } .reference { fill: #6b7785; }
    }"""


def document(report: BenchReport) -> bytes:
    """Return the picture, in UTF-8. It stands alone: no script, no font, no address."""
    bars = [(m.who, name, s.cpu) for m in report.measured for name, s in m.series.items() if s.cpu]
    longest = max((max(cpu) for _, _, cpu in bars), default=1.0)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    said = [line for sentence in sentences(report) for line in wrap(sentence, _LINE)]
    height = _TOP + _ROW * len(bars) + 30 + 20 * len(said)
    title = f"{report.module}: {report.bench.title}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{_STYLE}\n</style>",
        _text(16, 26, title, "title"),
        _text(16, 46, "CPU time: median, and least to most of the rounds", "dim"),
    ]
    for number, (who, name, cpu) in enumerate(bars):
        parts += _bar(_TOP + _ROW * number, who, name, cpu, scale)
    y = _TOP + _ROW * len(bars) + 26
    parts += [_text(16, y + 20 * number, line) for number, line in enumerate(said)]
    return ("\n".join([*parts, "</svg>"]) + "\n").encode()


def _bar(y: int, who: str, name: str, cpu: list[float], scale: float) -> list[str]:
    middle = median(cpu) or 0.0
    least, most = (_LEFT + scale * s for s in (min(cpu), max(cpu)))
    return [
        _text(16, y + 17, who, "dim"),
        _text(92, y + 17, name),
        f'<rect class="{who}" x="{_LEFT}" y="{y + 4}" width="{scale * middle:.1f}" height="18"/>',
        *(f'<line{kind} x1="{least:.1f}" y1="{y + 13}" x2="{most:.1f}" y2="{y + 13}"/>'
          for kind in (' class="halo"', "")),
        _text(round(max(most, _LEFT + scale * middle)) + 8, y + 17, milliseconds(middle)),
    ]


def _text(x: int, y: int, words: str, cls: str = "") -> str:
    kind = f' class="{cls}"' if cls else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(words)}</text>'
