"""Random traces against a model that does everything the slow way."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging import new_example, same
from tests.simulator.model import ServerModel
from tests.simulator.samples import FIGURES, hits_of, samples_of
from tinyllm.simulation import Cost, Preemption, Report, Scheme, SimConfig, Victim
from tinyllm.simulator import Simulator
from tinyllm.trace import Request

_NAMES = {"start_us": "start", "end_us": "end", "busy_us": "busy", "running_us": "running",
          "peak_running": "peak", "pressed_us": "pressed", "computed_tokens": "computed",
          "output_tokens": "output", "recomputed_tokens": "recomputed",
          "swapped_tokens": "swapped"}
_COST = Cost(3, 2, 1)
_EVERY = 4  # us between samples: some steps have several, some have none


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


def agree(config: SimConfig, requests: list[Request]) -> None:
    """Judge a whole report against the model's."""
    new_example()
    model = ServerModel(config)
    model.run(requests)
    report: Report = Simulator(config).run(requests)
    for name in FIGURES:
        same(getattr(report, name), model.figures[_NAMES.get(name, name)], name)
    same([int(n) for n in report.memory_us], list(model.memory_us), "memory_us")
    same([int(n) for n in report.pressed_memory_us], list(model.pressed_memory_us),
         "pressed_memory_us")
    same(list(report.queue_us), model.queue_us, "queueing of each request, us")
    same(list(report.ttft_us), model.ttft_us, "time to the first token of each request, us")
    same(sorted(hits_of(report).items()), sorted(model.turns.items()), "hits by turn")
    sampled = replace(config, sample_us=_EVERY)
    stepped = Simulator(sampled)
    for one in requests:
        stepped.submit(one)
    while stepped.step():
        pass
    same(samples_of(Simulator(sampled).run(requests)), samples_of(stepped.report()),
         "samples of run, as step after step gives them")


@settings(max_examples=40)
@given(traces(), st.sampled_from((Scheme.SLOT, Scheme.POW2, Scheme.ORACLE)), st.integers(3, 16),
       st.integers(1, 4))
def test_random_traces_in_pieces(requests: list[Request], scheme: Scheme, n_blocks: int,
                                 max_running: int) -> None:
    """Random traces under SLOT, POW2 and ORACLE give every figure that a slow model gives."""
    agree(SimConfig(n_blocks, 3, scheme, max_len=16, max_running=max_running, cost=_COST), requests)


@settings(max_examples=60)
@given(traces(), st.integers(2, 10), st.sampled_from((1, 3, 20)), st.sampled_from(Victim),
       st.sampled_from(Preemption))
def test_random_traces_in_pages(requests: list[Request], n_blocks: int, max_running: int,
                                victim: Victim, preemption: Preemption) -> None:
    """Random traces under PAGED, with every kind of preemption, give the model's figures."""
    agree(SimConfig(n_blocks, 3, max_running=max_running, victim=victim, preemption=preemption,
                    cost=_COST), requests)


@settings(max_examples=60)
@given(traces(), st.integers(2, 12), st.sampled_from(("lru", "lru-tail")),
       st.sampled_from(Victim), st.sampled_from(Preemption))
def test_random_traces_with_a_cache(requests: list[Request], n_blocks: int, cache: str,
                                    victim: Victim, preemption: Preemption) -> None:
    """Random traces with shared beginnings and a prefix cache give the model's figures."""
    agree(SimConfig(n_blocks, 3, victim=victim, preemption=preemption, cache=cache, cost=_COST),
          requests)
