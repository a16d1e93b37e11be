"""Random traces and random servers against a model that does everything the slow way."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count, islice
from random import Random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, refuses, same
from grader.assertions.wording import say
from tests.simulator.model import ServerModel
from tests.simulator.samples import FIGURES, hits_of, samples_of
from tinyllm.errors import InvalidArgumentError
from tinyllm.simulation import Cost, Preemption, Report, Scheme, SimConfig, Victim
from tinyllm.simulator import Simulator
from tinyllm.trace import Request

_NAMES = {"start_us": "start", "end_us": "end", "busy_us": "busy", "running_us": "running",
          "peak_running": "peak", "pressed_us": "pressed", "computed_tokens": "computed",
          "output_tokens": "output", "recomputed_tokens": "recomputed",
          "swapped_tokens": "swapped"}
_COST = Cost(3, 2, 1)
_EVERY = 4  # us between samples: some steps have several, some have none
_FAR = (1 << 32, (1 << 61) - 1, 1 << 60, 1 << 64)
"""Distances between block ids that are not equal: in 32 bits, as Python's hash, as a double, and in
64 bits they would be."""
_CACHES = ("none", "lru", "lru-tail", "lfu", "length")


@st.composite
def traces(draw: st.DrawFn, block_tokens: int = 3) -> list[Request]:
    """Draw requests whose prompts begin alike in families, and turn off somewhere."""
    requests, now = [], 0
    for id_ in range(draw(st.integers(1, 9))):
        now += draw(st.sampled_from((0, 0, 1, 4, 20, 70)))
        prompt, output = draw(st.integers(1, 14)), draw(st.integers(1, 9))
        family, common = draw(st.integers(0, 1)), draw(st.integers(0, 4))
        names = tuple((family if at < common else f"own {id_}", at)
                      for at in range((prompt + output) // block_tokens))
        cancel = draw(st.none() | st.integers(now, now + 60)) if draw(st.booleans()) else None
        requests.append(Request(id_, now, prompt, output, names, None, draw(st.integers(1, 2)),
                                cancel))
    return requests


class Shape(NamedTuple):
    """A request that is drawn before the time at which it is submitted is known."""

    gap: int  # us after the last arrival
    after_now: bool  # and after the clock, if that is later
    prompt: int
    output: int
    common: int  # blocks at its beginning that others of its family have, too
    family: int
    far: int  # the distance between block ids of different requests
    named: int  # most blocks that have a name
    partial: bool  # the prompt's last block has a name, although it is not full
    turn: int
    patience: int | None

    def request(self, number: int, last: int, now: int, block_tokens: int) -> Request:
        """Return the request; ``last`` is the last arrival, ``now`` the clock. Two requests in a
        row have the same id."""
        arrival = self.gap + (max(last, now) if self.after_now else last)
        tokens = self.prompt if self.partial else self.prompt + self.output
        ids = (at + self.far * (self.family if at < self.common else number + 3)
               for at in count())
        names = tuple(id_ for id_, _ in zip(ids, range(min(tokens // block_tokens, self.named)),
                                            strict=False))
        partial = len(names) + self.far * self.family if self.partial else None
        cancel = None if self.patience is None else arrival + self.patience
        return Request(number // 2, arrival, self.prompt, self.output, names, partial, self.turn,
                       cancel)


def drawn_shape(rng: Random) -> Shape:
    """Draw a request. Most fit a small server, and many of them meet in it."""
    return Shape(
        rng.choice((0, 0, 0, 1, 5, 30, 200)), rng.random() < 0.3,
        rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 40)), rng.choice((1, 2, 4, 5, 6, 7, 8, 9)),
        rng.choice((3, 0, 1, 2, 4)), rng.choice((0, 0, 1, 2)), rng.choice(_FAR),
        rng.choice((99, 99, 99, 0, 1, 2)), rng.random() < 0.3, rng.randrange(3),
        rng.choice((*[None] * 8, 0, 3, 15, 25, 60)))


def drawn_server(rng: Random) -> SimConfig:
    """Draw a server: every scheme, victim and policy, and costs that may be 0."""
    scheme = rng.choice((*[Scheme.PAGED] * 4, *Scheme))
    size = rng.randint(1, 4)
    return SimConfig(
        -(-rng.choice((14, 16, 20, 24, 30, 60)) // size), size, scheme,
        rng.choice((8, 12, 16, 18)), rng.choice((1, 3, 20, 20, 20)), rng.choice((*Victim,)),
        rng.choice((*Preemption,)), rng.choice(_CACHES) if scheme is Scheme.PAGED else "none",
        rng.choice((_COST, Cost(10, 1, 2), Cost(1, 0, 0), Cost(5, 0, 3))),
        rng.choice((0, 1, 4, 13)))


def drawn_calls(rng: Random) -> Iterator[tuple[str, Shape]]:
    """Draw calls without end: some requests at first, then all kinds of calls in turn."""
    for number in count():
        name = rng.choice(("submit", "step", "step", "steps", "look", "submit_bad"))
        yield "submit" if number < 3 else name, drawn_shape(rng)


def same_figures(report: Report, model: ServerModel) -> None:
    """Judge every figure of a report against the model's."""
    for name in FIGURES:
        same(getattr(report, name), model.figures[_NAMES.get(name, name)], name)
    same([int(n) for n in report.memory_us], list(model.memory_us), "memory_us")
    same([int(n) for n in report.pressed_memory_us], list(model.pressed_memory_us),
         "pressed_memory_us")
    same(list(report.queue_us), model.queue_us, "queueing of each request, us")
    same(list(report.ttft_us), model.ttft_us, "time to the first token of each request, us")
    same(sorted(hits_of(report).items()), sorted(model.turns.items()), "hits by turn")


