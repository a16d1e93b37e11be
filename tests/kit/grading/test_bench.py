"""The bench: what its figures mean, in every form; and real runs, judged by what is exact in them.

No test here depends on how fast a machine is: verdicts are tried on figures that are made up.
"""

import io
import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from grader import ROOT
from grader.course.model import Bench
from grader.grading.bench import BenchReport, Measured, Verdict, doubling
from grader.grading.report import Failure
from grader.grading.script import ScriptResult
from grader.render import bench as figures
from grader.render import svg
from tests.kit.support.copies import copy, ol

SCHEMA = json.loads((ROOT / "formats/bench-report.schema.json").read_text(encoding="utf-8"))
BENCH = Bench(Path("bench.py"), 60.0, "bench_of_it", "time to first token", 2.0, "none", "hash",
              "none again")
LINEAR = [(512, 0.001), (1024, 0.002), (2048, 0.004), (4096, 0.008)]
SQUARE = [(512, 0.001), (1024, 0.004), (2048, 0.016), (4096, 0.064)]


def measured(who: str = "yours", none: float = 0.03, hash: float = 0.005, again: float = 0.03,
             computed: int = 16, share: float = 0.0001, growth: Any = LINEAR) -> Measured:
    """Return figures of eleven rounds, each a little longer than the one before."""
    one = Measured(who)
    counts = {"none": 240, "hash": computed, "none again": 240}
    for number in range(11):
        for name, seconds in (("none", none), ("hash", hash), ("none again", again)):
            taken = seconds * (1 + number / 100)
            one.take({"kind": "sample", "series": name, "round": number, "cpu": taken,
                      "wall": 1.1 * taken, "counts": {"tokens computed": counts[name]}})
    one.take({"kind": "ideal", "ratio": 14.03})
    one.take({"kind": "share", "series": "hash", "seconds": share})
    one.take({"kind": "growth", "series": "hash", "points": growth})
    return one


def report(*programs: Measured, bench: Bench = BENCH) -> BenchReport:
    return BenchReport("0", "block_cache", "work", bench, list(programs), 2.5)


def said(told: BenchReport) -> str:
    stream = io.StringIO()
    figures.show(told, Console(file=stream, highlight=False, markup=False, emoji=False, width=100))
    return stream.getvalue()


# What the figures mean.


def test_the_verdict_is_by_the_median_of_ratios_and_needs_a_sound_control() -> None:
    assert report(measured()).verdict is Verdict.WITHIN
    assert report(measured()).ratio == pytest.approx(6.0)
    assert report(measured(hash=0.0151)).verdict is Verdict.BELOW
    assert report(measured(again=0.0396)).verdict is Verdict.UNSURE
    assert report(measured(again=0.0236)).verdict is Verdict.UNSURE
    assert report(measured(hash=0.03, again=0.06)).verdict is Verdict.UNSURE


def test_nothing_is_within_budget_without_evidence() -> None:
    assert report(Measured("yours")).verdict is Verdict.FAILED
    failed = measured()
    failed.played = ScriptResult(Failure("error", "it raised KeyError: 5"))
    assert report(failed).verdict is Verdict.FAILED
    partly = measured()
    partly.series["hash"].cpu.pop()
    assert report(partly).verdict is Verdict.FAILED
    nothing = measured(hash=0.0)
    assert report(nothing).verdict is Verdict.FAILED
    odd = Measured("yours")
    for figure in ({}, {"kind": "what"}, {"kind": "sample"}, {"kind": "growth", "series": "x"}):
        odd.take(figure)
    assert report(odd).verdict is Verdict.FAILED


def test_growth_is_told_by_the_largest_sizes() -> None:
    assert doubling(LINEAR) == pytest.approx(2)
    assert doubling(SQUARE) == pytest.approx(4)
    fixed_costs = [(512, 0.0100), (1024, 0.0101), (2048, 0.0204), (4096, 0.0408)]
    assert doubling(fixed_costs) == pytest.approx(2, abs=0.05)
    assert doubling([(512, 0.1)]) is None
    assert doubling([(512, 0.0), (1024, 0.0)]) is None
    assert measured().steep() == {}
    assert measured(growth=SQUARE).steep() == {"hash": pytest.approx(4)}


