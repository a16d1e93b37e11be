"""`ol demo kv_tier`: from how many tokens on a prefix is restored sooner than computed, measured
and on paper."""

import random
import tempfile
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from tests.kv_tier.prefixes import (
    BLOCK,
    MODEL,
    TOKEN_BYTES,
    Computing,
    Restoring,
    Tell,
    out_of_the_page_cache,
)
from tinyllm.kv_tier import DiskStore, MemoryStore, break_even
from tinyllm.model import Model

ROUNDS = 4
LENGTHS = tuple(BLOCK * n for n in (1, 2, 3, 4, 6, 8, 12, 16))
AT = 384  # tokens: the length at which paper takes its rates


class Device(NamedTuple):
    """A place far from the pool, ``latency`` seconds away, that gives ``bandwidth`` bytes/s."""

    name: str
    latency: float
    bandwidth: float

    @property
    def head(self) -> str:
        return f"{1e3 * self.latency:g} ms,\n{self.bandwidth / 1e6:g} MB/s"


FAR = (Device("near", 0.015, 100e6), Device("far", 0.030, 60e6), Device("farther", 0.060, 100e6))

# On paper: a model of 8 billion weights keeps 128 KiB a token, its prefill rate is the server's.
PAPER_BYTES = 131_072
PAPER_RATES = (2_000, 10_000, 40_000)
PAPER = (
    Device("host memory, PCIe 4", 0.000_02, 25e9),
    Device("an NVMe disk", 0.000_1, 5e9),
    Device("a network of 25 Gbit/s", 0.001, 3e9),
    Device("a network of 10 Gbit/s", 0.001, 1.2e9),
    Device("an object store", 0.050, 0.5e9),
)

Times = dict[str, dict[int, float]]  # series -> tokens -> seconds


def main(tell: Tell) -> None:
    """Measure, tell the tables, and draw both charts."""
    times = measured(random.Random(0))
    _tell_times(tell, times)
    _tell_break_evens(tell, times)
    _tell_paper(tell)


def measured(chance: random.Random) -> Times:
    """Return the time of each way and length, the least of some rounds: what else the machine does
    makes it longer, never shorter. CPU time, but for the disk, where waiting is what it costs."""
    prefix, model = chance.randbytes(LENGTHS[-1]), Model(MODEL)
    engine = Computing(model)
    taken: dict[str, dict[int, list[float]]] = {
        name: {n: [] for n in LENGTHS} for name in ("computed", "memory", "disk")}
    capacity = 4 * LENGTHS[-1] * TOKEN_BYTES
    with tempfile.TemporaryDirectory() as name:
        store = DiskStore(name, capacity)
        memory = Restoring(model, MemoryStore(capacity), prefix)
        disk = Restoring(model, store, prefix)
        engine.first_token(prefix[:BLOCK])
        for _ in range(ROUNDS):
            for n in chance.sample(LENGTHS, len(LENGTHS)):
                taken["computed"][n].append(engine.first_token(prefix[:n])[0].cpu)
                out_of_the_page_cache(Path(name))
                taken["memory"][n].append(memory.restore(n).cpu)
                taken["disk"][n].append(disk.restore(n).wall)
        store.close()
    return {series: {n: min(all_) for n, all_ in by.items()}
            for series, by in taken.items()}


def crossing(computed: dict[int, float], restored: dict[int, float]) -> float:
    """Return from how many tokens on restoring is the faster way, on straight lines between the
    lengths measured: 0 where it is from the first, infinity where it never is."""
    ahead = [(n, computed[n] - restored[n]) for n in sorted(computed)]
    if ahead[0][1] >= 0:
        return 0.0
    for (n, before), (more, after) in pairwise(ahead):
        if after >= 0:
            return n + (more - n) * -before / (after - before)
    return inf


def at(device: Device, restored: dict[int, float]) -> dict[int, float]:
    """Return the times with the device's own added: what it would take from there."""
    return {n: seconds + device.latency + n * TOKEN_BYTES / device.bandwidth
            for n, seconds in restored.items()}


