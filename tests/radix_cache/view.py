"""The cache as a tree, drawn when a test fails, through nothing but its public contract.

The steps tell what was put in, locked and dropped, so the model knows what ought to be there; the
cache itself is asked only what it finds and counts.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from grader.assertions.steps import Step
from grader.assertions.wording import integer, say
from tests.radix_cache.model import CacheModel, Prefix

MOST_ROWS = 16
MOST_BLOCKS = 200  # of a larger cache only the counts are shown
COLUMNS = ["tokens", "stored", "it finds", "locks due", "last use", "LRU place"]
NONE, UNKNOWN = "\u2013", "?"


def view(cache: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the tree as a table: ``title``, ``columns`` and ``rows``, all of them texts.

    A row is a block: its tokens, indented by its depth; the id that the first insert gave it; the
    id that a match finds; how many locks hold it; which of the uses so far was its last; and its
    turn to be dropped. A block that was dropped has a row only if it is found still.
    """
    mine = [step for step in steps if step.subject is cache and not step.failed]
    size = next((integer(step.args[0]) for step in mine if step.form == "make"), None) or 1
    title = (f"it counts {_text(_ask(lambda: len(cache)))} blocks "
             f"of {size} token{'s' * (size != 1)}, "
             f"{_text(_ask(lambda: cache.evictable_blocks))} evictable, "
             f"{_text(_ask(lambda: cache.locked_blocks))} locked")
    if sum(len(step.args[1]) for step in mine if step.name == "insert") > MOST_BLOCKS:
        return {"title": title + "; too many to draw", "columns": [], "rows": []}
    model, known = _replayed(mine, size)
    turns = _turns(model)
    rows = [_row(cache, model, prefix, turns.get(prefix)) for prefix in _in_depth(known, size)]
    shown = [row for row in rows if row[1:3] != [NONE, NONE]]
    if len(shown) > MOST_ROWS:
        title += f"; {len(shown) - MOST_ROWS} more are not drawn"
    return {"title": title, "columns": COLUMNS if shown else [], "rows": shown[:MOST_ROWS]}


def _row(cache: Any, model: CacheModel, prefix: Prefix, turn: int | None) -> list[str]:
    size = model.block_tokens
    depth = len(prefix) // size
    tokens = "  " * (depth - 1) + say(list(prefix[-size:]))
    found = _found(cache, prefix, depth)
    if (block := model.blocks.get(prefix)) is None:
        return [tokens, NONE, found, NONE, NONE, "gone"]
    place = NONE if turn is None else "1 (next)" if turn == 1 else str(turn)
    return [tokens, say(block.id), found, str(model.locks_over(prefix)), str(block.age), place]


def _found(cache: Any, prefix: Prefix, depth: int) -> str:
    """Return the id that a match finds at the end of ``prefix``."""
    try:
        ids = [integer(id) for id in cache.match(list(prefix)).blocks]
    except Exception:  # the picture of a broken cache must not break
        return UNKNOWN
    return _text(ids[depth - 1]) if len(ids) == depth else NONE


def _replayed(steps: Sequence[Step], size: int) -> tuple[CacheModel, list[Prefix]]:
    """Return what the contract makes of the steps, and every prefix that was ever stored.

    A handle is known by the match that gave it. What the contract would have refused changes
    nothing here.
    """
    model = CacheModel(size)
    known: dict[Prefix, None] = {}
    handles: list[tuple[Any, Prefix]] = []
    for step in steps:
        with suppress(Exception):
            first = step.args[0]
            if step.name == "match":
                handles.append((step.result[1], model.found(first)[1]))
            elif step.name == "insert":
                model.insert(first, step.args[1])
                known.update(dict.fromkeys(model.steps(first)))
            elif step.name == "evict":
                model.evict(integer(first) or 0)
            elif step.name in ("lock", "unlock"):
                run = next(run for node, run in reversed(handles) if node is first)
                if step.name == "unlock":
                    model.unlock(run)
                elif not run or run in model.blocks:
                    model.lock(run)
    return model, list(known)


def _turns(model: CacheModel) -> dict[Prefix, int]:
    """Return which blocks may go, each with its turn: 1 for the next."""
    left = CacheModel(model.block_tokens)
    left.blocks, left.locks = dict(model.blocks), model.locks
    turns: dict[Prefix, int] = {}
    while leaves := left.leaves():
        oldest = min(leaves, key=lambda prefix: left.blocks[prefix].age)
        del left.blocks[oldest]
        turns[oldest] = len(turns) + 1
    return turns


def _in_depth(prefixes: Iterable[Prefix], size: int) -> list[Prefix]:
    """Return prefixes so that what follows a block stands under it, the oldest branch first."""
    below: dict[Prefix, list[Prefix]] = {}
    for prefix in prefixes:
        below.setdefault(prefix[:-size], []).append(prefix)
    rows: list[Prefix] = []
    waiting: list[Prefix] = [()]
    while waiting:
        run = waiting.pop()
        rows += [run] if run else []
        waiting += reversed(below.get(run, []))
    return rows


def _ask(question: Callable[[], Any]) -> int | None:
    """Return the cache's answer, None where it raises or the answer is no number."""
    try:
        return integer(question())
    except Exception:
        return None


def _text(number: int | None) -> str:
    return UNKNOWN if number is None else say(number)
