"""Three learners' tests are graded through the command line, with the scores by hand count."""

import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from grader import ROOT
from grader.course import manifest as courses
from grader.course.model import Course
from grader.course.planted_bugs import mutants_of
from grader.grading.mutation import validity
from grader.grading.mutation.candidates import REFERENCE, planted, reshaped, right
from grader.grading.mutation.grade import Plan, grade
from grader.grading.mutation.report import MutationReport, Standing
from grader.grading.mutation.suite_runner import Trials
from grader.grading.mutation.test_suite import learners
from grader.sandbox.api import WorkerPool
from tests.kit.support import copies
from tests.kit.support.judged import IMPLEMENTATIONS, KIT, judge, program

LEARNERS = KIT / "learners"
ALL = [m.name for m in courses.load() if not m.program]
MODULES = {"thorough": "kv_pool", "thin": "block_hash", "flawed": "kv_pool"}

# The thin folder has one test, the example of the chapter: tokens 1 to 5 in blocks of 2, no parent.
# It sees what changes a name of small tokens, the first name's way into the second, or how many
# names there are:
THIN_CATCHES = {
    "s01": "the second name lacks its parent", "s02": "tokens of 8 bytes",
    "m01": "another start", "k02": "tokens the wrong way round",
    "k03": "the second name's parent the wrong way round", "k04": "its parent cut, which is large",
    "k05": "its parent after the tokens", "k08": "another order of operations",
    "k12": "a name for token 5", "k14": "the second name's parent is 0",
    "k15": "the second block is cut elsewhere", "k26": "the first name has its top bit set"}

