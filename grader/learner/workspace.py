"""The learner's files: where they are, what state they are in, how they are laid out.

Nothing here overwrites or deletes a file of the learner's: laying out creates only what is absent,
and `history` moves a file into a snapshot before anything else takes its place.
"""

import contextlib
import hashlib
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from grader import ROOT
from grader.course.manifest import load
from grader.course.model import PACKAGE, Course, Module
from grader.errors import CallError, KitError
from grader.learner.atomic_files import create, display_path

WORK = "work"
_LARGE = 4 << 20  # bytes
_SOURCES = (".py", ".c")
_IGNORED = "# The kit's own memory; your files beside it are yours to commit.\n.history/\n"
_GIVEN_C = "/* Given: part of the kit, here for you to read. Checks use the kit's own copy. */\n"
_GIVEN = "# Given: part of the kit, here for you to read. Checks use the kit's own copy.\n"


class State(Enum):
    """What a module's file is like. The value is what a learner is told."""

    MISSING = "its file is not there"
    UNREADABLE = "its file cannot be read"
    EMPTY = "its file is empty"
    STUB = "its file is still the stub"
    BEGUN = ""

    @property
    def sentence(self) -> str:
        return self.value


@dataclass(frozen=True)
class Laid:
    """What laying out did: the files created, and those that were there."""

    created: tuple[Path, ...]
    kept: tuple[Path, ...]


def work() -> Path:
    return ROOT / WORK


def tests_of(module: Module) -> Path:
    """Return the folder of the learner's own tests of a module; of a program, that of all tests."""
    return work() / "tests" / ("" if module.test_rooms else module.name)


def has_tests(module: Module) -> bool:
    """True when that folder, or one of the program's in it, holds a file that pytest takes for
    tests."""
    return any(file.stem.startswith("test_") or file.stem.endswith("_test")
               for room in module.test_rooms or ("",)
               for file in python_files(tests_of(module) / room))


def python_files(folder: Path) -> list[Path]:
    """Return the Python files of a folder, those in folders below it too; an editor's hidden copies
    are none of them."""
    return sorted(file for file in folder.rglob("*.py")
                  if file.is_file() and not any(part.startswith((".", "__pycache__"))
                                                for part in file.relative_to(folder).parts))


def memory() -> Path:
    """Return the folder of the kit's own memory: snapshots, and what the last checks said."""
    return work() / ".history"


def source_of(word: str) -> Path:
    """Return the folder that a ``--bind`` word means: it holds a `tinyllm` folder."""
    folder = {"work": work(), "reference": ROOT / "reference", "stubs": ROOT / "stubs"}.get(word)
    if folder is None:
        folder = Path(word).expanduser().resolve()
        if not (folder / PACKAGE).is_dir():
            raise CallError(f"--bind {word}: that is none of work, reference, stubs, and no "
                            f"folder that holds a {PACKAGE} folder")
    return folder


def module_named(word: str) -> str:
    """Return the module that ``word`` names: itself, or where it is the path of a file of work/,
    the module that is written there."""
    if not word.endswith(_SOURCES):
        return word
    course, file = load(), Path(word).resolve()
    if any(lesson.id == word for lesson in course.lessons):
        return word
    for module in course:
        if file == (work() / module.file_name).resolve() or word == Path(module.file_name).name:
            return module.name
    raise CallError(f"{word} is not the file of a module in work/; --bind FOLDER checks the files "
                    "of another folder")


def state_of(module: Module, source: Path) -> State:
    """Return what the module's file below ``source`` is like, against the stub."""
    try:
        data = read(source / module.file_name)
    except CallError:  # it costs this module, and no other
        return State.UNREADABLE
    if data is None:
        return State.MISSING
    if not data.strip():
        return State.EMPTY
    return State.STUB if _lines(data) == _lines(stub(module)) else State.BEGUN


def stub(module: Module) -> bytes:
    """Return the module's starting file."""
    data = read(ROOT / "stubs" / module.file_name)
    if data is None:
        raise KitError(f"stubs/{module.file_name} is missing; the checkout is incomplete")
    return data


