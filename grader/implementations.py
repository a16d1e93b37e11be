"""The right programs of other designs than the reference's, in `tests/implementations/`.

A test that one of them fails asks for more than the contract: the course's own tests are held
against them by the kit, a learner's by `mutation`.
"""

import ast
from functools import cache
from pathlib import Path

from grader import ROOT
from grader.course import PACKAGE, Module

ROOMS = ROOT / "tests" / "implementations"


@cache
def implementations() -> list[str]:
    """Return the names of the right programs."""
    return sorted(p.name for p in ROOMS.iterdir() if (p / PACKAGE).is_dir())


def design(module: Module, folder: Path) -> str:
    """Return in a line how the module of a right program is made: the first line of its
    docstring."""
    doc = ast.get_docstring(ast.parse((folder / module.file_name).read_text(encoding="utf-8")))
    return (doc or "").split("\n\n")[0].replace("\n", " ")
