"""A study as one HTML page that stands alone: no script, no network, light or dark, and behind
every chart the table of what it shows."""

from html import escape

from grader.grading.study import Figure, StudyReport
from grader.render import charts

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1f; --dim: #5b5b66; --rule: #dcdce3;
  --paper: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf1; --dim: #a9a9b6; --rule: #3a3a44;
  --paper: #17171b; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 54rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-top: 1px solid var(--rule);
  padding-top: 1.5rem; } h3 { margin: 2rem 0 .3rem; font-size: 1.05rem; }
p, .note { color: var(--ink); } .note, footer { color: var(--dim); font-size: .9rem; }
figure { margin: 0; } .chart { display: block; width: 100%; min-width: 40rem; height: auto; }
.wide, pre { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
.words td, .words th { white-space: normal; text-align: left; vertical-align: top; }
summary { cursor: pointer; color: var(--dim); font-size: .9rem; }
"""


def document(report: StudyReport, by: str, call: str) -> bytes:
    """Return the page, in UTF-8; ``by`` says whose code it is of, ``call`` is the command."""
    titles = [f["title"] for f in report.shown if f["kind"] == "section"]
    title = titles[0] if len(titles) == 1 else f"{len(titles)} simulations"
    body = [part for number, figure in enumerate(report.shown)
            for part in _part(figure, number, alone=len(titles) == 1)]
    return ("\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>", f"<style>{_STYLE}{charts.STYLE}</style>", "</head>",
        "<body>", "<main>", f"<h1>{escape(title)}</h1>" if len(titles) > 1 else "", *body,
        "</main>", f"<footer><p>{escape(by)} Made by</p><pre>{escape(call)}</pre></footer>",
        "</body>", "</html>"]) + "\n").encode()


def _part(figure: Figure, number: int, alone: bool) -> list[str]:
    """Return a figure's lines. A section that is ``alone`` has the page's own heading; of several
    each is below a title of all."""
    match figure["kind"]:
        case "section":
            level = "h1" if alone else "h2"
            return [f"<{level}>{escape(figure['title'])}</{level}>"]
        case "text":
            return [f"<p>{escape(figure['text'])}</p>"]
        case "table":
            return [f"<h3>{escape(figure['title'])}</h3>", _table(figure)]
        case "chart":
            return [f"<h3>{escape(figure['title'])}</h3>",
                    f'<figure><div class="wide" tabindex="0">{charts.svg(figure, number)}</div>'
                    f'<figcaption class="note">{escape(figure["says"])}</figcaption></figure>',
                    "<details><summary>The numbers</summary>", _numbers(figure), "</details>"]
    return []


def _table(figure: Figure) -> str:
    kind = ' class="words"' if figure.get("words") else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in figure["head"])
    rows = "".join(
        "<tr>" + "".join(f'<th scope="row">{escape(str(cell))}</th>' if at == 0 else
                         f"<td>{escape(str(cell))}</td>" for at, cell in enumerate(row)) + "</tr>"
        for row in figure["rows"])
    return (f'<div class="wide" tabindex="0"><table{kind}><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table></div>")


def _numbers(chart: Figure) -> str:
    """Return what a chart shows as a table: a row for each x, or for each bar."""
    series = chart["series"]
    head = [chart["x"], *(s["name"] for s in series)]
    if chart["form"] == "bars":
        rows = [[name, *(_number(s["values"][at]) for s in series)]
                for at, name in enumerate(chart["categories"])]
    else:
        columns = [dict(map(tuple, s["points"])) for s in series]
        names = chart.get("names", {})
        rows = [[names.get(str(x)) or _number(x),
                 *(_number(c[x]) if x in c else "" for c in columns)]
                for x in sorted({x for c in columns for x in c})]
    return _table({"head": head, "rows": rows})


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else f"{value:,.0f}"
