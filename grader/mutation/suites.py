"""A set of tests, as a worker must know it: a learner's folder, or a module's own suite."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.course import Module
from grader.errors import CallError
from grader.files import near
from grader.worker.tests import python_files

# What would tell a test the answers: the course's solutions, bugs and suites, and the grader.
_CLOSED = ("course", "grader", "reference", "stubs", "tests")
# A learner's files are read as plain pytest reads them.
_PLAIN = ("-o", "python_classes=Test")


@dataclass(frozen=True)
class Suite:
    """``root`` is what the tests' names begin at; ``folder`` is a learner's, which nobody trusts.
    ``names`` has the tests and their files, none where they are to be found out: a test of a
    learner's has its file in its name."""

    root: Path
    files: tuple[Path, ...]
    folder: Path | None = None
    names: dict[str, Path] = field(default_factory=dict)
    arguments: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the parts of a job that are the tests'."""
        suite = [f for f in self.files if not self.folder or _holds_tests(f)]
        rooms = [self.folder] if self.folder else sorted({f.parent for f in self.files})
        return {
            "root": str(self.root), "suite": [str(f) for f in suite],
            "arguments": list(self.arguments), "rooms": [str(r) for r in rooms],
            "folder": str(self.folder) if self.folder else None,
            "closed": [str(ROOT / room) for room in _CLOSED] if self.folder else [],
            "lines": [str(f) for f in self.files],
            "where": {test: str(file) for test, file in self.names.items()},
        }


def learners(folder: Path) -> Suite:
    """Return the tests in a learner's folder; refuse one without any."""
    folder = folder.resolve()
    files = python_files(folder) if folder.is_dir() else []
    if not any(map(_holds_tests, files)):
        raise CallError(no_tests(folder))
    return Suite(folder, tuple(files), folder, {}, _PLAIN)


def no_tests(folder: Path) -> str:
    return (f"there are no tests in {near(str(folder))}: write them as test_*.py in there, plain "
            "functions test_…() with asserts; course/writing-tests.md shows how")


def in_python(modules: Iterable[Module]) -> None:
    """Refuse a program in another language: tests of a learner's are of the modules that it stands
    for, which are Python."""
    for module in modules:
        if module.program:
            others = ", ".join(module.program.stands_for)
            raise CallError(f"{module.name} is a program; write tests of what it stands for, which "
                            f"is {others}, and name that")


def own(module: Module) -> Suite:
    """Return the suite by which a module is judged."""
    files = sorted({t.file for t in module.tests})
    return Suite(ROOT, tuple(files), None, {t.name: t.file for t in module.tests})


def _holds_tests(file: Path) -> bool:
    """True for a file that pytest takes for one of tests, by its name."""
    return file.stem.startswith("test_") or file.stem.endswith("_test")
