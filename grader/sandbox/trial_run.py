"""A learner's own tests on one program, over as many workers as it takes.

Which tests there are is found out by the first worker. A file that cannot be collected, or that
ends or hangs the worker meanwhile, costs the tests in it and no others.
"""

from dataclasses import dataclass, field
from typing import Any

from grader.sandbox import exit_reasons
from grader.sandbox.limits import Limits
from grader.sandbox.run import Outcome, Run
from grader.sandbox.worker_handle import Worker
from grader.sandbox.worker_pool import WorkerPool


@dataclass
class Tried(Outcome):
    """What came of it: beside the results, the tests found, each with whether it is a property,
    why files could not be collected, and what was called by each test, by each file when it was
    imported and, under the name "", by the program itself when it was."""

    tests: dict[str, bool] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)


class TrialRun(Run):
    """``job["tests"]`` are the tests to run, in this order, all without any. With
    ``job["first"]`` the run is over with the first kill. ``each`` has time limits of tests."""

    def __init__(self, workers: WorkerPool, job: dict[str, Any], limits: Limits,
                 each: dict[str, float] | None = None) -> None:
        super().__init__(workers, job, limits)
        self.outcome: Tried = Tried()
        self.each = each or {}
        self.file: str | None = None
        self.asked = bool(self.pending)

    def go(self) -> Tried:
        super().go()
        return self.outcome

    @property
    def repeats(self) -> bool:
        return not self.each  # else the search for kills repeats what it doubts

    def _again(self, test: str, limits: Limits, **more: Any) -> Run:
        return TrialRun(self.workers, {**self.job, "tests": [test], **more}, limits)

    def wanting(self) -> int:
        if not self.asked:
            return 1_000_000 - len(self.outcome.files)  # each file that is given up is a step
        return len(self.pending)

    def over(self) -> bool:
        return self.asked and not self.pending and self.current is None

    def one_worker(self) -> bool:
        self.file = None
        self.job = {**self.job, "without": list(self.outcome.files)}
        return super().one_worker()

    def _handle(self, worker: Worker, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "collect":
            self.phase, self.file = "collect", message["file"]
            self._give(worker, self.limits.import_seconds)
        elif event == "uncollected":
            self.outcome.files[message["file"]] = message["failure"]
        elif event in ("calls", "imported"):
            self.outcome.calls.setdefault(message.get("of", ""), set()).update(message["calls"])
        elif event == "collected":
            self.outcome.tests = {t["name"]: t["property"] for t in message["tests"]}
            self.pending, self.asked = list(self.outcome.tests), True
        else:
            super()._handle(worker, message)

    def _limit(self) -> float:
        assert self.current is not None
        return self.each.get(self.current, super()._limit())

    def _result(self, worker: Worker, failure: dict[str, Any] | None, seconds: float) -> None:
        super()._result(worker, failure, seconds)
        if failure and self.job["first"] and exit_reasons.kills(failure):
            self.pending.clear()

    def _settle(self, worker: Worker, account: dict[str, Any]) -> None:
        if self.phase == "collect" and self.file is not None:
            self.outcome.files[self.file] = account
        elif self.phase == "done" and not self.asked:
            self.asked = True  # there is nothing to collect
        else:
            super()._settle(worker, account)
