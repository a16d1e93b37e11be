"""What tests are tried on: programs of one module, as texts."""

import ast
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from grader.course import Course, Module
from grader.implementations import ROOMS, design, implementations
from grader.mutants import mutants_of, reference_of

REFERENCE = "reference"


@dataclass(frozen=True)
class Program:
    """A module's source. ``needs`` is the folder of the modules under it, None for the
    reference's; ``what`` says in words what kind of program it is."""

    id: str
    text: str
    what: str = ""
    needs: Path | None = None


def right(course: Course, module: Module) -> list[Program]:
    """Return the right programs, the reference first. Each stands on modules of its own design."""
    found = [Program(REFERENCE, reference_of(module), design(module, ROOT / "reference"))]
    for name in implementations():
        room = ROOMS / name
        if all((room / m.file_name).is_file() for m in (*course.closure(module), module)):
            found.append(Program(name, (room / module.file_name).read_text(encoding="utf-8"),
                                 design(module, room), room))
    return found


def controls(programs: list[Program]) -> list[Program]:
    """Return right programs that nobody has seen: these, with other text and other bytecode."""
    return [Program(f"{p.id}, written otherwise", reshaped(p.text), p.what, p.needs)
            for p in programs]


def planted(module: Module) -> list[Program]:
    """Return the reference with one planted bug each."""
    text = reference_of(module)
    return [Program(m.id, m.applied(text), m.pitfall) for m in mutants_of(module)]


def reshaped(text: str) -> str:
    """Return a program that does the same as ``text``: no line, no docstring and no function's
    bytecode is as it was."""
    return ast.unparse(ast.fix_missing_locations(_Reshape().visit(ast.parse(text))))


class _Reshape(ast.NodeTransformer):
    """Gives each function a first statement that does nothing, and takes its docstring away."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        idle = ast.parse("() == ()").body
        node.body = [*idle, *body]
        return node
