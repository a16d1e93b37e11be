"""The time that a test may take: processor time while it computes, and all time while it waits.

A machine may be busy with other things. So what counts against a test is the processor time that
its processes used, not the time that passed while they wanted a processor and got none. Only while
none of them wants one, because all sleep or wait for each other, does the time that passes count.
Where the system does not tell any of this, all time counts.
"""

import time
from collections.abc import Iterable

from grader.sandbox.processes import Process

_MOST_WAIT = 0.2  # seconds that one look may charge for waiting: the grader may be late itself
_BACKSTOP = 12  # times the allowance, and
_BACKSTOP_SECONDS = 60.0  # at least so long: after that a test has failed, whatever was measured
_SURE = 0.9  # the share of the time that a busy loop has the processor, if it is left to itself


class Allowance:
    """``given`` seconds, of which ``used`` are used up. ``base`` is the processor time that the
    worker had used before, None where that is not known."""

    def __init__(self, given: float, base: float | None = None) -> None:
        self.given = given
        self.used = self.computed = self.starved = 0.0
        self.started = self.looked = time.monotonic()
        self.base = base

    def may_be_over(self) -> bool:
        """True when a look at the worker could find that the time is up."""
        return self.used + time.monotonic() - self.looked >= self.given

    def left(self) -> float:
        """Return the seconds until it may be over."""
        return max(self.given - self.used - (time.monotonic() - self.looked), 0.0)

    def charge(self, processes: Iterable[Process]) -> None:
        """Charge the time since the last look to ``processes``, those of the worker."""
        now, found = time.monotonic(), list(processes)
        passed, self.looked = now - self.looked, now
        if not found:
            self.used += passed
            return
        cpu = sum(p.cpu for p in found)
        before = cpu if self.base is None else self.base
        self.base = max(before, cpu)  # a child that has ended, and was not waited for, is missing
        computed = min(self.base - before, passed)
        if not any(p.runnable for p in found):
            self.used += max(computed, min(passed, _MOST_WAIT))
        else:
            self.used += computed
            self.starved += passed - computed
        self.computed += computed

    @property
    def over(self) -> bool:
        return self.used >= self.given or self.passed >= self.most

    @property
    def passed(self) -> float:
        return time.monotonic() - self.started

    @property
    def most(self) -> float:
        """Return the seconds that may pass in all."""
        return max(_BACKSTOP * self.given, _BACKSTOP_SECONDS)

    @property
    def spent(self) -> float:
        """Return how many seconds to say that it took, once it is over."""
        return self.given if self.used >= self.given else self.most

    @property
    def certain(self) -> bool:
        """True when another try would end in the same way: it had a processor all the time, or
        never wanted one."""
        return self.used >= self.given and (
            self.computed >= _SURE * self.passed or self.starved + self.computed
            <= (1 - _SURE) * self.given)