def on_paper(device: Device, times: Times) -> float:
    """Return the break-even by the formula, with the rates that were measured at one length."""
    own = times["memory"][AT] / AT  # seconds to check and import a token, wherever it comes from
    bandwidth = TOKEN_BYTES / (TOKEN_BYTES / device.bandwidth + own)
    return break_even(TOKEN_BYTES, bandwidth, AT / times["computed"][AT], device.latency)


def _tell_times(tell: Tell, times: Times) -> None:
    rows = {"computed": times["computed"], "memory": times["memory"], "disk": times["disk"],
            **{device.name: at(device, times["memory"]) for device in FAR}}
    tell("text", text=f"""\
A prefix computed by the kit's engine, and restored by the tier: ms of CPU time, from disk
of wall time, the least of {ROUNDS} rounds. A token has {TOKEN_BYTES:,} bytes of K and V. The last
three columns are what memory takes, with a place's latency and bandwidth added by calculation.
""")
    tell("table", columns=[("tokens", -7), ("computed", -9), ("from\nmemory", -8),
                           ("from\ndisk", -8), *((device.head, -9) for device in FAR)])
    for n in LENGTHS:
        tell("row", cells=[n, *(f"{1e3 * by[n]:.1f}" for by in rows.values())])
    tell("chart", id="break-even", form="lines", dots=True,
         title="A prefix computed, and restored from five places",
         says="Where a line crosses that of computing, restoring begins to pay.",
         x="tokens of the prefix", y="ms",
         series=[{"name": name, "points": [[n, 1e3 * by[n]] for n in LENGTHS]}
                 for name, by in rows.items()])


def _tell_break_evens(tell: Tell, times: Times) -> None:
    rate, own = AT / times["computed"][AT], 1e6 * times["memory"][AT] / AT
    tell("text", text=f"""
The break-even in tokens. On paper: latency / (1 / prefill rate - bytes a token / bandwidth), with
what was measured at {AT} tokens: {rate:,.0f} tokens/s, {own:.0f} us a token to check and import.
""")
    tell("table", columns=[("restored from", 16), ("measured", -12), ("on paper", -10),
                           ("ratio", -7)])
    for name in ("memory", "disk"):
        tell("row", cells=[name, _said(crossing(times["computed"], times[name])), "", ""])
    for device in FAR:
        real = crossing(times["computed"], at(device, times["memory"]))
        paper = on_paper(device, times)
        ratio = f"{real / paper:.2f}" if 0 < real < inf and 0 < paper < inf else "–"
        tell("row", cells=[device.name, _said(real), _said(paper), ratio])


def _tell_paper(tell: Tell) -> None:
    tell("text", text=f"""
On paper, with {PAPER_BYTES // 1024} KiB a token: the break-even in tokens, by prefill rate.
""")
    tell("table", columns=[("restored from", 24), *((f"{r:,}\ntokens/s", -10)
                                                          for r in PAPER_RATES)])
    for device in PAPER:
        cells = [break_even(PAPER_BYTES, device.bandwidth, rate, device.latency)
                 for rate in PAPER_RATES]
        tell("row", cells=[device.name, *("never" if n == inf else f"{n:,.1f}" for n in cells)])
    bandwidths = [1e8 * 10 ** (step / 100) for step in range(251)]
    tell("chart", id="paper", form="lines", log_x=True,
         title="The break-even by bandwidth, at a latency of 10 ms",
         says="Each line begins at the bandwidth below which restoring never pays.",
         x="GB/s", y="tokens",
         series=[{"name": f"{rate:,} tokens/s",
                  "points": [[b / 1e9, n] for b in bandwidths
                             if (n := break_even(PAPER_BYTES, b, rate, 0.010)) <= 2000]}
                 for rate in PAPER_RATES])


def _said(n: float) -> str:
    return "never" if n == inf else f"< {LENGTHS[0]}" if n == 0 else f"{n:,.0f}"
