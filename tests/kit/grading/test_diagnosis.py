"""Which bug is it? How often the answer is right, and when there is none."""

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from grader import ROOT
from grader.authoring.suite_results import Trials
from grader.course.model import Course, Module
from grader.course.model import Test as Row
from grader.course.planted_bugs import mutants_of
from grader.grading import diagnosis, failure_signatures
from grader.grading.check import CheckOptions, check
from grader.grading.report import (
    Confidence,
    Failure,
    Lesson,
    ModuleResult,
    Report,
    Status,
    Suspect,
    Verdict,
)
from grader.grading.report import TestResult as Result
from grader.render import terminal
from grader.sandbox.api import WorkerPool
from tests.kit.bench import diagnosis as bench
from tests.kit.bench.diagnosis import Guess
from tests.kit.support import wrongs
from tests.kit.support.compiled import modules, needs_compiler

MODULES = modules()
FIRST, AMONG = 0.80, 0.88  # below what was reached, and above what was aimed at


# ---- on wrong programs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def held(course: Course, workers: WorkerPool) -> list[Guess]:
    return bench.guesses(course, workers, wrongs.held_out())


@pytest.fixture(scope="module")
def learners(course: Course, workers: WorkerPool) -> list[Guess]:
    return bench.guesses(course, workers, bench.named())


def test_the_held_out_programs_are_enough_and_of_all_modules(course: Course) -> None:
    programs = wrongs.held_out()
    halves = Counter(bench.tuning(w) for w in programs)
    assert min(halves.values()) >= 40
    assert min(Counter(w.module for w in programs).values()) >= 12
    measured = {m.name for m in course if m.lesson in ("rt.04", "L10.4", "P09")}
    assert set(Counter(w.module for w in programs)) == measured
    assert {w.base for w in programs} >= {"arrays", "fifo", "linked", "slotted", "reference"}
    for wrong in [*programs, *wrongs.load()]:
        ids = {m.id for m in mutants_of(course.module(wrong.module))}
        assert set(wrong.pitfalls) <= ids, wrong.name


def test_a_held_out_program_is_no_planted_edit(course: Course) -> None:
    for module in course:
        reference = (module.root / "reference" / module.file_name).read_text("utf-8")
        planted = {m.applied(reference).encode() for m in mutants_of(module)}
        mine = [w.source for w in wrongs.held_out() if w.module == module.name]
        assert len(set(mine)) == len(mine)
        assert not planted & set(mine)


def test_each_held_out_program_fails(held: list[Guess]) -> None:
    assert [g.wrong.name for g in held if not g.failed] == []


@pytest.mark.parametrize("tuning", [True, False])
def test_the_right_bug_is_mostly_named(held: list[Guess], tuning: bool) -> None:
    first, among = bench.shares([g for g in held if bench.tuning(g.wrong) is tuning])
    assert first >= FIRST
    assert among >= AMONG


def test_learners_bugs_are_mostly_named(learners: list[Guess]) -> None:
    first, among = bench.shares([g for g in learners if g.wrong.pitfalls])
    assert first >= FIRST
    assert among >= AMONG


@needs_compiler
def test_bugs_in_c_are_mostly_named(course: Course, workers: WorkerPool) -> None:
    first, among = bench.shares(bench.guesses(course, workers, bench.in_c()))
    assert first >= FIRST
    assert among >= AMONG


def test_likely_is_right_nine_times_of_ten(
    held: list[Guess], learners: list[Guess]
) -> None:
    sure = [g for g in held + learners if g.said and g.said[0].sure is Confidence.LIKELY]
    assert len(sure) >= len(held) / 2
    assert bench.shares(sure)[0] >= 0.90


def test_what_is_not_a_planted_bug_is_never_likely(learners: list[Guess]) -> None:
    others = [g for g in learners if not g.wrong.pitfalls]
    assert not [g.wrong.name for g in others for x in g.said if x.sure is Confidence.LIKELY]
    assert sum(not g.said for g in others) >= 0.9 * len(others)


# ---- silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_said_of_right_programs_and_of_stubs(
    trials: Callable[[str], Trials], name: str
) -> None:
    of = trials(name)
    for result in [*of.right.values(), of.stub]:
        assert diagnosis.suspects(of.module, result) == []


