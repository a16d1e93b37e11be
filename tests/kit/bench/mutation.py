"""How fast tests are tried on mutants: in seconds, and beside mutmut and one pytest a mutant."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.course.planted_bugs import mutants_of, reference_of
from grader.grading.mutation import generated_mutants, mutmut_adapter
from grader.grading.mutation.candidates import REFERENCE, Program, planted
from grader.grading.mutation.grade import Plan, grade, search_generated
from grader.grading.mutation.kill_search import KillSearch
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import learners, own
from grader.sandbox.api import WorkerPool

_PROCESSES = 2
_SAMPLE = 24  # mutants for which pytest is started one by one
_LEARNER = ROOT / "tests" / "kit" / "learners" / "thorough"


def main() -> None:
    course = courses.load()
    module = next(m for m in course if (_LEARNER / m.name).is_dir())
    print(f"\nmutation, {_PROCESSES} processes")
    with tempfile.TemporaryDirectory() as folder, WorkerPool() as workers:
        tests = Path(shutil.copytree(_LEARNER / module.name, Path(folder) / "tests"))
        _planted(course, module, tests, workers)
        _course(course, workers)
    with tempfile.TemporaryDirectory() as folder:
        tests = Path(shutil.copytree(_LEARNER / module.name, Path(folder) / "tests"))
        ours = _ours(course, module, tests)
        theirs = _mutmuts(module, tests, Path(folder) / "mutmut")
        single = _one_by_one(module, tests, Path(folder) / "single")
    for name, other, aim in (("mutmut", theirs, 3), ("one pytest a mutant", single, 12)):
        _row(f"the kit / {name}", f"{ours.wall / other.wall:6.1f} by wall time, "
             f"{ours.cpu / other.cpu:.1f} by CPU time   (aim: at least {aim})")


def _planted(course: Course, module: Module, tests: Path, workers: WorkerPool) -> None:
    """Time a learner's grade: right programs, controls and all planted bugs."""
    started = time.perf_counter()
    report = grade(course, module, tests, workers, Plan(processes=_PROCESSES))
    _row(f"{len(report.tests)} tests, {len(report.bugs)} planted bugs",
         f"{time.perf_counter() - started:6.2f} s   (aim: at most 3)")


def _course(course: Course, workers: WorkerPool) -> None:
    """Time every planted bug of the course's modules in Python against the suite of its module."""
    started, bugs, alive = time.perf_counter(), 0, 0
    for module in [m for m in course if not m.program]:
        rows = {x.id: x.caught_by for x in mutants_of(module)}
        with Trials(workers, course, module, own(module), processes=_PROCESSES) as trials:
            clean = trials.run(Program(REFERENCE, reference_of(module))).results
            search = KillSearch(trials, list(clean), {c: r["seconds"] for c, r in clean.items()})

            def caught(bug: Program, search: KillSearch = search,
                       rows: dict[str, tuple[str, ...]] = rows) -> bool:
                first = [c for c in search.cases if c in rows[bug.id]]
                rest = [c for c in search.cases if c not in first]
                return bool(search.caught(bug, [*first, *rest]))

            found = trials.all(caught, planted(module))
        bugs, alive = bugs + len(found), alive + found.count(False)
    _row(f"the course's suites, {bugs} planted bugs",
         f"{time.perf_counter() - started:6.1f} s   ({alive} alive; aim: at most 60)")


def _ours(course: Course, module: Module, tests: Path) -> "Rate":
    """Return how many mutants a second the kit tries, from the start to the end."""
    text = reference_of(module)
    everything = [{k: v for k, v in m.items() if k != "left_out"}
                  for m in generated_mutants.load(module)]
    clock = Clock()
    with WorkerPool() as workers, Trials(workers, course, module, learners(tests),
                                      processes=_PROCESSES) as trials:
        base = Program(REFERENCE, text)
        done = search_generated(trials, list(trials.run(base).tests), base, everything, told=False)
    return clock.rate("the kit", done.tried, f"; {len(done.survivors)} alive")


