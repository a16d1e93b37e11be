"""What a zygote and its workers do: three zygotes differ in nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Job = dict[str, Any]
Work = Callable[[Job, int, int], int]


def _nothing(job: Job) -> None:
    """There is nothing to do."""


@dataclass(frozen=True)
class Trade:
    """``work`` is a worker's: with its job, its events and its trace; it returns the exit status.
    ``before`` is done with the job before the fork. ``nested`` is what makes a zygote of a worker:
    it prepares it, and calls the `Serve` that it is given with the new one's trade."""

    work: Work
    before: Callable[[Job], None] = _nothing
    nested: Callable[[Job, Callable[["Trade"], None]], None] | None = None


Serve = Callable[[Trade], None]
