"""`ol author`: what each gate finds, and what the commands print."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from grader import ROOT
from grader.authoring import dynamic_gates, static_gates
from grader.authoring.finding import told
from grader.authoring.kill_matrix import Cell, matrix_of
from grader.authoring.suite_results import Trials
from grader.course.model import Course, Module
from grader.course.planted_bugs import mutants_of
from grader.errors import KitError
from grader.grading import failure_signatures
from grader.grading.report import Failure
from grader.render import matrix as forms
from grader.sandbox.api import WorkerPool
from tests.kit.support.compiled import needs_compiler
from tests.kit.support.copies import ol
from tests.kit.support.planted import BUG, MODULE, Plant

ROWS = {
    "a test that is not there": (
        BUG.replace("zero_becomes_one", "zero_becomes_on"),
        "block_hash: x1 is to be caught by a_hash_of_zero_becomes_on, which the suite lacks. "
        "Write a_hash_of_zero_becomes_one if that is meant."),
    "no test": (BUG.replace('"a_hash_of_zero_becomes_one"', ""),
                "block_hash: x1 names no test that catches it. Name at least one in caught_by."),
    "an empty text": (BUG.replace("a block that cannot be found", ""),
                      "block_hash: x1 has an empty text. Fill in its pitfall, symptom and source."),
    "one id twice": (BUG + BUG.replace("return state\"", "return state or 2\""),
                     "block_hash: 2 bugs have the id x1. Give each its own in "
                     "course/modules/block_hash/mutants.toml."),
    "random tests alone": (
        BUG.replace("a_hash_of_zero_becomes_one", "a_longer_prompt_keeps_its_names"),
        "block_hash: x1 is caught by random tests alone. Name one in caught_by that makes the same "
        "calls in each run, or write it."),
    "a kind that there is not": (
        BUG.replace("source =", 'kind = "speed"\nsource ='),
        "block_hash: x1 is of a kind speed. Write argument, format, cost, or leave `kind` out."),
    "alike to nobody": (
        BUG.replace("source =", 'alike = ["x9"]\nsource ='),
        "block_hash: x1 is called alike to x9, which is no other bug of the module. Mend `alike` "
        "in its row."),
}
EDITS = {
    "an edit that applies nowhere": (
        BUG.replace("return state or 1", "return state or 3"),
        "block_hash: x1: an edit applies 0 times, not once: 'return state or 3'. Make each `find` "
        "a text that stands exactly once in reference/tinyllm/block_hash.py, once the edits "
        "before it are made."),
    "an edit that applies often": (
        BUG.replace("return state or 1", "for byte in"),
        "block_hash: x1: an edit applies 2 times, not once: 'for byte in'. Make each `find` a text "
        "that stands exactly once in reference/tinyllm/block_hash.py, once the edits before it are "
        "made."),
    "no Python": (
        BUG.replace('"return state"', '"return state ("'),
        "block_hash: x1 is no Python, in line N of what it makes: '(' was never closed. Mend its "
        "`replace`; mind the indentation."),
    "nothing": (BUG.replace('"return state"', '"return state or 1"'),
                "block_hash: x1 changes nothing. Mend its `replace`."),
    "one edit twice": (BUG + BUG.replace("x1", "x2"), "block_hash: x2 and x1 make the same edit. "
                       "Take one of them out."),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_does_not_hold_is_said(plant: Plant, name: str) -> None:
    text, sentence = ROWS[name]
    assert told(static_gates.rows(plant(text))) == sentence


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_does_not_hold_is_said(plant: Plant, name: str) -> None:
    text, sentence = EDITS[name]
    assert re.sub(r"line \d+", "line N", told(static_gates.edits(plant(text)))) == sentence


@pytest.mark.parametrize(("text", "sentence"), [
    (BUG.replace("symptom", "symptoms"), "bug x1 lacks symptom"),
    (BUG.replace('id = "x1"', ""), "bug number 1 lacks id"),
    (BUG.replace("find", "found"), "an edit of bug x1 lacks find or replace"),
    ("[[mutant", "cannot be read"),
])
def test_a_row_that_cannot_be_read_is_said(plant: Plant, text: str, sentence: str) -> None:
    with pytest.raises(KitError, match=re.escape(sentence)):
        mutants_of(plant(text))


def test_what_is_out_of_date_is_said(course: Course, tmp_path: Path) -> None:
    module = course.module(MODULE)
    chapter = (module.folder / "chapter.md").read_text("utf-8").replace("| unit", "| none", 1)
    (tmp_path / "chapter.md").write_text(chapter, encoding="utf-8")
    for name in ("mutants.toml", "rules.toml", "contract.md"):
        (tmp_path / name).write_text((module.folder / name).read_text("utf-8"), encoding="utf-8")
    copy = replace(module, folder=tmp_path)
    assert told(static_gates.generated(copy)) == (
        "block_hash: the tables of its chapter are out of date. `ol author write` brings them up "
        "to date.")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "module.toml").write_text("")
    assert told(static_gates.strays(copy)).splitlines() == [
        "block_hash: course/modules/block_hash/generated.json is missing. `ol author mutants` "
        "writes it.",
        "block_hash: course/modules/block_hash/kills.json is missing. `ol author kills` writes it.",
        "block_hash: course/modules/block_hash/notes.txt is a stray. CONTRIBUTING.md tells what a "
        "chapter is made of."]


def test_a_catalogue_that_does_not_hold_is_said(course: Course) -> None:
    module = course.module(MODULE)
    first, *rows = module.rows
    wrong = replace(module, rows=(first._replace(pass_=9), *rows[1:], rows[1]))
    assert told(static_gates.catalogue(course, wrong)).splitlines() == [
        f"block_hash: the suite has a test {rows[0][0]} that the manifest does not name. Add a "
        "[[test]] row to course/modules/block_hash/module.toml, or take it out.",
        f"block_hash: the manifest names {rows[1][0]} 2 times. Keep one row.",
        f"block_hash: {first.name} is in pass 9, but its lesson has 3. Mend its row in "
        "course/modules/block_hash/module.toml."]


def test_a_row_of_a_lessons_table_that_is_missing_is_said(course: Course) -> None:
    lacking = replace(course, modules=tuple(
        replace(m, rows=tuple(r for r in m.rows if r[0] != "block_ptr_layout"))
        for m in course if m.lesson == "rt.04"))
    rt04 = replace(lacking, lessons=tuple(x for x in course.lessons if x.id == "rt.04"))
    (found, *_) = static_gates.of_course(rt04, rt04.modules)
    assert str(found) == ("rt.04: its table has a test block_ptr_layout of kind boundary, unit, "
                          "and the course has not. Put the row back into its manifest.")


# ---- on trial ------------------------------------------------------------------------------------


@pytest.fixture
def trials(course: Course, workers: WorkerPool, plant: Plant) -> Callable[[str], Trials]:
    return lambda text: Trials(course, workers, plant(text))


Try = Callable[[str], Trials]


def write(module: Module, text: str) -> None:
    """Write down what is known of a module's planted bugs."""
    failure_signatures.file_of(module).write_text(text, encoding="utf-8")


