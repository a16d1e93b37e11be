"""The scheduler: which tokens of which requests the next step computes (L10.2).

Continuous batching: a step takes what every running request can use, and requests join and leave
between any two steps. A prompt is computed in chunks, beside the others' single tokens. Slots come
from a `BlockSpace`; when it has none left, the newest request gives its blocks back, waits, and
later computes again what the cache has lost by then (preemption by recompute).

First come, first served: the oldest request is never preempted for another and nobody is admitted
before it, so it always ends, and then the next one is the oldest.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from tinyllm.config import EngineConfig
from tinyllm.errors import InvalidArgumentError, PoolFullError

RequestId = Hashable
Tenant = str | int | None


class Admitted(Protocol):
    """What `BlockSpace.allocate` answers."""

    @property
    def cached_tokens(self) -> int: ...


class BlockSpace(Protocol):
    """Where requests have their slots: what the scheduler asks of a block manager."""

    def allocate(self, request_id: RequestId, tokens: Sequence[int], tenant: Tenant = None, *,
                 readmission: bool = False) -> Admitted:
        """Make room for ``tokens``; say how many of them are there already."""

    def append_slot(self, request_id: RequestId) -> int | None:
        """Make room for one token more."""

    def write(self, request_id: RequestId, block_index: int) -> int:
        """Make a block of the request's table its own, so that it may be written into."""

    def release(self, request_id: RequestId, computed_tokens: Sequence[int]) -> None:
        """Take all back; K and V of ``computed_tokens`` are there and may be kept."""

    def block_table(self, request_id: RequestId) -> list[int]:
        """Return the request's blocks, first to last."""


class Chunk(NamedTuple):
    """A run of one request's tokens that a step computes.

    The first of ``tokens`` is at position ``start``; position p of the text has its slot in block
    ``table[p // B]``. ``samples`` says that the last token of the text is among them: its logits
    give the next one.
    """

    request_id: RequestId
    start: int
    tokens: list[int]
    table: list[int]
    samples: bool


@dataclass(eq=False)
class _Request:
    """A request that waits or runs. ``end`` is its text's length when it is done. While it runs,
    K and V of ``tokens[:computed]`` are in its blocks, which have room for ``slots`` positions."""

    id: RequestId
    tokens: list[int]
    end: int
    tenant: Tenant
    computed: int = 0
    slots: int = 0
    returns: bool = False  # it was preempted

    @property
    def left(self) -> int:
        """How many of its tokens are not computed: 1 when it is answering, at least 1 always."""
        return len(self.tokens) - self.computed


@dataclass
class Counts:
    """What happened since the scheduler was made. ``recomputed_tokens`` had been computed, were
    lost by a preemption, and were not in the cache any more when their request came back."""

    admissions: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0


