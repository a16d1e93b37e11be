"""The channel of events: JSON lines, from a worker to the grader."""

import contextlib
import os
import sys
from errno import EBADF
from json import dumps
from os import _exit, getpid, write  # bound here, before learner code may put others in their place
from typing import Any

from grader.learner.plain_text import plain_all

FAULT = 70  # the exit status of a worker whose own machinery failed
CLOSED = 71  # that of one whose channel was closed in it
_LONGEST = 16 << 20  # bytes of a line; a longer one is not the grader's


class Events:
    """The worker's end. A process that the learner's code forked off says nothing on it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.owner = getpid()
        self.sending = False
        os.set_inheritable(fd, False)

    def send(self, event: str, **fields: Any) -> None:
        """Write one event. A grader that has gone ends the worker; a signal's handler that comes
        in the middle of another event writes nothing."""
        if getpid() != self.owner:
            _exit(0)
        if self.sending:
            return
        self.sending = True
        try:
            view = memoryview(dumps(plain_all({"event": event, **fields})).encode() + b"\n")
            while view:
                view = view[write(self.fd, view) :]
        except OSError as error:
            _exit(CLOSED if error.errno == EBADF else 0)
        finally:
            self.sending = False


def end_of_output(mark: bytes) -> None:
    """Write into the output that a test ends here: what was printed before is its own."""
    with contextlib.suppress(BaseException):  # it may be the learner's own, or closed
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        write(1, mark)


class Lines:
    """The grader's end of a channel: bytes in, whole lines out."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes. Of one that is too long, the end is left."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > _LONGEST:
            self.rest = b"too long: "
        return lines
