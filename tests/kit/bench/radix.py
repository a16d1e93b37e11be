"""What the radix cache costs a block, with 4,096 and with 65,536 of them: figures, never a verdict.

The traffic is a server's: 20 system prompts of 64 to 448 tokens, the first ones far more often than
the last; prompts of 200 to 600 tokens that begin with one of them; 64 tokens of answer; blocks of
16; 64 requests in flight. A request matches and locks when it begins; when it ends, room is made,
its prompt and answer are inserted, and the lock goes.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tinyllm.radix_cache import RadixCache

SIZES = (4_096, 65_536)
_B, _IN_FLIGHT, _REQUESTS, _ROUNDS = 16, 64, 1_500, 5


class Traffic:
    """One cache under the traffic above. ``spent`` and ``blocks`` are counted by the name of the
    call: nanoseconds of CPU, and the blocks that the calls went through."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.random, self.capacity = Random(seed), capacity
        self.cache = RadixCache(_B)
        self.fronts = [self.text(self.random.randint(64, 448)) for _ in range(20)]
        self.ids = 0
        self.spent: Counter[str] = Counter()
        self.blocks: Counter[str] = Counter()
        while len(self.cache) < capacity - 64:
            self.store(self.prompt() + self.text(64))
        self.spent.clear()
        self.blocks.clear()

    def text(self, n: int) -> list[int]:
        return [self.random.randrange(50_000) for _ in range(n)]

    def prompt(self) -> list[int]:
        (front,) = self.random.choices(self.fronts, [1 / at for at in range(1, 21)])
        n = self.random.randint(200, 600)
        return (front + self.text(n))[:n]

    def timed(self, call: Callable[..., Any], *args: Any, blocks: int = 0) -> Any:
        """Make a call and account for it; ``blocks`` is how many it goes through."""
        started = time.process_time_ns()
        result = call(*args)
        self.spent[call.__name__] += time.process_time_ns() - started
        self.blocks[call.__name__] += blocks
        return result

    def store(self, tokens: list[int]) -> None:
        n = len(tokens) // _B
        ids = list(range(self.ids, self.ids + n))
        self.ids += n
        self.timed(self.cache.insert, tokens, ids, blocks=n)

    def serve(self, n_requests: int) -> None:
        running: list[tuple[list[int], Any]] = []
        for _ in range(n_requests):
            tokens = self.prompt()
            found = self.timed(self.cache.match, tokens[:-1])
            self.blocks["match"] += len(found.blocks)
            self.timed(self.cache.lock, found.node, blocks=len(found.blocks))
            running.append((tokens + self.text(64), found))
            if len(running) < _IN_FLIGHT:
                continue
            tokens, found = running.pop(0)
            short = max(0, len(self.cache) + len(tokens) // _B - self.capacity)
            self.timed(self.cache.evict, short, blocks=short)
            self.store(tokens)
            self.timed(self.cache.unlock, found.node, blocks=len(found.blocks))


def main() -> None:
    """Print microseconds a block for each call, and a request in all, for both sizes."""
    names = ("match", "lock", "insert", "unlock", "evict")
    rows: dict[int, list[list[float]]] = {size: [] for size in SIZES}
    for again in range(_ROUNDS):
        for size in SIZES:  # in turn, so that both see the same machine
            traffic = Traffic(size, seed=again)
            traffic.serve(_REQUESTS)
            each = [traffic.spent[name] / max(traffic.blocks[name], 1) / 1e3 for name in names]
            rows[size].append([*each, sum(traffic.spent.values()) / _REQUESTS / 1e3])
    for size, taken in rows.items():
        *each, request = (statistics.median(column) for column in zip(*taken, strict=True))
        said = ", ".join(f"{name} {us:.2f}" for name, us in zip(names, each, strict=True))
        print(f"  radix cache, {size:>6,} blocks: {said} us CPU a block; {request:.0f} a request")
    print(f"  from {SIZES[0]:,} to {SIZES[1]:,} blocks a request costs "
          f"{_growth(rows, -1):.2f} times as much   (aim: at most 1.3)")
    print(f"  from {SIZES[0]:,} to {SIZES[1]:,} blocks one dropped block costs "
          f"{_growth(rows, names.index('evict')):.2f} times as much   (aim: at most 2; a search "
          f"through all leaves: {SIZES[1] // SIZES[0]})", flush=True)


def _growth(rows: dict[int, list[list[float]]], column: int) -> float:
    """Return the median over the rounds of the larger cache's cost divided by the smaller one's."""
    small, large = rows.values()
    return statistics.median(b[column] / a[column] for a, b in zip(small, large, strict=True))
