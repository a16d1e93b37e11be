"""The second tier's scripts: what they compute by hand, small runs in this process, and a real one.

No test here depends on how fast a machine is.
"""

import sys
import xml.etree.ElementTree as ET
from math import inf, isclose
from pathlib import Path
from typing import Any

import pytest

from grader import ROOT
from grader.course.model import Course

sys.path.insert(0, str(ROOT / "reference"))

from grader.assertions import Wrong
from tests.kit.support.copies import copy, ol
from tests.kv_tier import bench_restore, prefixes
from tests.kv_tier import demo_break_even as demo
from tinyllm.kv_tier import DiskStore, MemoryStore


def test_a_value_longer_than_a_row_may_be_costs_no_contents(tmp_path: Path) -> None:
    """SQLite's own bound is no damage. (Zeros that nobody has written take no room.)"""
    store = DiskStore(tmp_path, 1 << 40)
    store.put(1, b"one")
    with pytest.raises(OSError, match="too big"):
        store.put(2, bytes(1_000_000_001))
    assert (store.names(), store.used_bytes, store.get(1)) == ([1], 3, b"one")
    store.close()


def test_a_crossing_lies_on_the_lines_between_the_lengths() -> None:
    computed = {100: 1.0, 200: 2.0, 400: 4.0}
    assert demo.crossing(computed, {100: 2.0, 200: 2.5, 400: 3.5}) == 300
    assert demo.crossing(computed, {100: 0.5, 200: 5.0, 400: 9.0}) == 0.0
    assert demo.crossing(computed, {100: 5.0, 200: 6.0, 400: 7.0}) == inf


def test_paper_and_measurement_agree_where_all_is_linear() -> None:
    """Times that grow by a fixed amount a token leave nothing to argue about."""
    times = {"computed": {n: n / 5000 for n in demo.LENGTHS},
             "memory": {n: n * 20e-6 for n in demo.LENGTHS}}
    for device in demo.FAR:
        real = demo.crossing(times["computed"], demo.at(device, times["memory"]))
        assert isclose(real, demo.on_paper(device, times), rel_tol=1e-6), device.name


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Make the bench short; return what it tells."""
    for module in (prefixes, bench_restore):
        monkeypatch.setattr(module, "LONG", 2 * prefixes.BLOCK)
    monkeypatch.setattr(bench_restore, "ROUNDS", 2)
    return []


def test_the_bench_tells_each_series_and_round(
    small: list[tuple[str, dict[str, Any]]], course: Course
) -> None:
    bench_restore.main(lambda kind, **fields: small.append((kind, fields)))
    bench = course.module("kv_tier").bench
    assert bench is not None
    assert {kind for kind, _ in small} == {"sample", "share"}
    told = {(fields["series"], fields["round"]) for kind, fields in small if kind == "sample"}
    (share,) = (fields for kind, fields in small if kind == "share")
    assert share["series"] == bench.over and share["seconds"] > 0
    names = {*bench_restore.COMPUTED, *bench_restore.RESTORED}
    assert told == {(name, number) for name in names for number in range(2)}
    assert {bench.base, bench.over, bench.control} <= names
    assert bench.budget == 3.0


class _Forgetful(MemoryStore):
    """A store that has other K and V under the names it was given."""

    def get(self, name: int) -> bytes | None:
        names = self.names()
        return super().get(names[(names.index(name) + 1) % len(names)] if name in names else name)


def test_a_tier_that_brings_back_something_else_measures_nothing(
    small: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_restore, "MemoryStore", _Forgetful)
    with pytest.raises((AssertionError, IndexError, Wrong)):
        bench_restore.main(lambda kind, **fields: small.append((kind, fields)))
    assert small == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("tier"))


def test_the_demo_prints_and_draws_the_break_even(place: Path, tmp_path: Path) -> None:
    """Over modules beside its own: the engine is the reference's, whatever the learner has."""
    done = ol(place, "demo", "kv_tier", "--bind", "reference", "--svg", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [int(row[0]) for row in rows if len(row) == 7 and row[0].isdigit()] == [*demo.LENGTHS]
    assert [row[0] for row in rows if len(row) == 4 and row[0] in ("near", "far", "farther")]
    assert max(map(len, done.stdout.splitlines())) <= 100
    drawn = {path.name: ET.parse(path).getroot() for path in tmp_path.iterdir()}
    assert set(drawn) == {"break-even.svg", "paper.svg"}
    assert set(drawn) == {p.name for p in (ROOT / "course/modules/kv_tier").glob("*.svg")}


def test_a_folder_for_charts_must_be_there(place: Path) -> None:
    done = ol(place, "demo", "kv_tier", "--svg", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ol: --svg nowhere: there is no such folder.\n"
