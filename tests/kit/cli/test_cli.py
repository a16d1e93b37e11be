"""The command line: exit statuses, one sentence for each wrong call, the seeds' command lines."""

import json
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import pytest

from grader import ROOT
from grader.cli.main import main
from grader.course.model import Course
from tests.kit.support.copies import copy, environment, ol, solve
from tests.kit.support.judged import implementation


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory, course: Course) -> Path:
    """A copy whose learner has finished, with a program of another design than the reference."""
    place = copy(tmp_path_factory.mktemp("solved"))
    solve(place, course, implementation("linked"))
    return place


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return copy(tmp_path)


def test_all_green_is_0(solved: Path) -> None:
    done = ol(solved, "check")
    assert done.returncode == 0, done.stdout
    assert "All that was asked passed" in done.stdout
    assert ol(solved, "check", "rt.04").returncode == 0
    assert ol(solved, "check", "kv_export", "--ref-deps").returncode == 0


def test_what_fails_in_later_passes_is_counted_and_not_listed(tmp_path: Path) -> None:
    package = tmp_path / "tinyllm"
    package.mkdir()
    source = (ROOT / "reference/tinyllm/simulator.py").read_text(encoding="utf-8")
    wrong = source.replace("        report.steps += k\n", "        report.steps += k + 1\n")
    assert wrong != source
    (package / "simulator.py").write_text(wrong)
    text = " ".join(ol(ROOT, "check", "simulator", "--bind", str(tmp_path)).stdout.split())
    assert "also failing: " in text
    listed = text.split("also failing: ")[1].split(" of later passes")[0].split(", ")
    assert "the_clock_jumps_over_idle_time" in text
    assert "hand_example_five_requests" not in text
    assert int(listed[-1]) > 3


def test_nothing_begun_is_never_0(fresh: Path) -> None:
    done = ol(fresh, "check")
    assert done.returncode == 1
    assert "Nothing was judged" in done.stdout
    ol(fresh, "start")
    done = ol(fresh, "check")
    assert done.returncode == 1
    assert "its file is still the stub" in done.stdout


def test_all_asks_for_what_is_not_begun(fresh: Path) -> None:
    ol(fresh, "start")
    done = ol(fresh, "check", "--all")
    assert done.returncode == 1
    assert "is not written yet" in done.stdout


def test_a_named_module_is_judged_and_told_what_it_lacks(fresh: Path) -> None:
    done = ol(fresh, "check", "block_hash")
    assert done.returncode == 1
    assert "`ol start` lays out a fresh one" in done.stdout
    ol(fresh, "start")
    (fresh / "work/tinyllm/block_hash.py").write_text("\n")
    done = ol(fresh, "check", "block_hash")
    assert done.returncode == 1
    assert "its file is empty" in done.stdout
    done = ol(fresh, "check", "kv_export")
    assert "needs kv_pool: build it, or pass --ref-deps" in done.stdout
    assert done.returncode == 1


def test_any_folder_with_a_package_can_be_judged(fresh: Path) -> None:
    folder = implementation("fifo")
    assert ol(fresh, "check", "--bind", str(folder)).returncode == 0
    assert ol(fresh, "check", "--bind", "reference", "kv_pool").returncode == 0
    assert ol(fresh, "check", "--bind", "stubs", "kv_pool").returncode == 1
    assert not (fresh / "work").exists()


