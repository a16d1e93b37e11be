"""The blocks of a manager's pool as a table, with whose tables they are in; drawn when a test
fails, through nothing but the public contract."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from grader.assertions.steps import Step
from grader.assertions.wording import integer, say

MOST_ROWS = 16
COLUMNS = ["block", "state", "refs", "fill", "hash", "place in the tables"]
NONE, UNKNOWN = "\u2013", "?"


def view(manager: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the table: ``title``, ``columns`` and ``rows``, all of them texts.

    ``steps`` tell the manager's pool and which requests are live. What cannot be told is a question
    mark; a block that somebody holds and that is in no table belongs to a cache, or is lost.
    """
    mine = [step for step in steps if step.subject is manager]
    made = [step.args[0] for step in mine if step.form == "make" and step.args]
    pool: Any = made[0] if made else None
    places = _places(manager, _live(mine))
    n_blocks = max(_ask(lambda: pool.config.n_blocks) or 0, 0)
    in_tables = [block for block in places if block < n_blocks]
    held = [block for block in range(n_blocks) if _ask(partial(_refs, pool, block))]
    shown = sorted(list(dict.fromkeys([*in_tables, *held, *range(n_blocks)]))[:MOST_ROWS])
    rows = [_row(pool, block, places.get(block, [])) for block in shown]
    mode = _text_of(lambda: str(getattr(manager.mode, "value", manager.mode)))
    size = _text_of(lambda: say(pool.config.block_tokens))
    title = f"{n_blocks} blocks of {size} positions, mode {mode}"
    if n_blocks > len(rows):
        title += f", {n_blocks - len(rows)} of them not shown"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def _refs(pool: Any, block: int) -> Any:
    return pool.ref_count(block)


def _row(pool: Any, block: int, places: list[str]) -> list[str]:
    refs, fill = _ask(partial(_refs, pool, block)), _ask(lambda: pool.fill(block))
    name = _ask(lambda: pool.hash_of(block))
    hash = UNKNOWN if name is None else say(name) if name else NONE
    return [str(block), _state(refs, name, bool(places)), _number(refs), _number(fill), hash,
            ", ".join(places) or NONE]


def _state(refs: int | None, name: int | None, in_table: bool) -> str:
    if refs is None or name is None:
        return UNKNOWN
    if refs:
        return "used" if in_table else "held, in no table"
    return "cached" if name else "free"


def _live(steps: list[Step]) -> list[Hashable]:
    """Return the ids of the live requests, in the order in which they began."""
    live: dict[Hashable, None] = {}
    for step in steps:
        words = [*step.args, *step.kwargs.values()]
        at = 1 if step.name == "fork" else 0
        if step.failed or len(words) <= at or not isinstance(words[at], str | int):
            continue
        if step.name in ("allocate", "fork"):
            live[words[at]] = None
        elif step.name == "release":
            live.pop(words[at], None)
    return list(live)


def _places(manager: Any, ids: list[Hashable]) -> dict[int, list[str]]:
    """Return block -> the places it has in the tables of live requests, such as A[0]."""
    places: dict[int, list[str]] = {}
    for id in ids:
        try:
            table = list(manager.block_table(id))
        except Exception:  # the picture of a broken manager must not break
            continue
        for at, block in enumerate(table):
            if (number := integer(block)) is not None and number >= 0:
                places.setdefault(number, []).append(f"{id}[{at}]")
    return places


def _ask(question: Callable[[], Any]) -> int | None:
    """Return the answer, None where it raises or the answer is no number of 64 bits."""
    try:
        number = integer(question())
    except Exception:
        return None
    return number if number is not None and abs(number) < 1 << 64 else None


def _text_of(question: Callable[[], Any]) -> str:
    try:
        return str(question())
    except Exception:
        return UNKNOWN


def _number(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)