def agree(config: SimConfig, requests: list[Request]) -> None:
    """Judge a whole report against the model's."""
    new_example()
    model = ServerModel(config)
    model.run(requests)
    same_figures(Simulator(config).run(requests), model)
    sampled = replace(config, sample_us=_EVERY)
    stepped = Simulator(sampled)
    for one in requests:
        stepped.submit(one)
    while stepped.step():
        pass
    same(samples_of(Simulator(sampled).run(requests)), samples_of(stepped.report()),
         "samples of run, as step after step gives them")


class Pair:
    """A simulator and the model, which get the same calls."""

    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.sim, self.model = Simulator(config), ServerModel(config)
        self.submitted = self.last = 0
        self.earlier = Report()
        self.had = _lists_of(self.earlier)  # what that had when it was returned

    def next(self, shape: Shape) -> Request:
        """Return the request of a shape that is submitted next."""
        request = shape.request(self.submitted, self.last, self.model.now,
                                self.config.block_tokens)
        self.submitted, self.last = self.submitted + 1, request.arrival_us
        return request

    def submit(self, shape: Shape) -> None:
        request = self.next(shape)
        same(self.sim.submit(request), self.model.submit(request), "submit")

    def submit_bad(self, shape: Shape) -> None:
        """Submit what is no request, in three ways."""
        good = shape.request(self.submitted, self.last, self.model.now, self.config.block_tokens)
        for bad in (good._replace(prompt_tokens=0), good._replace(output_tokens=-1),
                    good._replace(arrival_us=self.last - 1)):
            refuses(InvalidArgumentError, "submit of a bad request", partial(self.sim.submit, bad))

    def step(self, shape: Shape) -> None:
        same(self.sim.step(), self.model.step(), "step")

    def steps(self, shape: Shape) -> None:
        """Do as many steps as the request has output tokens."""
        for _ in range(shape.output):
            self.step(shape)

    def look(self, shape: Shape) -> None:
        request = shape.request(self.submitted, self.last, 0, self.config.block_tokens)
        same(self.sim.lookup(request), self.model.lookup(request), "lookup")

    def compare(self) -> None:
        """Judge all that can be asked between two calls."""
        sim, model, report = self.sim, self.model, self.sim.report()
        same(sim.now_us, model.now, "now_us")
        running = model.at("running")
        same(sim.running, [row.request.id for row in running], "running")
        same(sim.next_victim, model.victim().request.id if running else None, "next_victim")
        waiting = [row.request.id for row in model.at("waiting")]
        came = [row.request.id for row in model.at("coming")
                if row.request.arrival_us <= model.now]
        demand(sim.waiting in (waiting, waiting + came), "waiting", say(waiting), say(sim.waiting))
        same_figures(report, model)
        same(_lists_of(self.earlier), self.had, "lists of an earlier report")
        self.earlier, self.had = report, _lists_of(report)
        same(samples_of(report), [[s.at_us, s.running, s.waiting, *s.memory]
                                  for s in model.samples], "samples")


