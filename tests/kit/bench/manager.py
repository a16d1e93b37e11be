"""The block manager under load: `make bench-kit` prints it; figures, never a verdict.

The workload has 2,000 requests. Each begins with one of 20 shared prefixes of 64 to 448 tokens, the
k-th of them chosen with weight 1/k, has 200 to 600 tokens in all, cut within the prefix if need be,
and generates 64 more. Tokens are bytes, blocks have 16 positions. Everything follows from the seed,
which is one whose hit rate in a cache without an end is near that of the published comparisons.

CPU time is that of the process, so other programs hardly count; of several rounds, each of which
measures every case once, the least and the middle one are shown. A request's time is everything
that the manager does for it, from its admission to its release, with all of its slots.
"""

import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.block_manager import BlockManager
from tinyllm.kv_pool import KvPool, PoolConfig

SEED, REQUESTS, PREFIXES, GENERATED = 277, 2000, 20, 64
SIZE, IN_FLIGHT, ROUNDS = 16, 64, 5
SMALL, LARGE = 4_096, 65_536
NO_END = 80_000  # more blocks than all requests together have: nothing is ever evicted


class Request(NamedTuple):
    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Case:
    """What is measured: a mode, a pool, and how many requests are live at once."""

    mode: str
    n_blocks: int
    live: int = IN_FLIGHT


def workload(seed: int = SEED, n: int = REQUESTS) -> list[Request]:
    """Return the requests, in the order in which they come."""
    source = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [source.randrange(256) for _ in range(count)]

    prefixes = [tokens(source.randint(64, 448)) for _ in range(PREFIXES)]
    weights = [1 / k for k in range(1, PREFIXES + 1)]
    requests = []
    for _ in range(n):
        (prefix,) = source.choices(prefixes, weights)
        length = source.randint(200, 600)
        shared = prefix[: length - 1]
        prompt = [*shared, *tokens(length - len(shared))]
        requests.append(Request(prompt, tokens(GENERATED)))
    return requests


def serve(manager: BlockManager, requests: Sequence[Request], live: int) -> float:
    """Serve all requests and return the CPU time of one, in microseconds.

    One request is admitted a step, as soon as fewer than ``live`` are there; every live one gets a
    share of its slots a step, so that it stays for ``live`` steps.
    """
    share = GENERATED // live
    running: deque[tuple[int, Request]] = deque()
    started = time.process_time()
    for id, request in enumerate(requests):
        manager.allocate(id, request.prompt)
        running.append((id, request))
        for other, _ in running:
            for _ in range(share):
                manager.append_slot(other)
        if len(running) == live:
            done, ended = running.popleft()
            manager.release(done, ended.prompt + ended.answer)
    for id, request in running:  # those that the end of the workload cut short
        manager.release(id, request.prompt)
    return 1e6 * (time.process_time() - started) / len(requests)


def measure(case: Case, requests: Sequence[Request]) -> tuple[float, float]:
    """Return a request's CPU time in microseconds and the hit rate, in a pool of its own."""
    config = PoolConfig(case.n_blocks, SIZE, n_layers=1, n_kv_heads=1, head_dim=1)
    manager = BlockManager(KvPool(config), case.mode)
    return serve(manager, requests, case.live), manager.hit_rate


def manager(row: Callable[[str, str], None]) -> None:
    """Measure all cases and give each to ``row``, its name and its figure."""
    requests = workload()
    cases = [Case(mode, n, live) for mode in ("none", "hash", "radix")
             for n, live in ((SMALL, 1), (SMALL, IN_FLIGHT), (LARGE, IN_FLIGHT))]
    times: dict[Case, list[float]] = {case: [] for case in cases}
    rates: dict[Case, float] = {}
    for _ in range(ROUNDS):
        for case in cases:
            taken, rates[case] = measure(case, requests)
            times[case].append(taken)
    aims = {"hash": 200, "radix": 150}
    for case, rounds in times.items():
        aim = f", aim: at most {aims[case.mode]}" if case.mode in aims and case.live > 1 else ""
        row(f"{case.mode}, {case.n_blocks} blocks, {case.live} live",
            f"{min(rounds):6.0f} us a request   (middle {statistics.median(rounds):.0f}{aim})")
    for mode in aims:
        small, large = (min(times[Case(mode, n)]) for n in (SMALL, LARGE))
        row(f"{mode}, {LARGE} blocks / {SMALL}", f"{large / small:6.2f}   (aim: at most 1.3)")
    for live in (1, IN_FLIGHT):
        _, ideal = measure(Case("hash", NO_END, live), requests)
        for n in (SMALL, LARGE):
            both = [rates.get(Case(mode, n, live)) or measure(Case(mode, n, live), requests)[1]
                    for mode in aims]
            row(f"hit rate, {n} blocks, {live} live",
                f"{both[0]:6.4f} hash, {both[1]:.4f} radix   (without an end {ideal:.4f})")


if __name__ == "__main__":
    manager(lambda name, figure: print(f"  {name:<34} {figure}", flush=True))
