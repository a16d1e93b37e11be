"""A learner's own tests in a worker: how they are imported, and what they may not read.

Tests judge by what a program does. So they are kept from the course's solutions, bugs and suites,
and from the grader: a test that reaches for one of them is refused, whatever it makes of the error.
"""

import ast
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from _pytest.assertion.rewrite import rewrite_asserts

from grader import ROOT
from grader.binding.finder import ASSERTIONS
from grader.learner.workspace import python_files

_CLOSED_ROOTS = ("grader", "reference", "tests")
_PACKAGE = "own_tests"  # what a learner's folder is imported as
_DOT = "%2e"  # stands in the name of a module for a dot in the name of its file
_ANSWERS = "a test may not see solutions, planted bugs, the course's own tests, or the grader"
_KILLING = ("os.kill", "os.killpg")
_READING = ("open", "os.listdir", "os.scandir")
# Where code lies that reads on behalf of others, and where the grader's own and its tools' does.
_BETWEEN = ("<frozen ", os.path.join(os.path.dirname(os.__file__), ""))
_SITE = os.path.join(os.path.dirname(os.path.dirname(pytest.__file__)), "")
_OURS = (os.path.join(str(ROOT / "grader"), ""),
         *(_SITE + tool for tool in ("_pytest", "pluggy", "hypothesis", "_hypothesis")))


class Refused(Exception):
    """A test reached for what would tell it the answers."""


class Tests(MetaPathFinder):
    """The Python files of some folders, compiled once with asserts that tell what they compared.

    What lies in ``folder`` is a learner's, which may not read ``closed``: once `close` was called
    it cannot, and what was tried is kept in ``refused``. Where several folders of it are ``rooms``,
    each may have helpers of the same name: see `enter`.
    """

    def __init__(self, rooms: Sequence[str], folder: str | None, closed: Sequence[str]) -> None:
        self.rooms = rooms
        self.folder = folder
        self.closed = [os.path.join(os.path.realpath(room), "") for room in closed]
        self.room = rooms[0] if folder and rooms else ""  # where plain imports look
        self.plain: set[str] = set()  # what was found so
        self.away: dict[str, dict[str, ModuleType]] = {}  # what other rooms' imports have found
        self.codes: dict[str, CodeType | BaseException] = {}
        self.is_closed = False
        self.parent = 0
        self.refused: str | None = None

    def compile(self, config: pytest.Config) -> None:
        """Read and compile the files. Why one cannot be is told to whoever imports it."""
        for room in self.rooms:
            for file in python_files(Path(room)):
                try:
                    self.codes[str(file)] = _compiled(file, config)
                except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
                    self.codes[str(file)] = error
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the folder; refuse the kit's own."""
        rooms = [self.room] if path is None else list(path)
        for room in rooms:
            file = os.path.join(room, fullname.rpartition(".")[2].replace(_DOT, ".") + ".py")
            if (code := self.codes.get(file)) is not None:
                if not fullname.startswith(_PACKAGE + "."):
                    self.plain.add(fullname)
                return spec_from_file_location(fullname, file, loader=_Compiled(code))
        if self.is_closed and _is_closed(fullname):
            self.refuse(f"import {fullname}")
        return None

    def load(self, file: Path) -> ModuleType:
        """Import a learner's file of tests, whatever packages it may seem to lie in."""
        assert self.folder is not None
        self.enter(file)
        parts = file.relative_to(self.folder).with_suffix("").parts
        words = [part.replace(".", _DOT) for part in parts]
        for depth in range(len(parts)):
            name = ".".join((_PACKAGE, *words[:depth]))
            if name not in sys.modules:
                sys.modules[name] = package = ModuleType(name)
                package.__path__ = [os.path.join(self.folder, *parts[:depth])]
        return importlib.import_module(".".join((_PACKAGE, *words)))

    def enter(self, file: Path) -> None:
        """Let plain imports find what lies in the room of this file, and nothing of another's."""
        room = next((r for r in self.rooms if file.is_relative_to(r)), self.room)
        if self.folder is None or room == self.room:
            return
        self.away[self.room] = {name: sys.modules.pop(name) for name in self.plain
                                if name in sys.modules}
        here = self.away.pop(room, {})
        self.room, self.plain = room, set(here)
        sys.modules.update(here)

    def close(self) -> None:
        """From here on refuse what is closed. For a worker, after all of its own imports."""
        self.parent = os.getppid()
        if self.is_closed:
            return  # a process above this one has done the rest
        self.is_closed = True
        sys.meta_path.remove(self)
        sys.meta_path.insert(0, self)  # before what finds the suites
        for name in list(sys.modules):
            if _is_closed(name):
                del sys.modules[name]
        sys.addaudithook(self._hear)

    def refuse(self, what: str, why: str = _ANSWERS) -> None:
        """Keep a test from something, and remember that it tried."""
        self.refused = self.refused or f"it wanted to {what}, but {why}"
        raise Refused(self.refused)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _KILLING and args[0] in (0, -1, self.parent):
            self.refuse("kill the process above it", "that one starts all tests")
        if event not in _READING or not args or not isinstance(args[0], str | bytes | os.PathLike):
            return
        path = os.path.realpath(os.fsdecode(args[0]))
        for room in self.closed:
            if os.path.join(path, "").startswith(room) and not self._by_us():
                self.refuse(f"read {os.path.relpath(path, os.path.dirname(room.rstrip(os.sep)))}")

    def _by_us(self) -> bool:
        """True when the grader or its tools read, such as the source of a line to be shown."""
        frame = sys._getframe(2)
        while frame.f_back and frame.f_code.co_filename.startswith(_BETWEEN):
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(_OURS)


class _Compiled(Loader):
    def __init__(self, code: CodeType | BaseException) -> None:
        self.code = code

    def exec_module(self, module: ModuleType) -> None:
        if isinstance(self.code, BaseException):
            raise self.code
        exec(self.code, vars(module))


def _compiled(file: Path, config: pytest.Config) -> CodeType:
    source = file.read_bytes()
    tree = ast.parse(source, filename=file)
    rewrite_asserts(tree, source, str(file), config)
    return compile(tree, file, "exec", dont_inherit=True)


def _is_closed(module: str) -> bool:
    return (module.split(".")[0] in _CLOSED_ROOTS and module != "tests"
            and not f"{module}.".startswith(f"{ASSERTIONS}."))
