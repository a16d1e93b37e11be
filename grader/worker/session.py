"""The grader's side: run one module's tests, over as many workers as it takes.

A worker that hangs, crashes, ends early or breaks a limit costs the test that was running; the
rest go on in a fresh one. A test has a result only if its `begin` and its `end` were both heard.
"""

import contextlib
import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.errors import KitError
from grader.worker.channel import Lines
from grader.worker.limits import MIB, Limits, usage

_TICK = 0.1  # seconds between looks at what a silent worker uses
_HUNG_SECONDS = 2.0  # a test's limit once another test of the run hung
_MOST_HANGS = 6  # then the rest is not judged
_FRESH = 256 * MIB  # more than a worker that has done nothing yet has
_KEEP = 2000  # characters kept of each end of what a test printed


_GONE = ("the process that starts workers is gone; run the command again, and `ol doctor` if it "
         "stays so")


@dataclass
class Outcome:
    """What a run of one module brought: results by test, and why there are none where not."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: tuple[str, dict[str, Any]] | None = None
    unjudged: str = ""
    seconds: float = 0.0


class Nursery:
    """The zygote's owner: starts it, asks it for workers, and takes everything down at the end."""

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        site = sysconfig.get_paths()["purelib"]
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8",
               "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1",
               "OMP_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1", "TZ": "UTC",
               # macOS ends a forked process that uses its frameworks, unless told not to.
               "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
        self.scratch = tempfile.mkdtemp(prefix="ol-")  # the zygote removes it
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("zygote.py")),
                 str(ROOT), str(its.fileno()), self.scratch, site],
                pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env=env)
        self.socket = mine
        self.lock = threading.Lock()
        self.ready = False

    def worker(self, job: dict[str, Any]) -> "Worker":
        """Have a worker forked for ``job``."""
        pipes = [os.pipe() for _ in range(4)]
        message = json.dumps(job).encode()
        with self.lock:
            try:
                if not self.ready and self.socket.recv(1) != b"+":
                    raise OSError("it ended before it was ready")
                self.ready = True
                head = len(message).to_bytes(4, "little")
                socket.send_fds(self.socket, [head], [write for _, write in pipes])
                self.socket.sendall(message)
            except OSError as error:
                raise KitError(_GONE) from error
            finally:
                for _, write in pipes:
                    os.close(write)
        return Worker(job["mark"].encode(), *(read for read, _ in pipes))

    def close(self) -> None:
        """End the zygote; with it end all workers and whatever they started."""
        self.socket.close()
        if not self.ready:  # nothing was asked of it: it has nothing to clean up but its folder
            self.process.kill()
            shutil.rmtree(self.scratch, ignore_errors=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
            return
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Worker:
    """One forked process, heard through four pipes."""

    def __init__(self, mark: bytes, events: int, output: int, trace: int, status: int) -> None:
        self.fds = {events: "events", output: "output", trace: "trace", status: "status"}
        self.lines = {events: Lines(), status: Lines()}
        self.output_fd = output
        self.printed = Printed(mark)
        self.trace = b""
        self.pid = 0
        self.ended: int | None = None
        os.set_blocking(output, False)

    def hear(self, timeout: float) -> list[dict[str, Any]]:
        """Wait for messages, at most ``timeout`` seconds; output is read on the side."""
        ready, _, _ = select.select(list(self.fds), [], [], max(timeout, 0))
        messages: list[dict[str, Any]] = []
        # Output first: what a test printed was written before its end was told.
        for fd in sorted(ready, key=lambda fd: self.fds[fd] != "output"):
            name = self.fds[fd]
            data = self._read(fd)
            if name == "output":
                self.printed.add(data)
            elif name == "trace":
                self.trace += data
            else:
                messages += self.lines[fd].feed(data)
        for message in messages:
            self.pid = message.get("pid", self.pid)
            self.ended = message.get("ended", self.ended)
        if self.ended is None and "status" not in self.fds.values():
            raise KitError(_GONE)
        return messages

    def drain(self) -> None:
        """Read the output that is there."""
        while self.output_fd in self.fds and select.select([self.output_fd], [], [], 0)[0]:
            if not (data := self._read(self.output_fd)):
                return
            self.printed.add(data)

    def kill(self) -> None:
        """Kill the worker and its group. The zygote finds the rest."""
        if self.pid and self.ended is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)

    def ask_where(self) -> None:
        """Ask a hanging worker where it is, and wait a little for its trace and its story."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        for name in ("trace", "events"):
            select.select([fd for fd, n in self.fds.items() if n == name], [], [], 1.0)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = {}

    def _read(self, fd: int) -> bytes:
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return b""
        if not data:
            os.close(fd)
            del self.fds[fd]
        return data


class Printed:
    """What the tests of one worker printed: counted whole, kept at both ends.

    The worker writes a mark into its output when a test ends; what came before it is that test's.
    """

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.done: list[str] = []  # of tests whose mark was read
        self._forget()

    def _forget(self) -> None:
        self.count = 0
        self.head = self.tail = self.held = b""

    def add(self, data: bytes) -> None:
        """Take in output; the last bytes are held back, as they may begin a mark."""
        *ended, rest = (self.held + data).split(self.mark)
        for part in ended:
            self._keep(part)
            self.held = b""
            self.done.append(self.text())
            self._forget()
        edge = max(len(rest) - len(self.mark) + 1, 0)
        self._keep(rest[:edge])
        self.held = rest[edge:]

    def take(self) -> str:
        """Return what the test printed that ended first of those not taken yet."""
        return self.done.pop(0) if self.done else self.cut()

    def cut(self) -> str:
        """Return what was printed since the last mark, and begin anew."""
        text = self.text()
        self._forget()
        return text

    def text(self) -> str:
        """Return what is kept; what was left out is said in its place."""
        tail = self.tail + self.held
        left_out = self.count - len(self.head) - len(self.tail)
        middle = f"\n[… {left_out} bytes cut …]\n" if left_out else ""
        return self.head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")

    def _keep(self, data: bytes) -> None:
        self.count += len(data)
        room = max(_KEEP - len(self.head), 0)
        self.head += data[:room]
        if data[room:]:
            self.tail = (self.tail + data[room:])[-_KEEP:]


class Run:
    """One module's tests, from the first worker to the last."""

    def __init__(self, nursery: Nursery, job: dict[str, Any], limits: Limits,
                 tell: Callable[[str], None] = lambda name: None) -> None:
        self.nursery = nursery
        self.job = job
        self.limits = limits
        self.tell = tell
        self.pending: list[str] = list(job["tests"])
        self.current: str | None = None
        self.phase = self.importing = ""
        self.story: dict[str, Any] = {}
        self.deadline = 0.0
        self.hangs = 0
        self.outcome = Outcome()

    def go(self) -> Outcome:
        started = time.monotonic()
        while self.pending and self.outcome.broken is None and not self.outcome.unjudged:
            if self.hangs >= _MOST_HANGS:
                self.outcome.unjudged = (f"{self.hangs} tests ran into their time limit; "
                                         "mend those first")
                break
            before = len(self.pending)
            self._one_worker()
            if len(self.pending) == before and self.outcome.broken is None:
                self.outcome.unjudged = self.outcome.unjudged or "the test never began"
        self.outcome.seconds = time.monotonic() - started
        return self.outcome

    def _one_worker(self) -> None:
        """Run the pending tests in one worker until it has done all or must be given up."""
        worker = self.nursery.worker({**self.job, "tests": self.pending,
                                      "mark": f"\n<end {secrets.token_hex(8)}>\n",
                                      "limits": self.limits.to_json()})
        self.current = None
        self.phase = "import"
        self.deadline = time.monotonic() + self.limits.import_seconds
        give_up: dict[str, Any] | None = None
        charged: str | None = None
        try:
            while worker.ended is None:
                messages = worker.hear(min(_TICK, self.deadline - time.monotonic()))
                for message in messages:
                    self._heed(worker, message)
                if give_up is None and worker.pid and (give_up := self._broken_limit(
                        worker, silent=not messages)):
                    charged = self.current
                    worker.kill()
            self._drain_events(worker)
            if not give_up or charged == self.current:
                self._settle(worker, give_up)
            # Otherwise the test was done at the last moment: it has its result, and the next one,
            # killed in its place, begins again in a fresh worker.
        finally:
            worker.kill()
            worker.close()

    def _drain_events(self, worker: Worker) -> None:
        """Take in what the worker said last: the zygote's word may overtake it."""
        while (messages := worker.hear(0.0)) or any(
                select.select([fd], [], [], 0)[0] for fd in list(worker.fds)):
            for message in messages:
                self._heed(worker, message)

    def _heed(self, worker: Worker, message: dict[str, Any]) -> None:
        """Take in one event."""
        event = message.get("event")
        if event == "import":
            self.importing = message.get("module", "")
        elif event == "broken":
            self.outcome.broken = (message["module"], message["failure"])
        elif event == "uncollected":
            self.outcome.broken = _lacking(message["text"])
        elif event == "begin":
            self.phase, self.current, self.story = "test", message["test"], {}
            limit = _HUNG_SECONDS if self.hangs else self.limits.seconds
            self.deadline = time.monotonic() + min(limit, self.limits.seconds)
        elif event == "end" and message.get("test") == self.current:
            worker.drain()
            self._result(worker, message["failure"], message["seconds"])
            # Between tests the next `begin` is awaited as long as an import.
            self.deadline = time.monotonic() + self.limits.import_seconds
            if message["left"]:
                self.phase = "left"
        elif event == "story":
            self.story = {k: v for k, v in message.items() if k != "event"}
        elif event == "done":
            self.phase = "done"

    def _result(self, worker: Worker, failure: dict[str, Any] | None, seconds: float) -> None:
        assert self.current is not None
        self.outcome.results[self.current] = {
            "failure": failure, "seconds": seconds, "printed": worker.printed.take()}
        if self.current in self.pending:
            self.pending.remove(self.current)
        self.tell(self.current)
        self.current = None

    def _broken_limit(self, worker: Worker, silent: bool) -> dict[str, Any] | None:
        """Return the account of a limit that the worker broke, if it broke one."""
        limits = self.limits
        if worker.printed.count > limits.output:
            return {"cause": "output",
                    "what": f"it printed more than the limit of {limits.output // MIB} MiB"}
        if time.monotonic() >= self.deadline:
            return self._hang(worker)
        if silent:
            processes, resident = usage(worker.pid)
            if processes > limits.processes:
                return {"cause": "processes",
                        "what": f"it had more than the limit of {limits.processes} processes"}
            if resident > limits.memory + _FRESH:
                return {"cause": "memory", "what": "it used more than the memory limit of "
                        f"{limits.memory // MIB} MiB"}
        return None

    def _hang(self, worker: Worker) -> dict[str, Any]:
        self.hangs += self.current is not None
        seconds = self.limits.import_seconds if self.phase != "test" else min(
            self.limits.seconds, _HUNG_SECONDS if self.hangs > 1 else self.limits.seconds)
        worker.ask_where()
        return {"cause": "time", "what": f"it was not done after {seconds:g} seconds"}

    def _settle(self, worker: Worker, give_up: dict[str, Any] | None) -> None:
        """Charge the end of a worker to the test, or the import, that was running."""
        own = {self.job["files"][name] for name in self.job["own"]}
        account = {**(give_up or _how_it_ended(worker)), "code": _stack(worker.trace, own),
                   **self.story}
        if self.current is not None:
            self._result(worker, account, 0.0)
        elif self.phase == "import" and self.outcome.broken is None:
            if not self.importing:
                raise KitError(f"a worker ended before it imported anything:\n"
                               f"{worker.printed.text()}")
            self.outcome.broken = (self.importing, account)
        elif self.phase == "done" and self.pending:
            self.outcome.unjudged = "the suite does not hold it"