@pytest.fixture
def module(course: Course) -> Module:
    return course.module("kv_pool")


def failing(module: Module, bug: str, change: Callable[[str], Failure] | None = None,
            waiting: frozenset[str] = frozenset()) -> ModuleResult:
    """Return a result that fails the tests that a planted bug fails, and as it does; some others
    wait for a function that is not written."""
    signs = failure_signatures.load(module).of_each_bug()[bug]
    tests = []
    for test in module.tests:
        verdict, failure = Verdict.PASSED, None
        if test.name in signs:
            verdict = Verdict.FAILED
            failure = change(test.name) if change else _shown(signs[test.name])
        if test.name in waiting:
            verdict = Verdict.TODO
        tests.append(Result(test.name, list(test.kinds), test.pass_, test.sentence, test.why,
                            verdict, failure=failure))
    return ModuleResult(module.name, module.title, module.lesson, "f", Status.FAILED, tests=tests)


def _shown(signature: str) -> Failure:
    """Return a failure that has this sign."""
    what, *parts = signature.split(" | ")
    if what == "error":
        return Failure("error", f"it raised {parts[0]}: whatever")
    answers = {"no error": "no error; it returned 1", "none": "None", "other": "text"}
    how = parts[0] if parts else ""
    if set(how) <= set("<=>"):
        numbers = ["<=>".index(c) for c in how]
        if len(numbers) == 1:
            return Failure("wrong", what, "1", str(numbers[0]))
        return Failure("wrong", what, str([1] * len(how)), str(numbers))
    return Failure("wrong", what, "wanted", answers.get(how, how))


def test_a_planted_bug_is_known_again(module: Module) -> None:
    (first, *rest) = diagnosis.suspects(module, failing(module, "s11"))
    known = next(m for m in mutants_of(module) if m.id == "s11")
    assert (first.bug, first.pitfall, first.symptom) == ("s11", known.pitfall, known.symptom)
    assert first.sure is Confidence.LIKELY
    assert all(x.likeness < first.likeness for x in rest)


def test_of_a_part_of_the_tests_only_what_is_likely_is_said(module: Module) -> None:
    said = diagnosis.suspects(module, failing(module, "s11"), part=True)
    assert {x.sure for x in said} == {Confidence.LIKELY}


SILENT = {
    "passed": {"status": Status.PASSED}, "not judged": {"status": Status.BROKEN},
    "a need failed": {"sentence": "block_hash failed too, and this needs it"},
}


@pytest.mark.parametrize("why", SILENT)
def test_another_reason_is_reason_enough(module: Module, why: str) -> None:
    result = replace(failing(module, "s11"), **SILENT[why])  # type: ignore[arg-type]
    assert diagnosis.suspects(module, result) == []


@pytest.mark.parametrize("failure", [
    Failure("error", "it raised NameError: name 'bock' is not defined"),
    Failure("error", "it raised AttributeError: no attribute"),
    Failure("time", "it was not done after 5 seconds"),
    Failure("exit", "it called sys.exit(0), which ends the whole program"),
])
def test_a_slip_is_no_planted_bug(module: Module, failure: Failure) -> None:
    result = failing(module, "s11", change=lambda test: failure)
    assert diagnosis.suspects(module, result) == []


def test_one_error_everywhere_is_said_and_nothing_is_guessed(
    course: Course, module: Module
) -> None:
    everything = Failure("memory", "it asked for more than the memory limit of 1024 MiB")
    result = failing(module, "s11", change=lambda test: everything)
    result = replace(result, tests=[replace(t, verdict=Verdict.FAILED, failure=everything)
                                    for t in result.tests])
    assert diagnosis.one_error(result) == everything.what
    assert diagnosis.suspects(module, result) == []
    text = " ".join(_shown_by_terminal(course, result).split())
    assert ("Every failing test of kv_pool ends the same way: it asked for more than the memory "
            "limit of 1024 MiB. Fix that first.") in text
    some = replace(result, tests=[replace(t, verdict=Verdict.PASSED, failure=None) if n % 2 else t
                                  for n, t in enumerate(result.tests)])
    assert diagnosis.one_error(some) is None
    wrong = Failure("wrong", "the same answer", "1", "2")
    assert diagnosis.one_error(replace(result, tests=[
        replace(t, failure=wrong) for t in result.tests])) is None


