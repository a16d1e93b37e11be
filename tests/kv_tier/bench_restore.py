"""`ol bench kv_tier`: a prefix of 10 MB, computed by the kit's engine and restored by your tier.

2,560 tokens of 4 KiB in blocks of 64. Computed: the time to the first token in an engine without a
cache. Restored: one call of ``find``, from memory and from disk (whose files the system is asked to
forget before each round). All take turns in random order; CPU time, one BLAS thread.
"""

import random
import tempfile
import time
from pathlib import Path

from grader.assertions import same
from tests.kv_tier.prefixes import (
    LONG,
    MODEL,
    TOKEN_BYTES,
    Computing,
    Restoring,
    Tell,
    Took,
    out_of_the_page_cache,
)
from tinyllm.kv_export import crc32c
from tinyllm.kv_tier import DiskStore, MemoryStore
from tinyllm.model import Model

ROUNDS = 5
_CAPACITY = 2 * LONG * TOKEN_BYTES
COMPUTED, RESTORED = ("computed", "computed again"), ("from memory", "from disk")


def checksum(prefix: bytes) -> float:
    """Return the CPU seconds that kv_export's checksum takes of as many bytes as are restored: it
    may be most of what a tier seems to cost."""
    data = bytes(len(prefix) * TOKEN_BYTES)
    started = time.process_time()
    crc32c(data)
    return time.process_time() - started


def main(tell: Tell) -> None:
    """Measure, tell a sample a round for each series, and prove that the answers agree."""
    chance = random.Random(0)
    prefix = chance.randbytes(LONG)
    model = Model(MODEL)
    engine = Computing(model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        disk = DiskStore(folder, _CAPACITY)
        tiers = {"from memory": Restoring(model, MemoryStore(_CAPACITY), prefix),
                 "from disk": Restoring(model, disk, prefix)}
        _, token = engine.first_token(prefix)
        for series, tier in tiers.items():
            same(tier.last_token(), token, f"the token after the prefix, restored {series}")
        for number in range(ROUNDS):
            for series in chance.sample([*COMPUTED, *RESTORED], 4):
                took: Took
                if series in COMPUTED:
                    took, _ = engine.first_token(prefix)
                else:
                    out_of_the_page_cache(folder)
                    took = tiers[series].restore(LONG)
                tell("sample", series=series, round=number, cpu=took.cpu, wall=took.wall,
                     counts={"tokens computed": LONG if series in COMPUTED else 0})
        disk.close()
    tell("share", series="from disk", seconds=checksum(prefix))
