"""What a simulation is told and what it tells: the server, the costs, and every figure's meaning.

All times are whole microseconds and all memory is counted in slots, room for K and V of one
position; so every sum is exact, and two right simulators agree to the last digit.
"""

from array import array
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError
from tinyllm.eviction import POLICIES

NO_CACHE = "none"


class Scheme(StrEnum):
    """How a request gets its memory."""

    SLOT = "slot"  # room for max_len positions, in one piece, when it is admitted
    POW2 = "pow2"  # for its prompt and its output rounded up to a power of two, in one piece
    ORACLE = "oracle"  # for exactly what it will use, in one piece
    PAGED = "paged"  # blocks, one more whenever the last one is full


class Victim(StrEnum):
    """Who is preempted when a block is wanted and there is none. Where two are equal, the one that
    arrived later."""

    LIFO = "lifo"  # the one that arrived last
    FIFO = "fifo"  # the one that arrived first
    LARGEST = "largest"  # the one with the most blocks of its own: those that it did not find
    LEAST_LOST = "least-lost"  # the one with the fewest positions that it computed itself


class Preemption(StrEnum):
    """What becomes of the K and V of a preempted request."""

    RECOMPUTE = "recompute"  # lost, but for what stays in the cache: computed again
    SWAP = "swap"  # copied to the host's memory, and back when it is admitted again


@dataclass(frozen=True)
class Cost:
    """What a step takes: ``step_us`` whatever it does, ``token_us`` for each position that it
    computes, ``swap_us`` for each position copied to the host or back.

    The defaults are near an 8-billion-parameter model in 16 bits on one large accelerator: its
    weights, 16 GB, are read in every step (8 ms at 2 TB/s); a position takes 16 GFLOP (100 us at
    160 TFLOP/s, so a prompt is computed at 10,000 tokens/s at most); its K and V are 128 KiB
    (5 us at 26 GB/s).
    """

    step_us: int = 8_000
    token_us: int = 100
    swap_us: int = 5


@dataclass(frozen=True)
class SimConfig:
    """A server. Its memory is ``n_blocks`` blocks of ``block_tokens`` slots, whatever the scheme.

    ``max_len`` is what `Scheme.SLOT` reserves. At most ``max_running`` requests run at once.
    ``cache`` is a policy of eviction (`eviction.py` defines ``lru``, ``lru-tail``, ``lfu`` and
    ``length``), or "none"; only `Scheme.PAGED` can have one. ``sample_us`` asks for a `Sample`
    every so often, 0 for none.

    Raises ``InvalidArgumentError`` for a number that makes no sense, or a cache without pages.
    """

    n_blocks: int
    block_tokens: int = 16
    scheme: Scheme = Scheme.PAGED
    max_len: int = 2048
    max_running: int = 256
    victim: Victim = Victim.LIFO
    preemption: Preemption = Preemption.RECOMPUTE
    cache: str = NO_CACHE
    cost: Cost = Cost()
    sample_us: int = 0

    def __post_init__(self) -> None:
        for name in ("n_blocks", "block_tokens", "max_len", "max_running"):
            _at_least(1, name, getattr(self, name))
        for name in ("token_us", "swap_us"):
            _at_least(0, name, getattr(self.cost, name))
        _at_least(1, "step_us", self.cost.step_us)
        _at_least(0, "sample_us", self.sample_us)
        for name, kind in (("scheme", Scheme), ("victim", Victim), ("preemption", Preemption)):
            object.__setattr__(self, name, _member(kind, name, getattr(self, name)))
        if self.cache not in (NO_CACHE, *POLICIES) or self.cache == "belady":
            raise InvalidArgumentError(f"cache is {NO_CACHE} or a policy that can be built, not "
                                       f"{self.cache!r}")
        if self.cache != NO_CACHE and self.scheme is not Scheme.PAGED:
            raise InvalidArgumentError(f"only pages can be shared: {self.scheme} has no cache")

    @property
    def slots(self) -> int:
        """The whole memory, in slots."""
        return self.n_blocks * self.block_tokens


class Memory(NamedTuple):
    """Where the slots are: six shares of the memory, which together are all of it."""

    token: int = 0
    reserved: int = 0
    internal: int = 0
    external: int = 0
    cached: int = 0
    idle: int = 0

    def times(self, n: int) -> "Memory":
        """Return n times as much of each."""
        return Memory(*(n * slots for slots in self))

    def plus(self, other: "Memory") -> "Memory":
        """Return the sums, share by share."""
        return Memory(*map(int.__add__, self, other))


class Sample(NamedTuple):
    """The server at one moment: during the step that is running then, or idle. A moment at which
    one step ends and the next begins belongs to the next."""

    at_us: int  # 0, sample_us, 2 * sample_us and so on
    running: int  # how many requests run
    waiting: int  # how many have arrived and wait
    memory: Memory  # in slots


NOWHERE = Memory()


