"""Which file stands behind which module name: the one choice that every run of the grader makes.

A `Binding` is plain data, chosen by the grader and sent to a worker. There, `install` puts a
finder in front of Python's own, so that ``import tinyllm.<name>`` loads the chosen file and the
suites never know whose it is.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from grader import ROOT
from grader.course.model import PACKAGE, Course, Module

ASSERTIONS = "grader.assertions"  # what the suites judge with


@dataclass(frozen=True)
class Binding:
    """``files`` maps a module's name to its source; those in ``own`` are the learner's;
    ``tests`` is the room of the suites. ``texts`` maps a name to a source that is in no file, and
    goes first."""

    files: dict[str, str]
    own: tuple[str, ...]
    tests: str
    texts: dict[str, str] = field(default_factory=dict)


def bind(
    course: Course, root: Path, module: Module, source: Path, *, reference_needs: bool,
    named: Collection[str] = (),
) -> Binding:
    """Bind ``module`` to ``source``/tinyllm, and the modules it needs to ``source`` or, with
    ``reference_needs``, to the reference, except those that were ``named``. Given parts are always
    the reference's. Helper modules that the learner added beside the course's own are bound too."""
    reference = root / "reference"
    files = {name: str(reference / PACKAGE / f"{name}.py") for name in course.given}
    if module.program:  # it is no file that Python can import: see `stand_in`
        return Binding(files, (), str(root / "tests"))
    own = [module.name]
    for need in course.closure(module):
        theirs = reference_needs and need.name not in named
        files[need.name] = str((reference if theirs else source) / need.file_name)
        own += [] if theirs else [need.name]
    files[module.name] = str(source / module.file_name)
    taken = {m.name for m in course} | set(course.given)
    helpers = {p.stem: str(p) for p in (source / PACKAGE).glob("*.py") if p.stem not in taken}
    return Binding(helpers | files, (*own, *sorted(helpers)), str(root / "tests"))


def stand_in(binding: Binding, adapters: Path, built: dict[str, str]) -> Binding:
    """Put the modules in ``adapters`` in the place of those of their names, over what was
    ``built``: files that are no Python, under names of their own. None of that is the learner's
    Python."""
    files = {path.stem: str(path) for path in sorted(adapters.glob("*.py"))} | built
    own = tuple(name for name in binding.own if name not in files)
    return Binding(binding.files | files, own, binding.tests)


class Finder(MetaPathFinder):
    """Finds `tinyllm` and the suites where a binding says, and nowhere else."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == PACKAGE:
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        if fullname.startswith(PACKAGE + "."):
            return self._module(fullname, fullname.removeprefix(PACKAGE + "."))
        if fullname.partition(".")[0] == "tests":
            return self._source(fullname, Path(self.binding.tests, *fullname.split(".")[1:]))
        if f"{fullname}.".startswith(ASSERTIONS + "."):
            return self._source(fullname, Path(ROOT, *fullname.split(".")))
        return None

    @staticmethod
    def _source(fullname: str, place: Path) -> importlib.machinery.ModuleSpec | None:
        """Find a module of the suites, or what they judge with. It is compiled from its source:
        bytecode that lies beside it may be anybody's."""
        for file, inside in ((place / "__init__.py", [str(place)]),
                             (place.with_name(f"{place.name}.py"), None)):
            if file.is_file():
                return importlib.util.spec_from_file_location(
                    fullname, file, loader=_SourceOnly(fullname, str(file)),
                    submodule_search_locations=inside)
        return None

    def _module(self, fullname: str, name: str) -> importlib.machinery.ModuleSpec:
        if (text := self.binding.texts.get(name)) is not None:
            return importlib.machinery.ModuleSpec(
                fullname, _Text(compile_text(name, text)), origin=text_file(name))
        file = self.binding.files.get(name)
        if file is None:
            raise ModuleNotFoundError(f"{fullname} is not there: this check binds "
                                      f"{', '.join(sorted(self.binding.files))}", name=fullname)
        # A loader that compiles from source each time: no stale bytecode, nothing written beside
        # the learner's files.
        loader = _SourceOnly(fullname, file) if file.endswith(".py") else _Built()
        spec = importlib.util.spec_from_file_location(fullname, file, loader=loader)
        assert spec is not None
        return spec


class _Built(Loader):
    """Stands for a file that is no Python: its module says where it lies, and nothing else."""

    def exec_module(self, module: ModuleType) -> None:
        pass


class _SourceOnly(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return _COMPILED.get(path) or self.source_to_code(self.get_data(path), path)


class _Text(Loader):
    """Loads a module from a text. It can be run, but nobody is shown it."""

    def __init__(self, code: CodeType) -> None:
        self.code = code

    def exec_module(self, module: ModuleType) -> None:
        exec(self.code, vars(module))


_COMPILED: dict[str, CodeType] = {}


def text_file(name: str) -> str:
    """Return what a module that is a text calls its file."""
    return f"{PACKAGE}/{name}.py"


@lru_cache(maxsize=4)
def compile_text(name: str, text: str) -> CodeType:
    """Return the code of a module that is a text."""
    return compile(text, text_file(name), "exec", dont_inherit=True)


def compile_texts(job: dict[str, Any]) -> None:
    """Compile the programs of a job, so that a worker need not: its memory is not warm."""
    for name, text in job["texts"].items():
        compile_text(name, text)


def compile_once(files: Iterable[str]) -> None:
    """Compile these files now, for all processes forked from this one. They must not change."""
    for file in (f for f in files if f.endswith(".py")):
        _COMPILED[file] = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)


def install(binding: Binding) -> None:
    """Make this process import by ``binding``. For a worker only: the grader binds nothing."""
    sys.meta_path.insert(0, Finder(binding))
