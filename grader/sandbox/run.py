"""One module's tests, over as many workers as it takes.

A worker that hangs, crashes, ends early or breaks a limit costs the test that was running; the
rest go on in a fresh one. A test has a result only if its `begin` and its `end` were both heard.
"""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from grader.errors import KitError
from grader.sandbox import exit_reasons, processes
from grader.sandbox.allowance import Allowance
from grader.sandbox.limits import MIB, Limits
from grader.sandbox.worker_handle import ForkserverGone, Worker
from grader.sandbox.worker_pool import WorkerPool

_TICK = 0.1  # seconds between looks at what a worker uses
_HUNG_SECONDS = 2.0  # a test's limit once another test of the run hung
_MOST_HANGS = 4  # then the rest is not judged
_MOST_ENDS = 10  # of the process; nor is it then
_MOST_FORKSERVERS = 2  # that tests of a run killed
_MOST_LOST = 6  # fork servers that went while a worker of this run lived, whoever killed them
_FRESH = 256 * MIB  # more than a worker that has done nothing yet has
_REAP_SECONDS = 60.0  # after which a fork server that does not tell a worker's end is given up
_MOST_RETOLD = 6  # tests of a run that are run again for their steps
_MOST_WAITED = 2  # of them, those that hung
_ENDS = ("signal", "ended")
_RETOLD = ("signal", "ended", "memory", "time")  # ends that may come without warning


