"""The fork server: it imports what every worker needs, once, and forks a worker for each request.

Run as a program of its own (`python -I -S forkserver.py ROOT SOCKET SCRATCH SITE…`), so that
neither the environment nor a file of the learner's can change what it imports. A request is one
JSON message with four file descriptors: events, output, trace (where faulthandler writes) and
status. On `status` the fork server writes the worker's process id, and later how it ended, when
everything it started is gone. A request for another fork server comes with two: a channel for its
own requests, and status.
"""

import array
import contextlib
import gc
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any


class Forkserver:
    """Forks workers and reaps them, by its role (`grader.sandbox.inside.server_role`)."""

    def __init__(self, channel: socket.socket, scratch: str, role: Any) -> None:
        self.channel = channel
        self.scratch = scratch
        self.role = role
        self.workers: dict[int, int] = {}  # process id -> its status descriptor
        self.folders: dict[int, str] = {}  # process id -> where it may write
        self.count = 0
        self.wake, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Answer requests until the grader goes; then leave nothing behind."""
        try:
            waiting = selectors.PollSelector()  # which has no descriptor that workers would inherit
            waiting.register(self.channel, selectors.EVENT_READ)
            waiting.register(self.wake, selectors.EVENT_READ)
            while True:
                ready = [key.fd for key, _ in waiting.select()]
                if self.wake in ready:
                    os.read(self.wake, 4096)
                    self.reap()
                if self.channel.fileno() in ready and not self.answer():
                    return
        finally:
            for worker in list(self.workers):
                for kill in (os.killpg, os.kill):  # it may have left its group
                    with contextlib.suppress(OSError):
                        kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)  # only then are its orphans ours to find
                self.sweep(worker)
            shutil.rmtree(self.scratch, ignore_errors=True)

    def answer(self) -> bool:
        """Fork one worker as asked; False when the grader has closed the channel."""
        message, fds = _receive(self.channel)
        if not message:
            return False
        *theirs, status = fds
        job = json.loads(message)
        self.count += 1
        with contextlib.suppress(Exception):  # what is wrong with it is told by the worker
            self.role.prepare(job)
        worker = os.fork()
        if worker == 0:
            self._become(job, theirs, status)
        with contextlib.suppress(OSError):
            os.setpgid(worker, worker)  # the worker does the same: whoever comes first
        self.workers[worker] = status
        self.folders[worker] = self.folder(self.count)
        for fd in theirs:
            os.close(fd)
        _tell(status, {"pid": worker, "folder": self.folder(self.count)})
        return True

    def folder(self, number: int) -> str:
        """Return the folder of a worker."""
        return os.path.join(self.scratch, str(number))

    def reap(self) -> None:
        """Collect dead workers, kill what they left, and say how they ended."""
        for worker in list(self.workers):
            done, status = os.waitpid(worker, os.WNOHANG)
            if done == 0:
                continue
            self.sweep(worker)
            shutil.rmtree(self.folders.pop(worker), ignore_errors=True)
            channel = self.workers.pop(worker)
            _tell(channel, {"ended": os.waitstatus_to_exitcode(status)})
            os.close(channel)

    def sweep(self, worker: int) -> None:
        """Kill the worker's group, then every orphan of its that came to us (Linux)."""
        with contextlib.suppress(OSError):
            os.killpg(worker, signal.SIGKILL)
        for _ in range(100):  # each round may uncover the next generation
            strays = [p for p in processes.children_of_this_process() if p not in self.workers]
            if not strays:
                return
            for stray in strays:
                with contextlib.suppress(OSError):
                    os.kill(stray, signal.SIGKILL)
                with contextlib.suppress(OSError):
                    os.waitpid(stray, 0)

    def _become(self, job: dict[str, Any], fds: list[int], status: int) -> None:
        """Be a worker: from here on this process belongs to the learner's code. Or be a fork server
        in its turn."""
        code = FAULT
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (status, self.wake, self.wake_write, self.channel.fileno(),
                       *self.workers.values()):
                os.close(fd)
            folder = self.folder(self.count)
            os.mkdir(folder)
            os.chdir(folder)
            os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
            if len(fds) == 1:
                channel = socket.socket(fileno=fds[0])
                self.role.spawn(job, lambda role: _serve(channel, folder, role))
                code = 0
                return
            events, output, trace = fds
            for fd in (1, 2):
                os.dup2(output, fd)
            os.close(output)
            os.set_inheritable(trace, False)
            code = self.role.run(job, events, trace)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
            os._exit(code)


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Read one length-prefixed message and the descriptors that came with it."""
    fds = array.array("i")
    head, ancillary, _, _ = channel.recvmsg(4, socket.CMSG_SPACE(4 * fds.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if len(head) < 4:
        return b"", []
    size = int.from_bytes(head, "little")
    body = b""
    while len(body) < size:
        chunk = channel.recv(size - len(body))  # no further: the next message's descriptors
        if not chunk:
            return b"", []
        body += chunk
    return body, list(fds)


def _tell(fd: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the grader may have gone
        os.write(fd, json.dumps(message).encode() + b"\n")


def guarded(channel: socket.socket) -> None:
    """Go on in a child. This process stays above it and ends with it: what then is left, such as a
    daemon that has killed the fork server, has become this one's child (Linux), and is killed."""
    limits.adopt_orphans()
    guard, forkserver = os.getpid(), os.fork()
    if forkserver == 0:
        os.setsid()
        limits.die_with_parent()
        if os.getppid() != guard:
            os._exit(0)
        return
    channel.close()

    def give_up(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.kill(forkserver, signal.SIGKILL)

    signal.signal(signal.SIGTERM, give_up)
    while os.wait()[0] != forkserver:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while left := processes.children_of_this_process():  # each round may uncover some more
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(process, 0)
    os._exit(0)


def main(channel: socket.socket) -> None:
    worker_main.warm_up()
    _serve(channel, sys.argv[3], ServerRole(worker_main.run, spawn=suite_server.run))


def _serve(channel: socket.socket, scratch: str, role: Any) -> None:
    """Fork workers until the grader goes."""
    limits.adopt_orphans()
    channel.set_inheritable(False)
    gc.collect()
    gc.freeze()  # workers share these pages until they write to them
    with contextlib.suppress(OSError):  # a grader that has gone is noticed at the first message
        channel.sendall(b"+")
    Forkserver(channel, scratch, role).serve()


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p] + sys.argv[4:]
    sys.path.insert(0, sys.argv[1])
    from grader.sandbox import limits, processes

    the_channel = socket.socket(fileno=int(sys.argv[2]))
    guarded(the_channel)
    from grader.sandbox.channel import FAULT
    from grader.sandbox.inside import suite_server, worker_main
    from grader.sandbox.inside.server_role import ServerRole

    sys.path.remove(sys.argv[1])
    main(the_channel)
