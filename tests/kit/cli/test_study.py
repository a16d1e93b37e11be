"""`ol simulate`: what it says of small traces, to people and to programs, and of bad calls."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from grader import ROOT
from grader.render import charts
from tests.kit.reference.test_traces import GOOD, HEAD, SAMPLES
from tests.kit.support.judged import implementation

SCHEMA = json.loads((ROOT / "formats/study-report.schema.json").read_text(encoding="utf-8"))
SMALL = ["--blocks", "64", "--requests", "60", "--bind", "reference"]


def ol(*words: str, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "grader", "simulate", *words], cwd=where,
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, text=True,
                          capture_output=True, check=False)


def facts(*words: str) -> list[dict[str, Any]]:
    """Return the facts of each trace; the report keeps to its schema, and its definitions are
    there."""
    done = ol(*words, "--bind", "reference", "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, SCHEMA)
    assert report["verdict"] == "done"
    for trace in report["traces"]:
        assert "over" in trace["definitions"]["block_hit_rate"]
    return list(report["traces"])


def test_a_mooncake_trace_by_hand() -> None:
    (trace,) = facts(str(SAMPLES / "mooncake.jsonl"), "--blocks", "4,8", "--compare", "all")
    assert trace["block_hit_rate"] == pytest.approx(4 / 13)
    assert trace["policies"]["lru"][-1]["block_hit_rate"] == pytest.approx(7 / 13)
    assert {p: [r["blocks"] for r in rows] for p, rows in trace["policies"].items()} == {
        p: [4, 8, None] for p in ("lru", "lru-tail", "lfu", "length", "belady")}
    assert trace["policies"]["belady"][0]["block_hit_rate"] == pytest.approx(6 / 13)
    assert [s["label"] for s in trace["schemes"]] == ["slot", "pow2", "oracle", "paged",
                                                      "paged, cache lru"]
    assert all(s["completed"] == 5 for s in trace["schemes"])
    assert (trace["blocks"], trace["block_tokens"], trace["skipped"]) == (4, 512, 0)


def test_the_chapters_five_requests(tmp_path: Path) -> None:
    """The tool's figures of the trace that the chapter works by hand."""
    file = tmp_path / "five.jsonl"
    rows = [(0, 6, 4, [1, 2], 1, None), (0, 5, 6, [3, 4], 1, None), (20, 8, 3, [1, 5], 1, None),
            (30, 4, 9, [6, 7, 8], 1, 70), (150, 11, 2, [1, 2, 9], 2, None)]
    names = ("arrival_us", "prompt", "output", "blocks", "turn", "cancel_us")
    file.write_text('{"trace": 1, "block_tokens": 4}\n' + "".join(
        json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    (trace,) = facts(str(file), "--blocks", "6", "--policy", "lru-tail", "--max-len", "12",
                     "--step-us", "10", "--token-us", "1", "--compare", "all")
    by = {s["label"]: s for s in trace["schemes"]}
    cached = by["paged, cache lru-tail"]
    assert (cached["steps"], cached["busy_us"], cached["end_us"]) == (8, 121, 178)
    assert (cached["computed_tokens"], cached["recomputed_tokens"]) == (41, 4)
    assert (cached["preemptions"], cached["evictions"], cached["cancelled"]) == (1, 2, 1)
    assert cached["ttft_us"] == {"median": 21, "p99": 21, "most": 21}
    assert cached["mean_running"] == pytest.approx(234 / 121)
    assert cached["block_hit_rate"] == pytest.approx(1 / 6)
    assert cached["pressed_shares"]["token"] == pytest.approx(672 / (40 * 24))
    assert (by["slot"]["peak_running"], by["slot"]["busy_us"]) == (1, 191)
    assert by["pow2"]["refused"] == 1
    assert trace["gain"]["peak"] == 3
    assert trace["gain"]["crowd"] > 1


def test_an_azure_trace_has_servers_and_no_hits() -> None:
    (trace,) = facts(str(SAMPLES / "azure.csv"), "--block-tokens", "16,64", "--pool-gb", "0.25")
    assert trace["block_hit_rate"] is None
    assert trace["policies"] == {}
    assert trace["blocks"] == 128
    assert [s["label"] for s in trace["block_sizes"]] == ["blocks of 64"]


def test_what_is_compared_without_a_word_is_said() -> None:
    """Pages against slots, and a cache against the best one; all the rest by its name."""
    (trace,) = facts("preset:chat", *SMALL[:4], "--blocks", "512")
    assert [s["label"] for s in trace["schemes"]] == ["slot", "paged", "paged, cache lru"]
    assert sorted(trace["policies"]) == ["belady", "lru"]
    assert trace["preemption"] == []
    more = "There is more to compare: pow2, oracle, lru-tail, lfu, length and preemption."
    said = " ".join(ol("preset:chat", *SMALL, "--blocks", "512").stdout.split())
    assert more in said
    said = " ".join(ol(str(SAMPLES / "azure.csv"), "--bind", "reference").stdout.split())
    assert "There is more to compare: pow2, oracle and preemption." in said
    words = ["preset:chat", *SMALL, "--blocks", "512", "--compare"]
    assert "There is more" not in ol(*words, "slot").stdout
    (trace,) = facts(*words[:5], "--blocks", "512", "--compare", "all")
    assert len(trace["schemes"]) == len(trace["policies"]) == 5
    assert len(trace["preemption"]) == 8
    (trace,) = facts(*words[:5], "--blocks", "512", "--compare", "preemption")
    assert (trace["schemes"], len(trace["preemption"])) == ([], 8)


def test_each_of_several_sections_is_below_the_title(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    words = [str(SAMPLES / "azure.csv"), "--bind", "reference", "--html", str(file)]
    for traces, heads in (([], [("h1", "azure.csv: 4 requests")]),
                          ([str(SAMPLES / "kit.jsonl")], [("h1", "2 simulations"),
                           ("h2", "azure.csv: 4 requests"), ("h2", "kit.jsonl: 4 requests")])):
        done = ol(*words, *traces)
        assert done.returncode == 0, done.stderr
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"<(h[12])>(.*?)</", text) == heads


def test_a_trace_whose_blocks_have_another_size(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(json.dumps({"timestamp": 1_787_000_000_000 + at, "input_length": 40,
                                        "output_length": 2, "hash_ids": [1, 2, 5 + at]}) + "\n"
                            for at in (0, 50)))
    done = ol(str(file), "--bind", "reference")
    assert done.returncode == 2
    assert "the number of its hash_ids is 3; block sizes of 11 to 19 fit all lines, among them " \
           "16; say which with --block-size" in done.stderr
    (trace,) = facts(str(file), "--block-size", "16")
    assert (trace["block_tokens"], trace["config"]["block_size"]) == (16, 16)
    assert trace["schemes"][0]["start_us"] == 0
    assert trace["policies"]["lru"][-1]["block_hit_rate"] == pytest.approx(2 / 6)


def test_several_traces_have_a_section_each() -> None:
    done = ol(str(SAMPLES / "kit.jsonl"), "preset:code", *SMALL, "--compare", "slot,paged,lru",
              "--blocks", "1024")
    assert done.returncode == 0, done.stderr
    assert "kit.jsonl: 4 requests" in done.stdout
    assert "code: 60 requests made up from seed 0" in done.stdout
    assert done.stdout.rstrip().endswith("Simulated by the reference.")


def test_the_same_call_says_the_same() -> None:
    words = ["preset:chat", *SMALL, "--blocks", "512", "--json", "-"]
    assert ol(*words).stdout == ol(*words, "--jobs", "1").stdout


def test_another_right_simulator_gives_the_same_figures() -> None:
    words = ["preset:chat", "--requests", "50", "--blocks", "512", "--json", "-", "--compare",
             "slot,oracle,paged,lru"]
    mine, others = (json.loads(ol(*words, "--bind", where).stdout)["traces"] for where in
                    ("reference", str(implementation("linked"))))
    assert mine == others


class Page(HTMLParser):
    """What a page refers to, and whether its tags are closed in order."""

    EMPTY = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.refers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        self.refers += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = ol("preset:chat", *SMALL, "--blocks", "300", "--requests", "150", "--html", str(file))
    assert done.returncode == 0, done.stderr
    text = file.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert not page.open
    assert "script" not in page.tags
    assert not page.refers, "nothing is asked of a network"
    assert not re.search(r"@import|url\(", text)
    assert page.tags.count("svg") >= 6
    assert page.tags.count("details") == page.tags.count("svg"), "each has its numbers"
    assert text.count('role="img"') == page.tags.count("svg")
    assert "prefers-color-scheme: dark" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for definition in ("never used by it", "blocks found over blocks asked for"):
        assert definition in text


def test_charts_are_files_too(tmp_path: Path) -> None:
    done = ol("preset:chat", *SMALL, "--blocks", "300", "--svg", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert {"concurrency.svg", "memory-slot.svg", "shares.svg", "hits.svg"} <= {
        p.name for p in tmp_path.iterdir()}
    for file in tmp_path.iterdir():
        ElementTree.parse(file)


def test_the_chapters_pictures_are_the_tools() -> None:
    for file in (ROOT / "course/modules").glob("*/*.svg"):
        root = ElementTree.parse(file).getroot()
        assert root.get("class") == "chart"
        assert charts.STYLE in file.read_text(encoding="utf-8")


BAD = {
    "a bad line": ([], HEAD + GOOD + GOOD.replace("20", "-1"), "line 3: prompt must be"),
    "an empty trace": ([], "", "trace.jsonl: the trace is empty"),
    "another kind of file": ([], "From: me\n", "trace.jsonl, line 1: this begins no trace"),
    "a request larger than the pool": (["--blocks", "1"], HEAD + GOOD,
                                       "line 2: it has 20 + 4 tokens, and the whole pool has room "
                                       "for 16"),
    "two sizes": (["--blocks", "9", "--pool-gb", "1"], HEAD + GOOD, "give one of them"),
    "no number": (["--blocks", "many"], HEAD + GOOD, "--blocks takes numbers"),
    "no blocks": (["--blocks", "0"], HEAD + GOOD, "from 1 on"),
    "a tiny pool": (["--pool-gb", "0.0001"], HEAD + GOOD, "less than one block"),
    "a pool that is no number": (["--pool-gb", "nan"], HEAD + GOOD,
                                 "--pool-gb takes a number above 0, not nan"),
    "a pool without end": (["--pool-gb", "inf"], HEAD + GOOD, "not inf"),
    "K and V that are no number": (["--kv-kib", "nan"], HEAD + GOOD, "--kv-kib takes a number"),
    "a policy that is none": (["--policy", "mru"], HEAD + GOOD, "--policy is lru"),
    "a comparison with nothing": (["--compare", "lru,mru"], HEAD + GOOD, "not 'mru'"),
    "a block size that does not fit": (["--block-tokens", "24"], HEAD + GOOD, "neither a part"),
    "a place that is none": (["--bind", "nowhere"], HEAD + GOOD, "--bind nowhere"),
    "a folder that is none": (["--svg", "nowhere"], HEAD + GOOD, "no such folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_one_sentence(tmp_path: Path, name: str) -> None:
    words, text, said = BAD[name]
    file = tmp_path / "trace.jsonl"
    file.write_text(text)
    done = ol(str(file), *words, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("ol: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_a_preset_that_is_none_is_told() -> None:
    done = ol("preset:poetry")
    assert done.returncode == 2
    assert "a preset is chat, code, agents, retrieval" in done.stderr


def test_bad_lines_may_be_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(HEAD + GOOD + "{oops\n" + GOOD.replace("20", "900") + GOOD)
    done = ol(str(file), "--skip-bad", "--blocks", "4", "--bind", "reference")
    assert done.returncode == 0, done.stderr
    assert "trace.jsonl: 2 requests" in done.stdout
    said = " ".join(done.stdout.split())
    assert "2 lines were passed over. The first:" in said
    assert "line 3: it is no JSON" in said
    file.write_text(HEAD + GOOD.replace("20", "900") + GOOD)
    done = ol(str(file), "--skip-bad", "--blocks", "4", "--bind", "reference")
    said = " ".join(done.stdout.split())
    assert "1 line was passed over." in said
    assert "the whole pool has room for 64." in said, "and no advice to do what was done"


def test_a_simulator_that_fails_is_said(tmp_path: Path) -> None:
    package = tmp_path / "tinyllm"
    package.mkdir()
    source = (ROOT / "reference/tinyllm/simulator.py").read_text(encoding="utf-8")
    (package / "simulator.py").write_text(source.replace(
        "        if not self._gather():\n", "        if [][1]:\n"))
    done = ol("preset:chat", "--requests", "20", "--bind", str(tmp_path), "--html",
              str(tmp_path / "page.html"))
    assert done.returncode == 1
    assert "the study stopped" in done.stdout
    assert "IndexError" in done.stdout
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("most", [0.0004, 0.0096, 0.05, 0.3, 1.0])
def test_the_marks_of_an_axis_are_told_apart(most: float) -> None:
    chart: charts.Chart = {"title": "", "says": "", "form": "lines", "x": "", "y": "share",
                           "series": [{"name": "a", "points": [(0, most), (1, 0)]}],
                           "percent": True}
    marks = re.findall(r">([\d.]+ %)<", charts.svg(chart, 0))
    assert 4 <= len(marks) == len(set(marks)), marks
