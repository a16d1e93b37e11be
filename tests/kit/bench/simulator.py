"""How fast the simulator is: rows of `make bench-kit`, or alone with traces that you have.

    python -m tests.kit.bench.simulator [TRACE]

TRACE, or what OL_TRACE names, is a trace in Mooncake's format. Without one it is made up, of the
same shape: 4,000 requests of some 30 blocks of 512 tokens.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from random import Random

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tinyllm.cache_replay import Replay
from tinyllm.eviction import policy
from tinyllm.simulation import SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request
from tinyllm.trace_files import TraceFile

_ROUNDS, _MILLION, _SHIFT = 5, 1_000_000, 1 << 32
Row = Callable[[str, str], None]


def main(row: Row, name: str | None = None) -> None:
    """Time replays and simulations of a trace, CPU time, and a million requests in a process of
    their own."""
    name = name or os.environ.get("OL_TRACE")
    requests = list(TraceFile(name)) if name else list(made_up(4000))
    row("simulator: the trace", f"{name or 'made up'}, {len(requests):,} requests")
    row("cache alone, lru, 10,000 blocks", f"{_rate(lambda: _replay(requests, 10_000)):7,.0f} "
        "requests/s   (aim: at least 40,000)")
    row("server, paged, 10,000 blocks", f"{_rate(lambda: _serve(requests)):7,.0f} requests/s")
    row("server with a cache", f"{_rate(lambda: _serve(requests, cache='lru')):7,.0f} requests/s")
    _growth(requests, row)
    million = [sys.executable, "-m", "tests.kit.bench.simulator", "--million"]
    million += [name] if name else []
    told = subprocess.run(million, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    seconds, megabytes = map(float, told.split())
    row("a million requests", f"{seconds:6.1f} s CPU, {megabytes:,.0f} MB   "
        "(aim: at most 30 s, 400 MB)")


def made_up(n: int) -> Iterator[Request]:
    """Make up requests of Mooncake's shape: sessions whose prompts grow by some blocks a turn."""
    random, names = Random(0), iter(range(1 << 40))
    fronts = [[next(names) for _ in range(random.randint(1, 6))] for _ in range(40)]
    sessions: list[list[int]] = []
    for id_ in range(n):
        if sessions and random.random() < 0.55:
            blocks = random.choice(sessions[-300:])
        else:
            blocks = list(random.choice(fronts))
            sessions.append(blocks)
        blocks += [next(names) for _ in range(1 + int(random.expovariate(1 / 11)))]
        del blocks[240:]
        yield Request(id_, 256_000 * id_, 512 * len(blocks), 1 + int(random.expovariate(1 / 149)),
                      tuple(blocks))


def repeated(requests: list[Request], n: int) -> Iterator[Request]:
    """Repeat a trace, each time with other names and later arrivals."""
    lasts = requests[-1].arrival_us + 1
    for again in range(-(-n // len(requests))):
        for request in requests[: n - again * len(requests)]:
            yield request._replace(
                arrival_us=request.arrival_us + again * lasts,
                blocks=tuple(int(str(name)) + again * _SHIFT for name in request.blocks),
                partial=None)


def _replay(requests: list[Request], n_blocks: int) -> int:
    one = Replay(policy("lru"), n_blocks, 512)
    for request in requests:
        one.serve(request)
    return len(requests)


def _serve(requests: list[Request], cache: str = "none") -> int:
    Simulator(SimConfig(10_000, 512, cache=cache)).run(requests)
    return len(requests)


def _rate(work: Callable[[], int]) -> float:
    """Return requests a second of CPU time, the median of some rounds."""
    rates = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        done = work()
        rates.append(done / (time.process_time() - started))
    return statistics.median(rates)


def _growth(requests: list[Request], row: Row) -> None:
    """Time four times the requests, and sixteen times the pool."""
    often = list(repeated(requests, 4 * len(requests)))
    more, larger = [], []
    for _ in range(_ROUNDS):
        once = _seconds(lambda: _replay(requests, 2_000))
        more.append(_seconds(lambda: _replay(often, 2_000)) / once)
        larger.append(_seconds(lambda: _replay(often, 32_000))
                      / _seconds(lambda: _replay(often, 2_000)))
    row("four times the requests", f"{statistics.median(more):5.2f} times the time   (linear: 4)")
    row("sixteen times the pool", f"{statistics.median(larger):5.2f} times the time")


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _million(name: str | None) -> None:
    """Print CPU seconds and megabytes of a replay of a million requests, as a stream."""
    requests = list(TraceFile(name)) if name else list(made_up(4000))
    started = time.process_time()
    one = Replay(policy("lru"), 10_000, 512)
    for request in repeated(requests, _MILLION):
        one.serve(request)
    scale = 1e6 if sys.platform == "darwin" else 1e3
    print(time.process_time() - started,
          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--million"]
    given = words[0] if words else None
    if "--million" in sys.argv:
        _million(given)
    else:
        main(lambda name, figure: print(f"  {name:<34} {figure}", flush=True), given)
