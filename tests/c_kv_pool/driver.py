"""The other end of the driver: a pool in a process of its own, under the sanitizers.

Each call is a line to the driver and a line back, and a step of the story. What ends the driver, a
sanitizer's report or the end of our patience, is a failure of the test that made the call, told in
the learner's terms. What the pool printed meanwhile is printed here once more, for whoever shows
it.
"""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import tinyllm.c_kv_pool_driver as c_kv_pool_driver
from grader.assertions import Wrong
from grader.assertions.steps import STORY
from tests.c_kv_pool.reports import Place, elsewhere, parts, read

_MODULE = c_kv_pool_driver.__name__.split(".")[1].removesuffix("_driver")
_PATIENCE = 3  # seconds of processor time that a call may take
_LATER = 1  # the same, once a call has hung
_STARTS = (3.0, 3.0, 6.0, 12.0)
"""Seconds of a clock that each attempt to start has. A sanitizer that finds no room for its shadow
memory hangs or ends, and the next attempt may find some."""


class Answer(NamedTuple):
    """A status, and the words behind it."""

    status: str
    words: list[str]

    @property
    def numbers(self) -> list[int]:
        return [int(word) for word in self.words]

    @property
    def touched(self) -> bool:
        """True where a call that failed wrote to what it had to leave alone."""
        return "touched" in self.words


class Call:
    """A step of the story: a call in C, as the driver makes it."""

    form, query, where = "function", False, None

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.args: tuple[Any, ...] = ()
        self.result: Any = None
        self.outcome, self.failed = "", False


class Hung(Wrong):
    """A call did not return: as when a whole test does not, the others wait less long."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.cause = "time"


class Driver:
    """A driver process. Use it as a context: it ends with the block."""

    allowed: ClassVar[int] = _PATIENCE
    env: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.patience = self.allowed
        self.slab = (0, 0)  # blocks and bytes of each, of the pool that was made last
        for seconds in _STARTS:
            self.reports = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
            self.process = subprocess.Popen(
                [str(c_kv_pool_driver.__file__), str(self.patience)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self.reports, bufsize=0,
                env={**os.environ, **self.env})
            self.wait = selectors.DefaultSelector()
            self.wait.register(self._out, selectors.EVENT_READ)
            self.rest = b""
            if self._line(seconds) == "ready":
                return
            self.close()
        raise OSError("the driver does not start")

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    @contextmanager
    def terse(cls) -> Iterator[None]:
        """Let drivers that are started meanwhile report no names and lines, which takes a while."""
        cls.env = {"ASAN_OPTIONS": "symbolize=0", "UBSAN_OPTIONS": "symbolize=0"}
        try:
            yield
        finally:
            cls.env = {}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if not self.env:
            sys.stdout.write(parts(self._reported()).printed)
        self.wait.close()
        for stream in (self.process.stdin, self.process.stdout, self.reports):
            if stream:
                stream.close()

    def ask(self, name: str, text: str, request: str, *, told: bool = True) -> Answer:
        """Make one request and return its answer. ``text`` is the call as C writes it."""
        call = Call(name, text)
        if told:
            STORY.begin(call)  # type: ignore[arg-type]
        answer = self._answer(call, request)
        call.outcome = " ".join([answer.status, *answer.words[:8]])
        call.failed = False
        if told:
            STORY.add(call)  # type: ignore[arg-type]
        return answer

    def _answer(self, call: Call, request: str) -> Answer:
        try:
            self._in.write(f"{request}\n".encode())
            line = self._line()
        except BrokenPipeError:
            self.process.wait()
            line = ""
        if line:
            status, *words = line.split(" ")
            if "TODO" in words:
                raise NotImplementedError(f"{_MODULE}: {words[-1]}")
            return Answer(status, words)
        call.failed, call.outcome = True, "ends the process"
        if self._hangs():
            call.outcome = "does not return"
        STORY.add(call)  # type: ignore[arg-type]
        raise self._end(call)

    def _line(self, seconds: float | None = None) -> str:
        """Return the next line, "" where the process ended, or said nothing for so long. Who only
        waits uses no processor time, and is the grader's to end."""
        while b"\n" not in self.rest:
            if not self.wait.select(seconds):
                return ""
            if not (data := os.read(self._out.fileno(), 1 << 16)):
                self.process.wait()
                return ""
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode("utf-8", "replace")

    def _end(self, call: Call) -> Wrong:
        """Say how the process came to its end, or why it was given up."""
        if self._hangs():
            Driver.allowed = _LATER
            return Hung(f"{call.name} was not done after {self.patience} second"
                        + ("s" if self.patience != 1 else ""))
        report = read(parts(self._reported()).report, *self.slab)
        whose = call.name if call.text.startswith(call.name) else (
            f"the test, through an address of {call.name}")
        wrong = Wrong(f"{whose}: {report.what}" if report else self._death(call))
        wrong.places = report.places if report else []
        wrong.last_call = True
        return wrong

    def _hangs(self) -> bool:
        return self.process.poll() == -signal.SIGPROF

    def elsewhere(self) -> list[Place]:
        """Return the learner's lines that first asked malloc, not tl_alloc."""
        return elsewhere(parts(self._reported()).elsewhere)

    def _reported(self) -> str:
        """Return all that the process wrote, but for its answers."""
        size = os.fstat(self.reports.fileno()).st_size
        return os.pread(self.reports.fileno(), size, 0).decode("utf-8", "replace")

    def _death(self, call: Call) -> str:
        status = self.process.returncode
        if status < 0:
            return f"the process died of {signal.Signals(-status).name} in {call.name}"
        return f"{call.name} ended the whole process (exit status {status})"

    @property
    def _in(self) -> Any:
        return self.process.stdin

    @property
    def _out(self) -> Any:
        return self.process.stdout
