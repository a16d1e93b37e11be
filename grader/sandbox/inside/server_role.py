"""What a fork server and its workers do: three fork servers differ in nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Job = dict[str, Any]
Work = Callable[[Job, int, int], int]


def _nothing(job: Job) -> None:
    """There is nothing to do."""


@dataclass(frozen=True)
class ServerRole:
    """``run`` is a worker's: with its job, its events and its trace; it returns the exit status.
    ``prepare`` is done with the job before the fork. ``spawn`` makes a fork server of a worker: it
    prepares it, and calls the `Serve` that it is given with the new one's role."""

    run: Work
    prepare: Callable[[Job], None] = _nothing
    spawn: Callable[[Job, Callable[["ServerRole"], None]], None] | None = None


Serve = Callable[[ServerRole], None]
