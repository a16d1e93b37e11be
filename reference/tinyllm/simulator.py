"""The simulator: a trace of requests through a server with too little memory (Project 09).

A server works in steps. In a step every running request computes what it has not computed yet, a
whole prompt or its last token, and gives one token. Before a step memory is handed out: to those
that run and have filled theirs, then to those that wait. When there is none for the former,
somebody is preempted; when there is none for the latter, they wait.

Between two changes all steps are alike, so `run` takes a whole row of them at once: it costs what
happens, not how long it takes.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import policy
from tinyllm.prefix_index import PrefixIndex
from tinyllm.simulation import (
    NO_CACHE,
    Memory,
    Preemption,
    Report,
    Sample,
    Scheme,
    SimConfig,
    Victim,
)
from tinyllm.trace import Name, Request


def reservation(request: Request, scheme: Scheme, max_len: int) -> int:
    """Return how many slots in one piece a request is given under a scheme that reserves.

    SLOT reserves ``max_len``. ORACLE knows the output's length and reserves exactly the slots that
    the request will use, prompt + output - 1, since the last new token is never computed. POW2
    takes the output for the next power of two, itself if it is one, and goes on as ORACLE.

    Raises ``InvalidArgumentError`` for PAGED, which reserves nothing.
    """
    match scheme:
        case Scheme.SLOT:
            return max_len
        case Scheme.POW2:
            return request.prompt_tokens + _power_of_two(request.output_tokens) - 1
        case Scheme.ORACLE:
            return request.slots
    raise InvalidArgumentError(f"{scheme} gives blocks, one by one")


class BuddyAllocator:
    """Memory of ``n_slots`` slots, given away in pieces that are powers of two.

    At first the free pieces are the powers of two that ``n_slots`` is made of, the largest at
    address 0. A piece that is too large is halved, and two halves that are free become one again.
    """

    def __init__(self, n_slots: int) -> None:
        """Raises ``InvalidArgumentError`` unless there is at least 1 slot."""
        if n_slots < 1:
            raise InvalidArgumentError(f"memory has at least 1 slot, not {n_slots}")
        self._sizes: dict[int, int] = {}  # of the pieces given away, by address
        self._free: dict[int, list[int]] = {}  # the addresses of free pieces in order, by size
        address = 0
        for bit in reversed(range(n_slots.bit_length())):
            self._free[1 << bit] = []
            if n_slots >> bit & 1:
                self._free[1 << bit].append(address)
                address += 1 << bit
        self._free_slots = n_slots

    def allocate(self, n_slots: int) -> int:
        """Give away a piece for ``n_slots``, rounded up to a power of two; return its address.

        It comes from the smallest free piece that is large enough, of several the one with the
        lowest address. That is halved until it fits, and the lower half taken each time.

        Raises ``InvalidArgumentError`` for less than 1 slot, ``PoolFullError`` when no free piece
        is large enough, whatever all of them together are.
        """
        if n_slots < 1:
            raise InvalidArgumentError(f"a piece has at least 1 slot, not {n_slots}")
        wanted = _power_of_two(n_slots)
        size = min((s for s, free in self._free.items() if free and s >= wanted), default=0)
        if not size:
            raise PoolFullError(f"no free piece has {wanted} slots; {self._free_slots} are free")
        address = self._free[size].pop(0)
        while size > wanted:
            size //= 2
            insort(self._free[size], address + size)
        self._sizes[address] = size
        self._free_slots -= size
        return address

    def free(self, address: int) -> None:
        """Take a piece back. As long as its buddy, the other half of what it was halved from, is
        free as well, the two become one piece.

        Raises ``InvalidArgumentError`` unless a piece was given away at this address.
        """
        if address not in self._sizes:
            raise InvalidArgumentError(f"no piece was given away at {address!r}")
        size = self._sizes.pop(address)
        self._free_slots += size
        while (buddies := self._free.get(size)) is not None:
            at = bisect_left(buddies, address ^ size)
            if at == len(buddies) or buddies[at] != address ^ size:
                break
            del buddies[at]
            address = min(address, address ^ size)
            size *= 2
        insort(self._free[size], address)

    def size(self, address: int) -> int:
        """Return how large the piece at ``address`` is.

        Raises ``InvalidArgumentError`` unless a piece was given away there.
        """
        if address not in self._sizes:
            raise InvalidArgumentError(f"no piece was given away at {address!r}")
        return self._sizes[address]

    @property
    def free_slots(self) -> int:
        """How many slots are free, in pieces of any size."""
        return self._free_slots


class Simulator:
    """A server of ``config`` and the requests that come to it.

    Requests are known by their order of arrival, which is the order of `submit`: that is the order
    of the queue, of growth, and of `running` and `waiting`, whatever happened to them since.
    """

    def __init__(self, config: SimConfig) -> None:
        """Begin at time 0 with an empty server."""
        self._config = config
        self._now = self._step = 0  # the time, and the number of the next step
        cache = None if config.cache == NO_CACHE else policy(config.cache)
        self._index = PrefixIndex(config.n_blocks, cache)
        self._buddy = BuddyAllocator(config.slots)
        self._coming: deque[_Live] = deque()  # submitted, with an arrival that is not yet
        self._returning: list[_Live] = []  # preempted; all of them came before all who are new
        self._new: deque[_Live] = deque()
        self._running: dict[int, _Live] = {}  # by their order of arrival
        self._grows: list[tuple[int, int, int, _Live]] = []  # step, order, stay: heaps of what
        self._ends: list[tuple[int, int, int, _Live]] = []  # will happen, if the stay goes on
        self._leaves: list[tuple[int, int, _Live]] = []  # time, order: clients that go away
        self._own = _Sums()
        self._stuck = False  # the first that waits was refused, and nothing was given back since
        self._stays = self._last_arrival = self._order = self._next_sample = 0
        self._report = Report()

    def submit(self, request: Request) -> bool:
        """Let a request come at its arrival; return whether this server can serve it at all.

        One that has no room even when nobody else is there is refused and counted, and False
        returned: more blocks than there are, longer than ``max_len`` under SLOT, or a piece larger
        than any.

        Raises ``InvalidArgumentError`` when it arrives before 0 or before the one submitted last,
        refused or not, or has no prompt or no output.
        """
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise InvalidArgumentError(f"request {request.id!r} has {request.prompt_tokens} prompt "
                                       f"and {request.output_tokens} output tokens; at least 1 of "
                                       "each is needed")
        if request.arrival_us < self._last_arrival:
            raise InvalidArgumentError(f"request {request.id!r} arrives at {request.arrival_us} "
                                       f"us, after one of {self._last_arrival} us was submitted")
        if not self._report.requests:
            self._report.start_us = request.arrival_us
        self._last_arrival = request.arrival_us
        self._report.requests += 1
        if not self._fits(request):
            self._report.refused += 1
            return False
        self._order += 1
        live = _Live(self._order, request, request.prompt_tokens)
        self._coming.append(live)
        if request.cancel_us is not None:
            heappush(self._leaves, (request.cancel_us, live.order, live))
        return True

    def step(self) -> bool:
        """Do one step, and return False when there is nothing left to do.

        1. With nobody there, the clock goes to the next arrival. Whoever has arrived by now joins
           the queue; whose ``cancel_us`` has come leaves, waiting or running.
        2. Growth, under PAGED: in order of arrival, each running request that has filled its last
           block takes one. While there is none, a victim is preempted, perhaps the request
           itself, and goes back to its place in the queue.
        3. Admission, unless somebody was preempted in this step: from the front of the queue, as
           long as fewer than ``max_running`` run and there is room for the request's text so far.
           Nobody overtakes.
        4. Work: the step takes ``step_us``, ``token_us`` for each position computed, and
           ``swap_us`` for each one swapped, out or in. Then everybody who runs has one token more,
           and who has all of them is done and leaves.
        """
        if not self._gather():
            return False
        swapped = self._report.swapped_tokens
        preempted = self._grow()
        computed = len(self._running)
        self._own.tokens += computed
        fresh, more = ([], 0) if preempted else self._admit()
        computed += more
        cost = self._config.cost
        us = (cost.step_us + cost.token_us * computed
              + cost.swap_us * (self._report.swapped_tokens - swapped))
        self._account(us, 1, computed)
        self._report.ttft_us.extend(self._now - live.request.arrival_us for live in fresh)
        while (live := self._due(self._ends)) is not None:
            self._leave(live, live.text_at(self._step - 1))
            self._report.completed += 1
        return True

    def run(self, requests: Iterable[Request]) -> Report:
        """Submit all ``requests``, each when its time has come, and go on to the last one's end.

        ``requests`` are read one at a time, so there may be more of them than memory holds.
        """
        for request in requests:
            while self._gather(request.arrival_us):
                self.step()
                self._coast(request.arrival_us)
            self.submit(request)
        while self.step():
            self._coast()
        return self.report()

    @property
    def now_us(self) -> int:
        """The time: the end of the last step, or the arrival that the clock went to since, of a
        request whose client had gone away."""
        return self._now

    @property
    def running(self) -> list[int | str]:
        """The ids of the requests that have memory, in order of arrival."""
        return [live.request.id for _, live in sorted(self._running.items())]

    @property
    def waiting(self) -> list[int | str]:
        """The ids of those that have arrived and have none, in order of arrival. Who came while
        the last step ran may be among them already, or when the next one has begun."""
        return [live.request.id for live in (*self._returning, *self._new)]

    @property
    def next_victim(self) -> int | str | None:
        """Return the id of the request that would be preempted if a block were wanted now and there
        were none, by the policy of the config; None when nobody runs."""
        return self._victim().request.id if self._running else None

    def lookup(self, request: Request) -> int:
        """Return how many blocks a request that is new would find in the cache now: whole blocks
        from the first one on, and never the block of the prompt's last token. Nothing changes."""
        return self._index.found(self._wanted(request, request.prompt_tokens))

    def report(self) -> Report:
        """Return what has happened so far; it is the caller's own."""
        done = self._report
        return replace(done, evictions=self._index.evictions,
                       turns={turn: replace(hits) for turn, hits in sorted(done.turns.items())},
                       queue_us=done.queue_us[:], ttft_us=done.ttft_us[:],
                       samples=done.samples[:])

    def _fits(self, request: Request) -> bool:
        config = self._config
        if config.scheme is Scheme.PAGED:
            return _blocks(request.slots, config.block_tokens) <= config.n_blocks
        piece = reservation(request, config.scheme, config.max_len)
        return request.slots <= piece and _power_of_two(piece) <= config.slots

    def _wanted(self, request: Request, text: int) -> tuple[Name, ...]:
        """Return the names of the blocks that a text of this length may find: the last token is
        always computed."""
        return request.blocks[: (text - 1) // self._config.block_tokens]

    def _start(self) -> int | None:
        """Return when the next step begins, None when nobody is there or will come."""
        if self._running or self._returning or self._new:
            return self._now
        return max(self._now, self._coming[0].request.arrival_us) if self._coming else None

    def _gather(self, before: int | None = None) -> bool:
        """Bring the clock and the queue to where a step begins; False when there is none, or none
        that begins before a time. Twice is as good as once."""
        while (start := self._start()) is not None and (before is None or start < before):
            self._sample(start, 1)
            self._now = start
            while self._coming and self._coming[0].request.arrival_us <= start:
                self._new.append(self._coming.popleft())
            gone = []
            while self._leaves and self._leaves[0][0] <= start:
                gone.append(heappop(self._leaves)[-1])
            for live in sorted(gone, key=lambda r: r.order):
                self._cancel(live)
            if self._running or self._returning or self._new:
                return True
        return False

    def _cancel(self, live: "_Live") -> None:
        """Let a request go whose client went away, wherever it is."""
        if live.done:
            return
        if live.stay:
            self._leave(live, live.text_at(self._step) - 1)
        else:
            queues = (self._returning, self._new, self._coming)
            next(queue for queue in queues if live in queue).remove(live)
            self._stuck = False  # the first that waits may be another one now
        live.done = True
        self._report.cancelled += 1

    def _grow(self) -> bool:
        """Give a block to each that has filled its last one; True when that cost anybody theirs."""
        preempted = False
        while (live := self._due(self._grows)) is not None:
            while live.stay and not self._index.room:
                preempted = True
                self._preempt(self._victim())
            if live.stay:
                self._index.take(1)
                self._give(live, live.blocks + 1)
        return preempted

    def _victim(self) -> "_Live":
        """Return who is preempted next."""
        size, step = self._config.block_tokens, self._step
        match self._config.victim:
            case Victim.LIFO:
                return self._running[max(self._running)]
            case Victim.FIFO:
                return self._running[min(self._running)]
            case Victim.LARGEST:
                return max(self._running.values(), key=lambda r: (r.blocks - r.hit, r.order))
            case _:
                return min(self._running.values(),
                           key=lambda r: (r.text_at(step) - r.hit * size, -r.order))

    def _preempt(self, live: "_Live") -> None:
        """Take a request's blocks and put it back into its place in the queue."""
        had = live.text_at(self._step) - 1
        swap = self._config.preemption is Preemption.SWAP
        self._leave(live, had, keep=not swap)
        live.text, live.had, live.swapped, live.done = had + 1, had, swap, False
        insort(self._returning, live, key=lambda r: r.order)
        self._report.preemptions += 1
        self._report.swapped_tokens += had if swap else 0

    def _admit(self) -> tuple[list["_Live"], int]:
        """Admit from the front of the queue; return those admitted for the first time, and how
        many positions all who were admitted compute."""
        fresh: list[_Live] = []
        computed, report = 0, self._report
        while (self._returning or self._new) and len(self._running) < self._config.max_running:
            queue = self._returning or self._new
            live = queue[0]
            if self._stuck or not self._place(live):
                self._stuck = True
                break
            del queue[0]
            found = live.hit * self._config.block_tokens
            if live.swapped:
                report.swapped_tokens += live.had
                computed += 1
            else:
                report.recomputed_tokens += max(live.had - found, 0)
                computed += live.text - found
            if live.began:
                continue
            live.began = True
            fresh.append(live)
            request = live.request
            named = min(len(request.blocks), request.prompt_tokens // self._config.block_tokens)
            report.turns.setdefault(request.turn, Hits()).add(
                named, live.hit, request.prompt_tokens, found)
            report.queue_us.append(self._now - request.arrival_us)
        return fresh, computed

    def _place(self, live: "_Live") -> bool:
        """Give a request memory for its text so far, if there is room."""
        config, size = self._config, self._config.block_tokens
        try:
            if config.scheme is Scheme.PAGED:
                # K and V that come back from the host need blocks of their own.
                names = () if live.swapped else self._wanted(live.request, live.text)
                blocks = _blocks(live.text, size)
                live.hit = self._index.hold(names, blocks)
            else:
                piece = reservation(live.request, config.scheme, config.max_len)
                live.address, blocks = self._buddy.allocate(piece), 0
                live.held = self._buddy.size(live.address)
                live.waste, live.rounding = piece - live.request.slots, live.held - piece
                self._own.add(live)
        except PoolFullError:
            return False
        self._stays += 1
        live.stay, live.since = self._stays, self._step
        self._running[live.order] = live
        self._own.tokens += live.text - live.hit * size
        last = self._step + live.request.slots - live.text  # the step that gives its last token
        heappush(self._ends, (last, live.order, live.stay, live))
        if blocks:
            self._give(live, blocks)
        return True

    def _give(self, live: "_Live", blocks: int) -> None:
        """Let a request have ``blocks`` blocks, and know when it will want one more."""
        size, slots = self._config.block_tokens, live.request.slots
        self._own.remove(live)
        live.blocks = blocks
        live.held = (blocks - live.hit) * size
        live.waste = max(blocks * size - slots, 0)
        self._own.add(live)
        if blocks * size < slots:
            full = live.since + blocks * size - live.text  # the step that fills the last block
            heappush(self._grows, (full + 1, live.order, live.stay, live))

    def _leave(self, live: "_Live", had: int, keep: bool = True) -> None:
        """Take a running request's memory; K and V of its first ``had`` positions are there."""
        size = self._config.block_tokens
        del self._running[live.order]
        self._own.tokens -= had - live.hit * size
        self._own.remove(live)
        if self._config.scheme is Scheme.PAGED:
            names = live.request.blocks[: had // size if keep else live.hit]
            self._index.release(names, live.hit, live.blocks)
        else:
            self._buddy.free(live.address)
        live.hit = live.blocks = live.stay = live.held = live.waste = live.rounding = 0
        live.done = True
        self._stuck = False

    def _due(self, heap: list[tuple[int, int, int, "_Live"]]) -> "_Live | None":
        """Take the next of those out of ``heap`` whose step it is, or was just now."""
        step = self._step if heap is self._grows else self._step - 1
        while heap and heap[0][0] <= step:
            _, _, stay, live = heappop(heap)
            if live.stay == stay:
                return live
        return None

    def _coast(self, until: int | None = None) -> None:
        """Take all steps at once that begin before ``until`` and are like the last one: nobody
        comes, grows, ends or leaves."""
        n = len(self._running)
        waits = self._returning or self._new
        if not n or (waits and not self._stuck and n < self._config.max_running):
            return
        while self._leaves and self._leaves[0][-1].done:
            heappop(self._leaves)
        us = self._config.cost.step_us + self._config.cost.token_us * n
        times = [until] if until is not None else []
        times += [self._coming[0].request.arrival_us] if self._coming else []
        times += [self._leaves[0][0]] if self._leaves else []
        steps = [-((self._now - time) // us) for time in times]
        for heap in (self._grows, self._ends):
            while heap and heap[0][-1].stay != heap[0][2]:
                heappop(heap)
            steps += [heap[0][0] - self._step] if heap else []
        if (k := min(steps)) > 0:
            self._own.tokens += n
            self._account(us, k, n)

    def _account(self, us: int, k: int, computed: int) -> None:
        """Count ``k`` steps of ``us`` each; in each after the first everybody has one more token
        than in the one before."""
        report, n = self._report, len(self._running)
        self._sample(self._now + k * us, us)
        grown = n * (k * (k - 1) // 2)
        first = self._memory()
        memory = first.times(k).plus(Memory(token=grown, reserved=-grown)).times(us)
        report.memory_us = report.memory_us.plus(memory)
        report.busy_us += k * us
        if self._pressed():
            report.pressed_us += k * us
            report.pressed_memory_us = report.pressed_memory_us.plus(memory)
        report.running_us += n * k * us
        report.peak_running = max(report.peak_running, n)
        report.computed_tokens += computed * k
        report.output_tokens += n * k
        report.steps += k
        self._own.tokens += n * (k - 1)
        self._step += k
        self._now += k * us
        report.end_us = self._now

    def _pressed(self) -> bool:
        """True when a request waits and it is memory that it waits for."""
        return (bool(self._returning or self._new)
                and len(self._running) < self._config.max_running)

    def _memory(self) -> Memory:
        """Return where the slots are in the first step that is not counted yet."""
        size, own = self._config.block_tokens, self._own
        shared, cached = self._index.held * size, self._index.cached * size
        free = self._config.slots - own.held - shared - cached
        pressed = self._pressed()
        return Memory(own.tokens + shared, own.held - own.tokens - own.waste - own.rounding,
                      own.waste, own.rounding + (free if pressed else 0), cached,
                      0 if pressed else free)

    def _sample(self, end: int, us: int) -> None:
        """Take the samples that fall before ``end``, in steps of ``us`` from now on."""
        every = self._config.sample_us
        if not every or self._next_sample >= end:
            return
        first, n = self._memory(), len(self._running)
        waiting = len(self._returning) + len(self._new)
        while self._next_sample < end:
            grown = n * ((self._next_sample - self._now) // us)
            memory = first.plus(Memory(token=grown, reserved=-grown))
            self._report.samples.append(Sample(self._next_sample, n, waiting, memory))
            self._next_sample += every


@dataclass(eq=False, slots=True)
class _Live:
    """A request that is not done. While it runs (``stay`` is not 0), its text in step s has
    ``text_at(s)`` tokens, all of them computed by the end of that step."""

    order: int
    request: Request
    text: int  # tokens when it was admitted last, or preempted: prompt and answer so far
    since: int = 0  # the step of its admission
    stay: int = 0
    hit: int = 0  # blocks that it found
    blocks: int = 0
    address: int = 0
    held: int = 0  # slots of its own, and of these:
    waste: int = 0  # never used
    rounding: int = 0
    had: int = 0  # positions computed before it was preempted
    swapped: bool = False
    began: bool = False  # it was admitted once
    done: bool = False

    def text_at(self, step: int) -> int:
        return self.text + step - self.since


@dataclass(slots=True)
class _Sums:
    """Of all running requests together, what is their own: not found, so not shared."""

    tokens: int = 0
    held: int = 0
    waste: int = 0
    rounding: int = 0

    def add(self, live: _Live) -> None:
        self.held += live.held
        self.waste += live.waste
        self.rounding += live.rounding

    def remove(self, live: _Live) -> None:
        self.held -= live.held
        self.waste -= live.waste
        self.rounding -= live.rounding


def _blocks(n_tokens: int, block_tokens: int) -> int:
    return -(-n_tokens // block_tokens)


def _power_of_two(n: int) -> int:
    """Return the least power of two that is at least ``n``."""
    return 1 << (n - 1).bit_length()
