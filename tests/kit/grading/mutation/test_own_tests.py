"""Every sentence that a learner can see about tests of their own, as golden texts; and whatever
tests may do, the others are judged."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from grader import ROOT
from grader.course.model import Course
from grader.course.planted_bugs import mutants_of, reference_of
from grader.errors import CallError
from grader.grading.mutation import validity
from grader.grading.mutation.grade import Plan, grade
from grader.grading.mutation.report import Standing
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.tdd import Stage, rehearse
from grader.grading.mutation.test_suite import learners
from grader.render import mutation
from grader.sandbox.api import WorkerPool
from grader.sandbox.test_names import shown
from tests.kit.support import hostile
from tests.kit.support.judged import KIT, program

GOLDEN = KIT / "golden" / "own_tests"
LEARNERS = KIT / "learners"


def compare(request: pytest.FixtureRequest, name: str, folder: Path,
            show: Callable[[Console], None]) -> str:
    """Hold what the terminal shows against the golden text of this name."""
    stream = io.StringIO()
    show(Console(file=stream, highlight=False, markup=False, emoji=False, width=100))
    text = stream.getvalue().replace(str(folder), "DIR").replace(str(ROOT), "KIT")
    file = GOLDEN / f"{name}.txt"
    if request.config.getoption("--golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text
    return text


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


_NAMED = """import pytest
from tinyllm.block_hash import block_hash, fnv1a64, hash_chain
from .helper import two

def test_hash_chain_by_hand():
    assert hash_chain([1, 2], two) == [block_hash(0, [1, 2])]

@pytest.mark.parametrize("data", ["a::b", "[c] .py::d"])
class TestNumbers:
    def test_of_bytes(self, data):
        assert fnv1a64(b"a") == 0xaf63dc4c8601ec8c
"""


def test_a_file_of_tests_may_have_any_name(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """What a shell or pytest would take apart in it costs no test and no bug."""
    module, caught = course.module("block_hash"), set()
    for name in ("test_plain", "test_[a] b::c", "test_x.y", "a.folder/test_plain", "t::[x]/test_p"):
        folder = tmp_path / name.partition("/")[0]
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(_NAMED)
        (file.parent / "helper.py").write_text("two = 2\n")
        report = grade(course, module, folder, workers, Plan())
        assert [shown(t.name) for t in report.tests if t.standing is Standing.VALID] == [
            "test_hash_chain_by_hand", "TestNumbers.test_of_bytes"], name
        assert report.missing == [], name
        caught.add(tuple(b.id for b in report.caught))
    assert len(caught) == 1
    assert len(next(iter(caught))) > 2


GRADED = {
    "thorough": ("kv_pool", Plan(), True), "thin": ("block_hash", Plan(matrix=True), False),
    "flawed": ("kv_pool", Plan(), False), "hostile": ("block_hash", Plan(), False),
    "generated": ("block_hash", Plan(generated=True), False),
    "spoiled": ("block_hash", Plan(generated=True, spoil=True), True),
}


@pytest.mark.parametrize("name", GRADED)
def test_a_grade_is_told(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    module, plan, everything = GRADED[name]
    source = LEARNERS / ("thin" if name in ("generated", "spoiled") else name) / module
    files = hostile.FILES if name == "hostile" else {
        f.name: f.read_text(encoding="utf-8") for f in source.glob("*.py")}
    folder = write(tmp_path / "tests", files)
    report = grade(course, course.module(module), folder, workers, plan)
    compare(request, name, tmp_path, lambda out: mutation.show(report, out, everything))
    assert {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir()} == files


def test_own_code_is_mutated(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """A bug in it costs the tests that see it, which are left aside."""
    module = course.module("block_hash")
    bug = next(b for b in mutants_of(module) if b.id == "k12")
    mine = program(tmp_path / "mine", module, bug.applied(reference_of(module)))
    files = {f: hostile.FILES[f] for f in ("test_good.py",)} | {
        "test_more.py": hostile.HEAD + "def test_more():\n    assert block_hash(0, [1]) > 1\n"}
    report = grade(course, module, write(tmp_path / "tests", files), workers, Plan(mine=mine))
    compare(request, "mine", tmp_path, lambda out: mutation.show(report, out))
    (own,) = report.generated
    assert own.failing == ["test_good.py::test_hash_chain_by_hand"]
    assert 0 < own.caught < own.tried


RED = {
    "test_red.py": hostile.HEAD + """
import pytest
from tinyllm.errors import InvalidArgumentError

def test_waits_for_a_function():
    assert block_hash(0, [1]) > 0

def test_an_assertion():
    try:
        name = block_hash(0, [1])
    except NotImplementedError:
        name = None
    assert name is not None