def test_reports_keep_to_their_schemas(solved: Path, tmp_path: Path) -> None:
    schema = json.loads((ROOT / "formats/grade-report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for words in (["check"], ["check", "--bind", "stubs"],
                  ["check", "kv_pool", "-k", "alloc_is_all_or_nothing"]):
        done = ol(solved, *words, "--json", "-", "--junit", str(tmp_path / "out.xml"))
        report = json.loads(done.stdout)
        jsonschema.validate(report, schema)
        assert (report["verdict"] == "passed") == (done.returncode == 0)
        assert (tmp_path / "out.xml").read_bytes().startswith(b"<?xml")


def test_a_part_of_a_name_runs_every_test_that_has_it(fresh: Path) -> None:
    done = ol(fresh, "check", "kv_pool", "-k", "cow", "--bind", "reference", "--json", "-")
    names = [t["name"] for t in json.loads(done.stdout)["modules"][0]["tests"]]
    assert len(names) > 2
    assert all("cow" in name for name in names)
    assert f"Those {len(names)} tests pass." in done.stderr
    done = ol(fresh, "check", "kv_pool", "-k", "cow_in_a_full_pool_is_efull", "--bind", "reference")
    assert "That test passes." in done.stdout


def test_a_module_may_be_named_by_its_file(solved: Path) -> None:
    for word in ("work/tinyllm/block_hash.py", "block_hash.py"):
        done = ol(solved, "check", word)
        assert done.returncode == 0, done.stderr
        assert "All that was asked passed: block_hash." in done.stdout
    done = ol(solved, "check", "tinyllm/block_hash.py", cwd=solved / "work")
    assert "All that was asked passed: block_hash." in done.stdout


def test_a_shell_may_offer_verbs_modules_and_tests(fresh: Path) -> None:
    def offered(*words: str) -> set[str]:
        done = ol(fresh, _OL_COMPLETE="bash_complete", COMP_WORDS=" ".join(words),
                  COMP_CWORD=str(len(words) - 1))
        return {line.removeprefix("plain,") for line in done.stdout.splitlines()}

    assert "check" in offered("ol", "ch")
    assert {"kv_pool", "kv_export", "kv_tier"} == offered("ol", "check", "kv_")
    assert "a_revived_block_is_never_evicted" in offered("ol", "check", "kv_pool", "-k", "revived")


def test_a_demo_says_what_it_needs_and_what_to_do_instead(fresh: Path) -> None:
    ol(fresh, "start")
    said = " ".join(ol(fresh, "demo").stdout.split())
    assert ("block_manager is needed, and its file is still the stub: write it, or see the "
            "reference's with --bind reference.") in said


WRONG_CALLS = {
    "an unknown verb": (["chek"], "there is no verb chek: did you mean check?"),
    "an unknown module": (["check", "kv_pol"], "did you mean kv_pool?"),
    "an unknown test": (["check", "kv_pool", "-k", "alloc_is_al_or"], "did you mean alloc_is_all"),
    "an unknown option": (["check", "--blind", "x"], "No such option"),
    "a folder without a package": (["check", "--bind", "."], "folder that holds a tinyllm"),
    "a seed that is none": (["check", "--seed", "-1"], "-1 is not in the range"),
    "a diff without a module": (["diff"], "say which module: `ol diff kv_pool`"),
    "a diff before a pass": (["diff", "kv_pool"], "has not passed as it is now"),
    "a reset of all": (["reset"], "say which module: `ol reset kv_pool`"),
    "tests of an unknown module": (["tests", "rt.05"], "there is no module rt.05"),
    "a file of another folder": (["check", "reference/tinyllm/kv_pool.py"],
                                 "reference/tinyllm/kv_pool.py is not the file of a module"),
    "a progress with words": (["progress", "x"], "unexpected extra argument"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_one_sentence_and_2(fresh: Path, name: str) -> None:
    words, sentence = WRONG_CALLS[name]
    done = ol(fresh, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ol: ")
    assert done.stderr.count("\n") == 1
    assert sentence.lower() in done.stderr.lower()
    assert not (fresh / "work").exists()


def test_a_damaged_checkout_is_said(fresh: Path) -> None:
    (fresh / "course/modules/kv_pool/module.toml").write_text("schema = 1\n")
    done = ol(fresh, "check", "kv_pool")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the kit: " in done.stderr
    (fresh / "course/modules/kv_pool/module.toml").unlink()
    assert "the checkout is incomplete" in ol(fresh, "tests").stderr


def test_diff_opens_with_a_pass_and_closes_with_a_change(solved: Path) -> None:
    ol(solved, "check", "block_hash")
    done = ol(solved, "diff", "block_hash")
    assert done.returncode == 0
    assert done.stdout.startswith("--- work/tinyllm/block_hash.py (yours)")
    file = solved / "work/tinyllm/block_hash.py"
    text = file.read_text()
    file.write_text(text + "\n# later\n")
    assert ol(solved, "diff", "block_hash").returncode == 2
    assert ol(solved, "diff", "block_hash", "--spoil").returncode == 0
    file.write_text(text)


def test_progress_tells_old_verdicts_from_new_ones(solved: Path, course: Course) -> None:
    ol(solved, "check")
    assert ol(solved, "progress").stdout.count("✓") == sum(not m.optional for m in course)
    file = solved / "work/tinyllm/kv_pool.py"
    text = file.read_text()
    file.write_text(text + "\n# later\n")
    assert "before your last change" in ol(solved, "progress").stdout
    file.write_text(text)


def test_the_catalogue_names_every_test(solved: Path, course: Course) -> None:
    for module in course:
        shown = ol(solved, "tests", module.lesson).stdout
        for test in module.tests:
            assert test.name in shown


def test_doctor_is_well_and_says_what_is_not(fresh: Path) -> None:
    done = ol(fresh, "doctor")
    assert done.returncode == 0, done.stdout
    (fresh / "stubs/tinyllm/kv_pool.py").write_text("x = 1\n")
    done = ol(fresh, "doctor")
    assert done.returncode == 2
    assert "BAD  changed by hand: stubs/tinyllm/kv_pool.py" in done.stdout


def test_no_colour_where_nobody_looks(solved: Path) -> None:
    for words in (["check", "block_hash"], ["tests"], ["progress"]):
        assert "\x1b[" not in ol(solved, *words).stdout


def test_it_runs_from_anywhere(solved: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('planted')")
    assert ol(solved, "check", "block_hash", cwd=tmp_path).returncode == 0


def test_a_command_is_imported_only_when_it_is_called() -> None:
    """Each has a file, and is called there as it is called here."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import sys\nfrom grader.cli.main import main\ntry: main("
         "['tests', '--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True, env=environment(ROOT))
    loaded = {name for name in done.stdout.split() if name.startswith("grader.cli.")}
    assert loaded == {f"grader.cli.{name}" for name in (
        "main", "options", "completion", "surroundings", "catalogue")}