def test_a_guess_names_the_failures_that_it_fits(course: Course, module: Module) -> None:
    result = failing(module, "s11")
    fits = [t.name for t in result.tests if t.verdict is Verdict.FAILED]
    (first, *_) = diagnosis.suspects(module, result)
    assert first.tests == fits
    other = next(t.name for t in module.tests if t.name not in fits and not t.random)
    more = replace(result, suspects=[first], tests=[
        replace(t, verdict=Verdict.FAILED, failure=Failure("wrong", "else", "1", "2"))
        if t.name == other else t for t in result.tests])
    assert f"fits {fits[0]} and {len(fits) - 1} more" in _shown_by_terminal(course, more)
    alone = replace(result, suspects=[first])
    assert "fits" not in _shown_by_terminal(course, alone)


def test_a_program_that_is_given_up_in_shared_tests_is_known_by_its_own(course: Course) -> None:
    """Also where what is left was not judged, and whatever its shared tests did meanwhile."""
    module = course.module("c_kv_pool")
    signs = failure_signatures.load(module).of_each_bug()["c03"]
    result = failing(module, "c03", change=lambda test: Failure("wrong", signs[test]))
    own = {t.name for t in module.tests if module.holds(t)}
    assert set(signs) <= own
    shared = [t for t in result.tests if t.name not in own]
    assert len(shared) > len(own)
    judged = {t.name: replace(t, verdict=Verdict.FAILED,
                              failure=Failure("signal", "the process died of SIGABRT")
                              if n else Failure("wrong", "the block's fill", "1", "2"))
              for n, t in enumerate(shared[:10])}
    blocked = {t.name: replace(t, verdict=Verdict.BLOCKED) for t in shared[10:]}
    given_up = replace(result, tests=[
        (judged | blocked).get(t.name, t) for t in result.tests])
    (first, *_) = diagnosis.suspects(module, given_up)
    assert first.bug == "c03"
    some = sorted(signs)[0]
    unwritten = replace(given_up, tests=[
        replace(t, verdict=Verdict.TODO) if t.name in own - {some} else t
        for t in given_up.tests])
    assert diagnosis.suspects(module, unwritten) == []


def test_unfinished_work_is_no_bug(module: Module) -> None:
    known = failure_signatures.load(module).of_each_bug()["s11"]
    waiting = frozenset(t.name for t in module.tests if t.pass_ == 2 and t.name not in known)
    assert diagnosis.suspects(module, failing(module, "s11", waiting=waiting)) == []


def test_tests_that_no_bug_fails_alone_say_nothing(module: Module) -> None:
    result = failing(module, "s11", change=lambda test: Failure("wrong", "something else"))
    assert all(x.sure is not Confidence.LIKELY for x in diagnosis.suspects(module, result))


@pytest.mark.parametrize("text", [None, "", "{", '{"schema": 2, "kills": {}}', "[]"])
def test_without_data_there_is_no_advice(module: Module, tmp_path: Path, text: str | None) -> None:
    result = failing(module, "s11")
    if text is not None:
        (tmp_path / "kills.json").write_text(text)
    assert diagnosis.suspects(replace(module, folder=tmp_path), result) == []


