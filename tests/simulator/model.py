"""A slow server that is easy to believe: every block is an object, every step is done, and every
figure is counted anew in each of them. It shares nothing with a simulator but the contract."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tinyllm.simulation import Memory, Sample, SimConfig
from tinyllm.trace import Request


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least ``n``."""
    power = 1
    while power < n:
        power *= 2
    return power


class BuddyModel:
    """Every slot on its own: who has it, and where pieces may begin."""

    def __init__(self, n_slots: int) -> None:
        self.roots: list[tuple[int, int]] = []
        begin = 0
        while begin < n_slots:
            size = power_of_two(n_slots - begin + 1) // 2
            self.roots.append((begin, size))
            begin += size
        self.pieces: dict[int, int] = {}
        self.n_slots = n_slots

    def whole(self, begin: int, size: int) -> list[tuple[int, int]]:
        """Return the largest free pieces inside a possible one."""
        if not any(at < begin + size and begin < at + n for at, n in self.pieces.items()):
            return [(begin, size)]
        if self.pieces.get(begin) == size:
            return []
        half = size // 2
        return self.whole(begin, half) + self.whole(begin + half, half)

    def allocate(self, n: int) -> int | None:
        wanted = power_of_two(n)
        free = [p for root in self.roots for p in self.whole(*root)]
        fitting = sorted((size, begin) for begin, size in free if size >= wanted)
        if not fitting:
            return None
        self.pieces[fitting[0][1]] = wanted
        return fitting[0][1]

    @property
    def free_slots(self) -> int:
        return self.n_slots - sum(self.pieces.values())


@dataclass(eq=False)
class Block:
    """A block of the model's pool; ``name`` is None while nobody may find it."""

    name: Any = None
    holders: int = 0
    last_use: int = 0
    uses: int = 0  # since it came into the cache
    depth: int = 0


@dataclass(eq=False)
class Row:
    """A request: where it is, and what it has."""

    order: int
    request: Request
    place: str = "coming"  # coming, waiting, running, gone
    answer: int = 0  # tokens given
    stored: int = 0  # positions whose K and V are in its memory
    table: list[Block] = field(default_factory=list)
    found: int = 0
    address: int = -1
    had: int = 0
    swapped: bool = False
    admitted: bool = False

    @property
    def text(self) -> int:
        return self.request.prompt_tokens + self.answer


