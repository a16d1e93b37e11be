"""A copy of the project, so that a test may be a learner in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from grader import ROOT
from grader.course.model import Course

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__",
                                   "work", "kit")  # the tests of the kit itself


def copy(folder: Path) -> Path:
    """Return a fresh copy of the project below ``folder``, in a path with a space in it."""
    place = folder / "a copy"
    shutil.copytree(ROOT, place, ignore=_LEFT_OUT)
    return place


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "grader", *words]


def environment(place: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**kept, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "", **more}


def ol(place: Path, *words: str, cwd: Path | None = None,
       **more: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the copy and return how it ended and what it printed."""
    return subprocess.run(command(*words), cwd=cwd or place, env=environment(place, **more),
                          capture_output=True, text=True, check=False, encoding="utf-8",
                          stdin=subprocess.DEVNULL, timeout=300)


def solve(place: Path, course: Course, source: Path) -> None:
    """Write a whole program's modules into the copy's work/, as a learner would have."""
    for module in course:
        if module.program:
            continue  # it is optional, and the copy of another design may have none
        target = place / "work" / module.file_name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / module.file_name, target)
