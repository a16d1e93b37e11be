"""Where workers come from: one zygote at a time, and another if learner code kills it."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from typing import Any

from grader.errors import KitError
from grader.worker.heard import GONE, Worker, ZygoteGone
from grader.worker.spawner import Spawner

_LIVES = 3  # zygotes that learner code may use up: two of them, to be sure whose fault it was


class Nursery:
    """Hands out workers to any thread, and takes everything down at the end.

    A zygote that ends by itself was killed by a test. While several workers lived, nobody can say
    by whose; from then on they live one at a time.
    """

    def __init__(self) -> None:
        self.spawner = Spawner()
        self.lock = threading.Lock()
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

    def _fork(self, job: dict[str, Any]) -> Worker:
        message = json.dumps(job).encode()
        with self.lock:
            while not self.closed:
                pipes = [os.pipe() for _ in range(4)]
                try:
                    self.spawner.request(message, [write for _, write in pipes])
                except OSError as error:
                    for read, _ in pipes:
                        os.close(read)
                    self._start_again(error)
                else:
                    worker = Worker(job["mark"].encode(), *(read for read, _ in pipes))
                    self.living.append(worker)
                    if len(self.living) > 1:
                        for each in self.living:
                            each.alone = False
                    return worker
                finally:
                    for _, write in pipes:
                        os.close(write)
        raise KitError(GONE)

    def _start_again(self, error: OSError) -> None:
        self.lost += 1
        if not self.spawner.ready or self.lost == _LIVES or self.closed:
            raise KitError(GONE) from error
        self.spawner.close()
        self.spawner, self.living = Spawner(), []

    def kill_zygote(self) -> None:
        """Give up a zygote that does not answer; the next worker comes from another."""
        self.spawner.process.kill()

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
