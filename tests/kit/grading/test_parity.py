"""Parity: the programs agree with a reading of the format that none of them has seen, and a
difference is told by its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.cli import parity as verb
from grader.course.model import Course, Module
from grader.grading.parity import Compared, Contender, compare, contenders, lacking
from grader.grading.target import NativeOptions
from grader.sandbox.api import WorkerPool
from tests.kit.support import wrongs
from tests.kit.support.compiled import needs_compiler
from tests.kv_export import reading, wire
from tests.vectors import cases

MODULE = "kv_export"
SUITE = "kv.wire.v1"


def compared(course: Course, workers: WorkerPool, contender: Contender) -> Compared:
    return compare(course, course.module(MODULE), workers, contender, lambda what: None)


def test_the_references_take_part(course: Course) -> None:
    module = course.module(MODULE)
    there = [one.name for one in contenders(course, module) if not lacking(course, module, one)]
    assert there[-2:] == ["the reference", "the reference in c"]


@pytest.mark.parametrize("pool", [None, pytest.param("c", marks=needs_compiler)])
def test_the_reference_agrees(course: Course, workers: WorkerPool, pool: str | None) -> None:
    result = compared(course, workers, Contender("the reference", "reference", NativeOptions(pool)))
    assert result.agrees, (result.differences, result.played.failure)
    assert result.counts["exports"][0] > 300
    assert result.counts["bit flips"][0] == 480
    assert result.counts["fuzzed"][0] >= 100_000


def test_who_takes_part_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that was compared agrees, and that none of it is the learner's is no secret."""
    def quick(course: Course, module: Module, workers: WorkerPool, one: Contender,
              tell: Callable[[str], None]) -> Compared:
        return Compared(one, {"exports": (3, 0)})

    monkeypatch.setattr(verb, "compare", quick)
    monkeypatch.setattr(verb, "lacking", lambda course, module, one: (
        [module] if one.where == "work" else []))
    assert verb.parity(SUITE, None) == 0
    said = capsys.readouterr().out
    assert "  · yours in c           took no part: kv_export not begun\n" in said
    assert said.endswith("All of them agree. None of them is yours.\n")


def test_a_difference_is_told_by_its_place(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    wrong = next(w for w in wrongs.load() if w.name == "stale_bytes_exported")
    result = compared(course, workers, Contender("it", str(wrong.write(tmp_path))))
    assert not result.agrees
    assert result.differences[0] == {
        "what": "a partial tail, with old values past its fill",
        "where": "byte 132, block 2: K of layer 0, head 0, position 1, value 0",
        "expected": "00", "got": result.differences[0]["got"]}


def test_the_reading_agrees_with_the_page() -> None:
    """Its checksum is the published one, and it refuses what the golden file refuses."""
    shape = wire.Shape(2, 1, 1, 2)
    assert reading.crc32c(b"123456789") == 0xE3069283
    for case in cases("refused"):
        refusals = reading.read(bytes.fromhex(case["envelope"]), shape, 4).refusals
        assert set(case["status"]) <= refusals, case["what"]
    for case in cases("export"):
        data = bytes.fromhex(case["envelope"])
        assert not reading.read(data, wire.Shape(**case["shape"]), 4).refusals, case["what"]


def test_a_place_has_a_name() -> None:
    shape = wire.Shape(2, 1, 1, 2)
    said = [reading.place(shape, 1, at) for at in (0, 7, 24, 28, 36, 40, 46, 48, 56, 60)]
    assert said == [
        "the magic", "the dtype", "head_dim", "block 0: its hash", "block 0: n_tokens",
        "block 0: K of layer 0, head 0, position 0, value 0",
        "block 0: K of layer 0, head 0, position 1, value 1",
        "block 0: V of layer 0, head 0, position 0, value 0", "the trailer", "past the end"]
