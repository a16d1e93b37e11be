"""`make bench-kit`: how fast the kit is, in ratios taken in one run. Figures, never a verdict."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tests.kit.bench import c as bench_c
from tests.kit.bench import diagnosis as bench_diagnosis
from tests.kit.bench import manager as bench_manager
from tests.kit.bench import mutation as bench_mutation
from tests.kit.bench import radix as bench_radix
from tests.kit.bench import simulator as bench_simulator
from tests.kit.bench import tier as bench_tier
from tinyllm.kv_export import crc32c, export_blocks, import_blocks
from tinyllm.kv_pool import KvPool, PoolConfig

_ROUNDS = 7


def main() -> None:
    print(f"{os.cpu_count()} processors, Python {sys.version.split()[0]}, medians of {_ROUNDS} "
          "rounds, wall time\n")
    checks()
    reference()
    bench_radix.main()
    bench_manager.manager(_row)
    bench_diagnosis.main()
    bench_mutation.main()
    bench_c.programs_in_c(_row)
    bench_simulator.main(_row)
    bench_tier.main(_row)
    if "--quick" not in sys.argv:
        start()


def checks() -> None:
    """Time checks as a learner has them, in turn with plain pytest on the same tests."""
    plain = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             "-c", str(ROOT / "grader/sandbox/inside/pytest.ini"), "--rootdir", str(ROOT),
             "--hypothesis-seed=0", str(ROOT / "tests/kv_pool")]
    runs = {
        "check kv_pool": _ol("check", "kv_pool", "--bind", "reference"),
        "plain pytest, the same tests": plain,
        "check rt.04": _ol("check", "rt.04", "--bind", "reference"),
        "check L10.4": _ol("check", "L10.4", "--bind", "reference"),
        "check -k, one failing test": _ol("check", "kv_pool", "-k", "alloc_is_all_or_nothing",
                                          "--bind", "stubs"),
        "check -k, a failing property": _ol("check", "kv_pool", "-k",
                                            "random_ops_keep_the_invariants", "--bind", "stubs"),
        "tests": _ol("tests", "kv_pool"),
    }
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'reference'}{os.pathsep}{ROOT}"}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_ROUNDS):
        for name, words in runs.items():
            started = time.perf_counter()
            subprocess.run(words, cwd=ROOT, env=env, capture_output=True, check=False)
            times[name].append(time.perf_counter() - started)
    aims = {"check kv_pool": 2, "check rt.04": 4, "check L10.4": 8,
            "check -k, one failing test": 1, "check -k, a failing property": 1}
    for name, taken in times.items():
        spread = f"{min(taken):.2f} to {max(taken):.2f}"
        aim = f"; aim: at most {aims[name]}" if name in aims else ""
        _row(name, f"{statistics.median(taken):6.2f} s   ({spread}{aim})")
    ratios = [a / b for a, b in zip(times["check kv_pool"],
                                    times["plain pytest, the same tests"], strict=True)]
    _row("check kv_pool / plain pytest", f"{statistics.median(ratios):6.2f}     (aim: at most 1.5)")


def reference() -> None:
    """Time the reference: 10 MB in an envelope and back, the CRC, the pool's operations."""
    config = PoolConfig(n_blocks=640, block_tokens=16, n_layers=4, n_kv_heads=4, head_dim=16)
    config = PoolConfig(10_000_000 // KvPool(config).block_bytes, 16, 4, 4, 16)
    pool, other = KvPool(config), KvPool(config)
    ids = pool.alloc(config.n_blocks)
    values = np.random.default_rng(0)
    for number, block in enumerate(ids):
        for layer in range(config.n_layers):
            for side in (0, 1):
                view = pool.block(block, layer, side)
                view[:] = values.standard_normal(view.shape)
        pool.set_fill(block, 16)
        pool.register(block, number + 1)
    data = export_blocks(pool, ids)

    def take_in() -> None:
        for block in import_blocks(other, data):
            other.unref(block)

    _row(f"export of {len(data) / 1e6:.1f} MB", _milliseconds(lambda: export_blocks(pool, ids)))
    _row(f"import of {len(data) / 1e6:.1f} MB", _milliseconds(take_in))
    _row("CRC-32C of it", _milliseconds(lambda: crc32c(data)))
    _row("pool operations", f"{_operations() / 1e6:6.2f} million/s   (aim: at least 1)")


def _operations() -> float:
    """Return alloc, ref, set_fill, register, unref, lookup, … a second, with evictions."""
    pool = KvPool(PoolConfig(4096, 1, 1, 1, 1))
    rounds, rates = 20_000, []
    for again in range(_ROUNDS):
        started = time.perf_counter()
        for name in range(1 + again * rounds, 1 + (again + 1) * rounds):
            (block,) = pool.alloc(1)
            pool.set_fill(block, 1)
            pool.register(block, name)
            pool.ref(block)
            pool.unref(block)
            pool.unref(block)
            pool.lookup(name)
            pool.unref(block)
        rates.append(8 * rounds / (time.perf_counter() - started))
    return statistics.median(rates)


def start() -> None:
    """Time `make start` from nothing, in a copy, with empty package caches."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copy"
        shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".git", ".venv", "work"))
        env = {**os.environ, "PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
        started = time.perf_counter()
        done = subprocess.run(["make", "start"], cwd=place, env=env, capture_output=True,
                              check=False)
        _row("make start, from nothing", f"{time.perf_counter() - started:6.1f} s   "
             f"(exit {done.returncode}; aim: at most 60)")
        size = sum(f.stat().st_blocks * 512 for f in (place / ".venv").rglob("*") if f.is_file())
        _row("a learner's environment", f"{size / 1e6:6.0f} MB   (aim: at most 160)")
        started = time.perf_counter()
        subprocess.run(["make", "start"], cwd=place, env=env, capture_output=True, check=False)
        _row("make start, a second time", f"{time.perf_counter() - started:6.2f} s")


def _ol(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "grader", *words]


def _milliseconds(act: Callable[[], object]) -> str:
    taken = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - started))
    return f"{statistics.median(taken):6.1f} ms   (aim: at most 150)"


def _row(name: str, figure: str) -> None:
    print(f"  {name:<34} {figure}", flush=True)


if __name__ == "__main__":
    main()
