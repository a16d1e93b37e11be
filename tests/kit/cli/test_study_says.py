"""What `ol simulate` says of its figures: how they were made, and what they are worth.

And the report against five requests that were worked by hand.
"""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader import ROOT
from grader.cli import simulate as verb

sys.path.insert(0, str(ROOT / "reference"))

from tests.kit.cli.test_study import facts, ol
from tests.kit.reference.test_traces import SAMPLES
from tests.kit.support import copies
from tinyllm.simulation import Cost, Scheme, SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace_files import TraceFile

FIVE = ((0, 5, 3, [1, 2]), (0, 9, 4, [1, 3, 4]), (15, 8, 2, [1, 5]), (40, 10, 5, [1, 3, 6]),
        (60, 3, 2, [7]))
# Peak, mean, under pressure, shares of that (token, reserved, internal, external), TTFT, queueing,
# positions computed, end: of 8 blocks of 4, slots of 16, steps of 10 us and 1 us a position.
BY_HAND: dict[str, tuple[Any, ...]] = {
    "slot": (2, 250 / 136, 64, (58.0, 7.4, 34.7, 0.0), (24, 24, 52, 48, 42), (0, 0, 33, 27, 28),
             46, 136),
    "pow2": (2, 233 / 166, 118, (43.4, 5.6, 5.7, 45.3), (24, 24, 52, 58, 95), (0, 0, 33, 38, 82),
             46, 166),
    "oracle": (2, 250 / 136, 64, (58.0, 7.4, 0.0, 34.7), (24, 24, 52, 48, 42), (0, 0, 33, 27, 28),
               46, 136),
    "paged": (3, 263 / 126, 13, (84.4, 3.1, 12.5, 0.0), (24, 24, 29, 38, 32), (0, 0, 9, 17, 18),
              46, 126),
    "paged, cache lru": (3, 255 / 122, 13, (84.4, 3.1, 12.5, 0.0), (24, 24, 29, 34, 28),
                         (0, 0, 9, 17, 14), 42, 122),
}
SERVER = ["--blocks", "8", "--max-len", "16", "--step-us", "10", "--token-us", "1"]


def trace_of(folder: Path, rows: tuple[tuple[Any, ...], ...], block_tokens: int = 4) -> Path:
    file = folder / "trace.jsonl"
    names = ("arrival_us", "prompt", "output", "blocks", "cancel_us", "turn")
    file.write_text(json.dumps({"trace": 1, "block_tokens": block_tokens}) + "\n" + "".join(
        json.dumps(dict(zip(names, row, strict=False))) + "\n" for row in rows))
    return file


def said(*words: str) -> str:
    """Return what the tool prints, on one line."""
    done = ol(*words, "--bind", "reference")
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_five_requests_by_hand(tmp_path: Path) -> None:
    (trace,) = facts(str(trace_of(tmp_path, FIVE)), *SERVER, "--compare", "all")
    assert [s["label"] for s in trace["schemes"]] == list(BY_HAND)
    for server in trace["schemes"]:
        peak, mean, pressed, shares, ttft, queue, computed, end = BY_HAND[server["label"]]
        assert server["peak_running"] == peak
        assert server["mean_running"] == pytest.approx(mean)
        assert server["pressed_us"] == pressed
        assert [round(100 * server["pressed_shares"][name], 1) for name in
                ("token", "reserved", "internal", "external")] == list(shares)
        for name, times in (("ttft_us", ttft), ("queue_us", queue)):
            assert server[name] == {"median": sorted(times)[2], "p99": max(times),
                                    "most": max(times)}
        assert (server["computed_tokens"], server["end_us"]) == (computed, end)
        assert (server["preemptions"], server["evictions"], server["waste"]) == (0, 0, 0)
        hits = (1 / 7, 4 / 35) if "cache" in server["label"] else (0, 0)
        assert (server["block_hit_rate"], server["token_hit_rate"]) == pytest.approx(hits)