class Scheduler:
    """Plans steps for the requests that were added. A step is `schedule`, the computation of its
    chunks, and `commit` with the tokens that they gave. `cancel` may come between any two calls.

    Nothing counts as computed before `commit`: a step that failed is planned again.
    """

    def __init__(self, space: BlockSpace, config: EngineConfig) -> None:
        self.counts = Counts()
        self._space = space
        self._config = config
        # Both in the order of arrival, and whoever runs arrived before all who wait.
        self._running: list[_Request] = []
        self._waiting: deque[_Request] = deque()
        self._known: dict[RequestId, _Request] = {}  # both by their ids
        self._full = False  # the first that waits was refused, and nothing was given back since

    def add(self, request_id: RequestId, prompt: Sequence[int], max_new_tokens: int,
            tenant: Tenant = None) -> None:
        """Queue a request that ends with its ``max_new_tokens``-th new token.

        Raises ``InvalidArgumentError`` for an id that waits or runs, an empty prompt, fewer than
        one new token, or a text longer than ``max_positions``; ``PoolFullError`` when the whole
        pool is too small for the text.
        """
        config, end = self._config, len(prompt) + max_new_tokens
        if request_id in self._known:
            raise InvalidArgumentError(f"there is a request {request_id!r} already")
        if not prompt or max_new_tokens < 1:
            raise InvalidArgumentError("a request has a prompt and at least one new token, not "
                                       f"{len(prompt)} tokens and {max_new_tokens} new ones")
        if end > config.max_positions:
            raise InvalidArgumentError(f"prompt and answer have at most {config.max_positions} "
                                       f"tokens, not {end}")
        # The last new token is never computed, so it needs no slot.
        if (blocks := -(-(end - 1) // config.block_tokens)) > config.n_blocks:
            raise PoolFullError(f"prompt and answer need {blocks} blocks, and the pool has "
                                f"{config.n_blocks}")
        request = self._known[request_id] = _Request(request_id, list(prompt), end, tenant)
        self._waiting.append(request)

    def cancel(self, request_id: RequestId) -> None:
        """Forget a request; the whole blocks that it computed stay cached for others.

        Raises ``InvalidArgumentError`` when it neither waits nor runs.
        """
        if request_id not in self._known:
            raise InvalidArgumentError(f"no request {request_id!r} waits or runs")
        self._forget(self._known[request_id])

    def schedule(self) -> list[Chunk]:
        """Plan a step: the tokens of those that are answering, then prompts, the oldest first.

        The plan is empty only when nothing waits or runs. Raises what the space raises, except a
        ``PoolFullError`` while others run, whose blocks can be waited for or taken. A request that
        was refused so is forgotten, and the next call goes on with the others.
        """
        plan: list[Chunk] = []
        room, before = self._config.max_batch_tokens, self.counts.preemptions
        for request in sorted(self._running, key=lambda r: r.left > 1):
            # It may have been preempted for one before it.
            if room and request in self._running and self._prepare(request, room):
                plan.append(self._chunk(request, room))
                room -= len(plan[-1].tokens)
        running = set(self.running)
        plan = [chunk for chunk in plan if chunk.request_id in running]
        # Whoever was preempted is the first to come back, and would be in the way again at once.
        while room and self.counts.preemptions == before and (admitted := self._admit()):
            if self._prepare(admitted, room):
                plan.append(self._chunk(admitted, room))
                room -= len(plan[-1].tokens)
        return plan

    def commit(self, plan: Sequence[Chunk], sampled: Mapping[RequestId, int]) -> list[RequestId]:
        """Take in a computed step; ``sampled`` has the next token for each chunk that samples.

        Returns the requests that are done. A chunk whose request was cancelled is passed over. An
        error of the space's ``release`` is raised when all of the step is taken in.
        """
        done = []
        for chunk in plan:
            request = self._known.get(chunk.request_id)
            if request is None or request not in self._running:
                continue  # nobody, or another one of the same name
            request.computed = chunk.start + len(chunk.tokens)
            if chunk.samples:
                request.tokens.append(sampled[chunk.request_id])
                if len(request.tokens) == request.end:
                    done.append(request)
        errors = []
        for request in done:
            try:
                self._forget(request)
            except Exception as error:  # the others are done all the same
                errors.append(error)
        if errors:
            raise errors[0]
        return [request.id for request in done]

    @property
    def running(self) -> list[RequestId]:
        """The requests that hold blocks, in the order of their arrival."""
        return [r.id for r in self._running]

    @property
    def waiting(self) -> list[RequestId]:
        """The requests that hold none, in the order in which they will be admitted."""
        return [r.id for r in self._waiting]

    def _admit(self) -> _Request | None:
        """Give the first that waits its blocks; None when there is none, or no room for it."""
        if (not self._waiting or len(self._running) >= self._config.max_running
                or (self._full and self._running)):
            return None
        request = self._waiting[0]
        try:
            allocation = self._space.allocate(request.id, request.tokens, request.tenant,
                                              readmission=request.returns)
        except PoolFullError as error:
            if self._running:
                self._full = True
                return None
            self._forget(request)
            raise _unserved(request, error) from error
        except Exception:
            self._forget(request)
            raise
        self._waiting.popleft()
        self._running.append(request)
        self.counts.admissions += 1
        cached, had = allocation.cached_tokens, request.computed
        request.computed, request.slots = 0, len(request.tokens)
        if not 0 <= cached < len(request.tokens):
            self._forget(request)
            raise InvalidArgumentError(f"{cached} of {len(request.tokens)} tokens are said to be "
                                       "cached, but the last one must be computed")
        # Begin behind the cached tokens: their K and V are in the first blocks of the table.
        request.computed = cached
        self.counts.recomputed_tokens += max(had - cached, 0)
        return request

    def _prepare(self, request: _Request, room: int) -> bool:
        """Give the next chunk its slots, in blocks of the request's own; False when that cost the
        request itself its place."""
        space, size = self._space, self._config.block_tokens
        end = request.computed + self._length(request, room)
        while request.slots < end:
            if not self._ask(request, partial(space.append_slot, request.id)):
                return False
            request.slots += 1
        return all(self._ask(request, partial(space.write, request.id, index))
                   for index in range(request.computed // size, (end - 1) // size + 1))

    def _ask(self, request: _Request, call: Callable[[], object]) -> bool:
        """Make a call that may need a block. The newest that runs is preempted until there is one;
        False when that was ``request``."""
        while True:
            try:
                call()
                return True
            except PoolFullError as error:
                newest = self._running[-1]
                if len(self._running) == 1:
                    self._forget(newest)
                    raise _unserved(newest, error) from error
                self._preempt(newest)
                if newest is request:
                    return False

    def _chunk(self, request: _Request, room: int) -> Chunk:
        start, n = request.computed, self._length(request, room)
        return Chunk(request.id, start, request.tokens[start : start + n],
                     self._space.block_table(request.id), n == request.left)

    def _length(self, request: _Request, room: int) -> int:
        return min(request.left, room, self._config.prefill_chunk)

    def _preempt(self, request: _Request) -> None:
        """Take a request's blocks; what it computed stays cached as long as there is room."""
        self._leave(request)
        request.returns = True
        self._waiting.appendleft(request)
        self.counts.preemptions += 1

    def _forget(self, request: _Request) -> None:
        """Let a request go, wherever it is."""
        del self._known[request.id]
        if request in self._running:
            self._leave(request)
        else:
            self._waiting.remove(request)
            self._full = False  # the first that waits may be another one now

    def _leave(self, request: _Request) -> None:
        """Give a running request's blocks back, with the tokens whose K and V are in them."""
        self._running.remove(request)
        self._full = False
        self._space.release(request.id, request.tokens[: request.computed])


def _unserved(request: _Request, error: PoolFullError) -> PoolFullError:
    return PoolFullError(f"request {request.id!r} finds no room although no other runs: somebody "
                         f"else holds blocks ({error})")