def test_no_refusal():
    with pytest.raises(InvalidArgumentError):
        try:
            block_hash(0, [-1])
        except NotImplementedError:
            pass

def test_nothing():
    pass

def test_any_error_will_do():
    with pytest.raises(Exception):
        block_hash(0, [-1])

def test_a_mistake():
    assert block_hsah(0, [1]) > 0

def test_a_placeholder():
    raise NotImplementedError("later")

def test_skips():
    pytest.skip("later")
""",
    "test_wrong_import.py": "from tinyllm.block_hash import hash\n\ndef test_it():\n    pass\n",
}


def test_red_is_told(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    module = course.module("block_hash")
    folder = write(tmp_path / "tests", RED)
    rehearsal = rehearse(course, module, folder, workers, Stage.RED, ROOT / "stubs",
                         reference_needs=True)
    compare(request, "red", tmp_path, lambda out: mutation.show_rehearsal(rehearsal, module, out))
    assert [t.right for t in rehearsal.tests] == [True] * 3 + [False] * 5
    assert not rehearsal.passed


def test_red_may_be_right(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    module = course.module("kv_pool")
    folder = write(tmp_path / "tests", {"test_pool.py": (
        LEARNERS / "thorough/kv_pool/test_pool.py").read_text(encoding="utf-8")})
    rehearsal = rehearse(course, module, folder, workers, Stage.RED, ROOT / "stubs",
                         reference_needs=True)
    compare(request, "red_right", tmp_path,
            lambda out: mutation.show_rehearsal(rehearsal, module, out))
    assert rehearsal.passed


@pytest.mark.parametrize("name", ["green", "green_right", "green_broken"])
def test_green_is_told(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    module = course.module("kv_pool")
    bug = next(b for b in mutants_of(module) if b.id == "s11")
    text = {"green": bug.applied(reference_of(module)), "green_right": reference_of(module),
            "green_broken": "import nothing_of_that_name\n"}[name]
    source = program(tmp_path / "mine", module, text)
    folder = write(tmp_path / "tests", {"test_pool.py": (
        LEARNERS / "thorough/kv_pool/test_pool.py").read_text(encoding="utf-8")})
    rehearsal = rehearse(course, module, folder, workers, Stage.GREEN, source,
                         reference_needs=False)
    compare(request, name, tmp_path, lambda out: mutation.show_rehearsal(rehearsal, module, out))
    assert rehearsal.passed == (name == "green_right")


@pytest.mark.parametrize("files", [{}, {"helpers.py": "VALUE = 1\n"}, {"notes.txt": "later\n"}])
def test_no_tests_are_no_tests(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(CallError, match=r"there are no tests in .*writing-tests\.md shows how"):
        learners(write(tmp_path / "tests", files))


def test_files_without_a_test_catch_nothing(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    folder = write(tmp_path / "tests", {"test_none.py": "VALUE = 1\n"})
    report = grade(course, course.module("block_hash"), folder, workers)
    assert (report.tests, report.caught, report.passed) == ([], [], False)


def test_chance_is_called_flaky(course: Course, workers: WorkerPool, tmp_path: Path) -> None:
    """Ten coins, each thrown ten times at least. That one of them is always heads has a chance of
    one in a hundred, that three are of one in ten million."""
    folder = write(tmp_path / "tests", {"test_coins.py": "import random\n" + "".join(
        f"def test_{n}():\n    assert random.random() < 0.5\n" for n in range(10))})
    with Trials(workers, course, course.module("block_hash"), learners(folder)) as trials:
        standings = [s for s, _ in validity.judge(trials).standings.values()]
    assert standings.count(Standing.FLAKY) >= 5
    assert standings.count(Standing.VALID) <= 2


def test_packages_helpers_and_data_are_found(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """A learner's folder may be a package, have helpers beside the tests, and folders below."""
    folder = write(tmp_path / "tests", {
        "__init__.py": "", "helpers.py": "from tinyllm.block_hash import block_hash\nONE = 1\n",
        "data.txt": "1 2", "conftest.py": "1 / 0\n",
        "test_plain.py": "from helpers import ONE, block_hash\nfrom pathlib import Path\n"
                         "def test_plain():\n    data = Path(__file__).with_name('data.txt')\n"
                         "    assert block_hash(ONE, map(int, data.read_text().split())) != 0\n",
        "test_relative.py": "from .helpers import ONE\n"
                            "def test_relative():\n    assert ONE == 1\n"})
    write(folder / "more", {"deep_test.py": "from ..helpers import ONE\nimport helpers\n"
                                            "def test_deep():\n    assert helpers.ONE == ONE\n"})
    with Trials(workers, course, course.module("block_hash"), learners(folder)) as trials:
        found = validity.judge(trials)
    assert (found.files, len(found.valid())) == ([], 3)
