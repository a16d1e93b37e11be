"""The generator: the same requests for a seed, and of the shapes that its parameters mean."""

import statistics
import sys
from collections import Counter, defaultdict

import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.errors import InvalidArgumentError
from tinyllm.simulation import Scheme, SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request
from tinyllm.workload import BLOCK_TOKENS, PRESETS, Length, Workload, generate, preset

N = 1500


def made(name: str, n: int = N, seed: int = 0) -> list[Request]:
    return list(generate(preset(name), n, seed))


@pytest.mark.parametrize("name", PRESETS)
def test_a_seed_makes_one_trace(name: str) -> None:
    assert made(name, 200) == made(name, 200)
    assert made(name, 200) != made(name, 200, seed=1)
    assert made(name, 100) == made(name, 200)[:100], "a longer one goes on where a shorter ends"


@pytest.mark.parametrize("name", PRESETS)
def test_every_request_is_one(name: str) -> None:
    last = 0
    for number, request in enumerate(made(name)):
        assert request.id == number
        assert request.arrival_us >= last
        assert request.prompt_tokens >= 1 <= request.output_tokens
        whole = (request.prompt_tokens + request.output_tokens) // BLOCK_TOKENS
        assert len(set(request.blocks)) == len(request.blocks) == whole
        assert request.slots <= preset(name).max_len
        assert request.cancel_us is None or request.cancel_us >= request.arrival_us
        last = request.arrival_us


@pytest.mark.parametrize("name", PRESETS)
def test_a_name_has_one_beginning(name: str) -> None:
    """A block's name stands for all before it, so what stands before it is always the same."""
    before: dict[object, object] = {}
    for request in made(name):
        for parent, block in zip((None, *request.blocks), request.blocks, strict=False):
            assert before.setdefault(block, parent) == parent


def test_a_sessions_history_grows() -> None:
    requests = made("chat")
    texts: dict[object, Request] = {}  # by the last block of a text
    turns = Counter(r.turn for r in requests)
    assert turns[1] > turns[2] > turns[4] > 10
    followed = 0
    for request in requests:
        if request.turn > 1:
            earlier = [texts[b] for b in request.blocks if b in texts]
            assert earlier, "a later turn begins with an earlier one's text"
            assert earlier[-1].turn == request.turn - 1
            followed += 1
        texts[request.blocks[-1]] = request
    assert followed > N / 3


def test_popular_instructions_are_shared_most() -> None:
    first = Counter(r.blocks[0] for r in made("chat") if r.turn == 1)
    (_, most), *_, (_, least) = first.most_common()
    assert most > 5 * least


def test_lengths_have_a_tail() -> None:
    outputs = sorted(r.output_tokens for r in made("chat"))
    median = outputs[len(outputs) // 2]
    assert 100 < median < 220
    assert statistics.fmean(outputs) > 1.25 * median
    assert outputs[-1] > 10 * median


def test_bursts_come_and_go() -> None:
    """In bursts more sessions begin in ten seconds than a steady stream would have."""
    def spread(burst: float) -> float:
        load = preset("chat", burst=burst, turns=1.0)
        begun: Counter[int] = Counter(r.arrival_us // 10_000_000 for r in generate(load, 4000))
        counts = [begun[at] for at in range(max(begun))]
        return statistics.variance(counts) / statistics.fmean(counts)

    assert 0.7 < spread(1.0) < 1.4, "as a Poisson stream has it"
    assert spread(3.0) > 3


def test_the_mean_rate_is_kept() -> None:
    for burst in (1.0, 3.0):
        requests = list(generate(preset("retrieval", burst=burst), 6000))
        rate = 6000 / requests[-1].arrival_us * 1e6
        assert 0.75 < rate / preset("retrieval").sessions_per_second < 1.3


def test_tenants_share_no_instructions() -> None:
    load = preset("retrieval", tenants=1, system_prompts=1)
    assert len({r.blocks[0] for r in generate(load, 200)}) == 1
    load = preset("retrieval", tenants=3, system_prompts=1)
    assert len({r.blocks[0] for r in generate(load, 200)}) == 3


def test_who_goes_away_asks_no_more() -> None:
    requests = made("code")
    cancelled = [r for r in requests if r.cancel_us is not None]
    assert 0.15 < len(cancelled) / N < 0.25
    by_text = defaultdict(list)
    for request in requests:
        for block in request.blocks:
            by_text[block].append(request.id)
    assert all(by_text[r.blocks[-1]][-1] == r.id for r in cancelled if len(r.blocks) > 20)


def test_pages_hold_at_least_twice_as_many_chats_as_slots() -> None:
    requests = made("chat", 2500)
    slots, pages = (
        Simulator(SimConfig(4096, scheme=scheme, max_len=4096)).run(requests).peak_running
        for scheme in (Scheme.SLOT, Scheme.PAGED))
    assert slots == 16
    assert pages >= 2 * slots


def test_parameters_that_make_no_sense_are_refused() -> None:
    length = Length(10, 0.5)
    for changes in ({"turns": 0.5}, {"burst": 0}, {"cancelled": 1.5}, {"think_seconds": 0.0},
                    {"system_prompts": 0}):
        with pytest.raises(InvalidArgumentError):
            Workload(length, length, length, **changes)
    with pytest.raises(InvalidArgumentError, match="a preset is chat, code"):
        preset("poetry")
