"""`ol bench L10.4`: the time to the first token, with and without a prefix cache.

A system prompt of 224 bytes, then 16 bytes of a user's that nobody sent before. In mode none the
engine computes all 240 tokens, with a warm cache the last 16. Modes take turns in random order,
so that what else the machine does falls on all of them alike; CPU time, one BLAS thread.
"""

import gc
import random
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tinyllm.block_manager import BlockManager
from tinyllm.config import EngineConfig, ModelConfig
from tinyllm.engine import Engine
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.model import VOCABULARY, Model

MODEL = ModelConfig(layers=2, width=512, heads=16, kv_heads=2, head_dim=32, ff=1024)
SYSTEM, USER = 224, 16  # bytes; both are whole blocks, so a warm cache has all of the first
ROUNDS = 11
MODES = ("none", "hash", "radix")
SERIES = {"none": "none", "hash": "hash", "radix": "radix", "none again": "none"}  # name -> mode

_LENGTHS = (512, 1024, 2048, 4096)  # of prompts, where bookkeeping alone is measured
_REPEATS = 5
_LONG = 0.5  # CPU seconds for a length: some twenty times what the reference takes


class Tell(Protocol):
    """How a figure gets to whoever asked."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


def main(tell: Tell) -> None:
    """Measure, and tell samples, the ideal, the manager's share, and how that grows."""
    chance = random.Random(0)
    first_tokens(tell, chance)
    cold = operations(MODEL, 0, SYSTEM + USER)
    tell("ideal", ratio=cold / operations(MODEL, SYSTEM, SYSTEM + USER))
    for mode in MODES:
        tell("share", series=mode, seconds=bookkeeping(mode, chance))
    for mode in MODES:
        tell("growth", series=mode, points=growth(mode, chance))


def first_tokens(tell: Tell, chance: random.Random) -> None:
    """Tell a sample a round for each series, after one round to warm up."""
    model = Model(MODEL)
    system = chance.randbytes(SYSTEM)
    engines = {name: Engine(config(mode), model) for name, mode in SERIES.items()}
    for engine in engines.values():
        ask(engine, system + chance.randbytes(USER))
    gc.collect()
    for number in range(ROUNDS):
        results = {}
        for name in chance.sample(list(engines), len(engines)):
            engine = engines[name]
            results[name] = engine.result(ask(engine, system + chance.randbytes(USER)))
        for name in engines:
            tell("sample", series=name, round=number, cpu=results[name].ttft_cpu,
                 wall=results[name].ttft_wall,
                 counts={"prompt tokens computed": results[name].computed_tokens})


def config(mode: str) -> EngineConfig:
    return EngineConfig(MODEL, n_blocks=64, prefix_cache=mode, prefill_chunk=SYSTEM + USER)


def ask(engine: Engine, prompt: bytes) -> int:
    """Serve one request to its end, its first token."""
    request = engine.submit(prompt, max_new_tokens=1)
    engine.run()
    return request


def operations(model: ModelConfig, start: int, end: int) -> int:
    """Return how many multiplications the positions start..end-1 of a text take, as if the model
    did nothing but them: what the ratio would be if all of the time went there."""
    inner = model.heads * model.head_dim
    qkv = (model.heads + 2 * model.kv_heads) * model.head_dim
    weights = model.width * qkv + inner * model.width + 3 * model.width * model.ff
    pairs = sum(range(start + 1, end + 1))  # a position looks at itself and all before it
    each = model.layers * weights + model.width * VOCABULARY
    return (end - start) * each + model.layers * pairs * 2 * inner


def bookkeeping(mode: str, chance: random.Random) -> float:
    """Return the CPU seconds that the manager takes of a request's time to its first token."""
    manager = BlockManager(KvPool(PoolConfig(64, 16, 1, 1, 2)), mode)
    system = list(chance.randbytes(SYSTEM))
    times = []
    for number in range(2 * ROUNDS):
        prompt = system + list(chance.randbytes(USER))
        started = time.process_time()
        cached = manager.allocate(number, prompt).cached_tokens
        for index in range(cached // 16, len(prompt) // 16):
            manager.write(number, index)
        manager.block_table(number)
        times.append(time.process_time() - started)
        manager.release(number, prompt)
    return float(np.median(times[1:]))


def growth(mode: str, chance: random.Random) -> list[tuple[int, float]]:
    """Return (tokens of the prompt, CPU seconds of a request's whole bookkeeping) for some lengths.

    A life is: admission to an empty cache, a token for every two of the prompt, release, and once
    more with all of the prompt in the cache. Both grow with the prompt, so a manager that looks at
    each block once takes twice as long for twice the prompt.
    """
    points = []
    for length in _LENGTHS:
        times: list[float] = []
        while len(times) < _REPEATS and sum(times) < _LONG:
            times.append(_life(mode, list(chance.randbytes(length))))
        points.append((length, min(times)))
        if sum(times) >= _LONG and len(points) > 1:
            break  # what takes so long has told enough
    return points


def _life(mode: str, prompt: Sequence[int]) -> float:
    manager = BlockManager(KvPool(PoolConfig(len(prompt), 16, 1, 1, 2)), mode)
    text = [*prompt, *prompt[::2]]
    started = time.process_time()
    for request in ("cold", "warm"):
        manager.allocate(request, prompt)
        for position in range(len(prompt), len(text)):
            manager.append_slot(request)
            manager.write(request, position // 16)
        manager.release(request, text)
    return time.process_time() - started
