"""`ol simulate`: traces through servers and caches of many sizes, in parts that run side by side.

`main` answers the three questions of a study: which parts there are, one part's result, and, of all
results, what the report shows (`shown`). A trace is read anew in each part, as a stream.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import Any, Protocol

from tests.simulator import shown
from tests.simulator.patience import Patience
from tests.simulator.wish import Plan, Trace, planned
from tinyllm.cache_replay import Replay
from tinyllm.errors import InvalidArgumentError
from tinyllm.eviction import policy
from tinyllm.simulation import Report
from tinyllm.simulator import Simulator
from tinyllm.trace import Request

_OFTEN = 0.2  # seconds between two tellings of the progress
_CROWD = 20_000  # requests that come all at once


class Tell(Protocol):
    """How a script says what it has."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


def main(tell: Tell, plan: dict[str, Any]) -> None:
    """Answer the question in ``plan``."""
    try:
        match plan["ask"]:
            case "plan":
                for part in planned(plan):
                    tell("part", weight=part.pop("weight"), part=part)
            case "part":
                tell("result", result=_result(plan["part"], tell))
            case "report":
                for figure in shown.report([r for r in plan["results"] if r]):
                    tell(**figure)
    except InvalidArgumentError as error:
        if plan["ask"] != "plan":
            raise
        tell("refused", sentence=str(error))


def _result(part: dict[str, Any], tell: Tell) -> dict[str, Any]:
    trace = Trace(**part["trace"])
    work: dict[str, Callable[[dict[str, Any], Trace, Tell], dict[str, Any]]] = {
        "trace": lambda part, trace, tell: {}, "serve": _serve, "cache": _cache}
    return {**part, **work[part["do"]](part, trace, tell)}


def _serve(part: dict[str, Any], trace: Trace, tell: Tell) -> dict[str, Any]:
    """Run a server, with as many samples as a chart can show."""
    plan = Plan(**part["plan"])
    config = plan.config(trace, **part["server"])
    requests = _watched(trace, config.block_tokens, tell)
    if part["role"] == "crowd":
        requests = _crowd(requests)
    return {"figures": _figures(Patience(Simulator(config), requests).run())}


def _crowd(requests: Iterator[Request]) -> Iterator[Request]:
    """Let the first requests of a trace all be there from the beginning, and stay."""
    for request in islice(requests, _CROWD):
        yield request._replace(arrival_us=0, cancel_us=None)


def _figures(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "requests": report.requests, "refused": report.refused, "completed": report.completed,
        "cancelled": report.cancelled, "start_us": report.start_us, "end_us": report.end_us,
        "steps": report.steps, "busy_us": report.busy_us, "peak_running": report.peak_running,
        "mean_running": report.mean_running, "output_rate": report.output_rate,
        "shares": report.shares(), "pressed_us": report.pressed_us,
        "pressed_shares": report.shares(pressed=True),
        "queue_us": _spread(list(report.queue_us)), "ttft_us": _spread(list(report.ttft_us)),
        "computed_tokens": report.computed_tokens, "output_tokens": report.output_tokens,
        "preemptions": report.preemptions, "recomputed_tokens": report.recomputed_tokens,
        "waste": report.waste, "swapped_tokens": report.swapped_tokens,
        "evictions": report.evictions, "block_hit_rate": report.hits.block_hit_rate,
        "token_hit_rate": report.hits.token_hit_rate,
        "samples": [[s.at_us, s.running, s.waiting, *s.memory] for s in report.samples],
    }


def _spread(times: list[int]) -> dict[str, int]:
    """Return the median, the 99th percentile and the most: each is one of the times."""
    if not times:
        return {}
    times.sort()
    return {"median": times[(len(times) - 1) // 2], "p99": times[(99 * len(times) - 1) // 100],
            "most": times[-1]}


def _cache(part: dict[str, Any], trace: Trace, tell: Tell) -> dict[str, Any]:
    """Replay the trace through caches of several sizes at once, under one policy."""
    size = part["block_tokens"]
    future = list(trace.requests(size)) if part["policy"] == "belady" else []
    replays = [Replay(policy(part["policy"], future, size), n, size) for n in part["blocks"]]
    for request in future or _watched(trace, size, tell):
        for one in replays:
            one.serve(request)
    return {"replays": [{
        "blocks": one.n_blocks, "block_hit_rate": one.hits.block_hit_rate,
        "token_hit_rate": one.hits.token_hit_rate, "evictions": one.evictions,
        "turns": [[turn, h.prompts, h.block_hit_rate, h.token_hit_rate]
                  for turn, h in sorted(one.turns.items())],
    } for one in replays]}


def _watched(trace: Trace, block_tokens: int, tell: Tell) -> Iterator[Request]:
    """Hand requests on, and tell now and then how far they are."""
    told = monotonic()
    for number, request in enumerate(trace.requests(block_tokens)):
        if number % 256 == 0 and monotonic() - told > _OFTEN:
            told = monotonic()
            tell("progress", share=number / trace.n_requests)
        yield request


