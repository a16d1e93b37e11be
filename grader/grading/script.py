"""Running a module's bench or demo in a worker, over whosever code is bound."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from grader import ROOT
from grader.binding.compiler import NoCompiler
from grader.binding.finder import bind
from grader.course.model import Course, Module, Script
from grader.course.test_selection import dotted
from grader.errors import CallError
from grader.grading.report import Failure
from grader.grading.target import NO_NATIVE, NativeOptions, Uncompiled, build, target_of
from grader.learner.workspace import State, source_of, state_of
from grader.sandbox.api import Run, WorkerPool
from grader.sandbox.limits import Limits


@dataclass(frozen=True)
class ScriptResult:
    """What came of a script: why it did not come to its end, if so, and what was printed."""

    failure: Failure | None = None
    printed: str = ""


def modules_with(course: Course, words: tuple[str, ...], what: str) -> tuple[Module, ...]:
    """Return the modules of ``words`` that have a ``what``, "bench", "demo" or "study"; without any
    words the first of the course that has one."""
    named = course.named(words) if words else tuple(course)
    if found := tuple(m for m in named if getattr(m, what)):
        return found if words else found[:1]
    known = [m.name for m in course if getattr(m, what)]
    raise CallError(f"there is no {what} in {', '.join(words) or 'this course'}: "
                    f"{', '.join(known) or 'no module'} has one")


def run_script(course: Course, module: Module, script: Script, workers: WorkerPool, where: str, *,
         reference_needs: bool, figure: Callable[[dict[str, Any]], None],
         pool: NativeOptions = NO_NATIVE, plan: dict[str, Any] | None = None,
         named: Collection[str] = ()) -> ScriptResult:
    """Run ``script`` over the code in ``where``, a word of ``--bind``, with a program of the
    language of ``pool`` in the place of what it stands for; ``figure`` hears each figure at
    once. ``plan``, plain data, is what the script is asked for. With ``reference_needs`` the
    modules that it needs are the reference's, except those that were ``named``."""
    source = source_of(where)
    own = (module, *(m for m in course.closure(module)
                     if not reference_needs or m.name in named))
    for part in own:
        part = target_of(course, pool.language, part)
        if (state := state_of(part, source)) is not State.BEGUN:
            instead = ("see the reference's with --bind reference" if part is module
                       else "take it from the reference with --ref-deps")
            return ScriptResult(Failure("needs", f"{part.name} is needed, and {state.sentence}: "
                                        f"write it, or {instead}."))
    try:
        built = build(course, module, [], source, pool, reference_needs=reference_needs,
                      named=named)
    except NoCompiler as missing_tool:
        return ScriptResult(Failure("needs", f"a program is needed, and with it {missing_tool}."))
    except Uncompiled as error:
        return ScriptResult(error.failure)
    binding = bind(course, ROOT, module, source, reference_needs=reference_needs, named=named)
    if built:
        binding = built.bind(binding)
    name, bound = script.file.stem, (*course.closure(module), module)
    outcome = Run(workers, {
        "root": str(ROOT), "files": _beside(course, script) | binding.files,
        "own": list(binding.own), "tests": [name],
        "suite": [str(script.file)], "script": dotted(script.file),
        "modules": [m.name for m in bound], "watch": {}, "view": None,
        "tests_room": binding.tests, "arguments": [] if plan is None else [plan],
    }, Limits(seconds=script.seconds, cpu=None), figure=figure).go()
    if outcome.broken:
        _, account = outcome.broken
        return ScriptResult(Failure.from_json(account))
    if (result := outcome.results.get(name)) is None:
        return ScriptResult(Failure("not judged", outcome.unjudged or "it did not run"))
    failure = Failure.from_json(result["failure"]) if result["failure"] else None
    return ScriptResult(failure, result["printed"])


def _beside(course: Course, script: Script) -> dict[str, str]:
    """Return the reference's files of what a script has beside the modules that are judged."""
    named = (course.module(name) for name in script.beside)
    return {part.name: str(ROOT / "reference" / part.file_name)
            for module in named for part in (*course.closure(module), module)}