def test_each_of_the_five_by_hand(tmp_path: Path) -> None:
    requests = list(TraceFile(trace_of(tmp_path, FIVE)))
    server = SimConfig(8, 4, max_len=16, cost=Cost(10, 1))
    for label, (*_, ttft, queue, _, _) in BY_HAND.items():
        scheme, _, cache = label.partition(", cache ")
        config = replace(server, scheme=Scheme(scheme), cache=cache or "none")
        report = Simulator(config).run(requests)
        assert (tuple(report.ttft_us), tuple(report.queue_us)) == (ttft, queue), label


def test_a_simulator_that_never_ends_is_stopped(tmp_path: Path) -> None:
    package = tmp_path / "tinyllm"
    package.mkdir()
    source = (ROOT / "reference/tinyllm/simulator.py").read_text(encoding="utf-8")
    never = source.replace("        live.done = True\n        self._stuck = False\n",
                           "        live.done = True\n")
    assert never != source
    (package / "simulator.py").write_text(never)
    file = trace_of(tmp_path, ((0, 20, 2), (0, 20, 2)))
    done = ol(str(file), "--blocks", "6", "--compare", "paged", "--bind", str(tmp_path))
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "nobody is served any more, with [1] waiting and nobody running" in text


def test_a_simulator_that_leaves_somebody_out_is_said(tmp_path: Path) -> None:
    package = tmp_path / "tinyllm"
    package.mkdir()
    source = (ROOT / "reference/tinyllm/simulator.py").read_text(encoding="utf-8")
    rest = "        while self.step():\n            self._coast()\n"
    assert rest in source
    (package / "simulator.py").write_text(source.replace(rest, ""))
    file = trace_of(tmp_path, ((0, 20, 2),))
    done = ol(str(file), "--blocks", "6", "--compare", "paged", "--bind", str(tmp_path))
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "what became of the requests when the simulation was over" in text
    assert "1 in all, 0 completed, 0 cancelled, 0 refused" in text


def test_work_that_has_not_passed_is_said(tmp_path: Path) -> None:
    """So it is in all three forms; and no more once it has."""
    place = copies.copy(tmp_path)
    work = place / "work/tinyllm/simulator.py"
    work.parent.mkdir(parents=True)
    work.write_bytes((ROOT / "reference/tinyllm/simulator.py").read_bytes())
    file, page, report = trace_of(tmp_path, FIVE), tmp_path / "page.html", tmp_path / "out.json"
    words = ["simulate", str(file), "--html", str(page), "--json", str(report)]
    done = copies.ol(place, *words)
    warning = "which has not passed `ol check simulator` as it is now: these figures may be wrong."
    assert warning in done.stdout
    assert warning in page.read_text(encoding="utf-8")
    assert json.loads(report.read_bytes())["passed"] is False
    checked = copies.ol(place, "check", "simulator")
    assert checked.returncode == 0
    assert "`ol simulate preset:chat --html chat.html` now shows with your simulator what paging " \
           "buys." in checked.stdout
    done = copies.ol(place, *words)
    assert done.stdout.rstrip().endswith("Simulated by your work/tinyllm/simulator.py.")
    assert json.loads(report.read_bytes())["passed"] is True


