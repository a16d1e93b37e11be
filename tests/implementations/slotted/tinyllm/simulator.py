"""A calendar: each step's page says who will want a block and who will be done. The memory is kept
as sums, and the trace is read when a step begins: no request is held before its time."""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import policy
from tinyllm.prefix_index import PrefixIndex
from tinyllm.simulation import Memory, Preemption, Report, Sample, Scheme, SimConfig, Victim
from tinyllm.trace import Name, Request


def rounded(n: int) -> int:
    return 1 << (n - 1).bit_length()


def reservation(request: Request, scheme: Scheme, max_len: int) -> int:
    sizes = {Scheme.SLOT: max_len, Scheme.ORACLE: request.slots,
             Scheme.POW2: request.prompt_tokens - 1 + rounded(request.output_tokens)}
    if scheme not in sizes:
        raise InvalidArgumentError("there is no reservation for pages")
    return sizes[scheme]


class BuddyAllocator:
    """A row of free addresses for each power of two."""

    def __init__(self, n_slots: int) -> None:
        if n_slots < 1:
            raise InvalidArgumentError(f"{n_slots} slots are no memory")
        self.free_slots = n_slots
        self._rows: defaultdict[int, list[int]] = defaultdict(list)
        self._given: dict[int, int] = {}
        begin = 0
        while begin < n_slots:
            size = rounded(n_slots - begin + 1) // 2
            self._rows[size].append(begin)
            begin += size

    def allocate(self, n_slots: int) -> int:
        if n_slots < 1:
            raise InvalidArgumentError(f"{n_slots} slots are no piece")
        wanted = size = rounded(n_slots)
        while not self._rows.get(size):
            size *= 2
            if size > max(self._rows):
                raise PoolFullError(f"no piece for {n_slots}")
        address = self._rows[size].pop(0)
        while size > wanted:
            size //= 2
            insort(self._rows[size], address + size)
        self._given[address] = wanted
        self.free_slots -= wanted
        return address

    def free(self, address: int) -> None:
        size = self.size(address)
        del self._given[address]
        self.free_slots += size
        while (other := address ^ size) in self._rows[size]:
            self._rows[size].remove(other)
            address = min(address, other)
            size *= 2
        insort(self._rows[size], address)

    def size(self, address: int) -> int:
        if address not in self._given:
            raise InvalidArgumentError(f"{address} was not given away")
        return self._given[address]


@dataclass(eq=False, slots=True)
class Guest:
    """A request that came. While it runs, its text has ``lead`` tokens more than steps were done,
    so nobody counts it; while it does not, ``text`` has it."""

    place: int  # in the order of arrival
    request: Request
    text: int
    lead: int = 0
    inside: bool = False
    gone: bool = False
    known: bool = False  # it was admitted once
    blocks: int = 0
    found: int = 0
    address: int = 0
    lost: int = 0  # positions that it had when it was preempted
    away: bool = False  # and those are with the host


