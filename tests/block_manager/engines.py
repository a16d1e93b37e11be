"""Engines over the manager that is judged, what they let one see, and what it must be.

Right is what a contiguous cache gives for one text alone, computed in one piece: the paged engine
must give its bits, whatever the mode, the chunks and the company.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from grader.assertions import demand, same, same_array
from tinyllm.config import EngineConfig, ModelConfig
from tinyllm.contiguous import ContiguousKv
from tinyllm.engine import Engine
from tinyllm.kv_pool import KvPool
from tinyllm.model import Model
from tinyllm.scheduler import Chunk, RequestId

MODES = ("none", "hash", "radix")
MODEL = ModelConfig(layers=2, width=64, heads=4, kv_heads=2, head_dim=16, ff=96)
BLOCK = 8  # tokens
SYSTEM = b"You are a helpful, brief and polite machine."  # 44 bytes: 5 whole blocks and a half
# The third is of whole blocks: when it comes again, its last block is computed all the same.
PROMPTS = tuple(SYSTEM + user for user in (b"Hello?", b"What is K?", b"Tell me of V", b"Bye."))
NEW = 6  # tokens that each request asks for
WHOLE = 512  # a chunk that no prompt here fills


class Seen(NamedTuple):
    """What came of a request: its new tokens, the logits that each came from, float32 [n, 256],
    and K and V of all computed positions, float16 [layers, 2, H, positions, D]."""

    tokens: list[int]
    logits: np.ndarray
    kv: np.ndarray


@cache
def model() -> Model:
    return Model(MODEL)


def engine(mode: str, **settings: Any) -> Engine:
    """Return an engine over the judged manager, with a pool that is roomy unless told otherwise."""
    return Engine(EngineConfig(MODEL, BLOCK, prefix_cache=mode, **{"n_blocks": 64, **settings}),
                  model())


@cache
def right(prompt: bytes, n: int = NEW) -> Seen:
    """Return what a request must come to, by a contiguous cache."""
    kv, tokens, rows = ContiguousKv(MODEL, len(prompt) + n), list(prompt), []
    fresh = tokens
    for _ in range(n):
        rows.append(model().forward(fresh, len(tokens) - len(fresh), kv)[-1])
        fresh = [int(rows[-1].argmax())]
        tokens += fresh
    sides = [kv.read(layer, len(tokens) - 1) for layer in range(MODEL.layers)]
    return Seen(tokens[len(prompt) :], np.stack(rows), np.array(sides))


class Witness:
    """Looks at each step of an engine while its blocks are held, by the tables alone."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.logits: dict[RequestId, list[np.ndarray]] = {}
        self.kv: dict[RequestId, np.ndarray] = {}
        engine.watch = self.look

    def look(self, plan: Sequence[Chunk], logits: dict[RequestId, np.ndarray]) -> None:
        tables = {r: self.engine.manager.block_table(r) for r in self.engine.scheduler.running}
        for chunk in plan:
            self._judge_table(chunk, tables)
            if chunk.samples:
                self.logits.setdefault(chunk.request_id, []).append(logits[chunk.request_id].copy())
                end = chunk.start + len(chunk.tokens)
                self.kv[chunk.request_id] = stored(self.engine.pool, chunk.table, end)

    def seen(self, request: RequestId) -> Seen:
        """Return what came of a request that is done."""
        return Seen(self.engine.result(request).tokens, np.stack(self.logits[request]),
                    self.kv[request])

    def _judge_table(self, chunk: Chunk, tables: dict[RequestId, list[int]]) -> None:
        """A table names each position's block once; what is written there is nobody else's."""
        who = f"request {chunk.request_id}"
        end = chunk.start + len(chunk.tokens)
        same(tables[chunk.request_id], chunk.table, f"the block table of {who}")
        same(len(chunk.table), -(-end // BLOCK) if chunk.samples else len(chunk.table),
             f"blocks in the table of {who}, {end} positions")
        same(len(set(chunk.table)), len(chunk.table), f"different blocks in the table of {who}")
        others = {b for r, table in tables.items() if r != chunk.request_id for b in table}
        written = set(chunk.table[chunk.start // BLOCK : (end - 1) // BLOCK + 1])
        demand(not written & others, f"the blocks that {who} writes into", "its own alone",
               f"{sorted(written & others)} are in another table too")


def stored(pool: KvPool, table: Sequence[int], n: int) -> np.ndarray:
    """Return K and V of positions 0..n-1 by a table: float16 [layers, 2, H, n, D]."""
    layers = [[np.concatenate([pool.block(block, layer, side) for block in table], axis=1)[:, :n]
               for side in (False, True)] for layer in range(pool.config.n_layers)]
    return np.array(layers)


def serve(engine: Engine, prompts: Sequence[bytes] = PROMPTS, n: int = NEW) -> list[int]:
    """Serve requests to their end, and judge tokens, logits, K and V of each, bit for bit."""
    witness = Witness(engine)
    requests = [engine.submit(prompt, n) for prompt in prompts]
    engine.run()
    how = f"{engine.config.prefix_cache}, chunks of {engine.config.prefill_chunk}"
    for request, prompt in zip(requests, prompts, strict=True):
        judge(witness.seen(request), right(prompt, n), f"request {request}, mode {how}")
    return requests


def judge(seen: Seen, want: Seen, whose: str) -> None:
    """Judge everything that is seen of a request."""
    same_array(seen.kv, want.kv, f"K and V [layer, side, head, position, value] of {whose}")
    same_array(seen.logits, want.logits, f"logits of {whose}")
    same(seen.tokens, want.tokens, f"new tokens of {whose}")


def nothing_held(engine: Engine, when: str) -> None:
    """Judge that no block is held: all of the pool is room for one prompt."""
    stats, kept = engine.pool.stats(), engine.manager.cached_blocks
    # A radix cache holds a reference to each of its blocks; a pool's own cache holds none.
    same(stats.used, kept if engine.config.prefix_cache == "radix" else 0, f"blocks held {when}")
    room = engine.config.n_blocks * BLOCK
    same(engine.manager.can_allocate(room), True, f"can_allocate({room}), the whole pool, {when}")
    engine.manager.allocate("the whole pool", list(range(1000, 1000 + room)))
    same(engine.pool.stats().free, 0, f"free blocks with all of them in one request, {when}")
    engine.manager.release("the whole pool", [])
