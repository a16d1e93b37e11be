"""The verdicts are right: on the reference, on other right programs, on stubs, on planted bugs."""

from pathlib import Path

import pytest

from grader import course as courses
from grader.course import Course
from grader.mutants import mutants_of, reference_of
from grader.report import Status, Verdict
from grader.worker.session import Nursery
from tests.kit.judged import IMPLEMENTATIONS, implementation, judge, program, said

COURSE = courses.load()
MODULES = [m.name for m in COURSE]
MUTANTS = [(m.name, x.id) for m in COURSE for x in mutants_of(m)]


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_passes_with_only_what_it_needs(
    course: Course, nursery: Nursery, name: str
) -> None:
    result = judge(course, nursery, course.module(name), "reference")
    assert result.status is Status.PASSED, said([result])


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_fails_every_test_by_name(course: Course, nursery: Nursery, name: str) -> None:
    module = course.module(name)
    own = {f.name.removesuffix(".__init__") for f in module.fills}
    result = judge(course, nursery, module, "stubs")
    for test in result.tests:
        assert test.verdict is Verdict.TODO, said([result])
        assert test.failure is not None
        assert test.failure.what.removesuffix(" is not written yet") in own, test


def test_there_are_several_right_programs() -> None:
    assert len(IMPLEMENTATIONS) >= 4


@pytest.mark.parametrize("who", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", MODULES)
def test_a_right_program_of_another_design_passes(
    course: Course, nursery: Nursery, name: str, who: str
) -> None:
    result = judge(course, nursery, course.module(name), implementation(who),
                   reference_needs=False)
    assert result.status is Status.PASSED, said([result])


@pytest.mark.parametrize("who", IMPLEMENTATIONS)
def test_a_right_module_passes_on_the_references_needs(
    course: Course, nursery: Nursery, who: str
) -> None:
    for module in course:
        if module.needs:
            result = judge(course, nursery, module, implementation(who))
            assert result.status is Status.PASSED, said([result])


@pytest.mark.parametrize(("name", "bug"), MUTANTS)
def test_a_planted_bug_is_caught_by_the_tests_of_its_row(
    course: Course, nursery: Nursery, tmp_path: Path, name: str, bug: str
) -> None:
    module = course.module(name)
    mutant = next(x for x in mutants_of(module) if x.id == bug)
    folder = program(tmp_path, module, mutant.applied(reference_of(module)))
    for test in mutant.caught_by:
        (result,) = judge(course, nursery, module, folder, only=test).tests
        assert result.verdict is Verdict.FAILED, f"{bug} survives {test}"
        assert result.failure is not None
        assert result.failure.what
