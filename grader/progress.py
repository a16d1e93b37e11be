"""What the last checks of the learner's own files said, kept with a digest of the judged file."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import workspace
from grader.course import Module
from grader.files import write_atomically
from grader.report import ModuleResult, Report, Status, Verdict


@dataclass(frozen=True)
class Standing:
    """A module's last verdict. ``current``: its file has not changed since."""

    passed: int
    total: int
    green: bool
    current: bool
    when: float


def record(report: Report) -> None:
    """Remember a check of the learner's own files; part of a suite is not remembered."""
    if report.binding != "work" or report.only is not None:
        return
    known = _load()
    for result in report.modules:
        if result.name in report.asked and result.tests:
            known[result.name] = _entry(result)
    write_atomically(_file(), json.dumps(known, indent=1).encode())


def standing(module: Module) -> Standing | None:
    """Return what the last check of the module said, if there was one."""
    entry = _load().get(module.name)
    try:
        return Standing(entry["passed"], entry["total"], entry["green"],
                        entry["digest"] == workspace.digest(workspace.work() / module.file_name),
                        entry["when"]) if entry else None
    except (KeyError, TypeError):
        return None


def _entry(result: ModuleResult) -> dict[str, Any]:
    return {"passed": result.count(Verdict.PASSED), "total": len(result.tests),
            "green": result.status is Status.PASSED, "digest": result.sha256,
            "when": time.time()}


def _load() -> dict[str, Any]:
    try:
        data = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a lost memory is no lost work: the next check writes it anew
    return data if isinstance(data, dict) else {}


def _file() -> Path:
    return workspace.work() / ".history" / "progress.json"
