"""What is drawn of a server when a test fails."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from grader.assertions import steps as recorder
from grader.assertions.steps import STORY
from tests.simulator.view import MOST_STEPS, view
from tinyllm.simulation import Cost, SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of 6 blocks of 4 whose calls are recorded."""
    module = type("module", (), {"Simulator": type("Simulator", (Simulator,), {
        name: vars(Simulator)[name] for name in ("__init__", "submit", "step", "report")})})
    recorder.watch(module, ["Simulator.__init__", "Simulator.submit", "Simulator.step"],  # type: ignore[arg-type]
                ["Simulator.report"])
    STORY.clear()
    yield module.Simulator(SimConfig(6, 4, cost=Cost(10, 1)))  # type: ignore[attr-defined]
    STORY.clear()


def drawn(server: Any) -> list[dict[str, Any]]:
    steps = list(STORY.steps)
    STORY.depth += 1
    try:
        return view(server, steps)
    finally:
        STORY.depth -= 1


def test_what_became_of_each_request(server: Any) -> None:
    for request in (Request("A", 0, 4, 2), Request("B", 0, 20, 6), Request("C", 0, 5, 9),
                    Request("D", 0, 9, 9, cancel_us=5), Request("E", 0, 12, 1),
                    Request("F", 900, 4, 1)):
        server.submit(request)
    server.step()
    (requests, _) = drawn(server)
    assert [row[-1] for row in requests["rows"]] == ["runs", "was refused", "runs", "runs",
                                                     "waits", "comes"]
    server.step()
    (requests, _) = drawn(server)
    assert [row[-1] for row in requests["rows"]] == [
        "is done", "was refused", "runs", "is done or cancelled", "waits", "comes"]


def test_what_each_step_did(server: Any) -> None:
    server.submit(Request("A", 5, 4, 3))
    server.submit(Request("B", 17, 6, 1))
    assert len(drawn(server)) == 1
    server.step()
    server.step()
    (_, steps) = drawn(server)
    assert steps["rows"] == [["1", "5", "14", "1", "4", "A", ""],
                             ["2", "19", "17", "2", "7", "A", ""]]


def test_of_many_steps_the_first_and_the_last_are_drawn(server: Any) -> None:
    server.submit(Request("A", 0, 1, 23))
    for _ in range(23):
        server.step()
    (_, steps) = drawn(server)
    assert len(steps["rows"]) == MOST_STEPS
    assert [row[0] for row in steps["rows"]] == [*map(str, range(1, 11)), "…",
                                                 *map(str, range(15, 24))]
    assert steps["rows"][10][1] == "(4 steps)"
