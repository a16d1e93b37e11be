"""Eviction policies and the replay of a cache: small traces by hand, and the optimum as a bound."""

import sys
from functools import cache
from random import Random

import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tests.kit.reference.test_traces import SAMPLES
from tinyllm.cache_replay import Hits, Replay
from tinyllm.errors import InvalidArgumentError
from tinyllm.eviction import POLICIES, policy
from tinyllm.simulation import SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request
from tinyllm.trace_files import TraceFile
from tinyllm.workload import generate, preset


def asks(*prompts: str) -> list[Request]:
    """Return requests of blocks of one letter and one token, one a second."""
    return [Request(at, at * 10**6, len(p), 1, tuple(p[: n + 1] for n in range(len(p))))
            for at, p in enumerate(prompts)]


def hits(name: str, requests: list[Request], n_blocks: int | None) -> list[int]:
    one = Replay(policy(name, requests, 1), n_blocks, 1)
    return [one.serve(request) for request in requests]


BY_HAND = [
    # What "ab" leaves of "a" and "ab" when "c" takes one of two blocks.
    ("lru", ["ab", "c", "ab"], 2, [0, 0, 0]),
    ("lru-tail", ["ab", "c", "ab"], 2, [0, 0, 1]),
    # "a" was used three times, "b" last.
    ("lru", ["a", "a", "a", "b", "c", "a"], 2, [0, 1, 1, 0, 0, 0]),
    ("lfu", ["a", "a", "a", "b", "c", "a"], 2, [0, 1, 1, 0, 0, 1]),
    # The end of the longer prompt is the older one.
    ("length", ["abc", "x", "y", "ab"], 4, [0, 0, 0, 2]),
    ("lru", ["abc", "x", "y", "ab"], 4, [0, 0, 0, 0]),
    # b comes again before a does.
    ("belady", ["a", "b", "c", "b", "a"], 2, [0, 0, 0, 1, 0]),
    ("lru", ["a", "b", "c", "b", "a"], 2, [0, 0, 0, 1, 0]),
    ("belady", ["a", "b", "c", "a", "b"], 2, [0, 0, 0, 1, 0]),
    ("lru", ["a", "b", "c", "a", "b"], 2, [0, 0, 0, 0, 0]),
]


@pytest.mark.parametrize(("name", "prompts", "n_blocks", "want"), BY_HAND)
def test_policies_by_hand(name: str, prompts: list[str], n_blocks: int, want: list[int]) -> None:
    assert hits(name, asks(*prompts), n_blocks) == want


@pytest.mark.parametrize("name", POLICIES)
def test_a_cache_without_end_finds_all_there_is(name: str) -> None:
    assert hits(name, asks("abc", "abd", "abc", "xbc"), None) == [0, 2, 3, 0]


def prompts(seed: int) -> list[str]:
    random = Random(seed)
    return ["".join(random.choice("ab") for _ in range(random.randint(1, 4))) for _ in range(9)]


def best(requests: list[Request], n_blocks: int) -> int:
    """Return the most blocks that any choice of evictions finds, by trying all of them."""
    texts = [r.blocks for r in requests]

    @cache
    def most(at: int, cached: frozenset[object]) -> int:
        if at == len(texts):
            return 0
        found = 0
        while found < len(texts[at]) and texts[at][found] in cached:
            found += 1
        held = frozenset(texts[at])
        room = n_blocks - len(held)
        rest = [frozenset()] if room < 0 else subsets(cached - held, room)
        return found + max(most(at + 1, held | kept) for kept in rest)

    return most(0, frozenset())


def subsets(names: frozenset[object], most: int) -> list[frozenset[object]]:
    """Return what may stay of ``names``: all, or any ``most`` of them."""
    from itertools import combinations

    if len(names) <= most:
        return [names]
    return [frozenset(c) for c in combinations(sorted(map(str, names)), most)]


@pytest.mark.parametrize("seed", range(25))
def test_belady_is_the_best_there_is(seed: int) -> None:
    requests = asks(*prompts(seed))
    for n_blocks in (4, 5, 7):
        assert sum(hits("belady", requests, n_blocks)) == best(requests, n_blocks)


@pytest.mark.parametrize("name", [p for p in POLICIES if p != "belady"])
@pytest.mark.parametrize("service", ["chat", "agents", "code"])
def test_no_policy_beats_belady(name: str, service: str) -> None:
    requests = list(generate(preset(service), 250))
    for n_blocks in (300, 1500, 6000):
        rates = []
        for each in (name, "belady"):
            one = Replay(policy(each, requests, 16), n_blocks, 16)
            for request in requests:
                one.serve(request)
            rates.append(one.hits.block_hit_rate)
        assert rates[0] <= rates[1]


def test_rates_have_their_definitions() -> None:
    """A partial last block is asked for and found; the last token never is."""
    requests = list(TraceFile(SAMPLES / "mooncake.jsonl"))
    one = Replay(policy("lru"), None, 512)
    assert [one.serve(r) for r in requests] == [0, 2, 2, 0, 3]
    assert one.hits == Hits(5, 3 + 2 + 4 + 1 + 3, 7, 1200 + 1024 + 1700 + 90 + 1200,
                            1023 + 1024 + 1199)
    assert one.hits.block_hit_rate == 7 / 13
    assert Hits().block_hit_rate == Hits().token_hit_rate == 0.0


def test_answers_are_found_by_the_next_turn() -> None:
    requests = [Request(0, 0, 2, 2, ("a", "ab", "abc"), turn=1),
                Request(1, 9, 4, 1, ("a", "ab", "abc", "abcd"), turn=2)]
    one = Replay(policy("belady", requests, 1), 4, 1)
    assert [one.serve(r) for r in requests] == [0, 3]
    assert {turn: h.hit_blocks for turn, h in one.turns.items()} == {1: 0, 2: 3}


def test_a_block_that_only_the_last_token_is_missing_from_is_not_kept() -> None:
    """A server never computes the last new token, so it cannot keep the block that ends with it."""
    for output, found in ((3, 1), (4, 2)):
        one = Replay(policy("lru"), None, 4)
        one.serve(Request("A", 0, 5, output, (1, 2)))
        assert one.serve(Request("B", 0, 9, 1, (1, 2))) == found


def test_of_a_prompt_larger_than_the_cache_the_beginning_is_kept() -> None:
    assert hits("lru-tail", asks("abcdef", "abcx"), 3) == [0, 3]


def test_the_replay_is_a_server_with_one_request_at_a_time() -> None:
    """Requests far apart find in the simulator's cache what the replay says, block for block."""
    requests = [r._replace(arrival_us=10**9 * at, cancel_us=None, output_tokens=1,
                           prompt_tokens=16 * len(r.blocks) + 1) for at, r in
                enumerate(generate(preset("chat"), 300))]
    for name in ("lru", "lru-tail", "lfu", "length"):
        n_blocks = 2000
        one = Replay(policy(name), n_blocks, 16)
        for request in requests:
            one.serve(request)
        report = Simulator(SimConfig(n_blocks, cache=name)).run(requests)
        # The server also needs room for the last, partial block of the prompt.
        assert abs(report.hits.block_hit_rate - one.hits.block_hit_rate) < 0.003
        assert set(report.turns) == set(one.turns)


def test_unknown_policies_and_sizes_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="is lru, lru-tail, lfu, length, belady"):
        policy("random")
    with pytest.raises(InvalidArgumentError, match="at least 1 block"):
        Replay(policy("lru"), 0, 16)
