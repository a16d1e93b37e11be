"""How fast the second tier is: rows of `make bench-kit`, or alone.

    python -m tests.kit.bench.tier
"""

import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tests.kv_tier import demo_break_even as demo
from tests.kv_tier.prefixes import LONG, MODEL, TOKEN_BYTES, Computing, Restoring
from tests.kv_tier.prefixes import out_of_the_page_cache as forget
from tinyllm.kv_tier import DiskStore
from tinyllm.model import Model

_ROUNDS = 5
Row = Callable[[str, str], None]


def main(row: Row) -> None:
    """Time 10 MB computed and restored from disk, and compare the break-evens."""
    model, prefix = Model(MODEL), random.Random(0).randbytes(LONG)
    engine = Computing(model)
    with tempfile.TemporaryDirectory() as name:
        store = DiskStore(name, 4 * LONG * TOKEN_BYTES)
        tier = Restoring(model, store, prefix)
        computed, restored = [], []
        for _ in range(_ROUNDS):
            forget(Path(name))
            restored.append(tier.restore(LONG))
            computed.append(engine.first_token(prefix)[0])
        store.close()
    cpu, wall = (statistics.median(by[at] for by in restored) for at in (0, 1))
    row(f"{LONG * TOKEN_BYTES / 1e6:.1f} MB restored from disk",
        f"{1e3 * cpu:6.1f} ms CPU, {1e3 * wall:.1f} ms wall")
    row("computed by the engine", f"{1e3 * statistics.median(c.cpu for c in computed):6.1f} ms CPU")
    ratio = statistics.median(c.wall / r.wall for c, r in zip(computed, restored, strict=True))
    row("computed / restored, wall time", f"{ratio:6.1f}     (aim: at least 3)")
    times = demo.measured(random.Random(0))
    for device in demo.FAR:
        real = demo.crossing(times["computed"], demo.at(device, times["memory"]))
        paper = demo.on_paper(device, times)
        row(f"break-even, {device.name}", f"{real:6.0f} tokens, {paper:.0f} on paper   "
            "(aim: within a factor of 1.5)")


if __name__ == "__main__":
    main(lambda name, figure: print(f"  {name:<34} {figure}", flush=True))
