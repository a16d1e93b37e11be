"""What the grader hears of a worker: its events, what it printed, where it hangs, how it ended."""

import contextlib
import json
import os
import selectors
import signal
from collections.abc import Iterable
from typing import Any

from grader.errors import KitError
from grader.learner.plain_text import plain
from grader.sandbox.channel import Lines
from grader.sandbox.messages import read

_KEEP = 2000  # characters kept of each end of what a test printed
_TRACE = 1 << 16  # bytes kept of a trace
_ROUNDS = 16  # reads that empty any pipe, unless somebody goes on writing into it

GONE = ("the process that starts workers is gone; run the command again, and `ol doctor` if it "
        "stays so")


class ForkserverGone(KitError):
    """A worker's fork server ended before it could say how the worker did."""


class Worker:
    """One forked process, heard through four pipes.

    ``alone`` is true while no other worker lived beside this one.
    """

    def __init__(self, mark: bytes, events: int, output: int, trace: int, status: int) -> None:
        self.fds = {events: "events", output: "output", trace: "trace", status: "status"}
        self.lines = {events: Lines(), status: Lines()}
        self.output_fd = output
        self.printed = Printed(mark)
        self.trace = b""
        self.pid = 0
        self.folder = ""  # its own, where alone it may write
        self.ended: int | None = None
        self.alone = True
        os.set_blocking(output, False)

    def poll(self, timeout: float) -> list[dict[str, Any]]:
        """Wait for messages, at most ``timeout`` seconds; output is read on the side."""
        ready = readable(self.fds, timeout)
        messages: list[dict[str, Any]] = []
        # Output first: what a test printed was written before its end was told.
        for fd in sorted(ready, key=lambda fd: self.fds[fd] != "output"):
            name = self.fds[fd]
            data = self._read(fd)
            if name == "output":
                self.printed.add(data)
            elif name == "trace":
                self.trace = (self.trace + data)[:_TRACE]
            elif name == "events":
                messages += map(read, self.lines[fd].feed(data))
            else:
                for line in self.lines[fd].feed(data):
                    self._take_status(json.loads(line))
        if self.ended is None and "status" not in self.fds.values() and not messages:
            raise ForkserverGone(GONE)
        return messages

    def _take_status(self, status: dict[str, Any]) -> None:
        """Take in what the fork server, which runs no learner code, says of the worker."""
        self.pid = status.get("pid", self.pid)
        self.folder = status.get("folder", self.folder)
        self.ended = status.get("ended", self.ended)

    def last_events(self) -> list[dict[str, Any]]:
        """Return what the worker said last: the fork server's word may overtake it."""
        messages = []
        for _ in range(_ROUNDS):
            if not readable(self.fds, 0.0):
                break
            messages += self.poll(0.0)
        return messages

    def drain(self) -> None:
        """Read the output that is there."""
        for _ in range(_ROUNDS):
            if self.output_fd not in self.fds or not (data := self._read(self.output_fd)):
                return
            self.printed.add(data)

    def kill(self) -> None:
        """Kill the worker and its group. The fork server finds the rest."""
        if self.pid and self.ended is None:
            for kill in (os.killpg, os.kill):  # it may have left its group
                with contextlib.suppress(OSError):
                    kill(self.pid, signal.SIGKILL)

    def ask_where(self) -> None:
        """Ask a hanging worker where it is, and wait a little for its trace and its story."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        for name in ("trace", "events"):
            readable([fd for fd, n in self.fds.items() if n == name], 1.0)

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


def readable(descriptors: Iterable[int], timeout: float) -> list[int]:
    """Return which of these can be read, once one can or ``timeout`` seconds are over; unlike
    select(), whatever their numbers are."""
    with selectors.PollSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(max(timeout, 0.0))]


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
        """Return what is kept, as it may be shown; what was left out is said in its place."""
        tail = self.tail + self.held
        left_out = self.count - len(self.head) - len(self.tail)
        middle = f"\n[… {left_out} bytes cut …]\n" if left_out else ""
        shown = self.head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace")
        return plain(shown.replace("\r\n", "\n"))

    def _keep(self, data: bytes) -> None:
        self.count += len(data)
        room = max(_KEEP - len(self.head), 0)
        self.head += data[:room]
        if data[room:]:
            self.tail = (self.tail + data[room:])[-_KEEP:]