class ServerModel:
    """The server. ``figures`` counts everything by name; ``snapshots`` has the memory, the length
    and who ran in each step."""

    def __init__(self, config: SimConfig) -> None:
        self.config, self.size = config, config.block_tokens
        self.now = self.uses = 0
        self.rows: list[Row] = []
        self.blocks = [Block() for _ in range(config.n_blocks)]
        self.buddy = BuddyModel(config.slots)
        self.figures: Counter[str] = Counter()
        self.turns: dict[int, list[int]] = {}
        self.queue_us: list[int] = []
        self.ttft_us: list[int] = []
        self.memory_us = self.pressed_memory_us = Memory()
        self.snapshots: list[tuple[int, int, Memory, list[int | str], list[int | str]]] = []
        self.samples: list[Sample] = []

    def at(self, place: str) -> list[Row]:
        return [row for row in self.rows if row.place == place]

    def submit(self, request: Request) -> bool:
        if not self.figures["requests"]:
            self.figures["start"] = request.arrival_us
        self.figures["requests"] += 1
        if not self.fits(request):
            self.figures["refused"] += 1
            return False
        self.rows.append(Row(len(self.rows), request))
        return True

    def fits(self, request: Request) -> bool:
        if self.config.scheme == "paged":
            return -(-request.slots // self.size) <= self.config.n_blocks
        if self.config.scheme == "slot" and request.slots > self.config.max_len:
            return False
        return BuddyModel(self.config.slots).allocate(self.piece(request)) is not None

    def piece(self, request: Request) -> int:
        outputs = {"oracle": request.output_tokens,
                   "pow2": power_of_two(request.output_tokens)}
        if self.config.scheme == "slot":
            return self.config.max_len
        return request.prompt_tokens + outputs[self.config.scheme] - 1

    def run(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.submit(request)
        while self.step():
            pass

    def step(self) -> bool:
        while True:
            here = self.at("waiting") + self.at("running")
            coming = self.at("coming")
            if not here and not coming:
                return False
            if not here:
                self.sample(max(self.now, coming[0].request.arrival_us))
                self.now = max(self.now, coming[0].request.arrival_us)
            for row in coming:
                if row.request.arrival_us <= self.now:
                    row.place = "waiting"
            for row in self.rows:
                cancel = row.request.cancel_us
                if cancel is not None and cancel <= self.now and row.place != "gone":
                    if row.place == "running":
                        self.give_back(row)
                    row.place = "gone"
                    self.figures["cancelled"] += 1
            if self.at("waiting") or self.at("running"):
                break
        before = Counter(self.figures)
        preempted = self.grow()
        work = len(self.at("running"))
        begins = self.now
        new = [] if preempted else self.admit()
        work += sum(positions for _, positions in new)
        swapped = self.figures["swapped"] - before["swapped"]
        cost = self.config.cost
        us = cost.step_us + cost.token_us * work + cost.swap_us * swapped
        for row in self.at("running"):
            row.stored = row.text
        self.count(us, work)
        self.now += us
        for row, _ in new:
            if not row.admitted:
                row.admitted = True
                self.queue_us.append(begins - row.request.arrival_us)
                self.ttft_us.append(self.now - row.request.arrival_us)
        for row in self.at("running"):
            row.answer += 1
            if row.answer == row.request.output_tokens:
                self.give_back(row)
                row.place = "gone"
                self.figures["completed"] += 1
        return True

    def grow(self) -> bool:
        preempted = False
        if self.config.scheme != "paged":
            return False
        for row in self.at("running"):
            while row.place == "running" and row.text > len(row.table) * self.size:
                if (block := self.new_block()) is not None:
                    row.table.append(block)
                    continue
                self.preempt(self.victim())
                preempted = True
        return preempted

    def victim(self) -> Row:
        running = self.at("running")
        match self.config.victim:
            case "lifo":
                return running[-1]
            case "fifo":
                return running[0]
            case "largest":
                return max(running, key=lambda r: (len(r.table) - r.found, r.order))
        return min(running, key=lambda r: (r.stored - r.found * self.size, -r.order))

    def preempt(self, row: Row) -> None:
        row.had, row.swapped = row.stored, self.config.preemption == "swap"
        self.give_back(row, keep=not row.swapped)
        row.place = "waiting"
        self.figures["preemptions"] += 1
        self.figures["swapped"] += row.had * row.swapped

    def admit(self) -> list[tuple[Row, int]]:
        new = []
        for row in self.at("waiting"):
            if len(self.at("running")) == self.config.max_running or not self.place(row):
                break
            row.place = "running"
            found = row.found * self.size
            if row.swapped:
                self.figures["swapped"] += row.had
                new.append((row, 1))
                continue
            self.figures["recomputed"] += max(0, row.had - found)
            new.append((row, row.text - found))
            if not row.admitted:
                prompt = row.request.prompt_tokens
                named = len(row.request.blocks[: prompt // self.size])
                turn = self.turns.setdefault(row.request.turn, [0] * 5)
                for at, n in enumerate((1, named, row.found, prompt, found)):
                    turn[at] += n
        return new

    def place(self, row: Row) -> bool:
        if self.config.scheme != "paged":
            address = self.buddy.allocate(self.piece(row.request))
            if address is None:
                return False
            row.address = address
            return True
        table: list[Block] = []
        whole = (row.text - 1) // self.size
        for name in () if row.swapped else row.request.blocks[:whole]:
            block = next((b for b in self.blocks if b.name == name), None)
            if block is None:
                break
            block.holders += 1
            table.append(block)
        missing = -(-row.text // self.size) - len(table)
        if missing > sum(not b.holders for b in self.blocks):
            for block in table:
                block.holders -= 1
            return False
        row.found = len(table)
        row.table = table
        for _ in range(missing):
            block = self.new_block()
            assert block is not None
            row.table.append(block)
        return True

    def new_block(self) -> Block | None:
        """Take a block that nobody holds: without a name, or the one used longest ago."""
        spare = [b for b in self.blocks if not b.holders]
        if not spare:
            return None
        block = min(spare, key=lambda b: (b.name is not None, self.rank(b)))
        self.figures["evictions"] += block.name is not None
        block.name, block.holders, block.uses = None, 1, 0
        return block

    def rank(self, block: Block) -> tuple[int, ...]:
        """Return the cached block's rank by the config's policy; the lowest is evicted first."""
        match self.config.cache:
            case "lfu":
                return block.uses, block.last_use
            case "length":
                return block.last_use - 5 * block.depth, block.last_use
        return (block.last_use,)

    def give_back(self, row: Row, keep: bool = True) -> None:
        if self.config.scheme != "paged":
            del self.buddy.pieces[row.address]
            row.stored = 0
            return
        names = row.request.blocks if self.config.cache != "none" and keep else ()
        whole = list(zip(row.table[: row.stored // self.size], names, strict=False))
        order = list(enumerate(row.table))
        for at, block in reversed(order) if self.config.cache == "lru-tail" else order:
            block.holders -= 1
            used = block
            if row.found <= at < len(whole):
                name = whole[at][1]
                twin = next((other for other in self.blocks if other.name == name), None)
                if twin is None:
                    block.name = name
                else:  # a duplicate is freed, and counts as a use of its twin
                    used = twin
            if used.name is not None and not used.holders:
                self.uses += 1
                used.last_use, used.uses, used.depth = self.uses, used.uses + 1, at
        row.table, row.found, row.stored = [], 0, 0

    def count(self, us: int, work: int) -> None:
        running = self.at("running")
        waits = bool(self.at("waiting")) and len(running) < self.config.max_running
        memory = self.memory(waits)
        self.sample(self.now + us)
        self.memory_us = self.memory_us.plus(memory.times(us))
        if waits:
            self.pressed_memory_us = self.pressed_memory_us.plus(memory.times(us))
            self.figures["pressed"] += us
        self.figures += Counter(steps=1, busy=us, running=us * len(running), computed=work,
                                output=len(running))
        self.figures["peak"] = max(self.figures["peak"], len(running))
        self.figures["end"] = self.now + us
        self.snapshots.append((self.now, us, memory, [r.request.id for r in running],
                               [r.request.id for r in self.at("waiting")]))

    def sample(self, end: int) -> None:
        """Take the samples that fall before ``end``, of the server as it is now."""
        every, running, waiting = self.config.sample_us, self.at("running"), self.at("waiting")
        pressed = bool(waiting) and len(running) < self.config.max_running
        while every and (at := every * len(self.samples)) < end:
            self.samples.append(Sample(at, len(running), len(waiting), self.memory(pressed)))

    def lookup(self, request: Request) -> int:
        """Return how many blocks a new request would find now."""
        known = {b.name for b in self.blocks if b.name is not None}
        whole = request.blocks[: (request.prompt_tokens - 1) // self.size]
        return next((at for at, name in enumerate(whole) if name not in known), len(whole))

    def memory(self, pressed: bool) -> Memory:
        """Ask every slot what it is."""
        kinds = Counter[str]()
        running = self.at("running")
        if self.config.scheme == "paged":
            seen: set[int] = set()
            for row in running:
                for at, block in enumerate(row.table):
                    if id(block) in seen:
                        continue
                    seen.add(id(block))
                    for position in range(at * self.size, (at + 1) * self.size):
                        kinds[self.kind(row, position)] += 1
            kinds["cached"] = self.size * sum(
                b.name is not None and not b.holders for b in self.blocks)
        else:
            for row in running:
                for position in range(self.piece(row.request)):
                    kinds[self.kind(row, position)] += 1
                kinds["external"] += self.buddy.pieces[row.address] - self.piece(row.request)
        free = self.config.slots - sum(kinds.values())
        kinds["external" if pressed else "idle"] += free
        return Memory(**{name: kinds[name] for name in Memory._fields})

    @staticmethod
    def kind(row: Row, position: int) -> str:
        if position < row.stored:
            return "token"
        return "reserved" if position < row.request.slots else "internal"