def test_the_size_of_a_pool_that_nobody_gave_is_said(tmp_path: Path) -> None:
    (trace,) = facts(str(SAMPLES / "mooncake.jsonl"))
    assert trace["gib"] == 8
    file = trace_of(tmp_path, ((0, 20_000, 100), (5, 10, 1)), 16)
    (trace,) = facts(str(file))
    assert trace["blocks"] == 4 * -(-20_099 // 16)
    assert "four times what the longest request needs, 20,099 tokens" in said(str(file))
    assert "8, or four times what the longest request needs" in " ".join(
        ol("--help").stdout.split())


def test_a_server_that_is_too_slow_is_said(tmp_path: Path) -> None:
    rows = tuple((100 * at, 50, 5, [1, 2 + at]) for at in range(8))
    file = str(trace_of(tmp_path, rows, 16))
    words = [file, "--blocks", "16", "--step-us", "10"]
    # 8 prompts of 50 and 32 tokens more, at 10 us; 7 x 16 tokens can be found at best.
    assert ("Arrivals end after 700 us, and the server needs 3.2 ms or more for nothing but "
            "computing: it is too slow for this trace, whatever its memory, and done at 3.79 ms at "
            "the earliest.") in said(*words, "--token-us", "10")
    assert "too slow" not in said(*words, "--token-us", "1")
    assert "under slot, pow2, oracle and paged: there it is too slow" in said(
        str(trace_of(tmp_path, tuple((100 * at, 50, 1, [1, 2, 3]) for at in range(8)), 16)),
        "--blocks", "64", "--step-us", "1", "--token-us", "2", "--compare", "all")


def test_why_slots_refuse_is_said_and_no_gain_is_told(tmp_path: Path) -> None:
    file = str(trace_of(tmp_path, FIVE))
    words = [file, *SERVER[:2], *SERVER[4:]]
    text = said(*words, "--max-len", "8")
    assert "3 requests have no room under slot, even when nobody else is there: they are longer " \
           "than a slot, 8 tokens." in text
    assert "times as many requests" not in text
    assert "What pages gain over slots is not told" in text
    (trace,) = facts(*words, "--max-len", "8")
    assert trace["gain"] is None
    assert "1 request has no room under slot, even when nobody else is there: it is longer than " \
           "a slot, 12 tokens." in said(*words, "--max-len", "12")
    text = said(*words, "--max-len", "40")
    assert "5 requests have no room under slot, even when nobody else is there: no piece of the " \
           "memory is large enough, the largest has 32 slots." in text


def test_a_trace_in_which_nobody_runs_is_no_trace_that_does_not_fit(tmp_path: Path) -> None:
    text = said(str(trace_of(tmp_path, ((10, 5, 3, [], 10),))), *SERVER)
    assert "none runs" in text
    assert "none fits" not in text
    assert "none fits" in said(str(trace_of(tmp_path, ((10, 30, 3),))), "--blocks", "8",
                               "--max-len", "8", "--compare", "slot")


def test_several_sizes_of_the_pool_are_several_servers(tmp_path: Path) -> None:
    words = [str(trace_of(tmp_path, FIVE)), "--blocks", "8,4,6", *SERVER[2:]]
    assert "Other sizes of the pool (pages, cache lru)" in said(*words)
    (trace,) = facts(*words)
    assert [p["blocks"] for p in trace["pools"]] == [4, 6, 8]
    for pool in trace["pools"]:
        (alone,) = facts(words[0], "--blocks", str(pool["blocks"]), *SERVER[2:])
        same = next(s for s in alone["schemes"] if s["label"] == "paged, cache lru")
        assert {**pool, "label": same["label"], "blocks": None} == {**same, "blocks": None}
    ol(*words, "--svg", str(tmp_path), "--bind", "reference")
    for name in ("pool-ttft", "pool-work", "pool-rate"):
        assert (tmp_path / f"{name}.svg").exists()


def test_what_belady_cannot_do_is_said(tmp_path: Path) -> None:
    file = str(trace_of(tmp_path, FIVE))
    text = said(file, *SERVER, "--policy", "belady")
    assert "No server has belady" in text
    assert "paged, cache" not in text
    assert "cache lru" not in said(file, *SERVER, "--compare", "belady")
    assert "paged, cache lfu" in said(file, *SERVER, "--compare", "paged,lfu,belady")
    (trace,) = facts(file, *SERVER, "--compare", "slot,paged")
    assert trace["policies"] == {}
    assert trace["policy"] is trace["block_hit_rate"] is None


def test_all_that_was_set_is_in_the_report(tmp_path: Path) -> None:
    file, page = trace_of(tmp_path, FIVE), tmp_path / "page.html"
    (trace,) = facts(str(file), *SERVER, "--victim", "fifo", "--preemption", "swap",
                     "--max-running", "7", "--kv-kib", "2.5", "--swap-us", "3")
    assert trace["config"] == {
        "block_tokens": 4, "blocks": 8, "max_len": 16, "max_running": 7, "victim": "fifo",
        "preemption": "swap", "policy": "lru", "kv_kib": 2.5, "skip_bad": False,
        "block_size": None, "step_us": 10, "token_us": 1, "swap_us": 3}
    (trace,) = facts("preset:chat", "--requests", "9", "--seed", "4", "--compare", "paged")
    assert (trace["config"]["requests"], trace["config"]["seed"]) == (9, 4)
    ol(str(file), *SERVER, "--html", str(page), "--bind", "reference")
    call = f"ol simulate {file} {' '.join(SERVER)} --html {page} --bind reference"
    assert f"Simulated by the reference. Made by</p><pre>{call}</pre>" in page.read_text("utf-8")


def test_one_is_no_plural(tmp_path: Path) -> None:
    text = said(str(trace_of(tmp_path, ((0, 3, 1),), 1)), "--blocks", "3", "--max-running", "1",
                "--max-len", "1", "--kv-kib", "1")
    assert "trace.jsonl: 1 request " in text
    assert "it arrives at once" in text
    assert "3 blocks of 1 token (3.0 KiB" in text
    assert "slots are of 1 token, and at most 1 request runs." in text
    assert "1 request has no room under slot" in text
    rows = tuple((at, 1, 1, [1], None, turn) for at, turn in enumerate((1, 2) * 5))
    turns = trace_of(tmp_path, rows, 1)
    text += said(str(turns), "--blocks", "2", "--compare", "all")
    page = tmp_path / "page.html"
    ol(str(turns), "--blocks", "1,2", "--compare", "all", "--bind", "reference",
       "--html", str(page))
    text += page.read_text(encoding="utf-8")
    assert "Hit rate by turn of the session (lru, 1 block)" in text
    assert not re.search(r"\b1 (requests|lines|blocks|tokens|slots|positions|charts)\b", text)
    assert "0.0 GiB" not in text


def test_a_narrow_terminal_cuts_no_figure(tmp_path: Path) -> None:
    file = trace_of(tmp_path, FIVE)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "grader", "simulate", str(file), *SERVER, "--bind",
         "reference"], env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": "46"},
        cwd=ROOT, text=True, capture_output=True, check=True)
    assert "…" not in done.stdout
    assert max(map(len, done.stdout.splitlines()[3:-2])) <= 46


@pytest.mark.parametrize(("verb", "other"), [("simulate", "--html"), ("check", "--junit")])
def test_two_reports_in_one_file_are_refused(tmp_path: Path, verb: str, other: str) -> None:
    file = tmp_path / "both"
    what = str(SAMPLES / "kit.jsonl") if verb == "simulate" else "simulator"
    for one, two in ((file, file), (file, tmp_path / "." / "both"), ("-", "-")):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "grader", verb, what, "--json", str(one), other,
             str(two)], env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, cwd=ROOT, text=True,
            capture_output=True, check=False)
        assert done.returncode == 2
        assert f"--json and {other} both say {two}: give each a file of its own." in done.stderr
    assert not file.exists()


def test_whoever_does_not_watch_is_told_now_and_then(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    time = iter((0.0, 4.0, 11.0, 11.0, 12.0, 40.0))
    monkeypatch.setattr(verb, "monotonic", lambda: next(time))
    tell = verb.Telling()
    for share in (0.1, 0.234, 0.3, 1.0):
        tell(share)
    assert capsys.readouterr().err == "ol: 23 % simulated.\n"
