"""The grader's hold on one fork server: it starts it, passes requests on, and takes it down."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from grader import ROOT
from grader.sandbox import processes
from grader.sandbox.channel import Lines
from grader.sandbox.worker_handle import readable

_SERVER = Path(__file__).with_name("inside") / "forkserver.py"


class ForkserverClient:
    """The grader's end of one fork server's channel. ``scratch`` is the folder below which all its
    workers live."""

    def __init__(self, channel: socket.socket, scratch: str) -> None:
        self.socket = channel
        self.scratch = scratch
        self.ready = False

    def request(self, message: bytes, fds: list[int]) -> None:
        """Ask for a worker that gets ``fds``; an `OSError` says that the fork server is gone."""
        if not self.ready and self.socket.recv(1) != b"+":
            raise OSError("it ended before it was ready")
        self.ready = True
        socket.send_fds(self.socket, [len(message).to_bytes(4, "little")], fds)
        self.socket.sendall(message)

    def hang_up(self) -> None:
        """Tell the fork server to end its workers and itself, and whoever waits for it to stop
        that."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End it at once."""
        raise NotImplementedError

    def close(self) -> None:
        """End the fork server; with it end all workers and whatever they started."""
        raise NotImplementedError


class LocalForkserver(ForkserverClient):
    """A fork server that is a program of its own."""

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        site = sysconfig.get_paths()["purelib"]
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8",
               "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1",
               "OMP_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1", "TZ": "UTC",
               # macOS ends a forked process that uses its frameworks, unless told not to.
               "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
        super().__init__(mine, tempfile.mkdtemp(prefix="ol-"))
        env["OL_SCRATCH"] = self.scratch  # by which a process that is left over is known
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SERVER), str(ROOT),
                 str(its.fileno()), self.scratch, site],
                pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env=env)

    def kill(self) -> None:
        self.process.terminate()  # the guard above it, which kills it and what it leaves

    def close(self) -> None:
        self.hang_up()
        self.socket.close()
        if not self.ready:  # nothing was asked of it: it has nothing to clean up but its folder
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.process.kill()
        self.process.wait()
        for left in processes.known_by(f"OL_SCRATCH={self.scratch}"):
            with contextlib.suppress(OSError):
                os.kill(left, signal.SIGKILL)
        shutil.rmtree(self.scratch, ignore_errors=True)  # where it was killed, it could not


class NestedForkserver(ForkserverClient):
    """A fork server that another one forked. ``status`` is a pipe on which that one tells how this
    one does."""

    def __init__(self, channel: socket.socket, status: int) -> None:
        super().__init__(channel, "")
        self.status = status
        self.lines = Lines()
        self.pid = 0

    def kill(self) -> None:
        if self._heard(0.0) is None and self.pid:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        if self.status < 0:
            return
        self.hang_up()
        self.socket.close()
        if self._heard(10.0) is None:
            self.kill()
            self._heard(10.0)
        os.close(self.status)
        self.status = -1

    def _heard(self, seconds: float) -> bool | None:
        """Read what its parent tells, for so long; True when it has ended, or its parent has."""
        until = time.monotonic() + seconds
        while readable([self.status], until - time.monotonic()):
            data = os.read(self.status, 4096)
            for message in map(json.loads, self.lines.feed(data)):
                self.pid = message.get("pid", self.pid)
                if "ended" in message:
                    return True
            if not data:
                return True
        return None
