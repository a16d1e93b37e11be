"""Judging programs from the kit's tests: any folder with a `tinyllm` in it, any module's suite."""

from collections.abc import Iterable
from pathlib import Path

from grader.authoring.suite_results import PATIENT
from grader.course.model import Course, Module
from grader.course.reference_designs import ROOMS, implementations
from grader.grading.check import CheckOptions, check
from grader.grading.report import ModuleResult
from grader.sandbox.api import WorkerPool
from grader.sandbox.limits import Limits

KIT = Path(__file__).parent.parent
IMPLEMENTATIONS = implementations()


def implementation(name: str) -> Path:
    """Return the folder of one of the correct programs."""
    return ROOMS / name


def judge(course: Course, workers: WorkerPool, module: Module, folder: Path | str, *,
          reference_needs: bool = True, only: str | None = None,
          limits: Limits = PATIENT) -> ModuleResult:
    """Judge one module of the program in ``folder`` (or "reference", "stubs")."""
    options = CheckOptions((module.name,), str(folder), reference_needs, only, limits=limits)
    (result,) = check(course, options, workers).modules
    return result


def program(folder: Path, module: Module, source: str | bytes) -> Path:
    """Write a program of one module and return its folder."""
    file = folder / module.file_name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(source.encode() if isinstance(source, str) else source)
    return folder


def said(results: Iterable[ModuleResult]) -> str:
    """Return what failed, for an assertion's message."""
    return "\n".join(
        f"{m.name}: {m.status} {m.sentence}" + "".join(
            f"\n  {t.name}: {t.verdict} {t.failure and (t.failure.what, t.failure.got)}"
            for t in m.tests if t.failure) for m in results)
