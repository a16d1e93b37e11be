"""Columns: a list for each property, an entry for each request, and every step done one by one."""

import copy
from collections.abc import Iterable

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import policy
from tinyllm.prefix_index import PrefixIndex
from tinyllm.simulation import Memory, Preemption, Report, Sample, Scheme, SimConfig, Victim
from tinyllm.trace import Request

COMING, WAITING, RUNNING, GONE = range(4)


def reservation(request: Request, scheme: Scheme, max_len: int) -> int:
    if scheme is Scheme.SLOT:
        return max_len
    if scheme is Scheme.ORACLE:
        return request.slots
    if scheme is Scheme.POW2:
        output = 1
        while output < request.output_tokens:
            output += output
        return request.prompt_tokens - 1 + output
    raise InvalidArgumentError("pages are not reserved")


class BuddyAllocator:
    """A set of free (size, address) pairs."""

    def __init__(self, n_slots: int) -> None:
        if n_slots <= 0:
            raise InvalidArgumentError("no memory")
        self.pieces: set[tuple[int, int]] = set()
        self.given: dict[int, int] = {}
        left, address = n_slots, 0
        while left:
            size = 1 << (left.bit_length() - 1)
            self.pieces.add((size, address))
            address, left = address + size, left - size

    def allocate(self, n_slots: int) -> int:
        if n_slots <= 0:
            raise InvalidArgumentError("no piece")
        size, address = min((p for p in self.pieces if p[0] >= n_slots), default=(0, 0))
        if not size:
            raise PoolFullError("no piece is large enough")
        self.pieces.remove((size, address))
        while size // 2 >= n_slots:
            size //= 2
            self.pieces.add((size, address + size))
        self.given[address] = size
        return address

    def free(self, address: int) -> None:
        size = self.size(address)
        del self.given[address]
        while (size, address ^ size) in self.pieces:
            self.pieces.remove((size, address ^ size))
            address &= ~size
            size *= 2
        self.pieces.add((size, address))

    def size(self, address: int) -> int:
        if address not in self.given:
            raise InvalidArgumentError(f"nothing at {address}")
        return self.given[address]

    @property
    def free_slots(self) -> int:
        return sum(size for size, _ in self.pieces)


