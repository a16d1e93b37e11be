"""How often the diagnosis is right, on programs that are not the planted edits.

`held_out/<module>/` holds each pitfall implemented in another way, mostly on right programs of
other designs. They were written before the scorer was tuned, and only half of them, drawn by the
check sum of their names, were looked at for that: both halves are shown. The wrong programs of
`wrong/`, which somebody else wrote for their sentences, are a third set; those that are none of
the planted bugs show what is said where nothing should be.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from grader.authoring.suite_results import PATIENT
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.course.planted_bugs import mutants_of
from grader.grading.check import CheckOptions, judge
from grader.grading.diagnosis import MOST, suspects
from grader.grading.failure_signatures import deterministic_tests
from grader.grading.report import Confidence, Suspect
from grader.sandbox.api import WorkerPool
from tests.kit.support import wrongs
from tests.kit.support.compiled import CC
from tests.kit.support.wrongs import Wrong

AIM_FIRST, AIM_AMONG = 0.65, 0.85
# Programs that need a limit to end, or never begin: they are no evidence for or against a bug.
_ENDLESS = {"alloc_waits_for_room", "eviction_never_ends", "import_never_ends"}


@dataclass(frozen=True)
class Guess:
    """A wrong program, how many of the steady tests it failed, and what it was taken for."""

    wrong: Wrong
    right: set[str]
    failed: int
    said: list[Suspect]

    @property
    def rank(self) -> int | None:
        """Return at which place a right answer was named, from 0 on."""
        return next((at for at, x in enumerate(self.said) if x.bug in self.right), None)


def guesses(course: Course, workers: WorkerPool, programs: Iterable[Wrong]) -> list[Guess]:
    """Judge wrong programs by the steady tests, and say what each looks like."""
    def one(wrong: Wrong) -> Guess:
        module = course.module(wrong.module)
        with tempfile.TemporaryDirectory() as folder:
            options = CheckOptions((module.name,), str(wrong.write(Path(folder))), limits=PATIENT)
            result = judge(course, options, workers, module, deterministic_tests(module))
        failed = sum(t.failure is not None for t in result.tests)
        return Guess(wrong, _right(module, wrong), failed, suspects(module, result))

    return workers.all(one, programs)


def _right(module: Module, wrong: Wrong) -> set[str]:
    """Return the bugs that it is right to name: its own, and those that are alike to any suite."""
    pairs = [{m.id, other} for m in mutants_of(module) for other in m.alike]
    return set(wrong.pitfalls).union(*(pair for pair in pairs if pair & set(wrong.pitfalls)))


def tuning(wrong: Wrong) -> bool:
    """Say whether a program was looked at when the scorer was tuned."""
    return crc32(wrong.name.encode()) % 2 == 1


def named() -> list[Wrong]:
    """Return the named wrong programs, in Python, that end by themselves."""
    return [w for w in wrongs.load()
            if w.name not in _ENDLESS and not w.dangerous and w.file.endswith(".py")]


def in_c() -> list[Wrong]:
    """Return the named wrong programs in C that have a planted bug's pitfall."""
    return [w for w in wrongs.load() if w.pitfalls and w.file.endswith(".c")]


def shares(found: list[Guess]) -> tuple[float, float]:
    """Return how often the first bug named is right, and how often one of those named is."""
    first = sum(g.rank == 0 for g in found) / len(found)
    return first, sum(g.rank is not None for g in found) / len(found)


def main() -> None:
    course = courses.load()
    with WorkerPool() as workers:
        held = guesses(course, workers, wrongs.held_out())
        learners = guesses(course, workers, named())
        others_in_c = guesses(course, workers, in_c()) if CC else []
    print("\nDiagnosis: which classic bug a failure looks like\n")
    sets = {
        "tuning half": [g for g in held if tuning(g.wrong)],
        "held-out half": [g for g in held if not tuning(g.wrong)],
        "learners' programs that are a planted bug": [g for g in learners if g.wrong.pitfalls],
    }
    for name, found in sets.items():
        _row(name, found)
    if others_in_c:
        _row("learners' programs in C", others_in_c)
    others = [g for g in learners if not g.wrong.pitfalls]
    loud = [g for g in others if g.said and g.said[0].sure is Confidence.LIKELY]
    print(f"  {'learners’ programs that are none':<42} {len(others):4}   silent "
          f"{sum(not g.said for g in others)}, likely {len(loud)}")
    _levels([g for found in sets.values() for g in found])
    _astray(held + learners + others_in_c)


def _row(name: str, found: list[Guess]) -> None:
    first, among = shares(found)
    print(f"  {name:<42} {len(found):4}   first right {first:6.1%} (aim {AIM_FIRST:.0%})   "
          f"among {MOST} {among:6.1%} (aim {AIM_AMONG:.0%})   silent "
          f"{sum(not g.said for g in found)}")


def _levels(found: list[Guess]) -> None:
    print("\n  how sure the first is, and how often it is right then")
    for level in Confidence:
        told = [g for g in found if g.said and g.said[0].sure is level]
        if told:
            print(f"    {level:<12} {len(told):4}   {shares(told)[0]:6.1%}")


def _astray(found: list[Guess]) -> None:
    print("\n  where the first is not right")
    for g in found:
        if g.rank != 0 and (g.said or g.wrong.pitfalls):
            said = ", ".join(f"{x.bug} {x.likeness:.2f} {x.sure}" for x in g.said) or "nothing"
            print(f"    {g.wrong.module}/{g.wrong.name}: "
                  f"{' or '.join(g.wrong.pitfalls) or 'no planted bug'}; said {said}")


if __name__ == "__main__":
    main()