@dataclass
class Outcome:
    """What a run of one module brought: results by test, why there are none where not, and why a
    part of some tests was left out."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: tuple[str, dict[str, Any]] | None = None
    unjudged: str = ""
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Run:
    """One module's tests, from the first worker to the last; or a script of its, as one test.

    ``tell`` hears the name of each test that ended, ``figure`` whatever a script tells.
    """

    def __init__(self, workers: WorkerPool, job: dict[str, Any], limits: Limits,
                 tell: Callable[[str], None] = lambda name: None,
                 figure: Callable[[dict[str, Any]], None] = lambda figure: None) -> None:
        self.workers = workers
        self.job = job
        self.limits = limits
        self.tell = tell
        self.figure = figure
        self.pending: list[str] = list(job["tests"])
        self.current: str | None = None
        self.phase = self.importing = ""
        self.story: dict[str, Any] = {}
        self.time = Allowance(0.0)
        self.look = 0.0
        self.hangs = self.ends = self.retold = self.forkservers = self.lost = 0
        self.cut_off = False
        self.alone = False  # while no other worker may live
        self.doubtful: str | None = None  # a test that may have been late because of the machine
        self.hang_is_certain = False  # of at least one test
        self.without_steps: str | None = None
        self.outcome = Outcome()

    def go(self) -> Outcome:
        started = time.monotonic()
        while self.wanting() and self.outcome.broken is None and not self.outcome.unjudged:
            if self.hangs >= _MOST_HANGS:
                self.outcome.unjudged = (f"{self.hangs} tests ran into their time limit; "
                                         "mend those first")
                break
            if self.ends >= _MOST_ENDS:
                self.outcome.unjudged = (f"{self.ends} tests ended the whole process; mend those "
                                         "first")
                break
            if self.forkservers >= _MOST_FORKSERVERS or self.lost >= _MOST_LOST:
                self.outcome.unjudged = ("the process that starts all tests was killed "
                                         f"{self.lost} times; mend what kills processes first")
                break
            before = self.wanting()
            forkserver_lived = self.one_worker()
            if (forkserver_lived and self.wanting() == before and before
                    and self.outcome.broken is None):
                self.outcome.unjudged = self.outcome.unjudged or "the test never began"
            if self.doubtful:
                self._repeat(self.doubtful)
            if self.without_steps and self.retold < _MOST_RETOLD:
                self._retell(self.without_steps)
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def wanting(self) -> int:
        """Return how much is still to be done."""
        return len(self.pending)

    def over(self) -> bool:
        """True when nothing that a worker has yet to say, or how it ends, can matter."""
        return self.hangs >= _MOST_HANGS and self.current is None

    def one_worker(self) -> bool:
        """Run the pending tests in one worker until it has done all or must be given up; False
        when that took the fork server with it."""
        self.current = self.without_steps = self.doubtful = None
        self.phase = "import"
        self.importing = ""
        self.cut_off = False
        job = {**self.job, "tests": self.pending, "mark": f"\n<end {secrets.token_hex(8)}>\n",
               "limits": self.limits.to_json()}
        worker = None
        try:
            with self.workers.worker(job, alone=self.alone) as worker:
                self.look = time.monotonic() + _TICK
                self.time = Allowance(self.limits.import_seconds, base=0.0)
                self._attend(worker)
        except ForkserverGone:
            self.lost += 1
            if worker and worker.alone and (self.current or self.importing):
                self.forkservers += 1
                self._settle(worker, exit_reasons.forkserver_killed())
            return False
        return True

    def _attend(self, worker: Worker) -> None:
        """Listen to a worker until it has ended, and kill it when it breaks a limit."""
        give_up: dict[str, Any] | None = None
        charged: str | None = None
        reap_deadline = 0.0
        while worker.ended is None and not self.over():
            for message in worker.poll(_TICK if give_up else min(_TICK, self.time.left())):
                if not self.cut_off:
                    self._handle(worker, message)
            if self.cut_off and give_up is None:
                give_up, reap_deadline = exit_reasons.malformed(), time.monotonic() + _REAP_SECONDS
            if give_up is None and worker.pid and (give_up := self._broken_limit(worker)):
                charged = self.current
                reap_deadline = time.monotonic() + _REAP_SECONDS
            if give_up:
                worker.kill()
            if time.monotonic() > (reap_deadline
                                   or self.time.started + self.time.most + _REAP_SECONDS):
                self.workers.kill_forkserver()
        if self.over():
            return
        for message in worker.last_events():
            if not self.cut_off:
                self._handle(worker, message)
        # Where the test was done at the last moment it has its result, and the next one, killed
        # in its place, begins again in a fresh worker.
        if not give_up or charged == self.current:
            self._settle(worker, give_up or exit_reasons.ended(worker.ended))

    def _handle(self, worker: Worker, message: dict[str, Any]) -> None:
        """Take in one event."""
        event = message["event"]
        if event == "malformed":
            self._cut_off(worker)
        elif event == "import":
            self.importing = message["module"]
        elif event == "broken":
            self.outcome.broken = (message["module"], message["failure"])
        elif event == "uncollected":
            self.outcome.broken = exit_reasons.lacking(message.get("text", ""))
        elif event == "begin":
            self.phase, self.current, self.story = "test", message["test"], {}
            self._give(worker, self._limit())
        elif event == "end" and message["test"] == self.current:
            worker.drain()
            self.hangs += (message["failure"] or {}).get("cause") == "time"
            self._result(worker, message["failure"], message["seconds"])
            self._leave_out(message.get("left_out", ()))
            # Between tests the next `begin` is awaited as long as an import.
            self._give(worker, self.limits.import_seconds)
            if message["left"]:
                self.phase = "left"
        elif event == "figure":
            self.figure(message["figure"])
        elif event == "story":
            self.story = {k: v for k, v in message.items() if k != "event"}
        elif event == "done":
            self.phase = "done"

    def _leave_out(self, reasons: Iterable[str]) -> None:
        """Keep why a part of a test was left out, each reason once."""
        self.outcome.left_out += [r for r in reasons if r not in self.outcome.left_out]

    def _cut_off(self, worker: Worker) -> None:
        """Take nothing more from a worker that has sent what is no event."""
        account = exit_reasons.malformed()
        if self.current is not None:
            self._result(worker, account, 0.0)
        elif self.phase == "import" and self.importing and self.outcome.broken is None:
            self.outcome.broken = (self.importing, account)
        self.ends += 1
        self.cut_off = True

    def _give(self, worker: Worker, seconds: float) -> None:
        """Let the worker go on for so long."""
        self.time = Allowance(seconds, processes.cpu_of(worker.pid))

    def _limit(self) -> float:
        """Return the seconds that the current test has."""
        return min(_HUNG_SECONDS, self.limits.seconds) if self.hangs else self.limits.seconds

    def _result(self, worker: Worker, failure: dict[str, Any] | None, seconds: float) -> None:
        assert self.current is not None
        self.outcome.results[self.current] = {
            "failure": failure, "seconds": seconds, "printed": worker.printed.take()}
        if self.current in self.pending:
            self.pending.remove(self.current)
        self.tell(self.current)
        self.current = None

    def _broken_limit(self, worker: Worker) -> dict[str, Any] | None:
        """Return the account of a limit that the worker broke, if it broke one."""
        if time.monotonic() >= self.look or self.time.may_be_over():
            self.look = time.monotonic() + _TICK
            group = processes.group(worker.pid, self.limits.processes)
            self.time.charge(group.values())
            if self.time.over:
                return self._hang(worker)
            if len(group) > self.limits.processes:
                return exit_reasons.multiplied(self.limits)
            if processes.memory(group) > self.limits.memory + _FRESH:
                return exit_reasons.swollen(self.limits)
            if processes.stored(worker.folder, group) > self.limits.files:
                return exit_reasons.filled(self.limits)
        return None

    def _hang(self, worker: Worker) -> dict[str, Any]:
        self.hangs += self.current is not None
        certain = self.hang_is_certain or self.alone or (self.time.certain and worker.alone)
        if self.current is not None and not certain and self.repeats:
            self.doubtful = self.current
        worker.ask_where()
        return exit_reasons.late(self.time.spent)

    def _settle(self, worker: Worker, account: dict[str, Any]) -> None:
        """Charge the end of a worker to the test, or the import, that was running."""
        own = set(self.job.get("lines") or (self.job["files"][name] for name in self.job["own"]))
        code = exit_reasons.stack(worker.trace, own) or self.story.get("code", [])
        account = {**account, **self.story, "code": code}
        if self.current is not None:
            self.ends += account["cause"] in _ENDS
            if (account["cause"] in _RETOLD and worker.ended is not None and not self.story
                    and self.job["watch"]):  # else there are no steps to tell
                waits = account["cause"] == "time"
                if not waits or self.hangs <= _MOST_WAITED:
                    self.without_steps = self.current
            self._result(worker, account, 0.0)
        elif self.phase == "import" and self.outcome.broken is None:
            if not self.importing:
                raise KitError(f"a worker ended before it imported anything:\n"
                               f"{worker.printed.text()}")
            self.outcome.broken = (self.importing, account)
        elif self.phase == "done" and self.pending:
            self.outcome.unjudged = "the suite does not hold it"

    @property
    def repeats(self) -> bool:
        """Say whether a test that may have been late because of the machine is tried once more. A
        script is not: it may take an hour."""
        return "script" not in self.job

    def _again(self, test: str, limits: Limits, **more: Any) -> "Run":
        """Return a run of one test, which has run before."""
        return Run(self.workers, {**self.job, "tests": [test], **more}, limits)

    def _repeat(self, test: str) -> None:
        """Run a test that was late once more, while no other worker lives: only then it counts."""
        again = self._again(test, self.limits)
        again.alone = True
        with contextlib.suppress(KitError):
            again.one_worker()
        if (second := again.outcome.results.get(test)) and (
                second["failure"] is None or second["failure"]["cause"] != "time"):
            self.outcome.results[test] = second
            self._leave_out(again.outcome.left_out)
            self.hangs -= 1
            self.without_steps = None
        else:
            self.hang_is_certain = True

    def _retell(self, test: str) -> None:
        """Run a test that ended without a word once more, with each step told as it is made.

        Nothing but its steps is taken from that, and only where it ended in the same way."""
        self.retold += 1
        first = self.outcome.results[test]["failure"]
        limits = self.limits
        if first["cause"] == "time":  # in a program that is no Python, it told nothing either
            limits = replace(limits, seconds=min(limits.seconds, _HUNG_SECONDS))
        again = self._again(test, limits, tell_steps=True)
        with contextlib.suppress(KitError):
            again.one_worker()
        second = again.outcome.results.get(test, {}).get("failure")
        if second and second["cause"] == first["cause"] and (
                second["what"] == first["what"] or first["cause"] == "time"):
            self.outcome.results[test]["failure"] = {
                **second, "what": first["what"], "code": first["code"] or second["code"]}