SENTENCES = {
    "within": (report(measured()), "Within budget: none / hash is 6.0, and at least 2 is asked."),
    "nothing saved": (
        report(measured(hash=0.029, computed=240)),
        "Below budget: none / hash is 1.03, and at least 2 is asked. Both have 240 tokens "
        "computed: nothing was saved."),
    "slow books": (
        report(measured(hash=0.02, share=0.015)),
        "Below budget: none / hash is 1.50, and at least 2 is asked. The work is saved, but "
        "bookkeeping takes 71% of hash."),
    "slow elsewhere": (
        report(measured(hash=0.02, share=0.015), bench=replace(BENCH, share="another's checksum")),
        "Below budget: none / hash is 1.50, and at least 2 is asked. The work is saved, but "
        "another's checksum takes 71% of hash."),
    "slow otherwise": (
        report(measured(hash=0.02)),
        "Below budget: none / hash is 1.50, and at least 2 is asked. The work is saved and the "
        "time is not: look at what else your code does in a step."),
    "busy": (report(measured(again=0.06)),
             "No verdict: none against itself is 0.50, which must lie in 0.8 to 1.25. This machine "
             "has too much else to do: run it again."),
    "nothing": (report(Measured("yours", played=ScriptResult(Failure("todo", "not written yet")))),
                "No verdict: it could not be measured."),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_each_verdict_is_told_in_a_sentence(name: str) -> None:
    told, sentence = SENTENCES[name]
    assert figures.sentences(told) == [sentence]
    assert sentence in " ".join(said(told).split())


def test_a_quadratic_program_is_told_so() -> None:
    told = figures.sentences(report(measured(growth=SQUARE), measured("reference")))
    assert told[1:] == [
        "In hash, twice the size costs 4.0 times the bookkeeping: it grows like the square. Look "
        "for a walk over all blocks inside a walk over blocks."]
    assert len(figures.sentences(report(measured(), measured("reference", growth=SQUARE)))) == 1


def test_the_terminal_shows_medians_bars_and_ratios() -> None:
    assert said(report(measured(), measured("reference", hash=0.004))) == """
block_cache: time to first token   11 rounds, 2.5 s in all

                            CPU,  least to           wall,  tokens
                          median  most              median  computed
  yours      none        31.5 ms  30.0 to 33.0 ms  34.6 ms  240
             hash        5.25 ms  5.00 to 5.50 ms  5.78 ms  16
             none again  31.5 ms  30.0 to 33.0 ms  34.6 ms  240
  reference  none        31.5 ms  30.0 to 33.0 ms  34.6 ms  240
             hash        4.20 ms  4.00 to 4.40 ms  4.62 ms  16
             none again  31.5 ms  30.0 to 33.0 ms  34.6 ms  240

  yours      none        ████████████████████████████████████████ 31.5 ms
  yours      hash        ██████▋ 5.25 ms
  yours      none again  ████████████████████████████████████████ 31.5 ms
  reference  none        ████████████████████████████████████████ 31.5 ms
  reference  hash        █████▍ 4.20 ms
  reference  none again  ████████████████████████████████████████ 31.5 ms

                     yours                 reference
  none / hash        6.00  (6.00 to 6.00)  7.50  (7.50 to 7.50)
  none / none again  1.00  (1.00 to 1.00)  1.00  (1.00 to 1.00)
  by operations      14.0                  14.0
  bookkeeping, hash  0.100 ms, 1.9%        0.100 ms, 2.4%
  growth, hash       × 2.0                 × 2.0

  none / hash: the budget is at least 2, in the median
  none / none again: the same thing twice; 0.8 to 1.25, or there is no verdict
  by operations: none / hash if nothing but the counted operations took time
  bookkeeping: CPU time in that alone, and its share of the whole
  growth: what bookkeeping costs for twice the size; × 2 is linear, × 4 is like the square

Within budget: none / hash is 6.0, and at least 2 is asked.
"""


@pytest.mark.parametrize("name", SENTENCES)
def test_json_and_svg_hold_whatever_came_of_it(name: str) -> None:
    told, sentence = SENTENCES[name]
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(told.to_json(), SCHEMA)
    picture = svg.document(told)
    root = ET.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert sentence in " ".join(element.text or "" for element in root.iter())
    assert picture.count(b"http") == 1, "a picture loads nothing"
    assert b"<script" not in picture


# Real runs.


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("bench"))


def program(folder: Path, body: str) -> Path:
    """Write a whole program: the reference's, with ``body`` in the class of its block manager."""
    shutil.copytree(ROOT / "reference/tinyllm", folder / "tinyllm")
    manager = folder / "tinyllm/block_manager.py"
    manager.rename(folder / "tinyllm/right_manager.py")
    manager.write_text("import tinyllm.right_manager as right\n"
                       "from tinyllm.right_manager import *\n"
                       f"class BlockManager(right.BlockManager):\n{body}", encoding="utf-8")
    return folder