def _lists_of(report: Report) -> list[object]:
    return [list(report.queue_us), list(report.ttft_us), hits_of(report), len(report.samples)]


@settings(max_examples=120)
@given(st.integers(3, 24), st.integers(0, 1 << 64))
def test_random_servers_step_by_step(n_calls: int, seed: int) -> None:
    """Random calls to random servers have the results that a slow model gives, one by one: submit,
    step, lookup, and at last run. After each of them every figure, every sample, who runs, who
    waits and who would be preempted are the model's.

    Why: a simulator is a machine with a state. What one call leaves wrong shows in a later one,
    and the totals of a whole trace may still be right.
    """
    new_example()
    # With fewer calls one seed makes the same ones up to there, so that a failure can be shortened.
    rng, last = Random(seed), Random(~seed)
    pair = Pair(drawn_server(rng))
    for name, shape in islice(drawn_calls(rng), n_calls):
        getattr(pair, name)(shape)
        pair.compare()
    requests = [pair.next(drawn_shape(last)) for _ in range(last.choice((0, 0, 1, 3, 6)))]
    pair.sim.run(_one_by_one(requests))
    pair.model.run(requests)
    pair.compare()


def _one_by_one(requests: list[Request]) -> Iterator[Request]:
    yield from requests


@settings(max_examples=25)
@given(traces(), st.sampled_from((Scheme.SLOT, Scheme.POW2, Scheme.ORACLE)), st.integers(3, 16),
       st.integers(1, 4))
def test_random_traces_in_pieces(requests: list[Request], scheme: Scheme, n_blocks: int,
                                 max_running: int) -> None:
    """Random traces under SLOT, POW2 and ORACLE give every figure that a slow model gives.

    Why: the three schemes are one code path with three sizes; a slip in one shows in few traces.
    """
    agree(SimConfig(n_blocks, 3, scheme, max_len=16, max_running=max_running, cost=_COST), requests)


@settings(max_examples=40)
@given(traces(), st.integers(2, 10), st.sampled_from((1, 3, 20)), st.sampled_from(Victim),
       st.sampled_from(Preemption))
def test_random_traces_in_pages(requests: list[Request], n_blocks: int, max_running: int,
                                victim: Victim, preemption: Preemption) -> None:
    """Random traces under PAGED, with every kind of preemption, give the model's figures.

    Why: preemption happens under load only, where hand-made examples are rare and bugs are not.
    """
    agree(SimConfig(n_blocks, 3, max_running=max_running, victim=victim, preemption=preemption,
                    cost=_COST), requests)


@settings(max_examples=40)
@given(traces(), st.integers(2, 12), st.sampled_from(_CACHES[1:]),
       st.sampled_from(Victim), st.sampled_from(Preemption))
def test_random_traces_with_a_cache(requests: list[Request], n_blocks: int, cache: str,
                                    victim: Victim, preemption: Preemption) -> None:
    """Random traces with shared beginnings and a prefix cache give the model's figures.

    Why: hits, evictions and preemption meet here; each is simple alone, and together they are where
    published simulators disagree.
    """
    agree(SimConfig(n_blocks, 3, victim=victim, preemption=preemption, cache=cache, cost=_COST),
          requests)
