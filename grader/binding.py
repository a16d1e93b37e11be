"""Which file stands behind which module name: the one choice that every run of the grader makes.

A `Binding` is plain data, chosen by the grader and sent to a worker. There, `install` puts a
finder in front of Python's own, so that ``import tinyllm.<name>`` loads the chosen file and the
suites never know whose it is.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.course import PACKAGE, Course, Module


@dataclass(frozen=True)
class Binding:
    """``files`` maps a module's name to its source; those in ``own`` are the learner's;
    ``tests`` is the room of the suites."""

    files: dict[str, str]
    own: tuple[str, ...]
    tests: str


def bind(
    course: Course, root: Path, module: Module, source: Path, *, reference_needs: bool
) -> Binding:
    """Bind ``module`` to ``source``/tinyllm, and the modules it needs to ``source`` or, with
    ``reference_needs``, to the reference. Given parts are always the reference's. Helper modules
    that the learner added beside the course's own are bound too."""
    reference = root / "reference"
    files = {name: str(reference / PACKAGE / f"{name}.py") for name in course.given}
    for need in course.closure(module):
        files[need.name] = str((reference if reference_needs else source) / need.file_name)
    files[module.name] = str(source / module.file_name)
    own = [module.name] + ([] if reference_needs else [m.name for m in course.closure(module)])
    taken = {m.name for m in course} | set(course.given)
    helpers = {p.stem: str(p) for p in (source / PACKAGE).glob("*.py") if p.stem not in taken}
    return Binding(helpers | files, (*own, *sorted(helpers)), str(root / "tests"))


class Finder(MetaPathFinder):
    """Finds `tinyllm` and the suites' package where a binding says, and nowhere else."""

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
        if fullname == "tests":
            return importlib.util.spec_from_file_location(
                fullname, f"{self.binding.tests}/__init__.py",
                submodule_search_locations=[self.binding.tests])
        return None

    def _module(self, fullname: str, name: str) -> importlib.machinery.ModuleSpec:
        file = self.binding.files.get(name)
        if file is None:
            raise ModuleNotFoundError(f"{fullname} is not there: this check binds "
                                      f"{', '.join(sorted(self.binding.files))}", name=fullname)
        # A loader that compiles from source each time: no stale bytecode, nothing written beside
        # the learner's files.
        loader = _SourceOnly(fullname, file)
        spec = importlib.util.spec_from_file_location(fullname, file, loader=loader)
        assert spec is not None
        return spec


class _SourceOnly(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def install(binding: Binding) -> None:
    """Make this process import by ``binding``. For a worker only: the grader binds nothing."""
    sys.meta_path.insert(0, Finder(binding))
