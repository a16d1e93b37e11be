"""A table drawn when a test fails: which positions belong into each block, and what is there."""

from collections.abc import Callable, Sequence
from typing import Any

from grader.assertions.steps import Step
from grader.assertions.wording import integer

MOST_ROWS = 12
COLUMNS = ["place", "block", "refs", "positions", "K in its slots", "V in its slots"]
UNKNOWN = "?"


def view(pool: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the table of the last call on this pool that had one: ``title``, ``columns`` and
    ``rows``, all of them texts. Of K and V it shows the first value of head 0, a slot at a time."""
    calls = [s for s in steps if s.form == "function" and len(s.args) > 2 and s.args[0] is pool]
    table = [integer(id) for id in calls[-1].args[1]]
    layer = integer(calls[-1].args[2]) or 0
    size = pool.config.block_tokens
    rows = [_row(pool, place, id, layer, size) for place, id in enumerate(table[:MOST_ROWS])]
    title = f"the table of the last call, blocks of {size}, layer {layer}, first value of head 0"
    if len(table) > len(rows):
        title += f", {len(table) - len(rows)} blocks not shown"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def _row(pool: Any, place: int, id: int | None, layer: int, size: int) -> list[str]:
    first = place * size
    positions = f"{first}" if size == 1 else f"{first}\u2013{first + size - 1}"
    sides = [_ask(lambda side=side: _slots(pool.block(id, layer, side)))  # type: ignore[misc]
             for side in (False, True)]
    return [str(place), _ask(lambda: id), _ask(lambda: pool.ref_count(id)), positions, *sides]


def _slots(block: Any) -> str:
    values = [f"{float(x):g}" for x in block[0, :8, 0]]
    return " ".join(values) + (" \u2026" if block.shape[1] > 8 else "")


def _ask(question: Callable[[], Any]) -> str:
    """Return an answer as a text; the picture of a broken pool must not break."""
    try:
        answer = question()
    except Exception:
        return UNKNOWN
    return UNKNOWN if answer is None else str(answer)
