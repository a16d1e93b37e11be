"""Generated mutants: the kit's own suites catch each that is not left out, with a reason; and our
verdicts on them are mutmut's."""

import shutil
from pathlib import Path

import pytest

from grader.cli.mutants import caught_by_suite
from grader.course import manifest as courses
from grader.course.model import Course
from grader.course.planted_bugs import reference_of
from grader.errors import KitError
from grader.grading.mutation import generated_mutants, mutmut_adapter
from grader.grading.mutation.candidates import REFERENCE, Program
from grader.grading.mutation.grade import search_generated
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import learners
from grader.sandbox.api import WorkerPool
from tests.kit.bench.mutation import mutmut
from tests.kit.support.judged import KIT

MODULES = [m.name for m in courses.load() if not m.program]


@pytest.mark.parametrize("name", MODULES)
def test_the_suite_catches_every_mutant(course: Course, workers: WorkerPool, name: str) -> None:
    """A fault that lives here wants a sharper test; what is no fault, a reason in the data."""
    tried = caught_by_suite(course, course.module(name), workers)
    assert [(s.id, s.line, s.was, s.now) for s in tried.survivors] == []
    assert tried.tried > 100


@pytest.mark.parametrize("name", MODULES)
def test_the_mutants_are_as_mutmut_makes_them(
    course: Course, workers: WorkerPool, name: str
) -> None:
    module = course.module(name)
    made = generated_mutants.make(workers, reference_of(module))
    held = generated_mutants.load(module)
    assert [{**m, "left_out": None} for m in held] == [{**m, "left_out": None} for m in made], (
        f"`ol author mutants {name}` makes them anew")
    assert len({m["id"] for m in held}) == len(held)
    texts = {mutmut_adapter.applied(reference_of(module), m) for m in held}
    assert len(texts) == len(held), "no two are the same program"


@pytest.mark.parametrize("name", MODULES)
def test_what_is_left_out_has_a_reason(course: Course, name: str) -> None:
    held = generated_mutants.load(course.module(name))
    reasons = [m["left_out"] for m in held if "left_out" in m]
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) < len(held) / 4


def test_mutants_of_another_reference_are_refused(course: Course) -> None:
    module = course.module("block_hash")
    mutant = generated_mutants.load(module)[0]
    with pytest.raises(ValueError, match="is not what it was"):
        mutmut_adapter.applied(reference_of(module).replace("    state =", "    state  ="), mutant)


def test_data_of_another_reference_are_refused(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated_mutants, "reference_of", lambda module: "another")
    with pytest.raises(KitError, match="`ol author mutants block_hash` makes it anew"):
        generated_mutants.load(course.module("block_hash"))


def test_our_verdicts_are_mutmuts(course: Course, workers: WorkerPool, tmp_path: Path) -> None:
    """On the same mutants and the same tests: a learner's test that is a thin one, so that there
    are many of both verdicts."""
    module = course.module("block_hash")
    tests = KIT / "learners" / "thin" / module.name
    theirs = mutmut(module.name, [module.name], tests, tmp_path / "theirs")
    ours_in = shutil.copytree(tests, tmp_path / "ours")
    held = generated_mutants.load(module)
    everything = [{k: v for k, v in m.items() if k != "left_out"} for m in held]
    with Trials(workers, course, module, learners(ours_in)) as trials:
        cases = list(trials.run(Program(REFERENCE, reference_of(module))).tests)
        ours = search_generated(trials, cases, Program(REFERENCE, reference_of(module)), everything,
                              told=False)
    alive = {s.id for s in ours.survivors}
    verdicts = {m["name"]: "survived" if m["id"] in alive else "killed" for m in held}
    assert {name: theirs[name] for name in verdicts} == verdicts
    assert set(verdicts.values()) == {"survived", "killed"}
