"""What a check says of the learner's own tests: graded once, and remembered until they change."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grader import ROOT, VERSION, workspace
from grader.course import Course, Module
from grader.files import write_atomically
from grader.implementations import ROOMS, implementations
from grader.mutation.grade import Plan, grade
from grader.mutation.report import MutationReport
from grader.mutation.suites import learners
from grader.report import OwnTests, Report, Status
from grader.worker.session import Nursery


def with_own_tests(course: Course, report: Report, nursery: Nursery,
                   tell: Callable[[str, str], None], cc: str | None = None) -> Report:
    """Return a check's report with what the learner's own tests are worth, for each module that
    passed as a whole and has some. It costs time only where the tests are not as they were. ``cc``
    is the compiler that the check was given."""
    if report.binding != "work" or report.only is not None:
        return report
    modules = []
    for result in report.modules:
        module = course.module(result.name)
        if (result.name in report.asked and result.status is Status.PASSED
                and workspace.has_tests(module)):
            result = replace(result, own_tests=_worth(course, module, nursery, tell, cc))
        modules.append(result)
    return replace(report, modules=modules)


def summary(report: MutationReport) -> OwnTests:
    return OwnTests(report.score, report.threshold, len(report.caught), len(report.bugs),
                    [b.id for b in report.survivors if b.required],
                    len(report.tests) - len(report.valid), report.passed)


def _worth(course: Course, module: Module, nursery: Nursery,
           tell: Callable[[str, str], None], cc: str | None) -> OwnTests:
    key, known = _digest(course, module), _load()
    entry = known.get(module.name, {})
    if entry.get("of") == key:
        try:
            return OwnTests(**entry["worth"])
        except (KeyError, TypeError):
            pass  # a lost memory is no lost work
    worth = summary(grade(course, module, workspace.tests_of(module), nursery, Plan(cc=cc),
                          tell=lambda doing: tell(module.name, doing)))
    write_atomically(_file(), json.dumps(
        {**_load(), module.name: {"of": key, "worth": asdict(worth)}}, indent=1).encode())
    return worth


def _digest(course: Course, module: Module) -> str:
    """Return a digest of all that the grade depends on: the tests, the bugs, the right programs."""
    rooms = [ROOT / "reference", *(ROOMS / name for name in implementations())]
    sources = [room / m.file_name for room in rooms for m in (*course.closure(module), module)]
    folder = workspace.tests_of(module)
    files = [*learners(folder, module.test_rooms).files, module.folder / "mutants.toml",
             module.folder / "module.toml", *(s for s in sources if s.is_file())]
    digest = hashlib.sha256(VERSION.encode())
    for file in files:
        digest.update(f"{file}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _load() -> dict[str, dict[str, Any]]:
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _file() -> Path:
    return workspace.memory() / "own-tests.json"
