"""Where workers come from: one zygote at a time, and another if learner code kills it."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from grader.errors import KitError
from grader.worker.heard import GONE, Worker, ZygoteGone
from grader.worker.spawner import Nest, Root, Spawner

_LIVES = 3  # zygotes that learner code may use up: two of them, to be sure whose fault it was


class Nursery:
    """Hands out workers to any thread, and takes everything down at the end.

    A zygote that ends by itself was killed by a test. While several workers lived, nobody can say
    by whose; from then on they live one at a time.
    """

    def __init__(self, hatch: Callable[[], Spawner] = Root) -> None:
        self.hatch = hatch
        self.spawner = hatch()
        self.lock = threading.RLock()
        self.turn = threading.Lock()  # held by the one worker, where they live one at a time
        self.one_at_a_time = False
        self.lost = 0
        self.living: list[Worker] = []  # of this zygote
        self.closed = False

    @property
    def scratch(self) -> str:
        return self.spawner.scratch

    @contextlib.contextmanager
    def worker(self, job: dict[str, Any]) -> Iterator[Worker]:
        """Have a worker forked for ``job``; it is killed when the block is left."""
        with self.turn if self.one_at_a_time else contextlib.nullcontext():
            worker = self._fork(job)
            try:
                yield worker
            except ZygoteGone:
                self.one_at_a_time = True
                raise
            finally:
                with self.lock:
                    self.living = [other for other in self.living if other is not worker]
                worker.kill()
                worker.close()

    def nest(self, job: dict[str, Any]) -> "Nursery":
        """Return a nursery whose workers are forked from a process that is prepared by ``job``."""
        return Nursery(lambda: self._nest(job))

    def _nest(self, job: dict[str, Any]) -> Nest:
        mine, its = socket.socketpair()
        status, write = os.pipe()
        try:
            self._request(job, [its.fileno(), write])
        except BaseException:
            mine.close()
            os.close(status)
            raise
        finally:
            its.close()
            os.close(write)
        return Nest(mine, status)

    def _fork(self, job: dict[str, Any]) -> Worker:
        pipes = [os.pipe() for _ in range(4)]
        try:
            with self.lock:
                self._request(job, [write for _, write in pipes])
                worker = Worker(job["mark"].encode(), *(read for read, _ in pipes))
                self.living.append(worker)
                if len(self.living) > 1:
                    for each in self.living:
                        each.alone = False
                return worker
        except BaseException:
            for read, _ in pipes:
                os.close(read)
            raise
        finally:
            for _, write in pipes:
                os.close(write)

    def _request(self, job: dict[str, Any], fds: list[int]) -> None:
        """Pass a request on to the zygote, or to another one where it is gone."""
        message = json.dumps(job).encode()
        with self.lock:
            while not self.closed:
                try:
                    self.spawner.request(message, fds)
                    return
                except OSError as error:
                    self._start_again(error)
        raise KitError(GONE)

    def _start_again(self, error: OSError) -> None:
        self.lost += 1
        if not self.spawner.ready or self.lost == _LIVES or self.closed:
            raise KitError(GONE) from error
        self.spawner.close()
        self.spawner, self.living = self.hatch(), []

    def kill_zygote(self) -> None:
        """Give up a zygote that does not answer; the next worker comes from another."""
        self.spawner.kill()

    def close(self) -> None:
        """End all workers, whoever still listens to them, and whatever they started."""
        self.closed = True
        self.spawner.hang_up()  # a thread may hold the lock until the zygote is ready
        with self.lock:
            self.spawner.close()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