def _mutmuts(module: Module, tests: Path, place: Path) -> "Rate":
    """Return how many mutants a second mutmut tries, which makes them first."""
    clock = Clock()
    found = mutmut(module.name, [module.name, *_under(module)], tests, place)
    return clock.rate("mutmut run", len(found),
                      f"; {sum(v == 'survived' for v in found.values())} alive")


def _one_by_one(module: Module, tests: Path, place: Path) -> "Rate":
    """Return how many mutants a second it makes to start pytest for each, `-x` and all."""
    text = reference_of(module)
    some = generated_mutants.load(module)
    some = some[:: max(len(some) // _SAMPLE, 1)]
    package(place, [module.name, *_under(module)], tests)
    clock = Clock()
    waiting = list(enumerate(some))
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        running = [p for p in running if p.poll() is None]
        if waiting and len(running) < _PROCESSES:
            number, mutant = waiting.pop()
            mine = Path(shutil.copytree(place, place.with_name(f"single{number}")))
            (mine / "src/tinyllm" / f"{module.name}.py").write_text(
                mutmut_adapter.applied(text, mutant), encoding="utf-8")
            running.append(subprocess.Popen(
                [sys.executable, "-m", "pytest", "-x", "-q", "--hypothesis-seed=0", "tests"],
                cwd=mine, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        else:
            time.sleep(0.002)
    return clock.rate("one pytest a mutant", len(some))


def mutmut(name: str, modules: list[str], tests: Path, place: Path) -> dict[str, str]:
    """Run mutmut as anybody would, in a project of its own; return its verdicts by mutant."""
    package(place, modules, tests, f'[tool.mutmut]\nsource_paths = ["src"]\n'
            f'only_mutate = ["src/tinyllm/{name}.py"]\n')
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", "run", "--max-children", str(_PROCESSES)], cwd=place,
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    told = subprocess.run([sys.executable, "-m", "mutmut", "results", "--all", "true"], cwd=place,
                          capture_output=True, text=True, check=True).stdout
    prefix = f"tinyllm.{name}."
    found = dict(line.strip().removeprefix(prefix).split(": ")
                 for line in told.splitlines() if line.strip().startswith(prefix))
    return {mutant: {"timeout": "killed", "no tests": "survived"}.get(verdict, verdict)
            for mutant, verdict in found.items()}


def package(place: Path, modules: list[str], tests: Path, settings: str = "") -> None:
    """Lay out an ordinary project with these modules of the reference and these tests."""
    room = place / "src" / "tinyllm"
    room.mkdir(parents=True)
    for module in ("errors", *modules):
        shutil.copyfile(ROOT / "reference" / "tinyllm" / f"{module}.py", room / f"{module}.py")
    (room / "__init__.py").touch()
    shutil.copytree(tests, place / "tests")
    (place / "pyproject.toml").write_text(
        f'{settings}[tool.pytest.ini_options]\npythonpath = ["src"]\n', encoding="utf-8")


def _under(module: Module) -> list[str]:
    return [m.name for m in courses.load().closure(module)]


@dataclass(frozen=True)
class Rate:
    """Mutants a second, of wall time and of CPU time: a machine that others use, too, tells more by
    the second."""

    wall: float
    cpu: float


class Clock:
    """Measures from where it is made, processes that were started included."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), sum(os.times()[:4])

    def rate(self, name: str, mutants: int, more: str = "") -> Rate:
        wall, cpu = time.perf_counter() - self.wall, sum(os.times()[:4]) - self.cpu
        _row(name, f"{mutants / wall:6.1f} mutants/s   ({mutants} in {wall:.1f} s, CPU {cpu:.1f} s"
             f"{more})")
        return Rate(mutants / wall, mutants / cpu)


def _row(name: str, figure: str) -> None:
    print(f"  {name:<34} {figure}", flush=True)


if __name__ == "__main__":
    main()