def lay_out(course: Course, modules: tuple[Module, ...]) -> Laid:
    """Create the learner's files that are absent: the stubs of ``modules`` and the given parts."""
    wanted = {work() / ".gitignore": _IGNORED.encode(),
              work() / "tests" / "README.md": (ROOT / "course" / "own-tests.md").read_bytes()}
    for name in course.given:
        given = (ROOT / "reference" / PACKAGE / f"{name}.py").read_bytes()
        wanted[work() / PACKAGE / f"{name}.py"] = _GIVEN.encode() + given
    for module in modules:
        wanted |= {work() / module.file_name: stub(module)} | _given_of(module)
    created = tuple(path for path, data in wanted.items()
                    if not os.path.lexists(path) and create(path, data, scratch=memory()))
    return Laid(created, tuple(path for path in wanted if path not in created))


def edited_given(course: Course, source: Path) -> list[Path]:
    """Return the files below ``source`` that have the name of a provided one and another content,
    or hide it from Python: whatever runs here uses the kit's own."""
    found = []
    for name in course.given:
        own = (ROOT / "reference" / PACKAGE / f"{name}.py").read_bytes()
        file = source / PACKAGE / f"{name}.py"
        if file.is_file() and not _same(file, own, _GIVEN):
            found.append(file)
        if (hiding := source / PACKAGE / name / "__init__.py").is_file():
            found.append(hiding)
    for module in (m for m in course if m.program and source == work()):
        found += [path for path, data in _given_of(module).items()
                  if path.suffix in (".h", ".c") and path.is_file() and not _same(path, data)]
    return found


def used_instead(course: Course, source: Path) -> str:
    """Say which files are used in place of those, nothing where there are none."""
    names = [str(file.relative_to(source)) for file in edited_given(course, source)]
    if not names:
        return ""
    return (f"{', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
            + f" in {display_path(str(source))} {'differ' if names[1:] else 'differs'} from what "
            "the kit provides under that name: the kit's own is used, whatever is in there")


def lacking_given(course: Course) -> list[str]:
    """Return the provided modules that are not in the learner's package."""
    return [f"{name}.py" for name in course.given
            if not (work() / PACKAGE / f"{name}.py").exists()]


def _same(file: Path, own: bytes, head: str = "") -> bool:
    """True when a file has the lines of a provided one, with its head or without."""
    try:
        lines = _lines(file.read_bytes())
    except OSError:
        return False
    return lines in (_lines(own), _lines(head.encode() + own))


def _given_of(module: Module) -> dict[Path, bytes]:
    """Return the files that come with a program: what it is built with, to read and to try by
    hand, and what tells an editor where they are."""
    if module.program is None:
        return {}
    room = module.program.room
    folder = ROOT / "reference" / room
    files = [*sorted((folder / "include").rglob("*.h")), *sorted((folder / "support").glob("*.c"))]
    wanted = {work() / room / p.relative_to(folder): _GIVEN_C.encode() + p.read_bytes()
              for p in files}
    return wanted | {work() / room / "compile_flags.txt": b"-std=c11\n-Iinclude\n"}


def read(path: Path) -> bytes | None:
    """Return a file's bytes, or None where there is no such file."""
    try:
        if path.exists() and not path.is_dir() and not path.is_file():
            raise CallError(f"{path} cannot be read: it is not a file")  # a pipe would wait
        if path.is_file() and path.stat().st_size > _LARGE:
            raise CallError(f"{path} is larger than any module: {path.stat().st_size} bytes")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CallError(f"{path} cannot be read: {error.strerror}") from error


def digest(path: Path) -> str | None:
    """Return the SHA-256 of a file's bytes, None where there is no file that can be read."""
    with contextlib.suppress(CallError):
        data = read(path)
        return None if data is None else hashlib.sha256(data).hexdigest()
    return None


def _lines(data: bytes) -> list[bytes]:
    """Compare files as text: line ends and blank space at the end of a line do not count."""
    return [line.rstrip() for line in data.strip().splitlines()]
