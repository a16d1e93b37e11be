"""What the last checks of the learner's own files said, kept with a digest of the judged file."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.course.model import Course, Module
from grader.grading.report import ModuleResult, Report, Status, Verdict
from grader.learner import snapshots, workspace
from grader.learner.atomic_files import write_atomically
from grader.learner.workspace import State


@dataclass(frozen=True)
class Standing:
    """A module's last verdict. ``passes`` maps a pass to (passed, all); ``broken`` says why the
    module could not be judged; ``current``: neither its file nor one that it needs has changed
    since."""

    passes: dict[int, tuple[int, int]]
    broken: str
    current: bool

    @property
    def passed(self) -> int:
        return sum(passed for passed, _ in self.passes.values())

    @property
    def total(self) -> int:
        return sum(total for _, total in self.passes.values())

    @property
    def green(self) -> bool:
        return self.total > 0 and self.passed == self.total

    def is_green(self, pass_: int) -> bool:
        """True when all tests of a pass passed, and there were some."""
        passed, total = self.passes.get(pass_, (0, 0))
        return passed == total > 0


def record(course: Course, report: Report) -> None:
    """Remember a check of the learner's own files, and keep a copy of each of which a whole pass
    is green. What was not judged, or only in part, leaves what was known before; so does a check
    without a workspace."""
    new = _entries(course, report)
    if new and workspace.work().is_dir():
        for name, entry in new.items():
            if any(passed == total for passed, total in entry["passes"].values()):
                snapshots.keep(course.module(name), entry["sha256"][name])
        write_atomically(_file(), json.dumps({**_load(), **new}, indent=1).encode())


def standings(course: Course, report: Report | None = None) -> dict[str, Standing]:
    """Return what the last checks said of the modules, ``report`` counted among them. A module
    that is no longer begun has no standing."""
    known = {**_load(), **(_entries(course, report) if report else {})}
    found = {}
    for module in course:
        if workspace.state_of(module, workspace.work()) is State.BEGUN:
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                entry = known[module.name]
                found[module.name] = Standing(
                    {int(n): (int(a), int(b)) for n, (a, b) in entry["passes"].items()},
                    str(entry["broken"]), entry["sha256"] == _digests(course, module))
    return found


def _entries(course: Course, report: Report) -> dict[str, Any]:
    if report.binding != "work" or report.pool or report.only is not None:
        return {}
    judged = {r.name: r for r in report.modules if r.name in report.asked and r.tests
              and r.status is not Status.NEEDS}
    shas = {r.name: r.sha256 for r in report.modules}
    return {name: {**_entry(r), "sha256": _digests(course, course.module(name)) | {
        name: shas[name]}} for name, r in judged.items()}


def _digests(course: Course, module: Module) -> dict[str, str | None]:
    """Return the digests of the learner's files that a verdict on the module depends on."""
    return {m.name: workspace.digest(workspace.work() / m.file_name)
            for m in (*course.closure(module), module)}


def _entry(result: ModuleResult) -> dict[str, Any]:
    passes = {}
    for number in sorted({t.pass_ for t in result.tests}):
        tests = [t for t in result.tests if t.pass_ == number]
        passes[str(number)] = (sum(t.verdict is Verdict.PASSED for t in tests), len(tests))
    why = result.failure.what if result.failure else ""
    return {"passes": passes, "broken": why}


def _load() -> dict[str, Any]:
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # a lost memory is no lost work: the next check writes it anew
    return data if isinstance(data, dict) else {}


def _file() -> Path:
    return workspace.memory() / "progress.json"
