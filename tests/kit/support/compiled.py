"""What the kit's tests need for programs in C; without a compiler they are left out, and say so."""

import subprocess
from typing import Any

import pytest

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.compiler import Compiler, NoCompiler
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.course.planted_bugs import Mutant, reference_of
from grader.grading.check import CheckOptions, job
from grader.sandbox.api import Outcome, Run, WorkerPool
from grader.sandbox.limits import Limits
from tests.kit.support.wrongs import Wrong


def _found() -> Compiler | None:
    try:
        return compiler.find()
    except NoCompiler:
        return None


CC = _found()
_IN_GCCS_WORDS = {"c_does_not_compile"}
WITHOUT = "left out: there is no C compiler here"
needs_compiler = pytest.mark.skipif(CC is None, reason=WITHOUT)


def _is_gcc() -> bool:
    assert CC is not None
    said = subprocess.run([CC.program, "--version"], capture_output=True, text=True, check=True)
    return "Free Software Foundation" in said.stdout


def modules() -> list[Any]:
    """Return the course's modules by name, as parameters; one that must be built needs a
    compiler."""
    return [pytest.param(m.name, marks=needs_compiler if m.program else ())
            for m in courses.load()]


def skip_without_compiler(wrong: Wrong) -> None:
    if wrong.file.endswith(".c") and CC is None:
        pytest.skip(WITHOUT)
    if wrong.name in _IN_GCCS_WORDS and not _is_gcc():
        pytest.skip("left out: the compiler here is not gcc, in whose words this one is told")


def hunted(course: Course, module: Module, mutant: Mutant, found: Compiler,
           workers: WorkerPool) -> Outcome:
    """Build the reference with a planted bug in it and run the tests that must fail by it, chosen
    from the files of a whole check."""
    source = ROOT / "reference"
    tests = [t for t in module.tests if t.name in mutant.caught_by]
    driver = any(t.file.is_relative_to(module.suite) for t in tests)
    built = native_module.build(module, source, found, text=mutant.applied(reference_of(module)),
                           driver=driver)
    plan = job(course, CheckOptions(bind="reference"), source, module, tests, built)
    plan["suite"] = sorted({str(t.file) for t in module.tests
                            if driver or not t.file.is_relative_to(module.suite)})
    return Run(workers, plan, Limits(seconds=60, import_seconds=60, mapped=False)).go()
