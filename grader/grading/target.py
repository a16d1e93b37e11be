"""Which program stands for a module in a run, and what is built for that."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.compiler import NoCompiler, Refused
from grader.binding.native_module import Built, program_of
from grader.course.model import Course, Module, Test
from grader.errors import CallError
from grader.grading.report import Failure, Line
from grader.learner.plain_text import plain


@dataclass(frozen=True)
class NativeOptions:
    """What ``--pool`` and ``--cc`` say: a program's language, and the compiler for it."""

    language: str | None = None
    cc: str | None = None


NO_NATIVE = NativeOptions()


def check_options(course: Course, names: Iterable[str], pool: NativeOptions) -> None:
    """Refuse a compiler where no program is asked for: it would be passed over in silence."""
    modules = course.named(names) if names else course
    if pool.cc and not pool.language and not any(m.program for m in modules):
        languages = sorted({m.program.language for m in course if m.program})
        raise CallError("--cc is for a program, and none is asked for: add --pool "
                        + " or ".join(languages))


class Uncompiled(Exception):
    """A program cannot be built; ``failure`` says why, for a report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


def target_of(course: Course, pool: str | None, module: Module) -> Module:
    """Return the module whose file is judged: the program in the language ``pool``, where it
    stands for ``module``."""
    program = course.program(pool) if pool else module
    return program if module in program.shared else module


def build(course: Course, module: Module, tests: list[Test], source: Path, pool: NativeOptions, *,
          reference_needs: bool, named: Collection[str] = ()) -> Built | None:
    """Build the program that this run of ``module`` needs; None where it needs none. With
    ``reference_needs`` it is the reference's, unless it stands for ``module`` or one ``named``.

    Raises ``Uncompiled``, or ``NoCompiler``.
    """
    language = pool.language
    program = module if module.program else course.program(language) if language else None
    if program is None or not _involved(course, program, module):
        return None
    own = program is target_of(course, language, module) or any(
        part.name in named for part in (program, *program.shared))
    where = source if own or not reference_needs else ROOT / "reference"
    driver = any(map(program.holds, tests))
    try:
        return native_module.build(program, where, compiler.find(pool.cc), driver=driver)
    except Refused as refused:
        what, lines = native_module.explained(refused, program, where)
        text = (where / program_of(program).source).read_text("utf-8", "replace").splitlines()
        code = [Line(plain(file), line, function,
                     plain(text[line - 1]).strip() if line <= len(text) else "")
                for file, line, function in lines]
        raise Uncompiled(Failure("compile", what, code=code)) from refused


def missing_tool(module: Module, cc: str | None = None) -> str | None:
    """Return what a module needs that is not there, in words: the compiler of a program."""
    if module.program:
        try:
            compiler.find(cc)
        except NoCompiler as error:
            return f"{module.name} needs {error}"
    return None


def modules_of(course: Course, module: Module) -> tuple[Module, ...]:
    """Return the modules that a run of ``module`` imports: those that it needs and itself; of a
    program, those that it stands for."""
    return module.shared or (*course.closure(module), module)


def recorded_calls(course: Course, module: Module, built: Built | None) -> dict[str, Any]:
    """Return what of each module of a run is recorded: the calls of its fills, which of them only
    answer, and where a program has what does their work."""
    return {m.name: {"names": [f.name for f in m.fills],
                     "queries": [f.name for f in m.fills if f.query],
                     "behind": built.behind(m.name) if built else {}}
            for m in modules_of(course, module)}


def _involved(course: Course, program: Module, module: Module) -> bool:
    """Say whether a run of ``module`` meets one that the program stands for."""
    return program is module or any(m in program.shared for m in (*course.closure(module), module))