# What the thorough folder's eight tests leave alone, and why they must:
THOROUGH_MISSES = {
    "s30": "no pool is refused for its size", "r09": "a refused name is looked up, but it is there",
    "k03": "nothing is refused while blocks are cached, and lookups after it",
    "k09": "no evicted block is asked for its name", "k26": "no test has two pools at once",
    "k28": "only held blocks are named", "k29": "no block is named twice",
    "k30": "nothing is asked between cached blocks", "k31": "nothing is refused between them",
    "k32": "no copy is made in a full pool", "k37": "no slab is too large",
    "k39": "ids are Python's own", "k40": "1.0 is refused because nobody holds block 1",
    "k43": "no slab is held across a copy", "k46": "cow caches one block, which nothing evicts",
    "k47": "cached blocks have one holder each", "k48": "never more than a few holders",
    "k52": "the hash of block 0 is not offered again", "k53": "no copy is made in block 0",
    "k54": "no two hashes are equal modulo 2^61 - 1", "k55": "all pools are small",
    "k56": "blocks have two positions", "k57": "all pools are small", "k58": "hits are few",
    "k59": "blocks are small", "k62": "contents are whole numbers above 0",
    "k65": "a few blocks are allocated at once", "k67": "no fill of a shared block is set",
    "k68": "no block is registered twice"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, to be a learner in."""
    return copies.copy(tmp_path_factory.mktemp("mutation"))


def graded(place: Path, who: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """Put a learner's tests into the copy and grade them: exit status, report and text."""
    shutil.rmtree(place / "work" / "tests", ignore_errors=True)
    shutil.copytree(LEARNERS / who, place / "work" / "tests")
    done = copies.ol(place, "mutation", MODULES[who], "--json", str(place / "r.json"), *words)
    report = json.loads((place / "r.json").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "formats" / "mutation-report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(report, schema)
    (place / "r.json").unlink()
    return done.returncode, report["modules"][0], done.stdout


def test_a_thorough_learner_passes(place: Path) -> None:
    status, report, text = graded(place, "thorough")
    assert {b["id"] for b in report["bugs"] if b["caught_by"] is None} == set(THOROUGH_MISSES)
    bugs = mutants_of(courses.load().module("kv_pool"))
    caught = len(bugs) - len(THOROUGH_MISSES)
    assert len(report["bugs"]) == len(bugs)
    assert report["score"] >= 0.7
    assert (status, report["verdict"], report["missing"]) == (0, "passed", [])
    assert all(t["standing"] == "valid" and t["useful"] for t in report["tests"])
    assert f"{caught} of {len(bugs)} planted bugs caught: " in text


def test_a_thin_learner_does_not(place: Path) -> None:
    status, report, text = graded(place, "thin", "--matrix")
    assert report["tests"][0]["catches"] == [b["id"] for b in report["bugs"]
                                             if b["id"] in THIN_CATCHES]
    bugs = len(mutants_of(courses.load().module("block_hash")))
    assert (len(THIN_CATCHES), len(report["bugs"])) == (12, bugs)
    assert (status, report["verdict"], report["missing"]) == (1, "failed", [])
    assert f"12 of {bugs} planted bugs caught: {int(1200 / bugs)}%; 70% is asked for." in text


def test_a_flawed_learners_other_tests_count(place: Path) -> None:
    status, report, text = graded(place, "flawed")
    standings = {t["name"].split("::test_")[1]: t["standing"] for t in report["tests"]}
    assert standings == {"double_unref_refused": "valid", "a_pool_is_made": "valid",
                         "the_block_freed_last_goes_first": "demands more than the contract",
                         "the_pool_is_still_there": "flaky"}
    # A test that gives a block back twice sees the count below zero, and nothing else.
    assert [b["id"] for b in report["bugs"] if b["caught_by"]] == ["s09"]
    assert [t["useful"] for t in report["tests"] if t["standing"] == "valid"] == [True, False]
    assert (status, report["score"]) == (1, 0.01)
    assert report["missing"] == ["alloc_all_or_nothing", "unref_caches_registered_blocks",
                                 "lookup_hit_is_not_evicted", "cow_copies_shared_blocks",
                                 "partial_blocks_not_registered"]
    assert "s11 must be caught, whatever the share." in text
    assert "the right program `arrays` fails it" in text


def test_a_check_says_what_own_tests_are_worth(place: Path, course: Course) -> None:
    """It tells it under the verdict, once the module has passed, and does not grade twice."""
    copies.solve(place, course, ROOT / "reference")
    shutil.rmtree(place / "work" / "tests", ignore_errors=True)
    shutil.copytree(LEARNERS / "thin", place / "work" / "tests")
    bugs = len(mutants_of(course.module("block_hash")))
    said = (f"Your own tests of block_hash catch 12 of {bugs} planted bugs ({int(1200 / bugs)}%; "
            "70% is asked for). `ol mutation block_hash` says more.")
    first = copies.ol(place, "check", "block_hash")
    assert (first.returncode, said in first.stdout) == (0, True), first.stdout + first.stderr
    remembered = place / "work" / ".history" / "own-tests.json"
    known = json.loads(remembered.read_text(encoding="utf-8"))
    known["block_hash"]["worth"]["caught"] = 11
    remembered.write_text(json.dumps(known), encoding="utf-8")
    again = copies.ol(place, "check", "block_hash")
    assert said.replace("12", "11") in again.stdout
    (place / "work/tests/block_hash/test_more.py").write_text("def test_nothing():\n    pass\n")
    changed = copies.ol(place, "check", "block_hash", "--json", str(place / "c.json"))
    assert said in changed.stdout
    report = json.loads((place / "c.json").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "formats" / "grade-report.schema.json").read_text("utf-8"))
    jsonschema.validate(report, schema)
    assert report["modules"][0]["own_tests"]["caught"] == 12


RANDOM = "import random\n" + "".join(
    f"def test_{n}():\n    assert random.random() > 0.05\n" for n in range(100))


def test_tests_that_fail_at_random_catch_nothing(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Most are found out on right programs. Without a repetition, the others together caught nearly
    every bug; one that is always lucky has a chance of one in 8000 for each bug that it meets."""
    (tmp_path / "test_random.py").write_text(RANDOM, encoding="utf-8")
    report = judged(course, workers, tmp_path, "block_hash")
    assert report.caught == []
    assert sum(t.standing is Standing.FLAKY for t in report.tests) > 50


def test_a_test_that_sometimes_fails_is_credited_with_nothing_that_it_does_not_see(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    seen = ("    assert hash_chain([1, 2, 3, 4, 5], 2) == "
            "[0xA91AB0C1027B9366, 0x03DF829571605C60]\n")
    text = f"from tinyllm.block_hash import hash_chain\nimport random\ndef test_it():\n{seen}"
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    steady = {b.id for b in judged(course, workers, tmp_path, "block_hash").caught}
    assert steady
    (tmp_path / "test_it.py").write_text(text + "    assert random.random() > 0.1\n", "utf-8")
    assert {b.id for b in judged(course, workers, tmp_path, "block_hash").caught} <= steady


def test_a_bug_in_what_tests_share_is_caught_by_the_test_that_comes_later(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Alone that test passes: the kill repeats with the tests before it."""
    (tmp_path / "test_it.py").write_text(
        "from tinyllm.kv_pool import KvPool, PoolConfig\n"
        "def pool():\n    return KvPool(PoolConfig(4, 2, 1, 1, 2))\n"
        "def test_one():\n    one = pool()\n    one.register(full(one), 9)\n"
        "def full(pool):\n    (b,) = pool.alloc(1)\n    pool.set_fill(b, 2)\n    return b\n"
        "def test_two():\n    assert pool().lookup(9) is None\n", encoding="utf-8")
    caught = {b.id: b.caught_by for b in judged(course, workers, tmp_path, "kv_pool").caught}
    assert caught["k25"] == "test_it.py::test_two"


def judged(course: Course, workers: WorkerPool, folder: Path, module: str,
           **plan: Any) -> MutationReport:
    return grade(course, course.module(module), folder, workers, Plan(**plan))


def same_verdicts(one: MutationReport, other: MutationReport) -> bool:
    return (one.tests, one.bugs, one.files, one.score) == (
        other.tests, other.bugs, other.files, other.score)


def test_the_number_of_processes_changes_nothing(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    folder = shutil.copytree(LEARNERS / "flawed" / "kv_pool", tmp_path / "tests")
    assert same_verdicts(judged(course, workers, folder, "kv_pool", processes=1),
                         judged(course, workers, folder, "kv_pool", processes=2))


def test_without_a_suite_server_the_verdicts_are_the_same(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    folder = shutil.copytree(LEARNERS / "thin" / "block_hash", tmp_path / "tests")
    assert same_verdicts(judged(course, workers, folder, "block_hash"),
                         judged(course, workers, folder, "block_hash", nested=False))


def test_the_order_of_tests_changes_no_verdict(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Which bugs are caught depends on the tests alone; who is first to catch one, on the order."""
    text = (LEARNERS / "flawed/kv_pool/test_pool.py").read_text(encoding="utf-8")
    head, *tests = re.split(r"\n\n\n(?=def test_)", text)
    there, back = tmp_path / "there", tmp_path / "back"
    for folder, order in ((there, tests[:2]), (back, tests[1::-1])):
        folder.mkdir()
        (folder / "test_pool.py").write_text("\n\n\n".join([head, *order]), encoding="utf-8")
    one, other = (judged(course, workers, f, "kv_pool") for f in (there, back))
    assert [b.id for b in one.caught] == [b.id for b in other.caught]
    assert {t.name: t.standing for t in one.tests} == {t.name: t.standing for t in other.tests}


def test_a_test_that_recognises_programs_is_found_out(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """It knows the bytecode of all right programs that there are, and takes any other for a bug."""
    module = course.module("block_hash")
    digests = set()
    for one in right(course, module):
        code = compile(one.text, "x", "exec", dont_inherit=True)
        names = {c.co_name: c.co_code for c in code.co_consts if hasattr(c, "co_code")}
        digests.add(names["block_hash"].hex())
    (tmp_path / "test_it.py").write_text(
        f"from tinyllm.block_hash import block_hash\nKNOWN = {digests!r}\n"
        "def test_it():\n    assert block_hash.__code__.co_code.hex() in KNOWN\n", encoding="utf-8")
    report = judged(course, workers, tmp_path, "block_hash")
    assert [t.standing for t in report.tests] == [Standing.RECOGNISES]
    assert (report.caught, report.passed) == ([], False)


@pytest.mark.parametrize("name", sorted(set(MODULES.values())))
def test_a_control_is_a_right_program_with_another_text(
    course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    module = course.module(name)
    for one in right(course, module):
        text = reshaped(one.text)
        assert not _functions(text) & _functions(one.text)
        folder = program(tmp_path / one.id, module, text)
        assert judge(course, workers, module, folder).status.value == "passed", one.id


def _functions(text: str) -> set[bytes]:
    """Return the bytecode of all functions and methods of a program."""
    found, waiting = set(), [compile(text, "x", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        waiting += [c for c in code.co_consts if hasattr(c, "co_code")]
        if not code.co_name.startswith("<") and code.co_flags & inspect.CO_NEWLOCALS:
            found.add(code.co_code + repr(code.co_names).encode() + repr(code.co_consts).encode())
    return found


@pytest.mark.parametrize("name", ALL)
def test_there_are_right_programs_of_several_designs(course: Course, name: str) -> None:
    programs = right(course, course.module(name))
    assert {p.id for p in programs} <= {REFERENCE, *IMPLEMENTATIONS}
    assert len(programs) >= 3
    assert all(p.what.endswith(".") for p in programs), "each says how it is made"
    assert len({p.what for p in programs}) == len(programs)


@pytest.mark.parametrize("name", ALL)
def test_a_manifests_rules_of_mutation_hold(course: Course, name: str) -> None:
    module = course.module(name)
    ids = {p.id for p in planted(module)}
    assert set(module.mutation.required) | set(module.mutation.weights) <= ids
    assert 0 < module.mutation.threshold <= 1


def test_the_lesson_asks_for_its_tests_by_name(course: Course) -> None:
    named = {n for m in course.named(["rt.04"]) for n in m.mutation.names}
    assert named == {
        "hash_chain_by_hand", "alloc_all_or_nothing", "unref_caches_registered_blocks",
        "double_unref_refused", "lookup_hit_is_not_evicted", "cow_copies_shared_blocks",
        "partial_blocks_not_registered", "roundtrip_and_bit_flip"}
    assert course.module("kv_pool").mutation.required == ("s11",)


def test_fair_and_unfair_demands_on_the_pool_are_told_apart(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Stats are a named tuple for every correct program; the order of fresh ids is unspecified."""
    (tmp_path / "test_pool.py").write_text(
        "from tinyllm.kv_pool import KvPool, PoolConfig\n"
        "def pool(n):\n    return KvPool(PoolConfig(n, 2, 1, 1, 2))\n"
        "def test_stats():\n    p = pool(4)\n    p.alloc(1)\n"
        "    assert p.stats() == (3, 1, 0, 0)\n    assert tuple(p.stats())[0] == 3\n"
        "def test_lowest():\n    assert pool(4).alloc(2) == [0, 1]\n"
        "def test_highest():\n    assert pool(4).alloc(2) == [3, 2]\n"
        "def test_sorted():\n    p = pool(8).alloc(4)\n    assert p == sorted(p)\n"
        "def test_bytes():\n    p = pool(1)\n    p.block(0, 0, 0)[...] = 5\n"
        "    p.unref(*p.alloc(1))\n"
        "    assert p.block(p.alloc(1)[0], 0, 0).max() == 5\n", encoding="utf-8")
    with Trials(workers, course, course.module("kv_pool"), learners(tmp_path)) as trials:
        found = validity.judge(trials)
    told = {name.rpartition("_")[2]: standing for name, (standing, _) in found.standings.items()}
    assert told.pop("stats") is Standing.VALID
    assert told == {"lowest": Standing.UNFAIR, "highest": Standing.BROKEN,
                    "sorted": Standing.UNFAIR, "bytes": Standing.UNFAIR}


def test_a_thousand_tests_are_judged(course: Course, workers: WorkerPool, tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(
        "from tinyllm.block_hash import block_hash\n" + "".join(
            f"def test_{n}():\n    assert block_hash(0, [{n}]) > 0\n" for n in range(1000)),
        encoding="utf-8")
    with Trials(workers, course, course.module("block_hash"), learners(tmp_path)) as trials:
        found = validity.judge(trials)
    assert len(found.valid()) == 1000
