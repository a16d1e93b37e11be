"""A block space that only counts, for tests of the scheduler, and a model that only adds up."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.config import EngineConfig
from tinyllm.errors import PoolFullError
from tinyllm.scheduler import Chunk, RequestId, Scheduler, Tenant


class Admitted(NamedTuple):
    cached_tokens: int


@dataclass
class Held:
    """What a request holds: slots, and blocks by their ids."""

    slots: int
    blocks: list[int]


@dataclass
class Space:
    """``n_blocks`` blocks of ``size`` positions. ``cached`` says how many tokens of a prompt are
    there already; ``log`` has every call that was granted."""

    n_blocks: int
    size: int = 4
    cached: Callable[[Sequence[int]], int] = lambda tokens: 0
    held: dict[RequestId, Held] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)  # blocks that somebody else holds too
    outside: int = 0  # blocks that somebody else holds alone
    log: list[tuple[object, ...]] = field(default_factory=list)
    tries: int = 0  # calls of allocate, refused ones too

    @property
    def free(self) -> int:
        return self.n_blocks - self.outside - sum(len(h.blocks) for h in self.held.values())

    def allocate(self, request_id: RequestId, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Admitted:
        assert request_id not in self.held
        self.tries += 1
        blocks = self._take(-(-len(tokens) // self.size))
        self.held[request_id] = Held(len(tokens), blocks)
        self.log.append(("allocate", request_id, len(tokens), tenant, readmission))
        return Admitted(self.cached(tokens))

    def append_slot(self, request_id: RequestId) -> int | None:
        held, taken = self.held[request_id], None
        if held.slots == len(held.blocks) * self.size:
            (taken,) = self._take(1)
            held.blocks.append(taken)
        held.slots += 1
        return taken

    def write(self, request_id: RequestId, block_index: int) -> int:
        blocks = self.held[request_id].blocks
        if blocks[block_index] in self.shared:
            (copy,) = self._take(1)
            self.shared.discard(blocks[block_index])
            self.outside += 1  # the original is the other holder's from now on
            blocks[block_index] = copy
        return blocks[block_index]

    def release(self, request_id: RequestId, computed_tokens: Sequence[int]) -> None:
        assert len(computed_tokens) <= self.held[request_id].slots
        del self.held[request_id]
        self.log.append(("release", request_id, list(computed_tokens)))

    def block_table(self, request_id: RequestId) -> list[int]:
        return list(self.held[request_id].blocks)

    def _take(self, n: int) -> list[int]:
        if n > self.free:
            raise PoolFullError(f"{n} blocks asked for, {self.free} free")
        taken = {b for h in self.held.values() for b in h.blocks}
        names = (b for b in range(10 * self.n_blocks) if b not in taken | self.shared)
        return [next(names) for _ in range(n)]


def next_token(text: Sequence[int]) -> int:
    """Stand in for a model: a token that depends on every token before and its place."""
    return sum((i + 1) * token for i, token in enumerate(text)) % 251


class Texts:
    """Computes chunks as a model with a cache would: what a chunk needs must be there."""

    def __init__(self, scheduler: Scheduler, space: Space) -> None:
        self.scheduler, self.space = scheduler, space
        self.stored: dict[RequestId, list[int]] = {}

    def step(self) -> tuple[list[Chunk], list[RequestId]]:
        """Take one step; return its plan and who is done."""
        plan = self.scheduler.schedule()
        sampled = {}
        for chunk in plan:
            text = self.stored.get(chunk.request_id, [])[: chunk.start]
            assert len(text) == chunk.start, "a chunk begins where nothing was computed yet"
            assert chunk.table == self.space.block_table(chunk.request_id)
            assert chunk.start + len(chunk.tokens) <= len(chunk.table) * self.space.size
            self.stored[chunk.request_id] = text + chunk.tokens
            if chunk.samples:
                sampled[chunk.request_id] = next_token(text + chunk.tokens)
        return plan, self.scheduler.commit(plan, sampled)

    def answer(self, prompt: Sequence[int], n: int) -> list[int]:
        """Return the text that a request must come to: all but the last token, which no step
        computes."""
        text = list(prompt)
        for _ in range(n - 1):
            text.append(next_token(text))
        return text


def config(n_blocks: int, **settings: int) -> EngineConfig:
    known = {"block_tokens": 4, "prefill_chunk": 8, "max_batch_tokens": 16, "max_running": 4}
    return EngineConfig(n_blocks=n_blocks, **{**known, **settings})  # type: ignore[arg-type]


def new(n_blocks: int = 32, **settings: int) -> tuple[Scheduler, Space, Texts]:
    space = Space(n_blocks)
    scheduler = Scheduler(space, config(n_blocks, **settings))
    return scheduler, space, Texts(scheduler, space)


def shape(plan: list[Chunk]) -> list[tuple[object, int, int, bool]]:
    return [(c.request_id, c.start, len(c.tokens), c.samples) for c in plan]


def run(scheduler: Scheduler, texts: Texts) -> list[object]:
    done: list[object] = []
    for _ in range(10_000):
        plan, ended = texts.step()
        done += ended
        if not plan:
            assert not scheduler.running
            assert not scheduler.waiting
            return done
    raise AssertionError("it never ends")
