"""Kill matrices, as text for a terminal and as one HTML page that needs nothing else."""

from html import escape

from grader.authoring.kill_matrix import Cell, Matrix

MARK = b"<title>Planted bugs"
LEGEND = {Cell.EXPECTED: "caught, as its row says",
          Cell.SURVIVED: "passes, and its row says caught",
          Cell.EXTRA: "caught, too", Cell.PASSED: "passes",
          Cell.NOT_RUN: "a random test that the row does not name: not run"}


def text(matrix: Matrix) -> list[str]:
    """Return the lines of a matrix, a column a bug, its id written downwards."""
    width = max(map(len, matrix.rows))
    ids = [bug.id for bug in matrix.bugs]
    deep = max(map(len, ids), default=0)
    lines = [" " * width + "  " + "".join(id_.rjust(deep)[at] for id_ in ids)
             for at in range(deep)]
    for test, cells in matrix.rows.items():
        lines.append(f"{test:<{width}}  {''.join(cells)}".rstrip())
    lines.append("")
    lines.append("; ".join(f"{cell.value!r} {said}" for cell, said in LEGEND.items()))
    return lines


def page(matrices: list[Matrix]) -> bytes:
    """Return the HTML of all matrices, in UTF-8."""
    parts = "\n".join(_section(m) for m in matrices)
    legend = "".join(f"<li><b class={cell.name.lower()}>{_shown(cell)}</b> {escape(said)}</li>"
                     for cell, said in LEGEND.items())
    return (f"<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
            f"{MARK.decode()}: which test catches which</title>\n"
            "<meta name=viewport content='width=device-width'>\n"
            f"<style>{_STYLE}</style></head>\n<body><main>\n"
            "<h1>Planted bugs: which test catches which</h1>\n"
            f"<ul class=legend>{legend}</ul>\n{parts}\n</main></body></html>\n").encode()


def _section(matrix: Matrix) -> str:
    name = escape(matrix.module.name)
    head = "".join(f"<th scope=col><a href='#{name}-{escape(b.id)}' title='{escape(b.pitfall)}'>"
                   f"{escape(b.id)}</a></th>" for b in matrix.bugs)
    rows = "\n".join(
        f"<tr><th scope=row>{escape(test)}</th>"
        + "".join(f"<td class={cell.name.lower()}>{_shown(cell)}</td>" for cell in cells) + "</tr>"
        for test, cells in matrix.rows.items())
    bugs = "\n".join(
        f"<dt id='{name}-{escape(b.id)}'>{escape(b.id)}: {escape(b.pitfall)}</dt>"
        f"<dd>{escape(b.symptom)}. <i>{escape(b.source)}</i></dd>" for b in matrix.bugs)
    return (f"<section><h2 id='{name}'>{name}</h2>\n"
            f"<div class=wide tabindex=0 role=region aria-labelledby='{name}'>"
            f"<table><caption>{len(matrix.rows)} tests, {len(matrix.bugs)} bugs</caption>\n"
            f"<thead><tr><th scope=col>test</th>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"
            f"</div>\n<details><summary>What each bug is</summary><dl>{bugs}</dl></details>"
            "</section>")


def _shown(cell: Cell) -> str:
    """Return a cell's mark, with words for who hears the page instead of seeing it."""
    if cell in (Cell.PASSED, Cell.NOT_RUN):
        return "" if cell is Cell.NOT_RUN else "·"
    return f"<abbr title='{escape(LEGEND[cell])}'>{cell.value}</abbr>"


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --named: #1a7f37; --also: #57606a; --bad: #cf222e }
@media (prefers-color-scheme: dark) {
  :root { --named: #4ac26b; --also: #9da7b3; --bad: #ff7b72 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1rem; background: Canvas; color: CanvasText }
.wide { overflow: auto; max-height: 85vh; border: 1px solid var(--line) }
table { border-collapse: separate; border-spacing: 0; font: 13px/1.3 ui-monospace, monospace }
caption { text-align: left; padding: .3rem }
th, td { border-bottom: 1px solid var(--line); padding: .1rem .3rem; text-align: center }
thead th { position: sticky; top: 0; background: Canvas; writing-mode: vertical-rl }
th[scope=row], thead th:first-child { position: sticky; left: 0; background: Canvas;
  text-align: left; writing-mode: horizontal-tb; font-weight: normal }
thead th:first-child { z-index: 1 }
tbody tr:hover > * { background: color-mix(in srgb, Canvas, CanvasText 8%) }
.named { color: var(--named); font-weight: bold } .also { color: var(--also) }
.missed { color: var(--bad); font-weight: bold } .passed { opacity: .6 }
abbr { text-decoration: none } a { color: inherit }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; list-style: none; padding: 0 }
dt { font-weight: bold; margin-top: .5rem } dt:target { outline: 2px solid var(--named) }
"""
