"""The right programs of other designs than the reference's, in `tests/implementations/`.

A test that one of them fails asks for more than the contract: the course's own tests are held
against them by the kit, a learner's by `mutation`.
"""

import ast
import re
from functools import cache
from pathlib import Path

from grader import ROOT
from grader.course.model import PACKAGE, Module

ROOMS = ROOT / "tests" / "implementations"


@cache
def implementations() -> list[str]:
    """Return the names of the right programs."""
    return sorted(p.name for p in ROOMS.iterdir() if (p / PACKAGE).is_dir())


def design(module: Module, folder: Path) -> str:
    """Return in a line how the module of a right program is made: the first paragraph of its
    docstring, or of the comment that a file in C begins with."""
    text = (folder / module.file_name).read_text(encoding="utf-8")
    if module.program:
        found = re.match(r"/\*(.*?)\*/", text, re.DOTALL)
        doc = found[1] if found else ""
    else:
        doc = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(doc.strip().split("\n\n")[0].split())