def test_a_need_that_fails_is_diagnosed_and_what_needs_it_is_not(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """A wrong pool fails the export's tests, too, and that is no bug of the export."""
    wrong = next(w for w in wrongs.held_out() if w.name == "one_plane_a_layer")
    options = CheckOptions(("kv_pool", "kv_export"), str(wrong.write(tmp_path)))
    pool, export = check(course, options, workers).modules
    assert pool.suspects[0].bug == "s19"
    assert export.status is Status.FAILED
    assert export.suspects == []


def test_advice_is_under_the_verdict_and_no_part_of_it(course: Course, module: Module) -> None:
    result = failing(module, "s11")
    said = [Suspect("a1", "Blocks lost", "no room is left", Confidence.LIKELY, 0.9),
            Suspect("a2", "Blocks counted twice", "there is too much room",
                    Confidence.PERHAPS, 0.4)]
    shown = {many: _shown_by_terminal(course, replace(result, suspects=said[:many]))
             for many in (0, 1, 2)}
    assert shown[0] == shown[1].replace("""\
  kv_pool looks like this classic bug (a guess, from what fails and how):
    likely  Blocks lost
            no room is left

""", "") == shown[2].replace("""\
  kv_pool looks like one of these classic bugs, the likeliest first (a guess, from what fails and
  how):
    likely   Blocks lost
             no room is left
    perhaps  Blocks counted twice
             there is too much room

""", "")
    assert shown[1] != shown[0] != shown[2]


def _shown_by_terminal(course: Course, result: ModuleResult) -> str:
    report = Report("1", "work", 0, [result.name], [result], [Lesson(result.lesson, ["a", "b"])],
                    1.0)
    assert not report.passed
    schema = json.loads((ROOT / "formats/grade-report.schema.json").read_text("utf-8"))
    jsonschema.validate(report.to_json(), schema)
    stream = io.StringIO()
    terminal.show(report, course, Console(file=stream, highlight=False, markup=False, emoji=False,
                                          width=100))
    return stream.getvalue()


# ---- signs ---------------------------------------------------------------------------------------


@pytest.fixture
def tests(module: Module) -> dict[str, Row]:
    return {t.name: t for t in module.tests}


@pytest.mark.parametrize(("failure", "signature"), [
    (Failure("wrong", "the fill of block 3", "2", "0"), "the fill of block # | <"),
    (Failure("wrong", "the counts", "[1, 2, 0]", "[1, 1, 1]"), "the counts | =<>"),
    (Failure("wrong", "the ids", "[0, 1]", "[0]"), "the ids | fewer"),
    (Failure("wrong", "lookup", "None", "3"), "lookup | not none"),
    (Failure("wrong", "the slab, at [0, 1] (3 of 4 values differ)", "1.0", "2.0"),
     "the slab | other"),
    (Failure("wrong", "the slab", "<float16 [2]>", "<float32 [2]>"), "the slab | another type"),
    (Failure("wrong", "the slab", "<float16 [2]>", "<float16 [3]>"), "the slab | another shape"),
    (Failure("wrong", "unref(7)", "InvalidArgumentError", "no error; it returned None"),
     "unref(#) | no error"),
    (Failure("wrong", "unref(7)", "InvalidArgumentError", "KeyError: 7"), "unref(#) | KeyError"),
    (Failure("error", "it raised PoolFullError (TL_EFULL): full"), "error | PoolFullError"),
    (Failure("time", "it was not done after 5 seconds"), "time"),
])
def test_a_sign_leaves_out_what_is_the_programs_own(
    tests: dict[str, Row], failure: Failure, signature: str
) -> None:
    assert failure_signatures.signature(tests["alloc_is_all_or_nothing"], failure) == signature


def test_a_sign_of_a_worked_example_has_the_answer(course: Course) -> None:
    test = next(t for t in course.module("block_hash").tests if "golden" in t.kinds)
    failure = Failure("wrong", "the name", "0xa91ab0c1027b9366", "0x0000000000000001")
    assert failure_signatures.signature(test, failure) == "the name | other | 0x0000000000000001"


def test_marks_go_from_the_coarse_to_the_fine() -> None:
    assert failure_signatures.features({"t": "what | < | 3"}) == {
        ("t", ""), ("t", "what"), ("t", "what | <"), ("t", "what | < | 3")}


@pytest.mark.parametrize("name", MODULES)
def test_the_data_are_small_and_name_known_bugs(course: Course, name: str) -> None:
    module = course.module(name)
    path = failure_signatures.file_of(module)
    assert path.stat().st_size < 64_000
    assert json.loads(path.read_text("utf-8"))["schema"] == failure_signatures.SCHEMA
    assert set(failure_signatures.load(module).of_each_bug()) <= {m.id for m in mutants_of(module)}
    rows = failure_signatures.load(module).rows
    assert {t.name for t in module.tests if not t.random} >= set(rows)