def _lacking(text: str) -> tuple[str, dict[str, Any]]:
    """Return the account of a suite that cannot be collected because a module lacks a name."""
    found = re.search(r"cannot import name '(\w+)' from 'tinyllm\.(\w+)'", text)
    if not found:
        raise KitError(f"a suite cannot be collected:\n{text}")
    return found[2], {"cause": "import", "what": f"the file has no {found[1]}, which its contract "
                      "names"}


def _how_it_ended(worker: Worker) -> dict[str, Any]:
    code = worker.ended
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        said = {"SIGSEGV": "a segmentation fault: memory was touched that is not there",
                "SIGABRT": "an abort", "SIGKILL": "killed",
                "SIGXCPU": "the limit of processor time"}.get(name, name)
        return {"cause": "signal", "what": f"the process died of {said} ({name})"}
    return {"cause": "ended", "what": f"it ended the whole process (exit status {code})"}


def _stack(trace: bytes, files: set[str]) -> list[dict[str, Any]]:
    """Read faulthandler's trace (innermost first) and return the learner's lines of it."""
    text = trace.decode("utf-8", "replace")
    found = []
    for file, line, function in re.findall(r'File "(.+)", line (\d+) in (\S+)', text):
        if file in files:
            source = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            number = int(line)
            found.append({"file": file, "line": number, "function": function,
                          "text": source[number - 1].strip() if number <= len(source) else ""})
    return found[::-1][-5:]
