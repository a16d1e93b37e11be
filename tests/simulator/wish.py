"""What `ol simulate` is asked for, and the parts that this makes.

A part is `serve`, a server's whole run, or `cache`, the replay of a cache alone at several sizes.
Its `role` says where in the report it goes.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from tests.simulator.words import counted
from tinyllm.errors import InvalidArgumentError
from tinyllm.eviction import POLICIES
from tinyllm.simulation import NO_CACHE, Cost, Preemption, Scheme, SimConfig, Victim
from tinyllm.trace import Request, renamed
from tinyllm.trace_files import TraceFile
from tinyllm.workload import BLOCK_TOKENS, generate, preset

PRESET = "preset:"
_POOL_GIB = 8.0
_POOL_REQUESTS = 4  # of the longest that a pool whose size nobody gave has room for, at least
_SAMPLES = 160  # of a chart over time, as long as requests arrive
_MANY = 200_000  # requests, from which on ways to preempt are not compared
_HUGE = 4_000_000  # blocks asked for, from which on no future and no cache without end fits memory
_PREEMPTION = "preemption"  # what --compare calls all ways to preempt
_ALL = "all"
_BY_DEFAULT = (Scheme.SLOT.value, Scheme.PAGED.value, "lru", "belady")
"""What is compared where nothing is said: what pages and a cache buy, and how far the cache is from
the best one. All of it takes several times as long."""
_SIZES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)  # of a cache, in pools


@dataclass(frozen=True)
class Trace:
    """A trace that was looked through once: where it is, and what it is like."""

    name: str
    format: str
    skip_bad: bool = False
    block_size: int | None = None  # of the trace, where its format does not say it
    seed: int = 0
    n_requests: int = 0
    skipped: int = 0
    first_bad: str = ""
    first_us: int = 0
    last_us: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    longest: int = 0
    named_tokens: int = 0
    names: bool = False
    turns: bool = False
    largest_slots: int = 0

    def huge(self, block_tokens: int) -> bool:
        """True where it asks for so many blocks that they cannot all be remembered."""
        return self.prompt_tokens > _HUGE * block_tokens

    def requests(self, block_tokens: int | None = None) -> Iterator[Request]:
        """Read, or make, the requests, with names for blocks of this size."""
        if self.format == "made":
            for request in generate(preset(self.name.removeprefix(PRESET)), self.n_requests,
                                    self.seed):
                size = block_tokens or BLOCK_TOKENS
                names = cast(tuple[int, ...], request.blocks)
                yield request if size == BLOCK_TOKENS else request._replace(blocks=renamed(
                    list(names), BLOCK_TOKENS, size,
                    request.prompt_tokens + request.output_tokens))
            return

        yield from self.file(block_tokens)

    def file(self, block_tokens: int | None) -> TraceFile:
        """Return the file of a trace that is not made up."""
        return TraceFile(self.name, block_tokens, block_size=self.block_size,
                         skip_bad=self.skip_bad, check=self.check)

    def check(self, request: Request) -> None:
        """Refuse a request that is larger than the pool that was asked for."""
        if self.largest_slots and request.slots > self.largest_slots:
            advice = "" if self.skip_bad or self.format == "made" else \
                "; give it more blocks, or pass over such lines with --skip-bad"
            raise InvalidArgumentError(
                f"it has {request.prompt_tokens} + {request.output_tokens} tokens, and the whole "
                f"pool has room for {self.largest_slots}{advice}")


@dataclass(frozen=True)
class Plan:
    """The server that was asked for, the same for every trace."""

    n_blocks: int
    block_tokens: int
    max_len: int
    max_running: int
    victim: str
    preemption: str
    policy: str | None
    kv_kib: float
    cost: dict[str, int]
    enlarged: bool = False  # nobody said how large it is, and the longest request wants more
    left: tuple[str, ...] = ()  # what could be compared, too, where nobody said what

    def config(self, trace: Trace, **changes: Any) -> SimConfig:
        """Return the server's config, with some changes."""
        given = {"n_blocks": self.n_blocks, "block_tokens": self.block_tokens,
                 "max_len": self.max_len, "max_running": self.max_running, "victim": self.victim,
                 "preemption": self.preemption, "cost": Cost(**self.cost), **changes}
        if given.pop("samples", False):
            given["sample_us"] = max(trace.last_us // _SAMPLES, 1000)
        return SimConfig(**given)

    def gib(self, n_blocks: int | None = None) -> float:
        """Return how large the pool is, or one of so many blocks."""
        return (n_blocks or self.n_blocks) * self.block_tokens * self.kv_kib / (1 << 20)


def planned(wish: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Look through each trace, and tell the parts of its study, each with its weight.

    Raises ``InvalidArgumentError`` for a trace or a wish that makes no sense.
    """
    compare, policy = _compared(wish)
    left = () if wish["compare"] else tuple(w for w in _known() if w not in compare)
    for name in wish["traces"]:
        trace, plan = _looked_through(name, wish, policy)
        plan = replace(plan, left=left)
        plan.config(trace)
        common = {"trace": asdict(trace), "plan": asdict(plan)}
        yield {"do": "trace", "weight": 0, **common}
        for part in _parts(trace, plan, wish, compare):
            yield {"weight": trace.n_requests, **common, **part}


def _parts(trace: Trace, plan: Plan, wish: dict[str, Any],
           compare: list[str]) -> Iterator[dict[str, Any]]:
    for scheme in Scheme:
        if scheme in compare:
            yield _server(scheme.value, scheme=scheme.value)
            yield {"do": "serve", "label": scheme.value, "role": "crowd",
                   "server": {"scheme": scheme.value}}
    cache = plan.policy if trace.names and plan.policy != "belady" else None
    if cache:
        yield _server(f"paged, cache {cache}", scheme="paged", cache=cache)
    if len(wish["blocks"]) > 1:
        for blocks in sorted(wish["blocks"]):
            yield {"do": "serve", "label": f"{blocks:,}", "role": "pool",
                   "server": {"n_blocks": blocks, "cache": cache or NO_CACHE}}
    if trace.n_requests < _MANY and _PREEMPTION in compare:
        for preemption in Preemption:
            for victim in Victim:
                yield {"do": "serve", "label": f"{victim}, {preemption}", "role": "preemption",
                       "server": {"victim": victim.value, "preemption": preemption.value}}
    if trace.names:
        sizes = _cache_sizes(trace, plan, wish)
        for policy in POLICIES:
            if policy in compare and not (policy == "belady" and trace.huge(plan.block_tokens)):
                yield {"do": "cache", "role": "policy", "policy": policy, "blocks": sizes,
                       "block_tokens": plan.block_tokens}
    for size in wish["block_tokens"][1:]:
        blocks = plan.n_blocks * plan.block_tokens // size
        yield {"do": "serve", "label": f"blocks of {size}", "role": "size",
               "server": {"block_tokens": size, "n_blocks": blocks}}
        if trace.names and plan.policy:
            yield {"do": "cache", "role": "size", "policy": plan.policy, "blocks": [blocks],
                   "block_tokens": size}


def _server(label: str, **server: Any) -> dict[str, Any]:
    return {"do": "serve", "label": label, "role": "scheme", "server": {**server, "samples": True}}


def _cache_sizes(trace: Trace, plan: Plan, wish: dict[str, Any]) -> list[int | None]:
    """Return the sizes of cache to try: those asked for, or some around the pool's; and none, for
    a cache without end, where it can be kept."""
    asked = wish["blocks"]
    sizes = asked if len(asked) > 1 else [max(1, round(plan.n_blocks * n)) for n in _SIZES]
    return [*sorted({*sizes, plan.n_blocks}), *([] if trace.huge(plan.block_tokens) else [None])]


def _compared(wish: dict[str, Any]) -> tuple[list[str], str | None]:
    """Return the schemes and policies to compare, and the policy of the server's cache: the one
    asked for; without that lru, or where only some are compared, the first of those, if any."""
    known = _known()
    wanted, policy = wish["compare"] or list(_BY_DEFAULT), wish["policy"]
    for word in wanted:
        if word not in (*known, _ALL):
            raise InvalidArgumentError(f"--compare takes {_ALL} or some of {', '.join(known)}, not "
                                       f"{word!r}")
    if _ALL in wanted:
        wanted = known
    if policy is None:
        policy = next((w for w in wanted if w in POLICIES), None)
    elif policy not in POLICIES:
        raise InvalidArgumentError(f"--policy is {', '.join(POLICIES)}, not {policy!r}")
    return [*wanted, *([policy] if policy else [])], policy


def _known() -> list[str]:
    """Return all words that --compare takes, but for the one that stands for all of them."""
    return [*(scheme.value for scheme in Scheme), *POLICIES, _PREEMPTION]


def _looked_through(name: str, wish: dict[str, Any], policy: str | None) -> tuple[Trace, Plan]:
    """Read a trace once, and settle the server: with a pool that was asked for, each request must
    fit into it."""
    asked = wish["block_tokens"][0] if wish["block_tokens"] else None
    if name.startswith(PRESET):
        preset(name.removeprefix(PRESET))
        named, format_ = BLOCK_TOKENS, "made"
        size = asked or BLOCK_TOKENS
        renamed([], named, size, 0)
    else:
        file = TraceFile(name, asked, block_size=wish["block_size"])
        size, named, format_ = file.block_tokens, file.named_tokens, file.format
    for other in wish["block_tokens"][1:]:
        if named:
            renamed([], named, other, 0)
    per_block = size * wish["kv_kib"] / (1 << 20)
    blocks = wish["blocks"][0] if wish["blocks"] else None
    if wish["pool_gb"]:
        blocks = int(wish["pool_gb"] / per_block)
        if not blocks:
            raise InvalidArgumentError(f"--pool-gb {wish['pool_gb']:g} is less than one block of "
                                       f"{counted(size, 'token')}, {1024 * per_block:.3g} MiB")
    largest = blocks * size if blocks else 0
    known: dict[str, Any] = {"name": name, "format": format_, "skip_bad": wish["skip_bad"],
                             "block_size": wish["block_size"], "seed": wish["seed"],
                             "named_tokens": named,
                             "largest_slots": largest, "n_requests": wish["requests"]}
    known |= _counted(Trace(**known), size)
    longest, enlarged = known["longest"], False
    if blocks is None:
        least = _POOL_REQUESTS * -(-longest // size)
        blocks = max(int(_POOL_GIB / per_block), least)
        enlarged = blocks == least
    plan = Plan(blocks, size, wish["max_len"] or 1 << (longest - 1).bit_length(),
                wish["max_running"], wish["victim"], wish["preemption"], policy,
                wish["kv_kib"], wish["cost"], enlarged)
    return Trace(**known), plan


def _counted(trace: Trace, size: int) -> dict[str, Any]:
    counts = {"n_requests": 0, "prompt_tokens": 0, "output_tokens": 0, "longest": 0,
              "first_us": 0, "last_us": 0}
    names = turns = False
    file: Any = trace
    source: Iterator[Request]
    if trace.format == "made":
        source = trace.requests(size)
    else:
        file = trace.file(size)
        source = iter(file)
    for request in source:
        if trace.format == "made":
            trace.check(request)
        if not counts["n_requests"]:
            counts["first_us"] = request.arrival_us
        counts["n_requests"] += 1
        counts["prompt_tokens"] += request.prompt_tokens
        counts["output_tokens"] += request.output_tokens
        counts["longest"] = max(counts["longest"], request.slots)
        counts["last_us"] = request.arrival_us
        names = names or bool(request.blocks)
        turns = turns or request.turn > 1
    return {**counts, "names": names, "turns": turns, "skipped": file.skipped,
            "first_bad": file.first_bad}
