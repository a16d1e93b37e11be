"""A prefix with real K and V, computed by the kit's engine and kept in a second tier: what bench
and demo measure."""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from tinyllm.config import EngineConfig, ModelConfig
from tinyllm.engine import Engine
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.kv_tier import BlockStore, TieredCache
from tinyllm.model import Model
from tinyllm.runner import Runner
from tinyllm.scheduler import Chunk

MODEL = ModelConfig(layers=4, width=256, heads=8, kv_heads=8, head_dim=32, ff=768)
BLOCK = 64  # tokens
TOKEN_BYTES = MODEL.layers * 2 * MODEL.kv_heads * MODEL.head_dim * 2
LONG = 2560  # tokens: 10 MB of K and V
_CHUNK = 512


class Tell(Protocol):
    """How a figure gets to whoever asked."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


class Took(NamedTuple):
    """Seconds of this process's CPU and of the wall clock."""

    cpu: float
    wall: float


class Computing:
    """The kit's engine without a cache: each prompt is computed whole."""

    def __init__(self, model: Model) -> None:
        self.engine = Engine(EngineConfig(
            MODEL, n_blocks=LONG // BLOCK + 1, block_tokens=BLOCK, prefix_cache="none",
            prefill_chunk=_CHUNK, max_batch_tokens=_CHUNK, max_positions=LONG + 1), model)

    def first_token(self, prompt: bytes) -> tuple[Took, int]:
        """Serve a request for one token; return its time to it, and the token."""
        request = self.engine.submit(prompt, 1)
        self.engine.run()
        result = self.engine.result(request)
        self.engine.forget(request)
        return Took(result.ttft_cpu or 0.0, result.ttft_wall or 0.0), result.tokens[0]


class Restoring:
    """A prefix whose K and V are in a store and nowhere else."""

    def __init__(self, model: Model, store: BlockStore, prefix: bytes) -> None:
        """Compute ``prefix``, whole blocks, once and have it spilled."""
        self.prefix = list(prefix)
        dimensions = model.config
        self.pool = KvPool(PoolConfig(LONG // BLOCK + 1, BLOCK, dimensions.layers,
                                      dimensions.kv_heads, dimensions.head_dim))
        self.cache = TieredCache(self.pool, store, "bench")
        self.runner = Runner(model, self.pool)
        blocks = self.cache.alloc(len(self.prefix) // BLOCK)
        for start in range(0, len(self.prefix), _CHUNK):
            self.run(self.prefix[start : start + _CHUNK], start, blocks)
        self.cache.keep(self.prefix, blocks)
        self.lose()

    def run(self, tokens: list[int], start: int, blocks: list[int]) -> int:
        """Compute some positions; return the token that follows."""
        logits = self.runner.run([Chunk(0, start, tokens, blocks, samples=True)])
        return int(np.argmax(logits[0]))

    def lose(self) -> None:
        """Have the pool evict all that it has."""
        self.cache.give_back(self.cache.alloc(self.pool.config.n_blocks))

    def restore(self, n_tokens: int) -> Took:
        """Bring the first ``n_tokens`` tokens back, and lose them again."""
        cpu, wall = time.process_time(), time.perf_counter()
        blocks = self.cache.find(self.prefix[:n_tokens])
        took = Took(time.process_time() - cpu, time.perf_counter() - wall)
        if len(blocks) * BLOCK != n_tokens:
            raise AssertionError(f"{len(blocks)} blocks of {n_tokens // BLOCK} came back")
        self.cache.give_back(blocks)
        self.lose()
        return took

    def last_token(self) -> int:
        """Return the token after the prefix, of which only the last position is computed again."""
        blocks = self.cache.find(self.prefix)
        own = self.cache.alloc(1)
        last = len(self.prefix) - 1
        for layer in range(MODEL.layers):
            for side in (0, 1):
                self.pool.block(own[0], layer, side)[...] = self.pool.block(blocks[-1], layer, side)
        token = self.run(self.prefix[last:], last, [*blocks[:-1], *own])
        self.cache.give_back([*blocks, *own])
        self.lose()
        return token


def out_of_the_page_cache(folder: Path) -> None:
    """Have the system forget the files' contents, so that the next look reads the disk. Where it
    cannot be asked for that, what follows is read from memory."""
    for file in folder.glob("*"):
        if file.is_file() and hasattr(os, "posix_fadvise"):
            opened = os.open(file, os.O_RDONLY)
            os.fsync(opened)
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(opened)
