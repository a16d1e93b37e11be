"""The engine: requests in, tokens out, in one process and one thread (L10.5).

It puts the parts together: a pool, the block manager in the config's mode, the scheduler, and the
runner with its model. Tokens are bytes and sampling is greedy, so an answer depends on the prompt
alone: the cache changes how much is computed, never what.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import index

import numpy as np

from tinyllm.block_manager import BlockManager
from tinyllm.config import EngineConfig
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.metrics import Family, Histogram, Sample, exposition
from tinyllm.model import VOCABULARY, Model
from tinyllm.runner import Runner
from tinyllm.scheduler import Chunk, RequestId, Scheduler, Tenant

OUTCOMES = ("done", "cancelled", "failed")
"""How a request may end."""

_TTFT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Watch = Callable[[Sequence[Chunk], dict[RequestId, np.ndarray]], object]


@dataclass
class Result:
    """What became of a request so far.

    ``tokens`` are the new ones. Of the prompt's tokens ``cached_tokens`` were found in the cache at
    the first admission, and ``computed_tokens`` were computed, counted again where a preemption had
    them computed again. Times to the first token are seconds from `submit` on, of this process's
    CPU and of the wall clock; None before there is one. ``outcome`` is None until the request has
    ended, then one of `OUTCOMES`; ``error`` says why it failed.
    """

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    cached_tokens: int | None = None
    computed_tokens: int = 0
    ttft_cpu: float | None = None
    ttft_wall: float | None = None
    outcome: str | None = None
    error: Exception | None = None

    @property
    def text(self) -> bytes:
        """The new tokens as bytes."""
        return bytes(self.tokens)


class Engine:
    """Serves requests. Nothing happens but in `step`, and in `run` and `stream`, which call it.

    The parts are public, to be read: ``pool``, ``manager``, ``scheduler``, ``runner``.
    """

    def __init__(self, config: EngineConfig, model: Model | None = None,
                 watch: Watch | None = None) -> None:
        """Make the parts. Engines may share a ``model``, which must be the config's.

        ``watch``, an attribute too, is called in each step with the computed chunks and the logits
        of those that sample, while all their blocks are still held.
        """
        if model is not None and model.config != config.model:
            raise InvalidArgumentError(f"the model is {model.config}, not {config.model}")
        dimensions = config.model
        self.config = config
        self.pool = KvPool(PoolConfig(config.n_blocks, config.block_tokens, dimensions.layers,
                                      dimensions.kv_heads, dimensions.head_dim))
        self.manager = BlockManager(self.pool, config.prefix_cache)
        self.scheduler = Scheduler(self.manager, config)
        self.runner = Runner(model or Model(dimensions), self.pool)
        self.watch = watch
        self._results: dict[RequestId, Result] = {}
        self._open: dict[RequestId, tuple[Result, float, float]] = {}  # and when it came
        self._next_id = 0
        self._ended: Counter[str] = Counter()
        self._computed = self._generated = 0
        self._ttft = Histogram(_TTFT_BOUNDS)

    def submit(self, prompt: str | Iterable[int], max_new_tokens: int = 16,
               tenant: Tenant = None) -> int:
        """Queue a request and return its id. A text is sent as UTF-8; a token is a byte.

        Requests share cached prefixes with those of the same ``tenant`` only.

        Raises ``InvalidArgumentError`` for a token that is no byte, an empty prompt, fewer than one
        new token, a text longer than ``max_positions`` and a tenant that is no string, integer or
        None; ``PoolFullError`` when the whole pool is too small for the text.
        """
        came = time.process_time(), time.perf_counter()
        if isinstance(tenant, bool) or not isinstance(tenant, str | int | None):
            raise InvalidArgumentError(f"a tenant is a string or an integer, not {tenant!r}")
        tokens, request_id = _tokens(prompt), self._next_id
        self.scheduler.add(request_id, tokens, _whole(max_new_tokens, "max_new_tokens"), tenant)
        self._next_id += 1
        result = self._results[request_id] = Result(tokens)
        self._open[request_id] = (result, *came)
        return request_id

    def step(self) -> list[tuple[RequestId, int]]:
        """Compute one step of all that runs; return the tokens that it gave, by request.

        An error of a part is passed on. A request that it cost has failed; the others are as they
        were before the step, and the next call goes on with them.
        """
        try:
            plan = self.scheduler.schedule()
            logits = self.runner.run(plan)
            # Of equal logits the first wins, so that an answer never depends on chance.
            sampled = {request: int(np.argmax(row)) for request, row in logits.items()}
            now = time.process_time(), time.perf_counter()
            if self.watch:
                self.watch(plan, logits)
            given = self._note(plan, sampled, *now)
            for request in self.scheduler.commit(plan, sampled):
                self._end(request, "done")
        except Exception as error:
            kept = {*self.scheduler.running, *self.scheduler.waiting}
            for request in [r for r in self._open if r not in kept]:
                self._end(request, "failed", error)
            raise
        return given

    def run(self) -> None:
        """Take steps until no request waits or runs."""
        while self._open:
            self.step()

    def stream(self, request_id: RequestId) -> Iterator[int]:
        """Yield a request's new tokens as they come, and take the steps that they need.

        Raises ``InvalidArgumentError`` for an unknown id; the request's error when it has failed.
        """
        return self._follow(self.result(request_id))

    def result(self, request_id: RequestId) -> Result:
        """Return what is known of a request. It grows with further steps.

        Raises ``InvalidArgumentError`` for an unknown id.
        """
        if request_id not in self._results:
            raise InvalidArgumentError(f"there is no request {request_id!r}")
        return self._results[request_id]

    def cancel(self, request_id: RequestId) -> None:
        """End a request now. Blocks that it computed whole stay cached.

        Raises ``InvalidArgumentError`` when it is unknown or has ended.
        """
        self.scheduler.cancel(request_id)
        self._end(request_id, "cancelled")

    def forget(self, request_id: RequestId) -> None:
        """Drop the result of a request that has ended: an engine that runs for weeks keeps none.

        Raises ``InvalidArgumentError`` when it is unknown or has not ended.
        """
        if self.result(request_id).outcome is None:
            raise InvalidArgumentError(f"request {request_id!r} has not ended")
        del self._results[request_id]

    def blocks(self) -> dict[str, int]:
        """Return how many blocks are free, used and cached, by what they are to an operator.

        A block is used while a running request's table names it, and cached when it is kept for
        later prompts alone, whoever holds the reference: in radix mode the pool counts those as
        used, because the tree holds them.
        """
        tables = (self.manager.block_table(request) for request in self.scheduler.running)
        free = self.pool.stats().free
        used = len({block for table in tables for block in table})
        return {"free": free, "used": used, "cached": self.config.n_blocks - free - used}

    def metrics(self) -> str:
        """Return the engine's metrics in the text format that Prometheus reads."""
        return exposition(self._families())

    def _note(self, plan: Sequence[Chunk], sampled: dict[RequestId, int], cpu: float,
              wall: float) -> list[tuple[RequestId, int]]:
        """Write down what a step computed, what it gave and when; return the new tokens."""
        given = []
        for chunk in plan:
            if chunk.request_id not in self._open:
                continue  # cancelled by whoever watched
            result, came_cpu, came_wall = self._open[chunk.request_id]
            if result.cached_tokens is None:
                result.cached_tokens = chunk.start
            computed = max(min(len(result.prompt) - chunk.start, len(chunk.tokens)), 0)
            result.computed_tokens += computed
            self._computed += computed
            if chunk.samples:
                given.append((chunk.request_id, sampled[chunk.request_id]))
                result.tokens.append(sampled[chunk.request_id])
                if result.ttft_wall is None:
                    result.ttft_cpu, result.ttft_wall = cpu - came_cpu, wall - came_wall
                    self._ttft.observe(result.ttft_wall)
        self._generated += len(given)
        return given

    def _end(self, request_id: RequestId, outcome: str, error: Exception | None = None) -> None:
        result, _, _ = self._open.pop(request_id)
        result.outcome, result.error = outcome, error
        self._ended[outcome] += 1

    def _follow(self, result: Result) -> Iterator[int]:
        given = 0
        while True:
            yield from result.tokens[given:]
            given = len(result.tokens)
            if result.error is not None:
                raise result.error
            if result.outcome is not None:
                return
            self.step()

    def _families(self) -> Iterator[Family]:
        """Yield the metrics. The names of the first two are L10.4's (section 6)."""
        stats, counts = self.manager.stats(), self.scheduler.counts

        def one(name: str, kind: str, help: str, value: float) -> Family:
            return Family(f"tl_engine_{name}", kind, help, [Sample(value)])

        def by(label: str, values: dict[str, int]) -> list[Sample]:
            return [Sample(n, {label: word}) for word, n in values.items()]

        yield one("prefix_cache_hit_ratio", "gauge",
                  "Share of the admitted prompts' tokens that were found in the prefix cache.",
                  float(self.manager.hit_rate))
        yield Family("tl_engine_kv_blocks", "gauge", "KV blocks, by state: free, used by running "
                     "requests, or cached for later prompts.", by("state", self.blocks()))
        yield one("prefix_cache_lookups_total", "counter",
                  "Requests admitted for the first time.", stats.lookups)
        yield one("prefix_cache_evictions_total", "counter",
                  "Blocks that left the prefix cache.", stats.evictions)
        yield one("prompt_tokens_total", "counter",
                  "Tokens of the admitted prompts.", stats.query_tokens)
        yield one("cached_prompt_tokens_total", "counter",
                  "Of these, tokens found in the prefix cache.", stats.hit_tokens)
        yield one("computed_prompt_tokens_total", "counter",
                  "Prompt tokens computed, again after a preemption included.", self._computed)
        yield one("generated_tokens_total", "counter", "New tokens.", self._generated)
        yield one("requests_running", "gauge", "Requests that hold blocks.",
                  len(self.scheduler.running))
        yield one("requests_waiting", "gauge", "Requests that wait for admission.",
                  len(self.scheduler.waiting))
        yield Family("tl_engine_requests_total", "counter", "Requests that ended, by outcome.",
                     by("outcome", {word: self._ended[word] for word in OUTCOMES}))
        yield one("preemptions_total", "counter",
                  "Times that a running request lost its blocks to an older one.",
                  counts.preemptions)
        yield one("recomputed_tokens_total", "counter",
                  "Tokens that preempted requests had computed and could not find again.",
                  counts.recomputed_tokens)
        yield Family("tl_engine_time_to_first_token_seconds", "histogram",
                     "Wall time from submission to the first new token.", self._ttft.samples())


def _tokens(prompt: str | Iterable[int]) -> list[int]:
    if isinstance(prompt, str):
        prompt = prompt.encode()
    if isinstance(prompt, bytes):
        return list(prompt)
    if not isinstance(prompt, Iterable):
        raise InvalidArgumentError(f"a prompt is a text or a sequence of bytes, not {prompt!r}")
    tokens = [_whole(token, "a token") for token in prompt]
    if tokens and not 0 <= min(tokens) <= max(tokens) < VOCABULARY:
        raise InvalidArgumentError(f"a token is a byte, 0..{VOCABULARY - 1}")
    return tokens


def _whole(value: int, what: str) -> int:
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{what} is an integer, not {value!r}")