class Simulator:
    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self._pages = config.scheme is Scheme.PAGED
        self._index = PrefixIndex(config.n_blocks,
                                  None if config.cache == "none" else policy(config.cache))
        self._buddy = BuddyAllocator(config.slots)
        self._trace: Iterator[Request] = iter(())
        self._coming: list[Guest] = []
        self._queue: list[Guest] = []
        self._inside: dict[int, Guest] = {}
        self._steps = self._now = self._latest = self._come = self._next_sample = self._copied = 0
        self._wants: defaultdict[int, list[Guest]] = defaultdict(list)  # the calendar: by step
        self._ends: defaultdict[int, list[Guest]] = defaultdict(list)
        self._farewells: list[tuple[int, int, Guest]] = []
        self._text = 0  # of all who are inside; then slots given to them, and of these,
        self._given = self._used = self._found = self._round = 0  # ever used, found, rounded up by
        self._told = Report()

    def submit(self, request: Request) -> bool:
        told = self._told
        if request.arrival_us < self._latest:
            raise InvalidArgumentError(f"{request.id!r} arrives too late in the trace")
        if request.prompt_tokens <= 0 or request.output_tokens <= 0:
            raise InvalidArgumentError(f"{request.id!r} has nothing to read or nothing to say")
        if not told.requests:
            told.start_us = request.arrival_us
        self._latest = request.arrival_us
        told.requests += 1
        if not self._could(request):
            told.refused += 1
            return False
        self._coming.append(Guest(self._come, request, request.prompt_tokens))
        self._come += 1
        return True

    def _could(self, request: Request) -> bool:
        config = self._config
        if self._pages:
            return request.slots <= config.slots
        piece = reservation(request, config.scheme, config.max_len)
        return request.slots <= piece and rounded(piece) <= config.slots

    def run(self, requests: Iterable[Request]) -> Report:
        self._trace = iter(requests)
        while self.step():
            pass
        return self.report()

    def step(self) -> bool:
        if not self._open():
            return False
        self._copied = 0
        new: list[Guest] = []
        preempted = self._pages and self._preempting_growth()
        computed = len(self._inside)
        if not preempted:
            computed += self._admit(new)
        self._work(computed)
        self._told.ttft_us.extend(self._now - guest.request.arrival_us for guest in new)
        self._close()
        return True

    # Who is there.

    def _next_arrival(self) -> int | None:
        """Return when the next one comes; read the trace for it only if nobody is known."""
        while not self._coming:
            if (request := next(self._trace, None)) is None:
                return None
            self.submit(request)
        return self._coming[0].request.arrival_us

    def _open(self) -> bool:
        while True:
            if not self._inside and not self._queue:
                if (time := self._next_arrival()) is None:
                    return False
                self._sample(time, [])
                self._now = max(self._now, time)
            while (time := self._next_arrival()) is not None and time <= self._now:
                guest = self._coming.pop(0)
                self._queue.append(guest)
                if guest.request.cancel_us is not None:
                    heappush(self._farewells, (guest.request.cancel_us, guest.place, guest))
            self._part()
            if self._inside or self._queue:
                return True

    def _part(self) -> None:
        due = []
        while self._farewells and self._farewells[0][0] <= self._now:
            due.append(heappop(self._farewells)[-1])
        for guest in sorted((g for g in due if not g.gone), key=lambda g: g.place):
            if guest.inside:
                self._leave(guest)
            else:
                self._queue.remove(guest)
            guest.gone = True
            self._told.cancelled += 1

    # Growth.

    def _full(self, guest: Guest) -> bool:
        text = self._steps + guest.lead
        return guest.inside and text > guest.blocks * self._config.block_tokens

    def _preempting_growth(self) -> bool:
        before = self._told.preemptions
        for guest in sorted(self._wants.pop(self._steps, ()), key=lambda g: g.place):
            while self._full(guest):
                if self._index.room:
                    self._index.take(1)
                    self._own(guest, 1)
                else:
                    self._preempt(self._victim())
        return self._told.preemptions > before

    def _victim(self) -> Guest:
        size = self._config.block_tokens
        keys = {Victim.LIFO: lambda g: g.place, Victim.FIFO: lambda g: -g.place,
                Victim.LARGEST: lambda g: (g.blocks - g.found, g.place),
                Victim.LEAST_LOST: lambda g: (g.found * size - g.lead, g.place)}
        return max(self._inside.values(), key=keys[self._config.victim])

    def _preempt(self, guest: Guest) -> None:
        guest.away = self._config.preemption is Preemption.SWAP
        self._leave(guest)
        guest.lost = guest.text - 1
        self._copied += guest.lost if guest.away else 0
        self._told.preemptions += 1
        insort(self._queue, guest, key=lambda g: g.place)

    def _own(self, guest: Guest, blocks: int) -> None:
        """Let a guest have so many blocks more, and write down when they will be full."""
        size, slots = self._config.block_tokens, guest.request.slots
        self._used += min((guest.blocks + blocks) * size, slots) - min(guest.blocks * size, slots)
        self._given += blocks * size
        guest.blocks += blocks
        if guest.blocks * size < slots:
            self._wants[guest.blocks * size + 1 - guest.lead].append(guest)

    # Admission.

    def _admit(self, new: list[Guest]) -> int:
        computed, told = 0, self._told
        while self._queue and len(self._inside) < self._config.max_running:
            guest = self._queue[0]
            try:
                self._enter(guest)
            except PoolFullError:
                break
            self._queue.pop(0)
            hit = guest.found * self._config.block_tokens
            if guest.away:
                self._copied += guest.lost
            else:
                told.recomputed_tokens += max(0, guest.lost - hit)
            computed += 1 if guest.away else guest.text - hit
            guest.away, guest.lost = False, 0
            if not guest.known:
                guest.known = True
                new.append(guest)
                self._count(guest, hit)
        return computed

    def _enter(self, guest: Guest) -> None:
        config, request = self._config, guest.request
        if self._pages:
            blocks = -(-guest.text // config.block_tokens)
            names = () if guest.away else self._findable(request, guest.text)
            guest.found = self._index.hold(names, blocks)
            self._found += guest.found
        else:
            blocks = 0
            piece = reservation(request, config.scheme, config.max_len)
            guest.address = self._buddy.allocate(piece)
            self._given += piece
            self._used += request.slots
            self._round += self._buddy.size(guest.address) - piece
        guest.inside, guest.lead = True, guest.text - self._steps
        self._inside[guest.place] = guest
        self._text += guest.text
        self._ends[request.slots - guest.lead].append(guest)
        if self._pages:
            self._own(guest, blocks)

    def _findable(self, request: Request, n_tokens: int) -> tuple[Name, ...]:
        return request.blocks[: (n_tokens - 1) // self._config.block_tokens]

    def _count(self, guest: Guest, hit: int) -> None:
        request = guest.request
        self._told.queue_us.append(self._now - request.arrival_us)
        named = min(request.prompt_tokens // self._config.block_tokens, len(request.blocks))
        self._told.turns.setdefault(request.turn, Hits()).add(
            named, guest.found, request.prompt_tokens, hit)

    # Work, and who leaves.

    def _work(self, computed: int) -> None:
        told, cost, n = self._told, self._config.cost, len(self._inside)
        us = cost.step_us + computed * cost.token_us + self._copied * cost.swap_us
        memory = self._memory().times(us)
        told.memory_us = told.memory_us.plus(memory)
        if self._pressed():
            told.pressed_us += us
            told.pressed_memory_us = told.pressed_memory_us.plus(memory)
        told.steps += 1
        told.busy_us += us
        told.running_us += us * n
        told.peak_running = max(told.peak_running, n)
        told.computed_tokens += computed
        told.output_tokens += n
        told.swapped_tokens += self._copied
        self._sample(self._now + us, self._queue)
        self._now = told.end_us = self._now + us

    def _close(self) -> None:
        step = self._steps
        self._steps += 1
        self._text += len(self._inside)
        for guest in sorted(self._ends.pop(step, ()), key=lambda g: g.place):
            # Whoever was preempted since is on a later page, too.
            if guest.inside and guest.request.slots - guest.lead == step:
                self._leave(guest)
                guest.gone = True
                self._told.completed += 1

    def _leave(self, guest: Guest) -> None:
        size, slots = self._config.block_tokens, guest.request.slots
        guest.text = self._steps + guest.lead
        self._text -= guest.text
        if self._pages:
            stays = guest.found if guest.away else (guest.text - 1) // size
            self._index.release(guest.request.blocks[:stays], guest.found, guest.blocks)
            self._given -= guest.blocks * size
            self._used -= min(guest.blocks * size, slots)
            self._found -= guest.found
        else:
            piece = reservation(guest.request, self._config.scheme, self._config.max_len)
            self._given -= piece
            self._used -= slots
            self._round -= self._buddy.size(guest.address) - piece
            self._buddy.free(guest.address)
        guest.blocks = guest.found = 0
        guest.inside = False
        del self._inside[guest.place]

    def _pressed(self) -> bool:
        return bool(self._queue) and len(self._inside) < self._config.max_running

    def _memory(self) -> Memory:
        size = self._config.block_tokens
        free = self._index.free * size if self._pages else self._buddy.free_slots
        token = self._text + (self._index.held - self._found) * size
        lost, idle = (free, 0) if self._pressed() else (0, free)
        return Memory(token, self._used - self._text, self._given - self._used,
                      self._round + lost, self._index.cached * size, idle)

    def _sample(self, end: int, waiting: list[Guest]) -> None:
        every = self._config.sample_us
        while every and self._next_sample < end:
            self._told.samples.append(Sample(self._next_sample, len(self._inside), len(waiting),
                                             self._memory()))
            self._next_sample += every

    # What is told.

    @property
    def now_us(self) -> int:
        return self._now

    @property
    def running(self) -> list[int | str]:
        return [self._inside[place].request.id for place in sorted(self._inside)]

    @property
    def waiting(self) -> list[int | str]:
        """Who has arrived by now, whether a step has begun since or not."""
        came = [g for g in self._coming if g.request.arrival_us <= self._now]
        return [guest.request.id for guest in chain(self._queue, came)]

    @property
    def next_victim(self) -> int | str | None:
        return self._victim().request.id if self._inside else None

    def lookup(self, request: Request) -> int:
        return self._index.found(self._findable(request, request.prompt_tokens))

    def report(self) -> Report:
        told = self._told
        return replace(told, evictions=self._index.evictions, samples=told.samples[:],
                       queue_us=told.queue_us[:], ttft_us=told.ttft_us[:],
                       turns={turn: replace(hits) for turn, hits in told.turns.items()})
