"""A server as a table of its requests, and its steps as another, drawn when a test fails, by its
public contract alone."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from grader.assertions.steps import Step
from grader.assertions.wording import say
from tinyllm.trace import Request

MOST_ROWS, MOST_STEPS, MOST_IDS = 16, 20, 6
COLUMNS = ["request", "arrives", "prompt", "output", "it"]
STEPS = ["step", "begins", "takes", "run in it", "computed", "run after it", "wait after it"]


def view(sim: Any, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return the requests and the steps as tables: ``title``, ``columns`` and ``rows``, all of
    them texts."""
    mine = [step for step in steps if step.subject is sim and not step.failed]
    return [_requests(sim, mine), *_timeline(sim, mine)]


def _requests(sim: Any, mine: list[Step]) -> dict[str, Any]:
    submitted = [(step.args[0], step.result) for step in mine if step.name == "submit" and step.args
                 and isinstance(step.args[0], Request)]
    running, waiting = _ask(lambda: sim.running), _ask(lambda: sim.waiting)
    now = _ask(lambda: sim.now_us)
    report = _ask(sim.report)
    title = f"at {say(now)} us"
    with suppress(Exception):
        often = report.preemptions
        many = report.requests
        title += (f", {report.completed} of {many} request{'s' * (many != 1)} done, {often} "
                  f"preemption{'s' * (often != 1)}")
    rows = [[say(r.id), say(r.arrival_us), say(r.prompt_tokens), say(r.output_tokens),
             "was refused" if accepted is False else _place(r, running, waiting, now, report)]
            for r, accepted in submitted]
    return {"title": title, "columns": COLUMNS if rows else [], "rows": rows[:MOST_ROWS]}


def _place(request: Request, running: Any, waiting: Any, now: Any, report: Any) -> str:
    with suppress(Exception):
        if request.id in running:
            return "runs"
        if request.id in waiting:
            return "waits"
        if request.arrival_us >= now and report.completed + report.cancelled < report.requests:
            return "comes"
        if request.cancel_us is None or request.cancel_us > now or not report.cancelled:
            return "is done"
        return "is done or cancelled" if report.completed else "was cancelled"
    return "?"


def _timeline(sim: Any, mine: list[Step]) -> list[dict[str, Any]]:
    """Do all steps again with a new server, and return what each of them did; nothing where no
    step was made one by one."""
    rows: list[list[str]] = []
    with suppress(Exception):
        (made,) = [step for step in mine if step.form == "make"]
        again = type(sim)(*made.args, **made.kwargs)
        for step in mine:
            if step.name == "submit":
                again.submit(*step.args)
            if step.name == "step" and step.result is True:
                rows.append(_step(again, len(rows) + 1))
    if not rows:
        return []
    if len(rows) > MOST_STEPS:
        left = len(rows) - MOST_STEPS + 1
        rows[MOST_STEPS // 2 : MOST_STEPS // 2 + left] = [["…", f"({left} steps)", *[""] * 5]]
    return [{"title": "its steps, times in us", "columns": STEPS, "rows": rows}]


def _step(sim: Any, number: int) -> list[str]:
    before = sim.report()
    sim.step()
    after = sim.report()
    us = after.busy_us - before.busy_us
    ran = (after.running_us - before.running_us) // us if us else "?"
    return [str(number), say(sim.now_us - us), say(us), str(ran),
            say(after.computed_tokens - before.computed_tokens), _ids(sim.running),
            _ids(sim.waiting)]


def _ids(ids: Any) -> str:
    return " ".join([*(str(id_) for id_ in ids[:MOST_IDS]), *(["…"] if ids[MOST_IDS:] else [])])


def _ask(question: Callable[[], Any]) -> Any:
    """Return the answer, None where the simulator raises: the picture must not break."""
    with suppress(Exception):
        return question()
    return None
