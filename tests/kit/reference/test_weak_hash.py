"""Names cut to 8 bits: prompts collide at every depth all the time, and the proof of a hit must
hold by itself. The weak hash is one more binding of `tinyllm.block_hash`; the suite is as it is."""

import shutil
from pathlib import Path

import pytest

from grader import ROOT
from grader.course.model import Course
from grader.course.planted_bugs import mutants_of, reference_of
from grader.grading.report import Status, Verdict
from grader.sandbox.api import WorkerPool
from tests.kit.support.judged import IMPLEMENTATIONS, implementation, judge, said

MODULE = "block_manager"
TESTS = ("a_forced_collision_never_serves_another_prompt", "long_traffic_reads_only_its_own")
BUGS = ("r13", "k02")  # a name for a proof, and the block's own tokens for one


def weaken(course: Course, folder: Path, program: Path) -> Path:
    """Copy a program below ``folder``, with all names of blocks cut to 8 bits."""
    shutil.copytree(program / "tinyllm", folder / "tinyllm")
    whole = reference_of(course.module("block_hash"))
    weak = whole.replace("return state or 1", "return state & 0xFF or 1")
    assert weak != whole
    (folder / "tinyllm" / "block_hash.py").write_text(weak, encoding="utf-8")
    return folder


@pytest.mark.parametrize("who", [*IMPLEMENTATIONS, "reference"])
def test_a_right_manager_needs_no_strong_hash(
    course: Course, workers: WorkerPool, tmp_path: Path, who: str
) -> None:
    program = ROOT / "reference" if who == "reference" else implementation(who)
    folder = weaken(course, tmp_path / who, program)
    for test in TESTS:
        result = judge(course, workers, course.module(MODULE), folder, reference_needs=False,
                       only=test)
        assert result.status is Status.PASSED, said([result])


@pytest.mark.parametrize("bug", BUGS)
def test_a_manager_that_trusts_the_hash_is_found_out(
    course: Course, workers: WorkerPool, tmp_path: Path, bug: str
) -> None:
    module = course.module(MODULE)
    folder = weaken(course, tmp_path / bug, ROOT / "reference")
    mutant = next(x for x in mutants_of(module) if x.id == bug)
    (folder / module.file_name).write_text(mutant.applied(reference_of(module)), encoding="utf-8")
    (result,) = judge(course, workers, module, folder, reference_needs=False, only=TESTS[1]).tests
    assert result.verdict is Verdict.FAILED