@dataclass
class Report:
    """What happened. `FIGURES` defines each figure; those in microseconds times something are
    sums over steps, each step's length times what was there during it."""

    requests: int = 0  # submitted, of which:
    refused: int = 0
    completed: int = 0
    cancelled: int = 0
    start_us: int = 0  # the first arrival
    end_us: int = 0  # of the last step
    steps: int = 0
    busy_us: int = 0  # the sum of the steps' lengths
    running_us: int = 0  # and times the requests that run in each
    peak_running: int = 0
    memory_us: Memory = NOWHERE  # slots times microseconds, summed over the steps
    pressed_us: int = 0  # the steps under pressure
    pressed_memory_us: Memory = NOWHERE
    computed_tokens: int = 0  # positions
    output_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    swapped_tokens: int = 0  # out and in
    evictions: int = 0  # blocks
    turns: dict[int, Hits] = field(default_factory=dict)  # of first admissions
    queue_us: "array[int]" = field(default_factory=lambda: array("q"))  # one per first admission
    ttft_us: "array[int]" = field(default_factory=lambda: array("q"))  # and in the same order
    samples: list[Sample] = field(default_factory=list)

    @property
    def hits(self) -> Hits:
        """All turns together."""
        return sum(self.turns.values(), Hits())

    @property
    def mean_running(self) -> float:
        return self.running_us / self.busy_us if self.busy_us else 0.0

    @property
    def output_rate(self) -> float:
        lasted = self.end_us - self.start_us
        return 1e6 * self.output_tokens / lasted if lasted > 0 else 0.0

    @property
    def waste(self) -> float:
        return self.recomputed_tokens / self.computed_tokens if self.computed_tokens else 0.0

    def shares(self, pressed: bool = False) -> dict[str, float]:
        """Return each share of the memory over the busy time, or over the time under pressure."""
        memory = self.pressed_memory_us if pressed else self.memory_us
        whole = sum(memory)
        return {name: slots / whole if whole else 0.0
                for name, slots in zip(Memory._fields, memory, strict=True)}


FIGURES = (
    ("requests", "", "requests submitted."),
    ("refused", "", "of them, those that the empty server has no room for; they never wait."),
    ("completed, cancelled", "", "those that gave all their tokens; those whose client went away "
     "before, waiting or running."),
    ("start, end", "us", "the first arrival, of a refused request too, and the end of the last "
     "step."),
    ("steps, busy time", "us", "steps, and their lengths together. Between two steps the server "
     "may be idle, with nobody there; that time is in no other figure."),
    ("peak and mean running", "", "requests that take part in a step: the most, and the mean over "
     "the busy time."),
    ("token", "slots", "positions whose K and V are there once the step is done. A block that "
     "several requests hold counts once."),
    ("reserved", "slots", "given to a running request, empty now, and used by that same request "
     "later, if nothing stops it."),
    ("internal", "slots", "given to a running request, and never used by it."),
    ("external", "slots", "lost between requests: what a piece was rounded up by to a power of "
     "two; and, under pressure, all that is free."),
    ("cached", "slots", "in blocks that nobody holds and the cache keeps: room at a moment's "
     "notice."),
    ("idle", "slots", "free, and not under pressure."),
    ("under pressure", "us", "the time of steps during which a request waits though fewer run than "
     "may: what it waits for is memory."),
    ("queueing", "us", "from a request's arrival to the beginning of the step in which it is "
     "admitted first."),
    ("TTFT", "us", "time to the first token: from its arrival to the end of that step."),
    ("computed", "tokens", "positions whose K and V were computed, again or for the first time."),
    ("output", "tokens", "tokens that requests gave, of cancelled ones too."),
    ("output rate", "tokens/s", "output tokens by the time from start to end."),
    ("preemptions", "", "times that a running request lost its memory and went on waiting."),
    ("recomputed", "tokens", "positions that a preempted request had, and had to compute again "
     "when it was admitted: not those that it found in the cache."),
    ("wasted work", "", "recomputed by computed tokens."),
    ("swapped", "tokens", "positions copied to the host's memory, and those copied back."),
    ("evictions", "blocks", "blocks that left the cache for somebody else's use."),
    ("block hit rate", "", "blocks found by whole named blocks of the prompts, at each request's "
     "first admission, with a cache or without; the block of the last token is never found."),
    ("token hit rate", "", "tokens in these blocks by tokens of the prompts. Both are given by "
     "turn, too."),
)
"""Every figure of a report: its name, its unit, and what it means."""


def _at_least(least: int, name: str, value: object) -> None:
    if type(value) is not int or value < least:
        raise InvalidArgumentError(f"{name} must be a whole number from {least} on, not {value!r}")


def _member(kind: type[StrEnum], name: str, value: object) -> StrEnum:
    try:
        return kind(value)  # type: ignore[arg-type]  # refused below
    except ValueError:
        raise InvalidArgumentError(f"{name} is {', '.join(kind)}, not {value!r}") from None
