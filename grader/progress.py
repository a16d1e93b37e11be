"""What the last checks of the learner's own files said, kept with a digest of the judged file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import workspace
from grader.course import Module
from grader.files import write_atomically
from grader.report import ModuleResult, Report, Status, Verdict


@dataclass(frozen=True)
class Standing:
    """A module's last verdict. ``passes`` maps a pass to (passed, all); ``broken`` says why the
    module could not be judged; ``current``: its file has not changed since."""

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


def record(report: Report) -> None:
    """Remember a check of the learner's own files. What was not judged, or only in part, leaves
    what was known before."""
    if report.binding != "work" or report.only is not None:
        return
    known = _load()
    for result in report.modules:
        if result.name in report.asked and result.tests and result.status is not Status.NEEDS:
            known[result.name] = _entry(result)
    write_atomically(_file(), json.dumps(known, indent=1).encode())


def standing(module: Module) -> Standing | None:
    """Return what the last check of the module said, if there was one."""
    entry = _load().get(module.name)
    try:
        return Standing({int(n): (int(a), int(b)) for n, (a, b) in entry["passes"].items()},
                        str(entry["broken"]), entry["sha256"] == workspace.digest(
                            workspace.work() / module.file_name)) if entry else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _entry(result: ModuleResult) -> dict[str, Any]:
    passes = {}
    for number in sorted({t.pass_ for t in result.tests}):
        tests = [t for t in result.tests if t.pass_ == number]
        passes[number] = (sum(t.verdict is Verdict.PASSED for t in tests), len(tests))
    why = result.failure.what if result.failure else ""
    return {"passes": passes, "broken": why, "sha256": result.sha256}


def _load() -> dict[str, Any]:
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a lost memory is no lost work: the next check writes it anew
    return data if isinstance(data, dict) else {}


def _file() -> Path:
    return workspace.work() / ".history" / "progress.json"