class Simulator:
    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.now = self.sampled = self.latest = 0
        self.counts = Report()
        cache = policy(config.cache) if config.cache != "none" else None
        self.index = PrefixIndex(config.n_blocks, cache)
        self.buddy = BuddyAllocator(config.slots)
        self.request: list[Request] = []
        self.state: list[int] = []
        self.answer: list[int] = []  # tokens given
        self.stored: list[int] = []  # positions in memory
        self.blocks: list[int] = []
        self.found: list[int] = []
        self.address: list[int] = []
        self.lost: list[int] = []  # positions that were in memory before a preemption
        self.began: list[bool] = []

    def submit(self, request: Request) -> bool:
        if min(request.prompt_tokens, request.output_tokens) < 1 \
                or request.arrival_us < self.latest:
            raise InvalidArgumentError(f"bad request {request}")
        self.latest = request.arrival_us
        if self.counts.requests == 0:
            self.counts.start_us = request.arrival_us
        self.counts.requests += 1
        if not self.fits(request):
            self.counts.refused += 1
            return False
        self.request.append(request)
        self.state.append(COMING)
        for column in (self.answer, self.stored, self.blocks, self.found, self.address, self.lost):
            column.append(0)
        self.began.append(False)
        return True

    def fits(self, request: Request) -> bool:
        config = self.config
        if config.scheme is Scheme.PAGED:
            return request.slots <= config.slots
        piece = reservation(request, config.scheme, config.max_len)
        largest = 1 << (config.slots.bit_length() - 1)
        return request.slots <= piece <= largest

    def those(self, state: int) -> list[int]:
        return [at for at, its in enumerate(self.state) if its == state]

    def step(self) -> bool:
        if not self.begin():
            return False
        old = self.counts.swapped_tokens
        victims = self.counts.preemptions
        if self.config.scheme is Scheme.PAGED:
            self.grow()
        work = len(self.those(RUNNING))
        new: list[int] = []
        if self.counts.preemptions == victims:
            work += self.admit(new)
        cost = self.config.cost
        us = (cost.step_us + work * cost.token_us
              + (self.counts.swapped_tokens - old) * cost.swap_us)
        self.account(us, work)
        for at in new:
            self.counts.ttft_us.append(self.now - self.request[at].arrival_us)
        for at in self.those(RUNNING):
            self.answer[at] += 1
            if self.answer[at] == self.request[at].output_tokens:
                self.drop(at, self.stored[at])
                self.state[at] = GONE
                self.counts.completed += 1
        return True

    def begin(self, before: int = 1 << 80) -> bool:
        """Go to where the next step begins, if one begins before that."""
        while self.next_start() < before:
            here = self.those(WAITING) + self.those(RUNNING)
            coming = self.those(COMING)
            if not here:
                self.sample(max(self.now, self.request[coming[0]].arrival_us))
                self.now = max(self.now, self.request[coming[0]].arrival_us)
            for at in coming:
                if self.request[at].arrival_us <= self.now:
                    self.state[at] = WAITING
            for at, request in enumerate(self.request):
                if request.cancel_us is not None and request.cancel_us <= self.now \
                        and self.state[at] != GONE:
                    if self.state[at] == RUNNING:
                        self.drop(at, self.stored[at])
                    self.state[at] = GONE
                    self.counts.cancelled += 1
            if self.those(WAITING) or self.those(RUNNING):
                return True
        return False

    def text(self, at: int) -> int:
        return self.request[at].prompt_tokens + self.answer[at]

    def grow(self) -> None:
        for at in self.those(RUNNING):
            while self.state[at] == RUNNING \
                    and self.text(at) > self.blocks[at] * self.config.block_tokens:
                try:
                    self.index.take(1)
                    self.blocks[at] += 1
                except PoolFullError:
                    self.preempt(self.victim())

    def victim(self) -> int:
        running, size = self.those(RUNNING), self.config.block_tokens
        keys = {Victim.LIFO: lambda at: at, Victim.FIFO: lambda at: -at,
                Victim.LARGEST: lambda at: (self.blocks[at] - self.found[at], at),
                Victim.LEAST_LOST: lambda at: (self.found[at] * size - self.stored[at], at)}
        return max(running, key=keys[self.config.victim])

    def preempt(self, at: int) -> None:
        self.lost[at] = had = self.stored[at]
        swap = self.config.preemption is Preemption.SWAP
        self.drop(at, 0 if swap else had)
        self.state[at] = WAITING
        self.counts.preemptions += 1
        if swap:
            self.counts.swapped_tokens += had

    def drop(self, at: int, kept: int) -> None:
        """Give all memory back; the first ``kept`` positions may stay in the cache."""
        if self.config.scheme is Scheme.PAGED:
            whole = max(kept // self.config.block_tokens, self.found[at])
            self.index.release(self.request[at].blocks[:whole], self.found[at], self.blocks[at])
        else:
            self.buddy.free(self.address[at])
        self.stored[at] = self.found[at] = self.blocks[at] = 0

    def admit(self, new: list[int]) -> int:
        work, size = 0, self.config.block_tokens
        for at in self.those(WAITING):
            if len(self.those(RUNNING)) >= self.config.max_running:
                break
            request, back = self.request[at], self.config.preemption is Preemption.SWAP
            back = back and self.lost[at] > 0
            if self.config.scheme is Scheme.PAGED:
                names = () if back else request.blocks[: (self.text(at) - 1) // size]
                want = -(-self.text(at) // size)
                try:
                    self.found[at] = self.index.hold(names, want)
                except PoolFullError:
                    break
                self.blocks[at] = want
            else:
                try:
                    self.address[at] = self.buddy.allocate(
                        reservation(request, self.config.scheme, self.config.max_len))
                except PoolFullError:
                    break
            self.state[at] = RUNNING
            hit = self.found[at] * size
            if back:
                self.counts.swapped_tokens += self.lost[at]
                work += 1
            else:
                self.counts.recomputed_tokens += max(0, self.lost[at] - hit)
                work += self.text(at) - hit
            if not self.began[at]:
                self.began[at] = True
                new.append(at)
                self.counts.queue_us.append(self.now - request.arrival_us)
                hits = self.counts.turns.setdefault(request.turn, Hits())
                named = len(request.blocks[: request.prompt_tokens // size])
                hits.add(named, self.found[at], request.prompt_tokens, hit)
        return work

    def memory(self) -> Memory:
        running, size = self.those(RUNNING), self.config.block_tokens
        token = reserved = internal = rounding = 0
        for at in running:
            request = self.request[at]
            if self.config.scheme is Scheme.PAGED:
                mine = self.blocks[at] * size
            else:
                mine = reservation(request, self.config.scheme, self.config.max_len)
                rounding += self.buddy.size(self.address[at]) - mine
            token += self.stored[at] - self.found[at] * size
            reserved += min(mine, request.slots) - self.stored[at]
            internal += max(0, mine - request.slots)
        token += self.index.held * size
        cached = self.index.cached * size
        free = self.config.slots - token - reserved - internal - rounding - cached
        if self.pressed():
            return Memory(token, reserved, internal, rounding + free, cached, 0)
        return Memory(token, reserved, internal, rounding, cached, free)

    def pressed(self) -> bool:
        return bool(self.those(WAITING)) and len(self.those(RUNNING)) < self.config.max_running

    def account(self, us: int, work: int) -> None:
        running, counts = self.those(RUNNING), self.counts
        for at in running:
            self.stored[at] = self.text(at)
        self.sample(self.now + us)
        memory = self.memory().times(us)
        counts.memory_us = counts.memory_us.plus(memory)
        if self.pressed():
            counts.pressed_us += us
            counts.pressed_memory_us = counts.pressed_memory_us.plus(memory)
        counts.steps += 1
        counts.busy_us += us
        counts.running_us += us * len(running)
        counts.peak_running = max(counts.peak_running, len(running))
        counts.computed_tokens += work
        counts.output_tokens += len(running)
        self.now += us
        counts.end_us = self.now

    def sample(self, end: int) -> None:
        while self.config.sample_us and self.sampled < end:
            self.counts.samples.append(Sample(self.sampled, len(self.those(RUNNING)),
                                              len(self.those(WAITING)), self.memory()))
            self.sampled += self.config.sample_us

    def run(self, requests: Iterable[Request]) -> Report:
        for request in requests:
            while self.begin(request.arrival_us):
                self.step()
            self.submit(request)
        while self.step():
            pass
        return self.report()

    def next_start(self) -> int:
        if self.those(WAITING) or self.those(RUNNING):
            return self.now
        coming = self.those(COMING)
        return max(self.now, self.request[coming[0]].arrival_us) if coming else 1 << 80

    @property
    def now_us(self) -> int:
        return self.now

    @property
    def running(self) -> list[int | str]:
        return [self.request[at].id for at in self.those(RUNNING)]

    @property
    def waiting(self) -> list[int | str]:
        return [self.request[at].id for at in self.those(WAITING)]

    @property
    def next_victim(self) -> int | str | None:
        return self.request[self.victim()].id if self.those(RUNNING) else None

    def lookup(self, request: Request) -> int:
        end = (request.prompt_tokens - 1) // self.config.block_tokens
        return self.index.found(request.blocks[:end])

    def report(self) -> Report:
        told = copy.deepcopy(self.counts)
        told.evictions = self.index.evictions
        return told
