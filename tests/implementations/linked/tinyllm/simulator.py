"""Objects: a space of blocks or of pieces behind one interface, a tree of halves for the buddies,
and a job for each request that knows where it is. No index of the kit's: blocks have owners."""

from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import Policy, policy
from tinyllm.simulation import Memory, Report, Sample, SimConfig
from tinyllm.trace import Name, Request


def reservation(request: Request, scheme: str, max_len: int) -> int:
    outputs = request.output_tokens
    sizes = {"slot": max_len, "oracle": request.slots,
             "pow2": request.prompt_tokens + (1 << (outputs - 1).bit_length()) - 1}
    if scheme not in sizes:
        raise InvalidArgumentError(f"{scheme} reserves nothing")
    return sizes[scheme]


class Half:
    """A node of the tree: free, given away, or divided into two."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.given = False
        self.halves: list[Half] = []

    def free_pieces(self) -> list["Half"]:
        if self.halves:
            return [p for half in self.halves for p in half.free_pieces()]
        return [] if self.given else [self]

    def divide(self) -> "Half":
        middle = self.size // 2
        self.halves = [Half(self.address, middle), Half(self.address + middle, middle)]
        return self.halves[0]

    def holder(self, address: int) -> "Half | None":
        if self.given:
            return self if self.address == address else None
        return next((h for half in self.halves if (h := half.holder(address))), None)

    def tidy(self) -> None:
        for half in self.halves:
            half.tidy()
        if self.halves and all(not h.given and not h.halves for h in self.halves):
            self.halves = []


class BuddyAllocator:
    def __init__(self, n_slots: int) -> None:
        if n_slots < 1:
            raise InvalidArgumentError("no slots")
        self.roots, address = [], 0
        for bit in range(n_slots.bit_length() - 1, -1, -1):
            if n_slots & 1 << bit:
                self.roots.append(Half(address, 1 << bit))
                address += 1 << bit

    def allocate(self, n_slots: int) -> int:
        if n_slots < 1:
            raise InvalidArgumentError("no slots")
        fitting = [p for root in self.roots for p in root.free_pieces() if p.size >= n_slots]
        if not fitting:
            raise PoolFullError("no piece")
        piece = min(fitting, key=lambda p: (p.size, p.address))
        while piece.size // 2 >= n_slots:
            piece = piece.divide()
        piece.given = True
        return piece.address

    def free(self, address: int) -> None:
        self._holder(address).given = False
        for root in self.roots:
            root.tidy()

    def size(self, address: int) -> int:
        return self._holder(address).size

    @property
    def free_slots(self) -> int:
        return sum(p.size for root in self.roots for p in root.free_pieces())

    def _holder(self, address: int) -> Half:
        for root in self.roots:
            if (found := root.holder(address)) is not None:
                return found
        raise InvalidArgumentError(f"no piece at {address}")


@dataclass(eq=False)
class Job:
    request: Request
    text: int
    stored: int = 0  # positions whose K and V are in its memory
    held: list["Block"] = field(default_factory=list)
    found: int = 0
    address: int = -1
    lost: int = 0
    away: bool = False  # its K and V are with the host
    began: bool = False


@dataclass(eq=False)
class Block:
    name: Name | None = None
    users: int = 0


class Space(Protocol):
    def fits(self, request: Request) -> bool: ...
    def enter(self, job: Job) -> bool: ...
    def grow(self, job: Job) -> bool: ...
    def leave(self, job: Job, keep: bool) -> None: ...
    def memory(self, jobs: list[Job]) -> list[int]: ...
    def lookup(self, names: tuple[Name, ...]) -> int: ...


class Pages:
    """Blocks with owners; a policy has the names of the cached ones that nobody uses."""

    def __init__(self, config: SimConfig) -> None:
        self.size = config.block_tokens
        self.n_blocks = config.n_blocks
        self.free = [Block() for _ in range(config.n_blocks)]
        self.known: dict[Name, Block] = {}
        self.old: Policy | None = None if config.cache == "none" else policy(config.cache)
        self.evictions = 0

    def fits(self, request: Request) -> bool:
        return request.slots <= self.n_blocks * self.size

    def lookup(self, names: tuple[Name, ...]) -> int:
        hits = 0
        while hits < len(names) and names[hits] in self.known:
            hits += 1
        return hits

    def enter(self, job: Job) -> bool:
        names = () if job.away else job.request.blocks[: (job.text - 1) // self.size]
        run = [self.known[n] for n in names[: self.lookup(names)]]
        need = (job.text + self.size - 1) // self.size - len(run)
        if need > len(self.free) + self.unused - sum(not b.users for b in run):
            return False
        for block in run:
            if not block.users and self.old is not None:
                del self.old[block.name]
            block.users += 1
        job.held, job.found = run, len(run)
        job.held += [self.new() for _ in range(need)]
        return True

    def new(self) -> Block:
        if not self.free:
            assert self.old is not None
            block = self.known.pop(self.old.evict())
            block.name = None
            self.evictions += 1
            self.free.append(block)
        block = self.free.pop()
        block.users = 1
        return block

    def grow(self, job: Job) -> bool:
        if job.text <= len(job.held) * self.size:
            return True
        if not self.free and not self.unused:
            return False
        job.held.append(self.new())
        return True

    def leave(self, job: Job, keep: bool) -> None:
        whole = job.stored // self.size if keep and self.old is not None else 0
        names = job.request.blocks[:whole]
        order = list(enumerate(job.held))
        for at, block in order[::-1] if self.old is not None and self.old.tail_first else order:
            block.users -= 1
            twin = block
            if block.name is None and at < len(names):
                twin = self.known.setdefault(names[at], block)
                if twin is block:
                    block.name = names[at]
            if block.name is None:
                self.free.append(block)
            if twin.name is not None and not twin.users:
                self.use(twin.name, at)
        job.held = []

    def use(self, name: Name, depth: int) -> None:
        """Put a block that nobody uses now where its policy wants it."""
        assert self.old is not None
        if name in self.old:
            del self.old[name]
        self.old[name] = depth

    @property
    def unused(self) -> int:
        return 0 if self.old is None else len(self.old)

    def memory(self, jobs: list[Job]) -> list[int]:
        blocks = {id(b): (job, at) for job in jobs for at, b in enumerate(job.held)}
        token = reserved = internal = 0
        for job, at in blocks.values():
            first, after = at * self.size, (at + 1) * self.size
            full = min(max(job.stored - first, 0), self.size)
            used = min(max(job.request.slots - first, 0), self.size)
            token, reserved = token + full, reserved + used - full
            internal += after - first - used
        return [token, reserved, internal, 0, self.unused * self.size]


class Pieces:
    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.buddy = BuddyAllocator(config.slots)

    def piece(self, request: Request) -> int:
        return reservation(request, self.config.scheme, self.config.max_len)

    def fits(self, request: Request) -> bool:
        return request.slots <= self.piece(request) <= max(r.size for r in self.buddy.roots)

    def lookup(self, names: tuple[Name, ...]) -> int:
        return 0

    def enter(self, job: Job) -> bool:
        try:
            job.address = self.buddy.allocate(self.piece(job.request))
        except PoolFullError:
            return False
        return True

    def grow(self, job: Job) -> bool:
        return True

    def leave(self, job: Job, keep: bool) -> None:
        self.buddy.free(job.address)

    def memory(self, jobs: list[Job]) -> list[int]:
        sums = [0, 0, 0, 0, 0]
        for job in jobs:
            piece, slots = self.piece(job.request), job.request.slots
            for at, more in enumerate((job.stored, slots - job.stored, piece - slots,
                                       self.buddy.size(job.address) - piece)):
                sums[at] += more
        return sums


class Simulator:
    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self._pages = Pages(config)
        self._space: Space = self._pages if config.scheme == "paged" else Pieces(config)
        self._now = self._latest = self._sampled = 0
        self._jobs: list[Job] = []  # all who are not gone, in order of arrival
        self._coming: deque[Job] = deque()
        self._in: set[Job] = set()  # who has memory
        self._told = Report()

    def submit(self, request: Request) -> bool:
        if request.arrival_us < self._latest:
            raise InvalidArgumentError("out of order")
        if not (request.prompt_tokens >= 1 and request.output_tokens >= 1):
            raise InvalidArgumentError("nothing to do")
        self._latest = request.arrival_us
        if self._told.requests == 0:
            self._told.start_us = request.arrival_us
        self._told.requests += 1
        if self._space.fits(request):
            self._coming.append(Job(request, request.prompt_tokens))
            return True
        self._told.refused += 1
        return False

    def step(self) -> bool:
        if not self._open():
            return False
        swapped, preempted = self._told.swapped_tokens, self._grow()
        work = len(self._in)
        new: list[Job] = []
        if not preempted:
            work += self._admit(new)
        cost = self._config.cost
        self._account(cost.step_us + cost.token_us * work
                      + cost.swap_us * (self._told.swapped_tokens - swapped), work)
        self._told.ttft_us.extend(self._now - job.request.arrival_us for job in new)
        for job in self._those(True):
            job.text += 1
            if job.text == job.request.prompt_tokens + job.request.output_tokens:
                self._go(job)
                self._told.completed += 1
        return True

    def _open(self, before: float = inf) -> bool:
        """Take in who is there when the next step begins, if one begins before that."""
        while self._jobs or self._coming:
            if not self._jobs:
                if max(self._now, self._coming[0].request.arrival_us) >= before:
                    return False
                self._idle_until(self._coming[0].request.arrival_us)
            if self._now >= before:
                return False
            self._take_in()
            if self._jobs:
                return True
        return False

    def _idle_until(self, time: int) -> None:
        self._sample(max(time, self._now))
        self._now = max(time, self._now)

    def _take_in(self) -> None:
        while self._coming and self._coming[0].request.arrival_us <= self._now:
            self._jobs.append(self._coming.popleft())
        for jobs in (self._jobs, self._coming):
            for job in list(jobs):
                if job.request.cancel_us is not None and job.request.cancel_us <= self._now:
                    self._told.cancelled += 1
                    if jobs is self._jobs:
                        self._go(job)
                    else:
                        self._coming.remove(job)

    def _go(self, job: Job) -> None:
        if job in self._in:
            self._in.remove(job)
            self._space.leave(job, keep=True)
        self._jobs.remove(job)

    def _those(self, inside: bool) -> list[Job]:
        return [job for job in self._jobs if (job in self._in) is inside]

    def _grow(self) -> bool:
        preempted = False
        for job in self._those(True):
            while job in self._in and not self._space.grow(job):
                preempted = True
                self._preempt(self._victim())
        return preempted

    def _victim(self) -> Job:
        running = self._those(True)
        size, rule = self._config.block_tokens, self._config.victim
        if rule == "fifo":
            return running[0]
        newest = running[::-1]  # max and min take the first of equals
        if rule == "largest":
            return max(newest, key=lambda job: len(job.held) - job.found)
        if rule == "least-lost":
            return min(newest, key=lambda job: job.stored - job.found * size)
        return newest[0]

    def _preempt(self, job: Job) -> None:
        self._in.remove(job)
        job.lost = job.stored
        job.away = self._config.preemption == "swap"
        self._space.leave(job, keep=not job.away)
        self._told.preemptions += 1
        self._told.swapped_tokens += job.lost if job.away else 0

    def _admit(self, new: list[Job]) -> int:
        work = 0
        for job in self._those(False):
            if len(self._in) == self._config.max_running or not self._space.enter(job):
                break
            self._in.add(job)
            hit = job.found * self._config.block_tokens
            if job.away:
                self._told.swapped_tokens += job.lost
                job.found = 0
                work += 1
            else:
                work += job.text - hit
                self._told.recomputed_tokens += max(job.lost - hit, 0)
            if not job.began:
                self._first(job, hit)
                new.append(job)
        return work

    def _first(self, job: Job, hit: int) -> None:
        job.began = True
        request = job.request
        self._told.queue_us.append(self._now - request.arrival_us)
        asked = min(request.prompt_tokens // self._config.block_tokens, len(request.blocks))
        self._told.turns.setdefault(request.turn, Hits()).add(
            asked, job.found, request.prompt_tokens, hit)

    def _account(self, us: int, work: int) -> None:
        told, n = self._told, len(self._in)
        for job in self._in:
            job.stored = job.text
        self._sample(self._now + us)
        memory = self._memory().times(us)
        told.memory_us = told.memory_us.plus(memory)
        if self._wanting():
            told.pressed_us += us
            told.pressed_memory_us = told.pressed_memory_us.plus(memory)
        told.peak_running = max(n, told.peak_running)
        for name, more in (("steps", 1), ("busy_us", us), ("running_us", n * us),
                           ("computed_tokens", work), ("output_tokens", n)):
            setattr(told, name, getattr(told, name) + more)
        self._now += us
        told.end_us = self._now

    def _wanting(self) -> bool:
        return len(self._jobs) > len(self._in) < self._config.max_running

    def _memory(self) -> Memory:
        token, reserved, internal, rounding, cached = self._space.memory(self._those(True))
        free = self._config.slots - token - reserved - internal - rounding - cached
        lost, idle = (free, 0) if self._wanting() else (0, free)
        return Memory(token, reserved, internal, rounding + lost, cached, idle)

    def _sample(self, end: int) -> None:
        if not self._config.sample_us:
            return
        while self._sampled < end:
            self._told.samples.append(Sample(self._sampled, len(self._in),
                                             len(self._jobs) - len(self._in), self._memory()))
            self._sampled += self._config.sample_us

    def run(self, requests: Iterable[Request]) -> Report:
        for request in requests:
            while self._open(request.arrival_us):
                self.step()
            self.submit(request)
        while self.step():
            pass
        return self.report()

    @property
    def now_us(self) -> int:
        return self._now

    @property
    def running(self) -> list[int | str]:
        return [job.request.id for job in self._those(True)]

    @property
    def waiting(self) -> list[int | str]:
        return [job.request.id for job in self._those(False)]

    @property
    def next_victim(self) -> int | str | None:
        return self._victim().request.id if self._in else None

    def lookup(self, request: Request) -> int:
        whole = (request.prompt_tokens - 1) // self._config.block_tokens
        return self._space.lookup(request.blocks[:whole])

    def report(self) -> Report:
        told = deepcopy(self._told)
        told.evictions = self._pages.evictions
        return told
