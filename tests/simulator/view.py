"""A server as a table of its requests, drawn when a test fails, by its public contract alone."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from tests.judging.story import Step
from tests.judging.words import say
from tinyllm.trace import Request

MOST_ROWS = 16
COLUMNS = ["request", "arrives", "prompt", "output", "it"]


def view(sim: Any, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the requests as a table: ``title``, ``columns`` and ``rows``, all of them texts."""
    mine = [step for step in steps if step.subject is sim and not step.failed]
    requests = [step.args[0] for step in mine if step.name == "submit" and step.args
                and isinstance(step.args[0], Request) and step.result is not False]
    running, waiting = _ask(lambda: sim.running), _ask(lambda: sim.waiting)
    now = _ask(lambda: sim.now_us)
    report = _ask(sim.report)
    title = f"at {say(now)} us"
    with suppress(Exception):
        often = report.preemptions
        title += (f", {report.completed} of {report.requests} requests done, {often} "
                  f"preemption{'s' * (often != 1)}")
    rows = [[say(r.id), say(r.arrival_us), say(r.prompt_tokens), say(r.output_tokens),
             _place(r, running, waiting, now)] for r in requests]
    return {"title": title, "columns": COLUMNS if rows else [], "rows": rows[:MOST_ROWS]}


def _place(request: Request, running: Any, waiting: Any, now: Any) -> str:
    with suppress(Exception):
        if request.id in running:
            return "runs"
        if request.id in waiting:
            return "waits"
        return "comes" if request.arrival_us >= now else "is gone"
    return "?"


def _ask(question: Callable[[], Any]) -> Any:
    """Return the answer, None where the simulator raises: the picture must not break."""
    with suppress(Exception):
        return question()
    return None
