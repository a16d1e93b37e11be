"""Patience with a simulator, and the end of it: one that goes on and serves nobody is stopped."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from grader.assertions import Wrong
from grader.assertions.wording import say
from tinyllm.simulation import Report
from tinyllm.simulator import Simulator
from tinyllm.trace import Request

_LOOK = 2.0  # seconds of computing between two looks


class Patience:
    """Looks at a simulator now and then while it runs, and stops it when nothing has happened
    between two looks: no request was read, no token given, nobody done or gone."""

    def __init__(self, sim: Simulator, requests: Iterable[Request]) -> None:
        self._sim, self._requests = sim, requests
        self._read = self._tokens = 0
        self._seen: tuple[int, ...] = ()

    def run(self) -> Report:
        """Run the simulator over all requests. Raises ``Wrong`` when it does not come to its end,
        or leaves somebody out."""
        with self._looking():
            report = self._sim.run(self._handed_on())
        ended = report.completed + report.cancelled + report.refused
        if not report.requests == ended == self._read:
            raise Wrong("what became of the requests when the simulation was over",
                        f"{self._read:,} in all, each of them completed, cancelled or refused",
                        f"{report.requests:,} in all, {report.completed:,} completed, "
                        f"{report.cancelled:,} cancelled, {report.refused:,} refused")
        return report

    def _handed_on(self) -> Iterator[Request]:
        for request in self._requests:
            self._read += 1
            self._tokens += request.output_tokens
            yield request

    @contextmanager
    def _looking(self) -> Iterator[None]:
        before = signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, _LOOK, _LOOK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _look(self, *_: Any) -> None:
        """Look what has happened; this comes in the middle of whatever the simulator does."""
        seen = self._seen
        with suppress(Exception):
            report = self._sim.report()
            seen = (self._read, report.output_tokens, report.completed, report.cancelled)
        if seen and seen[1] > self._tokens:
            raise Wrong("how long the simulation goes on", "until each request has its tokens, "
                        f"{self._tokens:,} so far", f"on and on: {seen[1]:,} were given")
        if seen == self._seen:
            raise Wrong("how long the simulation goes on", "until all requests are done",
                        "on and on, and nobody is served any more, with "
                        f"{_who(lambda: self._sim.waiting)} waiting and "
                        f"{_who(lambda: self._sim.running)} running")
        self._seen = seen


def _who(ids: Callable[[], list[int | str]]) -> str:
    with suppress(Exception):
        found = ids()
        return say(found) if found else "nobody"
    return "somebody"
