"""Where workers come from: one fork server at a time, and another if learner code kills it."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from grader.errors import KitError
from grader.sandbox.forkserver_client import ForkserverClient, LocalForkserver, NestedForkserver
from grader.sandbox.processors import processors
from grader.sandbox.worker_handle import GONE, ForkserverGone, Worker

Thing = TypeVar("Thing")
Result = TypeVar("Result")

class Turns:
    """Who may have a worker now: any number at once, or one that is to live alone."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.living = self.waiting = 0  # workers that live; those that wait to be alone
        self.taken = False  # by one that lives alone
        self.closed = False

    @contextlib.contextmanager
    def take(self, alone: bool) -> Iterator[None]:
        """Have a turn for as long as the block lasts. Those that wait to be alone go first."""
        with self.changed:
            self.waiting += alone
            self.changed.wait_for(lambda: self.closed or (not self.taken and (
                not self.living if alone else not self.waiting)))
            self.waiting -= alone
            self.living += 1
            self.taken = alone
        try:
            yield
        finally:
            with self.changed:
                self.living -= 1
                self.taken = self.taken and not alone
                self.changed.notify_all()

    def close(self) -> None:
        """Let no thread wait any longer."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


class WorkerPool:
    """Hands out workers to any thread, and takes everything down at the end.

    A fork server that ends by itself was killed by a test. While several workers lived, nobody can
    say by whose; from then on they live one at a time. How many may be killed is for each run to
    say.
    """

    def __init__(self, start: Callable[[], ForkserverClient] = LocalForkserver) -> None:
        self.start = start
        self.forkserver = start()
        self.lock = threading.RLock()
        self.turns = Turns()
        self.one_at_a_time = False
        self.living: list[Worker] = []  # of this fork server
        self.closed = False

    @property
    def scratch(self) -> str:
        return self.forkserver.scratch

    @contextlib.contextmanager
    def worker(self, job: dict[str, Any], *, alone: bool = False) -> Iterator[Worker]:
        """Have a worker forked for ``job``; it is killed when the block is left. One that is to be
        ``alone`` waits until no other lives, and the others wait for it."""
        with self.turns.take(alone or self.one_at_a_time):
            worker = self._fork(job)
            try:
                yield worker
            except ForkserverGone:
                self.one_at_a_time = True
                raise
            finally:
                with self.lock:
                    self.living = [other for other in self.living if other is not worker]
                worker.kill()
                worker.close()

    def all(self, do: Callable[[Thing], Result], things: Iterable[Thing],
            at_once: int | None = None) -> list[Result]:
        """Do something with each thing, as many at once as there are processors, and return what
        came of it, in order. The first exception, Ctrl-C too, ends all workers: no thread is left
        to be waited for."""
        with ThreadPoolExecutor(max_workers=at_once or processors()) as threads:
            try:
                doing = [threads.submit(do, thing) for thing in things]
                ended = wait(doing, return_when=FIRST_EXCEPTION).done
                for failed in [x for x in doing if x in ended and x.exception()]:
                    failed.result()
                return [x.result() for x in doing]
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    def suite_server(self, job: dict[str, Any]) -> "WorkerPool":
        """Return a pool of workers whose workers are forked from a process that is prepared by
        ``job``."""
        return WorkerPool(lambda: self._suite_server(job))

    def _suite_server(self, job: dict[str, Any]) -> NestedForkserver:
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
        return NestedForkserver(mine, status)

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
        """Pass a request on to the fork server, or to another one where it is gone."""
        message = json.dumps(job).encode()
        with self.lock:
            while not self.closed:
                try:
                    self.forkserver.request(message, fds)
                    return
                except OSError as error:
                    self._start_again(error)
        raise KitError(GONE)

    def _start_again(self, error: OSError) -> None:
        if not self.forkserver.ready or self.closed:
            raise KitError(GONE) from error
        self.forkserver.close()
        self.forkserver, self.living = self.start(), []

    def kill_forkserver(self) -> None:
        """Give up a fork server that does not answer; the next worker comes from another."""
        self.forkserver.kill()

    def close(self) -> None:
        """End all workers, whoever still listens to them, and whatever they started."""
        self.closed = True
        self.turns.close()
        self.forkserver.hang_up()  # a thread may hold the lock until the fork server is ready
        with self.lock:
            self.forkserver.close()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
