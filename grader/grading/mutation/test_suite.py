"""A set of tests, as a worker must know it: a learner's folder, or a module's own suite."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.course.model import Module, Test
from grader.errors import CallError
from grader.learner.atomic_files import display_path
from grader.learner.workspace import python_files

# What would tell a test the answers: the course's solutions, bugs and suites, and the grader.
_CLOSED = ("course", "grader", "reference", "stubs", "tests")
# A learner's files are read as plain pytest reads them.
_PLAIN = ("-o", "python_classes=Test")


@dataclass(frozen=True)
class Suite:
    """``root`` is what the tests' names begin at; ``folder`` is a learner's, which nobody trusts.
    ``rooms`` are the folders in which imports find what lies beside the tests. ``names`` has the
    tests and their files, none where they are to be found out: a test of a learner's has its file
    in its name."""

    root: Path
    files: tuple[Path, ...]
    rooms: tuple[Path, ...]
    folder: Path | None = None
    names: dict[str, Path] = field(default_factory=dict)
    arguments: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return the parts of a job that are the tests'."""
        suite = [f for f in self.files if not self.folder or _holds_tests(f)]
        return {
            "root": str(self.root), "suite": [str(f) for f in suite],
            "arguments": list(self.arguments), "rooms": [str(r) for r in self.rooms],
            "folder": str(self.folder) if self.folder else None,
            "closed": [str(ROOT / room) for room in _CLOSED] if self.folder else [],
            "lines": [str(f) for f in self.files],
            "where": {test: str(file) for test, file in self.names.items()},
        }


def learners(folder: Path, rooms: Sequence[str] = ()) -> Suite:
    """Return the tests in a learner's folder, or in these rooms of it; refuse one without any."""
    folder = folder.resolve()
    found = tuple(room for room in ([folder / name for name in rooms] or [folder])
                  if room.is_dir())
    files = tuple(file for room in found for file in python_files(room))
    if not any(map(_holds_tests, files)):
        raise CallError(no_tests(folder, rooms))
    return Suite(folder, files, found, folder, {}, _PLAIN)


def no_tests(folder: Path, rooms: Sequence[str] = ()) -> str:
    where = ", ".join(display_path(str(folder / room)) for room in rooms or ("",))
    return (f"there are no tests in {where}: write them as test_*.py in there, plain "
            "functions test_…() with asserts; course/writing-tests.md shows how")


def in_python(modules: tuple[Module, ...], asked: bool) -> tuple[Module, ...]:
    """Leave out the programs in other languages, of which no mutants can be generated; refuse one
    that was ``asked`` for."""
    for module in (m for m in modules if m.program and asked):
        raise CallError(f"{module.name} is no Python, and mutants are generated of Python alone: "
                        f"`ol mutation {module.name}` tries its planted bugs")
    return tuple(m for m in modules if not m.program)


def own(module: Module) -> Suite:
    """Return the suite by which a module is judged."""
    return of_tests(module.tests)


def of_tests(tests: Iterable[Test]) -> Suite:
    """Return these tests of the course's own as a suite."""
    names = {t.name: t.file for t in tests}
    files = sorted(set(names.values()))
    return Suite(ROOT, tuple(files), tuple(sorted({f.parent for f in files})), None, names)


def _holds_tests(file: Path) -> bool:
    """True for a file that pytest takes for one of tests, by its name."""
    return file.stem.startswith("test_") or file.stem.endswith("_test")
