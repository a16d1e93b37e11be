"""What tests are tried on: programs of one module, as texts, and how each is bound."""

import ast
from dataclasses import dataclass, replace
from pathlib import Path

from grader import ROOT
from grader.binding import native_module
from grader.binding.compiler import Compiler, Refused
from grader.binding.finder import Binding, bind
from grader.course.model import Course, Module
from grader.course.planted_bugs import gradable, reference_of
from grader.course.reference_designs import ROOMS, design, implementations
from grader.errors import KitError

REFERENCE = "reference"


@dataclass(frozen=True)
class Program:
    """A module's source. ``needs`` is the folder of the modules under it and, in another language,
    of the files beside it, None for the reference's; ``what`` says in words what kind of program it
    is. One that is not ``steady`` does not do the same each time."""

    id: str
    text: str
    what: str = ""
    needs: Path | None = None
    steady: bool = True


def right(course: Course, module: Module) -> list[Program]:
    """Return the right programs, the reference first. Each stands on modules of its own design."""
    found = [Program(REFERENCE, reference_of(module), design(module, ROOT / "reference"))]
    for name in implementations():
        room = ROOMS / name
        if all((room / m.file_name).is_file() for m in (*course.closure(module), module)):
            found.append(Program(name, (room / module.file_name).read_text(encoding="utf-8"),
                                 design(module, room), room))
    return found


def controls(module: Module, right: list[Program]) -> list[Program]:
    """Return right programs that nobody has seen: these, with other text and other bytecode."""
    otherwise = native_module.reshaped if module.program else reshaped
    return [Program(f"{p.id}, written otherwise", otherwise(p.text), p.what, p.needs)
            for p in right]


def planted(module: Module) -> list[Program]:
    """Return the reference with one planted bug each, of those that a test can see."""
    text = reference_of(module)
    return [Program(m.id, m.applied(text), m.pitfall, steady=not m.unsteady)
            for m in gradable(module)]


def bound(course: Course, module: Module, program: Program, compiler: Compiler | None) -> Binding:
    """Return the binding with ``program`` behind the module's name: its text or, in another
    language, what ``compiler`` makes of it."""
    binding = bind(course, ROOT, module, program.needs or ROOT / "reference",
                   reference_needs=program.needs is None)
    if compiler is None:
        return replace(binding, texts={module.name: program.text})
    try:
        return native_module.build(module, program.needs or ROOT / "reference", compiler,
                                   driver=False, text=program.text).bind(binding)
    except Refused as refused:
        raise KitError(f"{program.id} of {module.name} cannot be built: {refused}") from refused


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
