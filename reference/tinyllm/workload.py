"""Requests made up from a seed: sessions with growing histories, shared system prompts, bursts.

The shapes are those of published traces: lengths whose logarithm is normal, outputs with a tail
that falls off like a power (Pareto), few system prompts that most requests share (Zipf), arrivals
in bursts. A `Workload` says how much of each; `PRESETS` has four that differ as real services do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random

from tinyllm.errors import InvalidArgumentError
from tinyllm.trace import Request

BLOCK_TOKENS = 16
"""The size of the blocks that made-up requests name."""
_MICRO = 1_000_000


@dataclass(frozen=True)
class Length:
    """A number of tokens: lognormal about ``median``, where ``spread`` is the standard deviation
    of the logarithm; with the probability ``tail`` instead Pareto from the median on, of index
    ``index`` (the smaller, the longer its tail). Never more than ``most``."""

    median: int
    spread: float
    tail: float = 0.0
    index: float = 1.2
    most: int = 1 << 20

    def draw(self, random: Random) -> int:
        """Return a length, at least 1."""
        if random.random() < self.tail:
            drawn = self.median * random.paretovariate(self.index)
        else:
            drawn = random.lognormvariate(math.log(self.median), self.spread)
        return max(1, min(round(drawn), self.most))


@dataclass(frozen=True)
class Workload:
    """What comes to a server.

    ``sessions_per_second`` begin, in bursts that have ``burst`` times the mean rate (1: none) and
    last ``burst_seconds``. A session sends ``turns`` requests in the mean, the next one
    ``think_seconds`` (the median) after the answer, with all that was said before in front of it.
    It begins with one of ``system_prompts`` prompts, the k-th most popular one chosen with a
    weight of 1 / k ** ``zipf``; these are shared, and each of ``tenants`` tenants has its own.
    ``cancelled`` is the share of requests whose client goes away within ``patience_seconds``.
    A session ends before its text has more than ``max_len`` tokens.
    """

    system: Length
    user: Length
    answer: Length
    sessions_per_second: float = 1.0
    burst: float = 1.0
    burst_seconds: float = 20.0
    turns: float = 1.0
    think_seconds: float = 20.0
    token_seconds: float = 0.02
    system_prompts: int = 1
    zipf: float = 1.0
    tenants: int = 1
    cancelled: float = 0.0
    patience_seconds: float = 30.0
    max_len: int = 4096

    def __post_init__(self) -> None:
        for name in ("sessions_per_second", "burst_seconds", "think_seconds", "patience_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name} must be above 0")
        for name in ("burst", "turns", "system_prompts", "tenants"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be at least 1")
        if not 0 <= self.cancelled <= 1:
            raise InvalidArgumentError("cancelled is a share, from 0 to 1")


PRESETS = {
    # A few long instructions that all share; several turns; short questions, answers with a tail.
    "chat": Workload(
        Length(400, 0.5), Length(40, 0.9), Length(150, 0.8, tail=0.08), turns=4.0,
        sessions_per_second=1.5, burst=2.0, system_prompts=12, tenants=2, cancelled=0.03),
    # One request, the file around the cursor before it; the answer is a line or two.
    "code": Workload(
        Length(60, 0.1), Length(1500, 0.9), Length(20, 0.8, tail=0.02), turns=2.0,
        think_seconds=6.0, sessions_per_second=2.0, burst=3.0, system_prompts=3, cancelled=0.2,
        patience_seconds=2.0, max_len=8192),
    # Long instructions with the tools in them; many turns, each with what a tool answered.
    "agents": Workload(
        Length(2500, 0.3), Length(350, 1.1, tail=0.05), Length(90, 0.7), turns=10.0,
        think_seconds=2.0, sessions_per_second=0.12, burst=2.0, system_prompts=6, zipf=1.4,
        max_len=16384),
    # Passages that were found are pasted into the prompt; one turn.
    "retrieval": Workload(
        Length(150, 0.2), Length(3000, 0.5), Length(180, 0.6), sessions_per_second=1.5, burst=1.5,
        system_prompts=4, tenants=3, max_len=8192),
}
"""Four services."""


@dataclass(slots=True)
class _Session:
    """A conversation: its text so far, as a length and names of its whole blocks."""

    turns_left: int
    length: int
    names: list[int] = field(default_factory=list)
    turn: int = 0


def preset(name: str, **changes: float) -> Workload:
    """Return a preset, with some of its parameters changed."""
    if name not in PRESETS:
        raise InvalidArgumentError(f"a preset is {', '.join(PRESETS)}, not {name!r}")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]


def generate(workload: Workload, n_requests: int, seed: int = 0) -> Iterator[Request]:
    """Make up ``n_requests`` requests, in order of arrival; the same ones for the same seed.

    What is kept in memory is the sessions that go on, however many requests there are.
    """
    return _Generator(workload, seed).requests(n_requests)


class _Generator:
    def __init__(self, workload: Workload, seed: int) -> None:
        self.load, self.random = workload, Random(seed)
        self.next_name = 0
        self.systems: dict[tuple[int, int], tuple[int, list[int]]] = {}
        ranks = range(1, workload.system_prompts + 1)
        self.weights = [rank**-workload.zipf for rank in ranks]
        self.bursts_until = 0.0
        self.quiet_until = 0.0

    def requests(self, n: int) -> Iterator[Request]:
        coming: list[tuple[float, int, _Session]] = []  # time, order: a heap of next turns
        starts, order = self._gap(0.0), 0
        for id_ in range(n):
            if not coming or starts < coming[0][0]:
                at, session = starts, self._begin()
                starts += self._gap(starts)
            else:
                at, _, session = heappop(coming)
            request = self._turn(id_, at, session)
            yield request
            following = self.load.user.median + self.load.answer.median
            if session.turns_left and session.length + following <= self.load.max_len:
                think = self.random.lognormvariate(math.log(self.load.think_seconds), 0.7)
                answered = request.output_tokens * self.load.token_seconds
                order += 1
                heappush(coming, (at + answered + think, order, session))

    def _gap(self, now: float) -> float:
        """Return the time to the next session: an exponential one, shorter in a burst. Bursts and
        quiet times take turns, and between them the mean rate is kept."""
        load = self.load
        if now >= self.quiet_until:
            self.bursts_until = now + self.random.expovariate(1 / load.burst_seconds)
            calm = load.burst_seconds * (load.burst - 1) / 0.75
            self.quiet_until = self.bursts_until + (
                self.random.expovariate(1 / calm) if load.burst > 1 else 0.0)
        rate = load.sessions_per_second
        if load.burst > 1:
            rate *= load.burst if now < self.bursts_until else 0.25
        return self.random.expovariate(rate)

    def _begin(self) -> _Session:
        load, random = self.load, self.random
        which = (random.randrange(load.tenants),
                 random.choices(range(load.system_prompts), self.weights)[0])
        if which not in self.systems:
            length = min(load.system.draw(random), load.max_len // 2)
            self.systems[which] = length, self._new_names(length // BLOCK_TOKENS)
        length, names = self.systems[which]
        turns = 1 + int(random.expovariate(1 / (load.turns - 1))) if load.turns > 1 else 1
        return _Session(turns, length, list(names))

    def _turn(self, id_: int, at: float, session: _Session) -> Request:
        """Let the session send its next request, and take in the answer."""
        load, random = self.load, self.random
        room = load.max_len - session.length
        prompt = session.length + max(1, min(load.user.draw(random), room // 2))
        output = max(1, min(load.answer.draw(random), load.max_len - prompt))
        # Who went away has read nothing, and does not go on.
        leaves = random.random() < load.cancelled
        session.turn += 1
        session.turns_left = 0 if leaves else session.turns_left - 1
        session.length = prompt + output
        session.names += self._new_names(session.length // BLOCK_TOKENS - len(session.names))
        arrival = round(at * _MICRO)
        cancel = arrival + round(_MICRO * random.uniform(0, load.patience_seconds))
        return Request(id_, arrival, prompt, output, tuple(session.names), None, session.turn,
                       cancel if leaves else None)

    def _new_names(self, n: int) -> list[int]:
        names = list(range(self.next_name, self.next_name + n))
        self.next_name += n
        return names
