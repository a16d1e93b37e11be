"""The grader's hold on one zygote: it starts it, passes requests on, and takes it down."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from grader import ROOT


class Spawner:
    """One zygote process. ``scratch`` is the folder below which all its workers live."""

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        site = sysconfig.get_paths()["purelib"]
        env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8",
               "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1",
               "OMP_NUM_THREADS": "1", "VECLIB_MAXIMUM_THREADS": "1", "TZ": "UTC",
               # macOS ends a forked process that uses its frameworks, unless told not to.
               "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
        self.scratch = tempfile.mkdtemp(prefix="ol-")
        with its:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("zygote.py")),
                 str(ROOT), str(its.fileno()), self.scratch, site],
                pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env=env)
        self.socket = mine
        self.ready = False

    def request(self, message: bytes, fds: list[int]) -> None:
        """Ask for a worker that gets ``fds``; an `OSError` says that the zygote is gone."""
        if not self.ready and self.socket.recv(1) != b"+":
            raise OSError("it ended before it was ready")
        self.ready = True
        socket.send_fds(self.socket, [len(message).to_bytes(4, "little")], fds)
        self.socket.sendall(message)

    def hang_up(self) -> None:
        """Tell the zygote to end its workers and itself, and whoever waits for it to stop that."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote; with it end all workers and whatever they started."""
        self.hang_up()
        self.socket.close()
        if not self.ready:  # nothing was asked of it: it has nothing to clean up but its folder
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)  # where it was killed, it could not