def test_a_bug_that_its_tests_pass_is_said(trials: Try) -> None:
    found = dynamic_gates.caught(trials(BUG.replace(
        "a_hash_of_zero", "block_tokens_must_be_one_or_more\", \"a_hash_of_zero")))
    assert told(found) == (
        "block_hash: x1 passes block_tokens_must_be_one_or_more, which its row says catches it. "
        "Mend the test or the row; of the others these fail: a_hash_of_zero_becomes_one, "
        "block_hash_matches_the_golden_file, hash_chain_matches_the_golden_file.")


def test_a_bug_that_does_not_run_is_said(trials: Try) -> None:
    found = dynamic_gates.caught(trials(BUG.replace("return state or 1", "_U64 = 0x").replace(
        '"return state"', '"_U64 = nothing or 0x"')))
    assert told(found).startswith(
        "block_hash: x1 cannot be imported: it raised NameError: name 'nothing' is not defined")


def test_a_test_that_fails_on_no_bug_is_said(trials: Try) -> None:
    found = told(dynamic_gates.idle(trials(BUG)))
    assert ("block_hash: no planted bug fails block_tokens_must_be_one_or_more. Plant one that "
            "does, or take the test out.") in found
    assert "a_hash_of_zero_becomes_one" not in found


def test_a_machine_that_misses_bugs_is_said(
    course: Course, workers: WorkerPool, plant: Plant
) -> None:
    def held(text: str, machine: str) -> str:
        module = plant(text)
        marked = tuple(row._replace(machine=row.name == machine) for row in module.rows)
        return told(dynamic_gates.machines(Trials(course, workers, replace(module, rows=marked))))

    assert held(BUG, "a_hash_of_zero_becomes_one") == ""
    assert held(BUG, "fnv1a64_matches_the_published_values") == (
        "block_hash: the random machines catch 0 of 1 planted bugs, and must catch 80%. Widen "
        "them; they miss x1.")
    argument = BUG.replace("source =", 'kind = "argument"\nsource =')
    assert held(argument, "fnv1a64_matches_the_published_values") == ""


