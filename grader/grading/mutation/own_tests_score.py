"""What a check says of the learner's own tests: graded once, and remembered until they change."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader import ROOT, VERSION
from grader.binding import compiler
from grader.course.model import PACKAGE, Course, Module
from grader.course.reference_designs import ROOMS, implementations
from grader.grading.mutation.grade import Plan, grade
from grader.grading.mutation.report import MutationReport
from grader.grading.mutation.test_suite import learners
from grader.grading.report import OwnTests, Report, Status
from grader.learner import workspace
from grader.learner.atomic_files import write_atomically
from grader.sandbox.api import WorkerPool


def gradable(course: Course, report: Report) -> list[Module]:
    """Return the modules that passed as a whole and have tests of the learner's."""
    if report.binding != "work" or report.only is not None:
        return []
    passed = [course.module(m.name) for m in report.modules
              if m.name in report.asked and m.status is Status.PASSED]
    return [module for module in passed if workspace.has_tests(module)]


def worth(course: Course, module: Module, workers: WorkerPool, tell: Callable[[str, str], None],
          cc: str | None = None) -> OwnTests:
    """Return what the learner's own tests of a module are worth. It costs time only where the tests
    are not as they were. ``cc`` is the compiler that the check was given."""
    entry = _load().get(module.name, {})
    with contextlib.suppress(KeyError, TypeError, AttributeError):  # a lost memory is no lost work
        if entry["of"] == _digest(course, module, cc):
            return OwnTests(**entry["worth"])
    return summary(grade(course, module, workspace.tests_of(module), workers, Plan(cc=cc),
                         tell=lambda doing: tell(module.name, doing)))


def remember(course: Course, module: Module, own: OwnTests, cc: str | None = None) -> None:
    """Keep a score until something changes that it depends on."""
    entry = {"of": _digest(course, module, cc), "worth": asdict(own)}
    write_atomically(_file(), json.dumps({**_load(), module.name: entry}, indent=1).encode())


def summary(report: MutationReport) -> OwnTests:
    return OwnTests(report.score, report.threshold, len(report.caught), len(report.bugs),
                    [b.id for b in report.survivors if b.required],
                    len(report.tests) - len(report.valid), report.passed)


def _digest(course: Course, module: Module, cc: str | None) -> str:
    """Return a digest of all that the grade depends on: the tests and what lies beside them, the
    bugs, the right programs and what is given; of a program, all that it is built from, and by
    which compiler."""
    rooms = [ROOT / "reference", *(ROOMS / name for name in implementations())]
    parts = [m.file_name for m in (*course.closure(module), module)]
    parts += [f"{PACKAGE}/{name}.py" for name in course.given]
    files = [*(room / part for room in rooms for part in parts), module.folder / "mutants.toml",
             module.folder / "module.toml"]
    found = hashlib.sha256(VERSION.encode())
    if module.program:
        files += [f for room in rooms for f in sorted((room / module.program.room).rglob("*"))]
        found.update(compiler.find(cc).identity.encode())
    suite = learners(workspace.tests_of(module), module.test_rooms)
    files += [file for room in suite.rooms for file in sorted(room.rglob("*"))
              if "__pycache__" not in file.parts]
    for file in files:
        if file.is_file():
            found.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _load() -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _file() -> Path:
    return workspace.memory() / "own-tests.json"
