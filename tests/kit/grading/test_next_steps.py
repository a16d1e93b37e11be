"""What only advises: the next step, and what a score of own tests depends on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from grader.course.model import Course
from grader.grading import next_steps
from grader.grading.check import CheckOptions, check
from grader.grading.mutation import own_tests_score
from grader.grading.report import Status, Verdict
from grader.learner import workspace
from grader.sandbox.api import WorkerPool
from tests.kit.support import copies


def test_advice_knows_no_pass_that_has_nothing_to_write(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """A failing test may belong to a pass for which its module has nothing to write."""
    module = course.module("block_hash")
    options = CheckOptions((module.name,), "stubs", only=module.tests[0].name)
    report = check(course, options, workers)
    (result,) = report.modules
    failing = replace(result.tests[0], pass_=9, verdict=Verdict.FAILED)
    report = replace(report, binding="work", only=None, modules=[
        replace(result, status=Status.FAILED, tests=[failing])])
    assert next_steps.next_steps(report, course)[0].startswith("Next: ")


def test_a_score_of_own_tests_in_c_depends_on_every_source(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On helper files, headers and what is given, and on the compiler; and on the tests' own data,
    but not on what Python keeps beside them."""
    module = course.module("c_kv_pool")
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    place = copies.copy(tmp_path)
    monkeypatch.setattr("grader.grading.mutation.own_tests_score.ROOT", place)
    work = tmp_path / "work"
    monkeypatch.setattr(workspace, "work", lambda: work)
    room = work / "tests" / module.test_rooms[0]
    room.mkdir(parents=True)
    (room / "test_it.py").write_text("def test_it():\n    pass\n")
    known = [own_tests_score._digest(course, module, None)]
    reference = place / "reference"
    for file in (next((reference / "c/src").glob("*.c")),
                 next((reference / "c/include").rglob("*.h")),
                 next((reference / "c/support").glob("*.c")), reference / "tinyllm/errors.py",
                 room / "data.txt"):
        with file.open("a") as text:
            text.write("\n")
        known.append(own_tests_score._digest(course, module, None))
    assert len(set(known)) == len(known)
    (room / "__pycache__").mkdir()
    (room / "__pycache__/test_it.pyc").write_bytes(b"x")
    assert own_tests_score._digest(course, module, None) == known[-1]
