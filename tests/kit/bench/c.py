"""The programs in C under load: `make bench-kit` prints it; figures, never a verdict.

The block manager is measured twice on the workload of `bench_manager`, over the pool in Python and
over the one in C, each in a process of its own, in turns.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.compiler import Compiler, NoCompiler, sources_in
from grader.binding.finder import Binding, install
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.course.planted_bugs import Mutant, mutants_of
from grader.sandbox.api import Outcome, WorkerPool
from tests.kit.support.compiled import hunted

ROUNDS = 5
REFERENCE = ROOT / "reference"
Row = Callable[[str, str], None]


def programs_in_c(row: Row) -> None:
    """Measure all of it and give each to ``row``, its name and its figure."""
    try:
        found = compiler.find()
    except NoCompiler as missing_tool:
        row("programs in C", f"left out: they need {missing_tool}")
        return
    course = courses.load()
    module = course.program("c")
    _edits(row, module)
    _mutants(row, course, module, found)
    _from_c(row, module, found)
    _through_cffi(row)


def _edits(row: Row, module: Module) -> None:
    """Time a learner's check after a change of the file, which must be built again."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(REFERENCE / "c/src", source / "c/src")
        (source / "tinyllm").mkdir()
        file = source / module.file_name
        for name, aim, words in (
            ("edit to verdict, no sanitizers", 2, ["kv_pool", "--pool", "c"]),
            ("edit to verdict, sanitizers", 6, [module.name]),
        ):
            taken = []
            for number in range(ROUNDS):
                file.write_bytes(file.read_bytes() + f"/* {name} {number} */\n".encode())
                started = time.perf_counter()
                done = subprocess.run([sys.executable, "-P", "-m", "grader", "check", *words,
                                       "--bind", folder], cwd=ROOT, check=False,
                                      capture_output=True)
                taken.append(time.perf_counter() - started)
                assert done.returncode == 0, done.stdout.decode()
            row(name, f"{statistics.median(taken):6.2f} s   (aim: at most {aim})")


def _mutants(row: Row, course: Course, module: Module, found: Compiler) -> None:
    """Time all planted bugs, built from nothing and then kept, each until its tests have failed."""
    with tempfile.TemporaryDirectory() as cache, WorkerPool() as workers:
        for name, aim in (("all C mutants, from nothing", 30), ("all C mutants, compiled before",
                                                               10)):
            kept = Compiler(found.program, Path(cache))
            started = time.perf_counter()
            killed = sum(workers.all(lambda m: _killed(
                hunted(course, module, m, kept, workers), m),  # noqa: B023
                mutants_of(module)))
            row(name, f"{time.perf_counter() - started:6.1f} s   ({killed} of "
                f"{len(mutants_of(module))} killed; aim: at most {aim})")


def _killed(outcome: Outcome, mutant: Mutant) -> bool:
    return all(outcome.results.get(name, {}).get("failure") for name in mutant.caught_by)


def _from_c(row: Row, module: Module, found: Compiler) -> None:
    """Time the pool and the checksum as a program in C has them."""
    folders = [REFERENCE / "c/src", REFERENCE / "c/support", ROOT / "tests/kit/c/speed"]
    headers = [REFERENCE / "c/include", REFERENCE / "c/src"]
    objects = [found.compile(source, sources_in(folder, "*.h"), headers, ("-O2",))
               for folder in folders for source in sources_in(folder, "*.c")]
    program = found.link(objects, "speed", ("-O2",))
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    row("pool operations from C", f"{float(said[0]):6.1f} million/s   (aim: at least 20)")
    if said[3] == "1":
        row("CRC-32C by the processor", f"{float(said[1]):6.2f} GB/s   (aim: at least 3)")
    row("CRC-32C in plain C", f"{float(said[2]):6.2f} GB/s   (aim: at least 0.3)")


def _through_cffi(row: Row) -> None:
    """Time the block manager's hash mode over both pools, in turns."""
    times: dict[str, list[float]] = {"python": [], "c": []}
    for _ in range(ROUNDS):
        for pool, taken in times.items():
            done = subprocess.run([sys.executable, "-P", "-m", "tests.kit.bench.c", pool], cwd=ROOT,
                                  capture_output=True, text=True, check=True,
                                  env={**os.environ, "PYTHONPATH": str(ROOT)})
            taken.append(float(done.stdout))
    least = {pool: min(taken) for pool, taken in times.items()}
    for pool, us in least.items():
        aim = "   (aim: at most 100)" if pool == "c" else ""
        row(f"hash mode, 64 live, pool in {pool}", f"{us:6.0f} us a request{aim}")
    row("pool in python / pool in c", f"{least['python'] / least['c']:6.2f}   (aim: at least 1)")


def _serve(pool: str) -> float:
    """Return a request's CPU time in microseconds over one of the pools, in this process."""
    course = courses.load()
    program = course.program("c")
    files = {p.stem: str(p) for p in (REFERENCE / "tinyllm").glob("*.py")}
    binding = Binding(files, (), str(ROOT / "tests"))
    if pool == "c":
        built = native_module.build(program, REFERENCE, compiler.find(), driver=False)
        binding = built.bind(binding)
    install(binding)
    from tests.kit.bench.manager import SMALL, Case, measure, workload

    return measure(Case("hash", SMALL), workload())[0]


if __name__ == "__main__":
    print(_serve(sys.argv[1]))
