"""What the kit's tests need for programs in C; without a compiler they are left out, and say so."""

import pytest

from grader import ROOT, compiler, programs
from grader.check import Wish, job
from grader.compiler import Compiler, NoCompiler
from grader.course import Course, Module
from grader.mutants import Mutant, reference_of
from grader.worker.limits import Limits
from grader.worker.session import Nursery, Outcome, Run
from tests.kit.wrongs import Wrong


def _found() -> Compiler | None:
    try:
        return compiler.find()
    except NoCompiler:
        return None


CC = _found()
WITHOUT = "left out: there is no C compiler here"
needs_compiler = pytest.mark.skipif(CC is None, reason=WITHOUT)


def skip_without_compiler(wrong: Wrong) -> None:
    if wrong.file.endswith(".c") and CC is None:
        pytest.skip(WITHOUT)


def hunted(course: Course, module: Module, mutant: Mutant, found: Compiler,
           nursery: Nursery) -> Outcome:
    """Build the reference with a planted bug in it and run the tests that must fail by it, chosen
    from the files of a whole check."""
    source = ROOT / "reference"
    tests = [t for t in module.tests if t.name in mutant.caught_by]
    driver = any(t.file.is_relative_to(module.suite) for t in tests)
    built = programs.build(module, source, found, text=mutant.applied(reference_of(module)),
                           driver=driver)
    plan = job(course, Wish(bind="reference"), source, module, tests, built)
    plan["suite"] = sorted({str(t.file) for t in module.tests
                            if driver or not t.file.is_relative_to(module.suite)})
    return Run(nursery, plan, Limits(seconds=60, import_seconds=60, mapped=False)).go()
