"""Small servers, requests and reports, and what the suite reads back."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from grader.assertions import Wrong, same
from grader.assertions.wording import say
from tinyllm.simulation import Cost, Memory, Report, SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request

COST = Cost(step_us=10, token_us=1, swap_us=2)
"""Of all small servers: a step of n positions takes 10 + n us."""

MOST_STEPS = 500
"""More than any of the suite's simulations by hand takes."""

FIGURES = ("requests", "refused", "completed", "cancelled", "start_us", "end_us", "steps",
           "busy_us", "running_us", "peak_running", "pressed_us", "computed_tokens",
           "output_tokens", "preemptions", "recomputed_tokens", "swapped_tokens", "evictions")


def config(n_blocks: int = 6, block_tokens: int = 4, **more: Any) -> SimConfig:
    """Return a small server's config."""
    return SimConfig(n_blocks, block_tokens, **{"cost": COST, **more})


def request(id: str, prompt: int, output: int, arrival_us: int = 0, **more: Any) -> Request:
    """Return a request."""
    return Request(id, arrival_us, prompt, output, **more)


class Seen(NamedTuple):
    """What one step did to the figures."""

    us: int
    memory: Memory
    running: int
    computed: int


class Watched:
    """A simulator whose steps are looked at one by one, through its reports alone."""

    def __init__(self, *requests: Request, **more: Any) -> None:
        self.sim = Simulator(config(**more))
        for one in requests:
            self.sim.submit(one)

    def step(self, times: int = 1) -> Seen:
        """Do steps, and return what the last one did."""
        for _ in range(times):
            before = self.sim.report()
            if self.sim.step() is not True:
                raise Wrong("what step() returns while there is something to do", "True")
        after = self.sim.report()
        us = after.busy_us - before.busy_us
        if us < 1:
            raise Wrong("the busy time that a step adds", "its length", say(us))
        spent = [a - b for a, b in zip(after.memory_us, before.memory_us, strict=True)]
        memory = Memory(*(slots // us for slots in spent))
        return Seen(us, memory, (after.running_us - before.running_us) // us,
                    after.computed_tokens - before.computed_tokens)

    def who(self, running: Sequence[str], waiting: Sequence[str], when: str) -> None:
        """Judge who runs and who waits between two steps."""
        same([self.sim.running, self.sim.waiting], [list(running), list(waiting)],
             f"who runs, and who waits, {when}")

    def rest(self) -> Report:
        """Do all steps that are left, and return the report."""
        for _ in range(MOST_STEPS):
            if not self.sim.step():
                return self.sim.report()
        raise Wrong("how long the simulation goes on", "a few dozen steps",
                    f"more than {MOST_STEPS}, with {say(self.sim.waiting)} waiting and "
                    f"{say(self.sim.running)} running")


def slots(**shares: int) -> Memory:
    """Return a memory of these shares; the others are 0."""
    return Memory(**shares)


def same_memory(got: Memory, want: Memory, when: str) -> None:
    """Judge where the slots are."""
    same([int(n) for n in got], list(want),
         f"token, reserved, internal, external, cached, idle slots {when}")


def same_report(got: Report, figures: dict[str, int], when: str = "at the end") -> None:
    """Judge these figures of a report."""
    for name, want in figures.items():
        same(getattr(got, name), want, f"{name} {when}")


def same_times(got: Report, queue_us: list[int], ttft_us: list[int]) -> None:
    """Judge when requests were admitted and gave their first token."""
    same(list(got.queue_us), queue_us, "queueing of each request, us")
    same(list(got.ttft_us), ttft_us, "time to the first token of each request, us")


def hits_of(report: Report) -> dict[int, list[int]]:
    """Return by turn: prompts, blocks asked for, blocks found, tokens, tokens found."""
    return {turn: [h.prompts, h.blocks, h.hit_blocks, h.tokens, h.hit_tokens]
            for turn, h in report.turns.items()}


def samples_of(report: Report) -> list[list[int]]:
    """Return when each sample was taken, who ran and who waited, and where the slots were."""
    return [[s.at_us, s.running, s.waiting, *(int(n) for n in s.memory)] for s in report.samples]


def same_hits(report: Report, want: dict[int, list[int]], when: str = "at the end") -> None:
    """Judge the hits by turn."""
    got = hits_of(report)
    same(sorted(got), sorted(want), f"the turns that report.turns has {when}")
    for turn, row in want.items():
        same(got[turn], row, f"turn {turn}: prompts, blocks asked for, blocks found, tokens, "
                             f"tokens found {when}")


def named(id: str, prompt: int, output: int, names: str, arrival_us: int = 0,
          **more: Any) -> Request:
    """Return a request whose blocks have one letter each."""
    return request(id, prompt, output, arrival_us, blocks=tuple(names), **more)


def cached(*requests: Request, **more: Any) -> Watched:
    return Watched(*requests, **{"cache": "lru-tail", **more})
