"""The pool as a table, drawn when a test fails, through nothing but its public contract."""

from collections.abc import Callable, Sequence
from typing import Any

from grader.assertions.steps import Step
from grader.assertions.wording import integer, say

MOST_ROWS = 16
COLUMNS = ["block", "state", "refs", "fill", "hash", "LRU place"]
NONE, UNKNOWN = "\u2013", "?"


def view(pool: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the table: ``title``, ``columns`` and ``rows``, all of them texts.

    ``steps`` tell the order in which the cached blocks were given back and, where the pool has too
    many blocks to show, which were used last. What the pool cannot say is a question mark.
    """
    mine = [step for step in steps if step.subject is pool]
    n_blocks = max(_ask(lambda: pool.config.n_blocks) or 0, 0)
    shown = list(range(min(n_blocks, MOST_ROWS)))
    if n_blocks > MOST_ROWS:
        used = [id for step in reversed(mine) if not step.query for id in _ids(step)]
        shown = list(dict.fromkeys([id for id in used if id < n_blocks] + shown))[:MOST_ROWS]
    places = _places(pool, mine)
    rows = [_row(pool, id, places.get(id, NONE)) for id in shown]
    positions = _text(_ask(lambda: pool.config.block_tokens))
    title = f"{n_blocks} block{'s' if n_blocks != 1 else ''} of {positions} positions"
    if n_blocks > len(rows):
        title += f", {n_blocks - len(rows)} of them not shown"
    else:
        title += _contradiction(pool, rows)
    return {"title": title, "columns": COLUMNS, "rows": rows}


def _contradiction(pool: Any, rows: list[list[str]]) -> str:
    """Return where ``stats()`` counts other blocks than the table shows; nothing if it agrees."""
    shown = [sum(row[1] == state for row in rows) for state in ("free", "used", "cached")]
    counted = [_ask(lambda name=name: getattr(pool.stats(), name))  # type: ignore[misc]
               for name in ("free", "used", "cached")]
    if counted == shown or any(row[1] == UNKNOWN for row in rows) or None in counted:
        return ""
    return ("; stats() says {} free, {} used, {} cached, but ref_count() and hash_of() say "
            "{}, {}, {}").format(*counted, *shown)


def _row(pool: Any, id: int, place: str) -> list[str]:
    refs, fill = _ask(lambda: pool.ref_count(id)), _ask(lambda: pool.fill(id))
    name = _ask(lambda: pool.hash_of(id))
    hash = NONE if name == 0 else UNKNOWN if name is None else say(name)
    return [str(id), _state(pool, refs, name), _text(refs), _text(fill), hash, place]


def _state(pool: Any, refs: int | None, name: int | None) -> str:
    if refs:
        return "used"
    if name is None and refs == 0 and _ask(lambda: pool.stats().cached) == 0:
        return "free"  # before the second pass no block has a name
    if name is None or refs is None:
        return UNKNOWN
    return "cached" if name else "free"


def _places(pool: Any, steps: list[Step]) -> dict[int, str]:
    """Return the LRU place of each cached block by the contract, whatever the pool itself thinks:
    an age begins when the last holder gives the block back."""
    given_back: dict[int, None] = {}  # the oldest first
    for step in steps:
        if step.name in ("unref", "cow") and not step.failed:
            for id in _ids(step)[-1:]:
                given_back.pop(id, None)
                given_back[id] = None
    cached = [id for id in given_back if _is_cached(pool, id)]
    return {id: "1 (oldest)" if at == 1 else str(at) for at, id in enumerate(cached, 1)}


def _is_cached(pool: Any, id: int) -> bool:
    return _ask(lambda: pool.ref_count(id)) == 0 and bool(_ask(lambda: pool.hash_of(id)))


def _ids(step: Step) -> list[int]:
    """Return the blocks that a step names: those it answered, then the one it was asked for."""
    answered = step.result if isinstance(step.result, list | tuple) else [step.result]
    values = list(answered) if step.name in ("alloc", "cow", "lookup") else []
    if step.name not in ("alloc", "lookup"):
        values += step.args[:1]
    return [id for value in values if (id := integer(value)) is not None and id >= 0]


def _ask(question: Callable[[], Any]) -> int | None:
    """Return the pool's answer, None where it raises or the answer is no number of 64 bits."""
    try:
        number = integer(question())
    except Exception:  # the picture of a broken pool must not break
        return None
    return number if number is not None and abs(number) < 1 << 64 else None


def _text(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)
