"""A study: a script that splits its work into parts, which run side by side, and makes one report.

The module's manifest names the script. It is asked three times, each time in a worker of its own:

    plan     it tells a `part` for each piece of work: plain data, and how heavy it is; or it tells
             that the call is `refused`, in a sentence
    part     it does one of them, and tells `progress` now and then and one `result`
    report   it is given all results, and tells what the report shows: `section`, `text`, `table`,
             `chart`, and `facts` for programs

What any of it is about, the grader does not know.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grader import VERSION
from grader.course.model import Course, Module
from grader.errors import CallError
from grader.grading.report import Failure
from grader.grading.script import ScriptResult, run_script
from grader.sandbox.api import WorkerPool

SCHEMA = 1
Figure = dict[str, Any]


@dataclass(frozen=True)
class StudyReport:
    """What a study tells: ``shown`` in order, and ``facts``; or why it did not come to its end.
    ``passed``: whether the module has passed its checks as it is now, None where nobody knows."""

    module: str
    binding: str
    shown: list[Figure]
    facts: list[Any]
    played: ScriptResult
    passed: bool | None = None

    @property
    def failure(self) -> Failure | None:
        return self.played.failure

    def to_json(self) -> dict[str, Any]:
        """Return the report as `formats/study-report.schema.json` has it."""
        return {"schema": SCHEMA, "verdict": "failed" if self.failure else "done", "kit": VERSION,
                "module": self.module, "binding": self.binding, "passed": self.passed,
                "failure": self.failure.what if self.failure else None, "traces": self.facts}


class Study:
    """One run of a module's study over the code in ``where``.

    ``progress`` hears how much of all parts is done, from 0 to 1.
    """

    def __init__(self, course: Course, module: Module, workers: WorkerPool, where: str,
                 options: dict[str, Any], *, jobs: int | None = None,
                 progress: Callable[[float], None] = lambda share: None) -> None:
        self.course, self.module, self.workers, self.where = course, module, workers, where
        self.options = options
        self.jobs = jobs
        self.progress = progress
        self.lock = threading.Lock()

    def run(self) -> StudyReport:
        """Plan, do all parts, and have the report made. Raises ``CallError`` where the script
        refuses the call."""
        played, told = self._ask({"ask": "plan"})
        parts = [figure for figure in told if figure["kind"] == "part"]
        for figure in told:
            if figure["kind"] == "refused":
                raise CallError(figure["sentence"])
        if played.failure:
            return self._report(played, [])
        results: list[Any] = [None] * len(parts)
        shares = _Shares([part["weight"] for part in parts], self.progress)

        def work(at: int) -> None:
            played, told = self._ask({"ask": "part", "part": parts[at]["part"]},
                                     lambda share: self._tell(shares, at, share))
            results[at] = next((f["result"] for f in told if f["kind"] == "result"), None)
            self._tell(shares, at, 1.0)
            if played.failure:
                raise _Failed(played)

        heavy = sorted(range(len(parts)), key=lambda at: -parts[at]["weight"])
        try:
            self.workers.all(work, heavy, self.jobs)
        except _Failed as failed:  # no other part is waited for
            return self._report(failed.played, [])
        played, told = self._ask({"ask": "report", "results": results})
        return self._report(played, told)

    def _ask(self, question: dict[str, Any], share: Callable[[float], None] = lambda share: None
             ) -> tuple[ScriptResult, list[Figure]]:
        """Run the script with one question; return how it ended and what it told."""
        told: list[Figure] = []

        def hear(figure: Figure) -> None:
            if figure["kind"] == "progress":
                share(figure["share"])
            else:
                told.append(figure)

        assert self.module.study is not None
        played = run_script(self.course, self.module, self.module.study, self.workers, self.where,
                      reference_needs=True, figure=hear, plan={**self.options, **question})
        return played, told

    def _tell(self, shares: "_Shares", at: int, share: float) -> None:
        with self.lock:
            shares.take(at, share)

    def _report(self, played: ScriptResult, told: list[Figure]) -> StudyReport:
        return StudyReport(self.module.name, self.where,
                           [f for f in told if f["kind"] != "facts"],
                           [f["facts"] for f in told if f["kind"] == "facts"], played)


class _Failed(Exception):
    """A part did not come to its end."""

    def __init__(self, played: ScriptResult) -> None:
        super().__init__()
        self.played = played


class _Shares:
    """How much of each part is done, and of all together."""

    def __init__(self, weights: list[float], tell: Callable[[float], None]) -> None:
        self.weights, self.done, self.tell = weights, [0.0] * len(weights), tell

    def take(self, at: int, share: float) -> None:
        self.done[at] = max(self.done[at], share)
        whole = sum(self.weights) or 1.0
        self.tell(sum(w * d for w, d in zip(self.weights, self.done, strict=True)) / whole)