def test_bugs_that_no_test_tells_apart_are_said(trials: Try) -> None:
    other = BUG.replace("x1", "x2").replace("return state\"", "return state + 0\"")
    assert told(dynamic_gates.alike(trials(BUG + other))) == (
        "block_hash: no test but random ones tells x1 from x2. Take one out, sharpen a test, or "
        "say `alike = [\"x1\"]` in the other's row.")
    both = other.replace("source =", 'alike = ["x1"]\nsource =')
    assert dynamic_gates.alike(trials(BUG + both)) == []
    apart = both.replace("return state + 0", "return state ^ 1")
    assert told(dynamic_gates.alike(trials(BUG + apart))) == (
        "block_hash: x1 and x2 are called alike, and a test tells them apart. Take `alike` out.")


@needs_compiler
def test_a_bug_that_is_wrongly_called_unseen_is_said(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Of two bugs in C one shows in Python and is called unseen; of the other it is the reverse."""
    module = course.module("c_kv_pool")
    rows = {m.id: m for m in mutants_of(module)}
    text = "schema = 1\n"
    for id_, more in (("s14", 'unseen = "why"\n'), ("c16", "")):
        bug = rows[id_]
        text += (f'[[mutant]]\nid = "{id_}"\npitfall = "p"\nsymptom = "s"\nsource = "t"\n{more}'
                 f"caught_by = {json.dumps(bug.caught_by)}\n" + "".join(
                     f"[[mutant.edit]]\nfind = {json.dumps(e.find)}\n"
                     f"replace = {json.dumps(e.replace)}\n" for e in bug.edits))
    (tmp_path / "mutants.toml").write_text(text, encoding="utf-8")
    first, second = dynamic_gates.unseen(Trials(course, workers, replace(module, folder=tmp_path)))
    assert str(first).startswith("c_kv_pool: s14 is called unseen, and fails a_")
    assert str(first).endswith(". Take `unseen` out of its row.")
    assert str(second) == (
        "c_kv_pool: c16 fails no test in Python. Say in its row why that is, `unseen = \"…\"`, or "
        "let one of the modules that are shared have such a test.")


def test_data_that_are_out_of_date_are_said(trials: Try) -> None:
    one = trials(BUG)
    assert told(dynamic_gates.known(one)) == (
        "block_hash: course/modules/block_hash/kills.json is out of date. `ol author kills "
        "block_hash` writes it anew; read the difference.")
    write(one.module, failure_signatures.text_of(one.kills()))
    assert dynamic_gates.known(one) == []
    assert failure_signatures.load(one.module) == one.kills()


def test_what_is_out_of_date_is_named(trials: Try) -> None:
    one = trials(BUG)
    test, other = sorted(one.kills().rows)[:2]
    held = failure_signatures.Kills({**one.kills().rows, test: {"error | KeyError": ["x1"]}})
    write(one.module, failure_signatures.text_of(held))
    (signature,) = one.kills().rows[test]
    assert told(dynamic_gates.known(one)) == (
        f"block_hash: course/modules/block_hash/kills.json is out of date: of x1 in {test} it says "
        f"'error | KeyError', now it is {signature!r}. `ol author kills block_hash` writes it "
        "anew; read the difference.")
    del held.rows[test], held.rows[other]
    write(one.module, failure_signatures.text_of(held))
    assert len(dynamic_gates.known(one)) == 2
    assert f": of x1 in {test} it says 'no failure', now it is " in told(dynamic_gates.known(one))


def test_what_depends_on_the_machine_is_no_knowledge(course: Course) -> None:
    module = course.module("c_kv_pool")
    tests = failure_signatures.deterministic_tests(module)
    own = next(t.name for t in tests if module.holds(t))
    shared = [t.name for t in tests if not module.holds(t)][:2]
    crash = Failure("signal", "the process died of SIGSEGV")
    wrong = Failure("wrong", "the block's fill", "2", "3")
    stopped = Failure("wrong", "tl_kv_cow: a write of 4 bytes right behind 8 bytes of memory")
    hangs = Failure("time", "tl_kv_cow was not done after 3 seconds")

    def known(**failures: Failure) -> set[str]:
        names = {"own": own, "one": shared[0], "other": shared[1]}
        failing = {"x1": {names[key]: failure for key, failure in failures.items()}}
        return set(failure_signatures.gather(module, failing, set()).rows)

    assert known(own=crash, one=crash, other=wrong) == {own, shared[1]}
    assert known(own=wrong, one=crash, other=wrong) == {own, shared[1]}
    assert known(own=hangs, one=crash, other=wrong) == {own, shared[1]}
    assert known(own=stopped, one=crash, other=wrong) == {own}


def test_how_an_unsteady_bug_fails_is_not_kept(trials: Try) -> None:
    one = trials(BUG.replace("source =", "unsteady = true\nsource ="))
    assert set(one.kills().of_each_bug()["x1"].values()) == {""}
    write(one.module, failure_signatures.text_of(failure_signatures.Kills({})))
    assert dynamic_gates.known(one) == []


def test_a_right_program_that_fails_and_a_stub_that_passes_are_said(trials: Try) -> None:
    one = trials(BUG)
    one.__dict__["right"] = {"linked": one.bugs["x1"]}
    assert str(dynamic_gates.right(one)[0]) == (
        "block_hash: linked, a right program, fails block_hash_matches_the_golden_file: "
        + _what(one, "block_hash_matches_the_golden_file") + ". If the program is right, the test "
        "asks for more than the contract.")
    one.__dict__["stub"] = one.bugs["x1"]
    assert ("block_hash: hand_example_block_hash_chain does not wait for a function of the stub: "
            "it passes. Let it call what the learner writes before it judges anything."
            ) in told(dynamic_gates.stub(one))


def _what(one: Trials, test: str) -> str:
    return one.failures("x1")[test].what


# ---- the matrix ----------------------------------------------------------------------------------


class Page(HTMLParser):
    """Counts what the page has, and keeps what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.cells = self.heads = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta",):
            self.open.append(tag)
        self.cells += tag == "td"
        self.heads += tag == "th" and ("scope", "row") in attrs
        self.loads += [v for k, v in attrs if v and (k == "src" or (k == "href" and v[0] != "#"))]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_matrix_has_a_row_a_test_and_a_column_a_bug(trials: Try) -> None:
    misses = "return 2 if state == 0xa91ab0c1027b9366 else state or 1"  # of the worked example
    one = trials(BUG + BUG.replace("x1", "x2").replace("return state\"", f"{misses}\""))
    drawn = matrix_of(one)
    cells = drawn.rows["a_hash_of_zero_becomes_one"]
    assert cells == (Cell.EXPECTED, Cell.SURVIVED)
    assert drawn.rows["hand_example_block_hash_chain"] == (Cell.PASSED, Cell.EXTRA)
    assert drawn.rows["a_longer_prompt_keeps_its_names"] == (Cell.NOT_RUN, Cell.NOT_RUN)
    assert "fnv1a64_matches_the_published_values" in drawn.idle()
    lines = forms.text(drawn)
    width = max(map(len, drawn.rows))
    assert [line[width + 2:] for line in lines[:2]] == ["xx", "12"]
    assert f"{'a_hash_of_zero_becomes_one':<{width}}  X!" in lines
    page = Page()
    page.feed(forms.page([drawn]).decode())
    assert page.open == []
    assert page.loads == []
    assert page.heads == len(drawn.rows)
    assert page.cells == 2 * len(drawn.rows)


def test_the_command_judges_a_module_and_writes_its_page(tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    done = ol(ROOT, "author", "check", MODULE, "--matrix", "--html", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"✓ block_hash +\d+ tests, +\d+ planted bugs, +5 right programs", done.stdout)
    assert done.stdout.endswith("Every gate holds.\n")
    assert page.read_bytes().startswith(b"<!doctype html>")
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    done = ol(ROOT, "author", "check", MODULE, "--html", str(tmp_path / "mine.html"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is no earlier report" in done.stderr


def test_a_name_that_is_no_module_is_said() -> None:
    for verb in ("check", "kills"):
        done = ol(ROOT, "author", verb, "block_has")
        assert (done.returncode, done.stdout) == (2, "")
        assert "did you mean block_hash?" in done.stderr
