"""The engine: its interface, its counts and metrics, its errors. What it answers is judged by the
suite of the block manager, which runs it over every right program."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from grader import ROOT
from tests.kit.support.exposition import Metric, read

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.config import EngineConfig, ModelConfig
from tinyllm.engine import Engine
from tinyllm.errors import InvalidArgumentError, KvError, PoolFullError
from tinyllm.model import Model
from tinyllm.scheduler import Chunk

MODES = ["none", "hash", "radix"]
MODEL = Model(ModelConfig(layers=1, width=32, heads=2, kv_heads=1, head_dim=16, ff=32))
SYSTEM = b"a prompt of 32 bytes, to share. "


def new(mode: str = "hash", **settings: Any) -> Engine:
    known = {"block_tokens": 8, "n_blocks": 32}
    return Engine(EngineConfig(MODEL.config, prefix_cache=mode, **{**known, **settings}), MODEL)


def metrics(engine: Engine) -> dict[str, Metric]:
    return read(engine.metrics())


def one(engine: Engine, name: str, **labels: str) -> float:
    return metrics(engine)[f"tl_engine_{name}"].value(f"tl_engine_{name}", **labels)


def blocks(engine: Engine) -> list[int]:
    return [int(one(engine, "kv_blocks", state=s)) for s in ("free", "used", "cached")]


# The interface.


def test_a_text_is_what_its_bytes_are() -> None:
    engine = new()
    data = "Grüße".encode()
    prompts: list[Any] = ["Grüße", data, list(data), np.frombuffer(data, np.uint8)]
    requests = [engine.submit(prompt, 4) for prompt in prompts]
    engine.run()
    results = [engine.result(r) for r in requests]
    assert len({r.text for r in results}) == 1
    assert [r.outcome for r in results] == ["done"] * 4
    assert len(results[0].tokens) == 4
    assert results[0].prompt == list(data)


@pytest.mark.parametrize(("arguments", "error"), [
    (([256],), InvalidArgumentError), (([-1],), InvalidArgumentError),
    (([1.0],), InvalidArgumentError), (([True],), InvalidArgumentError),
    ((5,), InvalidArgumentError), ((None,), InvalidArgumentError),
    ((b"",), InvalidArgumentError), ((b"x", 0), InvalidArgumentError),
    ((b"x", 1.5), InvalidArgumentError), ((b"x", 4, 1.0), InvalidArgumentError),
    ((b"x", 4, True), InvalidArgumentError), ((b"x", 4, b"tenant"), InvalidArgumentError),
    ((b"x" * 60, 5), InvalidArgumentError), ((b"x" * 30, 4), PoolFullError),
])
def test_what_cannot_be_served_is_refused_with_its_reason(
    arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    engine = new(n_blocks=4, max_positions=64)
    with pytest.raises(error):
        engine.submit(*arguments)
    engine.run()
    assert blocks(engine) == [4, 0, 0]
    assert engine.submit(b"x") == 0, "a refused request uses up no id"


def test_a_stream_yields_each_token_when_it_comes() -> None:
    engine = new()
    first, second = engine.submit(SYSTEM, 5), engine.submit(SYSTEM + b"!", 3)
    stream = engine.stream(first)
    got = [next(stream), next(stream)]
    assert got == engine.result(first).tokens
    assert engine.result(first).outcome is None
    got += stream
    assert got == engine.result(first).tokens
    assert engine.result(second).outcome == "done", "the others go on meanwhile"
    assert list(engine.stream(second)) == engine.result(second).tokens


def test_a_step_says_what_it_gave() -> None:
    engine = new(prefill_chunk=32)
    request = engine.submit(SYSTEM + b"?", 2)
    steps = [engine.step() for _ in range(4)]
    tokens = engine.result(request).tokens
    assert steps == [[], [(request, tokens[0])], [(request, tokens[1])], []]


def test_unknown_and_ended_requests_are_told() -> None:
    engine = new()
    request = engine.submit(b"x", 1)
    with pytest.raises(InvalidArgumentError, match="has not ended"):
        engine.forget(request)
    engine.run()
    for call in (engine.cancel, engine.stream, engine.result, engine.forget):
        with pytest.raises(InvalidArgumentError):
            call(7)
    with pytest.raises(InvalidArgumentError):
        engine.cancel(request)
    engine.forget(request)
    with pytest.raises(InvalidArgumentError):
        engine.result(request)


def test_a_model_of_another_config_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the model is"):
        Engine(EngineConfig(), MODEL)


# Counts.


@pytest.mark.parametrize("mode", MODES)
def test_counts_add_up(mode: str) -> None:
    engine = new(mode, max_running=1)
    requests = [engine.submit(SYSTEM + user, 3) for user in (b"one", b"two", b"three")]
    engine.run()
    hit = 0 if mode == "none" else 32
    results = [engine.result(r) for r in requests]
    assert [r.cached_tokens for r in results] == [0, hit, hit]
    assert all(r.computed_tokens + (r.cached_tokens or 0) == len(r.prompt) for r in results)
    total = sum(len(r.prompt) for r in results)
    assert one(engine, "prompt_tokens_total") == total
    assert one(engine, "cached_prompt_tokens_total") == 2 * hit
    assert one(engine, "computed_prompt_tokens_total") == total - 2 * hit
    assert one(engine, "generated_tokens_total") == 9
    assert one(engine, "prefix_cache_lookups_total") == 3
    assert one(engine, "prefix_cache_hit_ratio") == pytest.approx(2 * hit / total)
    assert one(engine, "requests_total", outcome="done") == 3
    assert one(engine, "preemptions_total") == 0


@pytest.mark.parametrize("mode", MODES)
def test_blocks_are_counted_by_what_they_are_to_an_operator(mode: str) -> None:
    engine = new(mode)
    first = engine.submit(SYSTEM, 2)
    assert blocks(engine) == [32, 0, 0]
    engine.step()
    assert blocks(engine) == [28, 4, 0]
    engine.run()
    kept = 0 if mode == "none" else 4
    assert blocks(engine) == [32 - kept, 0, kept]
    engine.submit(SYSTEM, 2)
    engine.step()  # all but the last block of the prompt is used again
    reused = 0 if mode == "none" else 3
    assert blocks(engine) == [32 - kept - 4 + reused, 4, kept - reused]
    assert sum(engine.blocks().values()) == 32
    assert engine.result(first).outcome == "done"


def test_what_runs_and_waits_is_shown() -> None:
    engine = new(max_running=2)
    for _ in range(3):
        engine.submit(b"hello", 4)
    assert [one(engine, f"requests_{w}") for w in ("running", "waiting")] == [0, 3]
    engine.step()
    assert [one(engine, f"requests_{w}") for w in ("running", "waiting")] == [2, 1]
    engine.cancel(2)
    assert one(engine, "requests_waiting") == 0
    assert one(engine, "requests_total", outcome="cancelled") == 1


@pytest.mark.parametrize("mode", MODES)
def test_preemption_is_counted_and_changes_no_answer(mode: str) -> None:
    alone = new("none")
    prompts = [bytes([65 + i]) * (20 + i) for i in range(4)]
    want = [bytes(alone.stream(alone.submit(p, 24))) for p in prompts]
    engine = new(mode, n_blocks=12)
    requests = [engine.submit(p, 24) for p in prompts]
    engine.run()
    assert [engine.result(r).text for r in requests] == want
    assert one(engine, "preemptions_total") == engine.scheduler.counts.preemptions > 0
    assert one(engine, "recomputed_tokens_total") > 0
    assert one(engine, "prompt_tokens_total") == sum(map(len, prompts)), "a return is no prompt"
    assert one(engine, "computed_prompt_tokens_total") > sum(map(len, prompts))
    if mode != "none":
        assert one(engine, "prefix_cache_evictions_total") > 0


def test_the_time_to_the_first_token_is_taken_once_a_request() -> None:
    engine = new()
    requests = [engine.submit(b"hello", 4) for _ in range(3)]
    assert engine.result(0).ttft_wall is None
    engine.run()
    family = metrics(engine)["tl_engine_time_to_first_token_seconds"]
    name = "tl_engine_time_to_first_token_seconds"
    walls = [engine.result(r).ttft_wall or 0.0 for r in requests]
    assert family.value(f"{name}_count") == 3
    assert family.value(f"{name}_sum") == pytest.approx(sum(walls))
    assert all(w > 0 and (engine.result(r).ttft_cpu or 0) > 0
               for r, w in zip(requests, walls, strict=True))


def test_every_metric_keeps_its_name() -> None:
    """Dashboards and routers know them (L10.4, section 6): a change is a change of interface."""
    assert {name.removeprefix("tl_engine_"): m.kind for name, m in metrics(new()).items()} == {
        "prefix_cache_hit_ratio": "gauge", "kv_blocks": "gauge",
        "prefix_cache_lookups_total": "counter", "prefix_cache_evictions_total": "counter",
        "prompt_tokens_total": "counter", "cached_prompt_tokens_total": "counter",
        "computed_prompt_tokens_total": "counter", "generated_tokens_total": "counter",
        "requests_running": "gauge", "requests_waiting": "gauge", "requests_total": "counter",
        "preemptions_total": "counter", "recomputed_tokens_total": "counter",
        "time_to_first_token_seconds": "histogram",
    }
    assert all(m.help.endswith(".") for m in metrics(new()).values())


# Errors.


def test_a_step_that_fails_is_taken_again() -> None:
    engine = new()
    request = engine.submit(SYSTEM, 3)
    honest = engine.runner.run

    def broken(plan: Sequence[Chunk]) -> Any:
        raise KvError("a broken cache")

    engine.runner.run = broken  # type: ignore[method-assign]
    with pytest.raises(KvError, match="a broken cache"):
        engine.run()
    assert engine.result(request).outcome is None
    engine.runner.run = honest  # type: ignore[method-assign]
    engine.run()
    assert len(engine.result(request).tokens) == 3
    assert one(engine, "computed_prompt_tokens_total") == len(SYSTEM)


def test_a_watcher_may_fail_or_cancel() -> None:
    engine = new()
    request, other = engine.submit(SYSTEM, 3), engine.submit(SYSTEM, 3)

    def fail(plan: Sequence[Chunk], logits: Any) -> None:
        raise RuntimeError("seen enough")

    engine.watch = fail
    with pytest.raises(RuntimeError, match="seen enough"):
        engine.step()
    assert engine.result(request).tokens == []
    engine.watch = lambda plan, logits: engine.cancel(other) if other in logits else None
    assert [r for r, _ in engine.step()] == [request]
    engine.watch = None
    engine.run()
    assert (engine.result(request).outcome, engine.result(other).outcome) == ("done", "cancelled")
    assert engine.result(other).tokens == []


def test_a_request_that_fails_says_why_and_costs_no_other() -> None:
    engine = new(n_blocks=6)
    engine.manager.allocate("outside", [1] * 24)
    large, small = engine.submit(SYSTEM, 1), engine.submit(b"x", 1)
    with pytest.raises(PoolFullError, match="finds no room"):
        engine.run()
    engine.run()
    assert engine.result(large).outcome == "failed"
    assert engine.result(small).outcome == "done"
    with pytest.raises(PoolFullError, match="finds no room"):
        list(engine.stream(large))
    assert one(engine, "requests_total", outcome="failed") == 1


def test_tenants_share_nothing() -> None:
    engine = new(max_running=1)
    requests = [engine.submit(SYSTEM + b"x", 1, tenant) for tenant in (None, "a", "a", 1, "1", 1)]
    engine.run()
    assert [engine.result(r).cached_tokens for r in requests] == [0, 0, 32, 0, 0, 32]
    assert len({engine.result(r).text for r in requests}) == 1
