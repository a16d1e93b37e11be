"""A learner's own tests, graded by planted bugs of a program in C."""

import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from grader import ROOT
from grader.course.model import Course, Module
from grader.course.planted_bugs import mutants_of, reference_of
from grader.errors import CallError
from grader.grading.mutation.grade import Plan, grade
from grader.grading.mutation.report import MutationReport, Standing
from grader.grading.mutation.tdd import Rehearsal, Stage, rehearse
from grader.grading.mutation.test_suite import learners
from grader.render import mutation
from grader.sandbox.api import WorkerPool
from tests.kit.grading.mutation.test_own_tests import compare
from tests.kit.support import copies
from tests.kit.support.compiled import needs_compiler
from tests.kit.support.judged import KIT, implementation

LEARNERS = KIT / "learners"
PROGRAM = "c_kv_pool"

# What the tests of all three modules leave alone, and why they must:
MISSES = {"c05": "no pool is so large that its size wraps round",
          "c11": "never are so many blocks asked for that a count of them wraps round",
          "c25": "there are too few names for two to fall into one place of an index",
          "c27": "hash_of is never called with an id of 2^31 or more",
          "c28": "no fill is 2^31 or more", "c30": "blocks have two positions",
          "c31": "all pools are small"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A learner's tests of the modules that the program stands for, two with a file of one name."""
    place = Path(shutil.copytree(LEARNERS / "wide", tmp_path / "tests"))
    shutil.copytree(LEARNERS / "thorough" / "kv_pool", place / "kv_pool")
    return place


def in_c(course: Course) -> Module:
    return course.module(PROGRAM)


def failures(report: MutationReport) -> dict[str, str]:
    return {b.id: b.how for b in report.bugs if b.caught}


@needs_compiler
def test_a_grade_in_c_is_told(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, folder: Path
) -> None:
    """Bugs that no test can see count for nothing, with the reason; a crash is a catch."""
    (folder / "kv_pool" / "test_unfair.py").write_text(
        "from tinyllm.kv_pool import KvPool, PoolConfig\n\n\n"
        "def test_the_lowest_block_first():\n"
        "    assert KvPool(PoolConfig(3, 1, 1, 1, 1)).alloc(2) == [0, 1]\n\n\n"
        "def test_the_highest_block_first():\n"
        "    assert KvPool(PoolConfig(3, 1, 1, 1, 1)).alloc(2) == [2, 1]\n", encoding="utf-8")
    report = grade(course, in_c(course), folder, workers)
    compare(request, "in_c", folder.parent, lambda out: mutation.show(report, out))
    assert {b.id for b in report.survivors} == set(MISSES)
    unseen = {id_ for group in report.unseen for id_ in group.bugs}
    assert unseen == {m.id for m in mutants_of(in_c(course)) if m.unseen}
    assert len(unseen) + len(report.bugs) == len(mutants_of(in_c(course)))
    assert "SIGABRT" in failures(report)["c03"]
    assert (report.right, report.controls, report.passed) == (3, 3, True)
    standings = [t.standing for t in report.tests if "block_first" in t.name]
    assert Standing.UNFAIR in standings
    assert set(standings) <= {Standing.UNFAIR, Standing.BROKEN}


@needs_compiler
def test_without_a_suite_server_the_grade_is_the_same(
    course: Course, workers: WorkerPool, folder: Path
) -> None:
    shutil.rmtree(folder / "kv_pool")
    one, other = (grade(course, in_c(course), folder, workers, Plan(nested=nested))
                  for nested in (True, False))
    assert (one.tests, one.bugs) == (other.tests, other.bugs)
    assert one.caught


@needs_compiler
def test_a_file_has_its_own_folders_helpers(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Of two helpers with one name each file, and each test of it at any time, gets its own."""
    for name in ("block_hash", "kv_pool", "kv_export"):
        room = tmp_path / name
        room.mkdir()
        (room / "helpers.py").write_text(f"NAME = {name!r}\n", encoding="utf-8")
        (room / "test_same.py").write_text(
            "import helpers\nfrom hypothesis import given, strategies as st\n"
            f"def test_at_import():\n    assert helpers.NAME == {name!r}\n"
            "@given(st.booleans())\n"  # a property comes after all other tests
            "def test_when_it_runs(_):\n    import helpers as later\n    assert later is helpers\n"
            "def test_by_its_place():\n    from . import helpers as own\n"
            f"    assert own.NAME == {name!r}\n", encoding="utf-8")
    report = grade(course, in_c(course), tmp_path, workers)
    assert [t.standing for t in report.tests] == [Standing.VALID] * 9, report.tests


def rehearsed(course: Course, workers: WorkerPool, folder: Path, stage: Stage,
              source: Path) -> Rehearsal:
    return rehearse(course, in_c(course), folder, workers, stage, source, reference_needs=False)


@needs_compiler
@pytest.mark.parametrize("name", ["c_red", "c_green", "c_green_right", "c_green_broken"])
def test_red_and_green_are_told(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    module = in_c(course)
    bug = next(b for b in mutants_of(module) if b.id == "s11")
    right = (implementation("arrays") / module.file_name).read_text(encoding="utf-8")
    source = Path(shutil.copytree(ROOT / "reference" / "c" / "src", tmp_path / "mine/c/src"))
    (source / "kv_pool.c").write_text(
        {"c_green": bug.applied(reference_of(module)),
         "c_green_broken": right.replace("tl_kv_cow(", "cow(")}.get(name, right), encoding="utf-8")
    folder = Path(shutil.copytree(LEARNERS / "thorough", tmp_path / "tests"))
    stage = Stage.RED if name == "c_red" else Stage.GREEN
    rehearsal = rehearsed(course, workers, folder, stage, tmp_path / "mine")
    compare(request, name, tmp_path, lambda out: mutation.show_rehearsal(rehearsal, module, out))
    assert rehearsal.passed == (name in ("c_red", "c_green_right"))


def test_no_tests_are_looked_for_in_each_folder(tmp_path: Path, course: Course) -> None:
    (tmp_path / "radix_cache").mkdir()
    (tmp_path / "radix_cache" / "test_it.py").write_text("def test_it():\n    pass\n")
    with pytest.raises(CallError, match=r"no tests in .*/kv_pool, .*: write them as test_\*\.py"):
        learners(tmp_path, in_c(course).test_rooms)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, with a learner's tests in it."""
    place = copies.copy(tmp_path_factory.mktemp("mutation"))
    shutil.copytree(LEARNERS / "wide", place / "work" / "tests")
    return place


def begin(place: Path) -> None:
    """Put a right program into the copy, as a learner's."""
    shutil.copytree(ROOT / "reference/c/src", place / "work/c/src", dirs_exist_ok=True)


def test_without_a_compiler_it_is_said(place: Path) -> None:
    """What is asked for by its name is refused; else it is left out, and the rest is graded."""
    begin(place)
    empty = str(place / "nothing")

    def without(*words: str) -> tuple[int, str]:
        done = copies.ol(place, *words, PATH=empty, CC="")
        return done.returncode, done.stderr

    said = f"ol: {PROGRAM} needs a C compiler: `sudo apt install gcc"
    for words in (("mutation", PROGRAM), ("tdd", "red", PROGRAM), ("tdd", "green", PROGRAM),
                  ("author", "kills", PROGRAM), ("author", "check", PROGRAM)):
        status, text = without(*words)
        assert (status, text.startswith(said), text.count("\n")) == (2, True, 1), text
    status, text = without("mutation")
    assert (status, text.startswith(said), text.count("\n")) == (1, True, 1), text  # too few tests
    assert text.endswith("; it is left out.\n")


def test_mutants_in_c_are_not_generated(place: Path) -> None:
    for words in (["mutation", "--generated"], ["mutation", "--mine"], ["mutation", "--spoil"],
                  ["author", "mutants"]):
        done = copies.ol(place, *words, PROGRAM)
        assert (done.returncode, done.stderr) == (2, (
            f"ol: {PROGRAM} is no Python, and mutants are generated of Python alone: `ol mutation "
            f"{PROGRAM}` tries its planted bugs.\n")), words


@needs_compiler
def test_it_is_graded_with_all_others_once_it_is_begun(place: Path) -> None:
    shutil.rmtree(place / "work" / "c", ignore_errors=True)
    for modules in (["block_hash", "kv_export"], ["block_hash", "kv_export", PROGRAM]):
        done = copies.ol(place, "mutation", "--json", str(place / "r.json"))
        report = json.loads((place / "r.json").read_text(encoding="utf-8"))
        schema = json.loads((ROOT / "formats/mutation-report.schema.json").read_text("utf-8"))
        jsonschema.validate(report, schema)
        assert [m["module"] for m in report["modules"]] == modules, done.stdout + done.stderr
        begin(place)
    assert "more bugs are left out: no test in Python can see them." in done.stdout


@needs_compiler
def test_a_check_says_what_own_tests_catch(place: Path) -> None:
    begin(place)
    done = copies.ol(place, "check", PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Your own tests of {PROGRAM} catch " in done.stdout
    os.utime(place / "work/tests/kv_export/test_envelope.py")
    again = copies.ol(place, "check", PROGRAM)
    assert done.stdout.splitlines()[-3:] == again.stdout.splitlines()[-3:]