NEVER_HITS_AND_TAKES_LONG = '''
    def allocate(self, request_id, tokens, tenant=None, *, readmission=False):
        for n in range(len(tokens)):
            list(tokens[:n])
        return super().allocate(request_id, tokens, f"{request_id}", readmission=readmission)
'''
SERVES_WHAT_IT_HAS_NOT = '''
    def allocate(self, request_id, tokens, tenant=None, *, readmission=False):
        blocks, cached = super().allocate(request_id, tokens, tenant, readmission=readmission)
        return right.Allocation(blocks, cached or (16 if self.mode == "hash" else 0))
'''


def test_a_real_run_tells_a_wrong_program_from_the_reference(place: Path, tmp_path: Path) -> None:
    """It never hits, and its work grows like the square: both show beside the reference's."""
    wrong, picture = program(tmp_path / "wrong", NEVER_HITS_AND_TAKES_LONG), tmp_path / "bench.svg"
    done = ol(place, "bench", "L10.4", "--bind", str(wrong), "--assert", "--json", "-",
              "--svg", str(picture))
    assert done.returncode == 1
    assert done.stderr.startswith("\nblock_manager: time to first token"), done.stderr
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMA)
    yours, right = data["measured"]
    assert (yours["who"], right["who"]) == ("yours", "reference")
    assert [computed(yours, s) for s in ("none", "hash", "radix")] == [{240}, {240}, {240}]
    assert [computed(right, s) for s in ("none", "hash", "radix")] == [{240}, {16}, {16}]
    assert {len(series["cpu"]) for series in right["series"].values()} == {11}
    assert 13.5 < right["ideal"] < 14.5
    assert all(seconds > 0 for seconds in right["bookkeeping"].values()), "a clock of 4 ms ticks"
    assert yours["growth"]["none"]["doubling"] > 1.2 * right["growth"]["none"]["doubling"]
    ET.parse(picture)


def computed(measured: dict[str, Any], series: str) -> set[int]:
    return set(measured["series"][series]["counts"]["prompt tokens computed"])


def test_what_cannot_be_measured_is_told(place: Path, tmp_path: Path) -> None:
    stopped = program(tmp_path / "a", "    def block_table(self, request_id):\n        1 / 0\n")
    done = ol(place, "bench", "--bind", str(stopped))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert "    1 / 0" in done.stdout
    assert "No verdict" in done.stdout
    done = ol(place, "bench", "--bind", "stubs")
    assert done.returncode == 1
    assert "its file is still the stub" in done.stdout
    folder = tmp_path / "b"
    (folder / "tinyllm").mkdir(parents=True)
    shutil.copy(ROOT / "reference/tinyllm/block_manager.py", folder / "tinyllm")
    said = " ".join(ol(place, "bench", "--bind", str(folder)).stdout.split())
    assert "write it, or take it from the reference with --ref-deps." in said


WRONG_CALLS = {
    "a module without a bench": (["bench", "kv_pool"], "there is no bench in kv_pool"),
    "a folder without a package": (["bench", "--bind", "."], "folder that holds a tinyllm"),
    "a file that is no report": (["bench", "--json", "README.md"], "is no earlier report"),
    "a picture that is none": (["bench", "--svg", "README.md"], "is no earlier report"),
    "a module without a demo": (["demo", "kv_pool"], "there is no demo in kv_pool"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_one_sentence_and_2(place: Path, name: str) -> None:
    words, sentence = WRONG_CALLS[name]
    done = ol(place, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


# The demo.


def test_the_demo_shows_all_three_modes_side_by_side(place: Path) -> None:
    done = ol(place, "demo", "--bind", "reference")
    assert done.returncode == 0, done.stdout
    rows = [line.replace("+", " ").split() for line in done.stdout.splitlines()
            if line.startswith("  Ada again")]
    assert [row[2:4] + row[5:7] + row[9:11] for row in rows] == [
        ["317", "317", "272", "45", "272", "45"]]
    assert 'tl_engine_kv_blocks{state="cached"}' in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_wrong_answer_stops_the_demo(place: Path, tmp_path: Path) -> None:
    done = ol(place, "demo", "--bind", str(program(tmp_path, SERVES_WHAT_IT_HAS_NOT)))
    assert done.returncode == 1
    assert "Wrong     the answer to Ada in mode hash" in done.stdout
