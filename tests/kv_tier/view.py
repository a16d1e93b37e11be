"""A cache as the table of its pool, drawn when a test fails, by the public contract alone."""

from collections.abc import Sequence
from typing import Any

from grader.assertions.steps import Step
from tests.kv_pool import view as pool_view


def view(cache: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the table of the pool that the cache was made with, without the order of eviction, and
    the cache's counts above it."""
    try:
        table = pool_view.view(_pool(cache, steps), [])
        counts = (f"{n} {what.replace('_', ' ')}" for what, n in cache.stats()._asdict().items())
        table["title"] += f", {', '.join(counts)}"
    except Exception:  # the picture of a broken cache must not break
        return {"title": "a cache that cannot be drawn", "columns": [], "rows": []}
    table["columns"] = table["columns"][:-1]
    table["rows"] = [row[:-1] for row in table["rows"]]
    return table


def _pool(cache: Any, steps: Sequence[Step]) -> Any:
    """Return the pool from the call that made the cache: its attributes are its own affair."""
    made = next(step for step in steps if step.form == "make" and step.subject is cache)
    return made.args[0] if made.args else made.kwargs["pool"]
