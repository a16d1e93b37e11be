"""Nothing that a worker writes on the grader's channel can end the grader: an event of a wrong
shape is a failed test, and costs no other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.sandbox import messages, worker_handle
from grader.sandbox.api import WorkerPool
from grader.sandbox.messages import MALFORMED, read
from tests.kit.support.toys import act, run

FAILURE = {"cause": "error", "what": "it failed"}
END = {"event": "end", "test": "second", "seconds": 0.5, "failure": None, "left": None}
DEEP = "[" * 200_000

WRONG: dict[str, Any] = {
    "no JSON": "hello", "nothing": "", "a list": "[]", "a number": "7", "deep": DEEP,
    "deep inside": '{"event": "figure", "figure": ' + DEEP,
    "not UTF-8": b"\xff\xfe\x00", "no event": "{}", "an event that is a list": {"event": []},
    "an unknown event": {"event": "passed", "test": "second"},
    "our own word for it": MALFORMED,
    "an end without its parts": {"event": "end", "test": "second"},
    "a failure that is a text": END | {"failure": "no"},
    "a failure without a cause": END | {"failure": {"what": "no"}},
    "a failure with more": END | {"failure": FAILURE | {"more": 1}},
    "seconds that are a text": END | {"seconds": "1"},
    "seconds without end": '{"event": "end", "test": "second", "seconds": Infinity, '
                           '"failure": null, "left": null}',
    "seconds of 5000 digits": '{"event": "end", "test": "second", "seconds": ' + "9" * 5000
                              + ', "failure": null, "left": null}',
    "a test that is null": END | {"test": None},
    "steps that are no steps": END | {"failure": FAILURE | {"steps": [1]}},
    "a picture of numbers": END | {"failure": FAILURE | {"pictures": [
        {"title": "x", "columns": ["a"], "rows": [[1]]}]}},
    "bytes that are not hex": END | {"failure": FAILURE | {"bytes": {
        "offset": 0, "start": 0, "expected": "zz", "got": ""}}},
    "a line number that is true": END | {"failure": FAILURE | {"code": [
        {"file": "f", "line": True, "function": "g", "text": ""}]}},
    "a broken module without a name": {"event": "broken", "failure": FAILURE},
    "a process id": {"event": "done", "pid": 1},
    "an end of the process": {"ended": 0},
    "a figure that is a list": {"event": "figure", "figure": []},
    "a figure without a kind": {"event": "figure", "figure": {}},
}


def line(message: Any) -> bytes:
    if isinstance(message, bytes):
        return message
    return (message if isinstance(message, str) else json.dumps(message)).encode()


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as one:
        yield one


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_event_is_not_taken_in(name: str) -> None:
    assert read(line(WRONG[name])) == MALFORMED


def test_what_is_one_is_plain() -> None:
    end = END | {"failure": FAILURE | {
        "what": "\x1b[2J", "expected": None, "got": "1", "steps_left_out": 3, "asserted": True,
        "steps": [{"text": "a", "outcome": "b", "failed": False, "times": 2}],
        "bytes": {"offset": 1, "start": 0, "expected": "00ff", "got": ""}}}
    told = read(line(end))
    assert told["failure"].pop("what") == "\\x1b[2J"
    del end["failure"]["what"]  # type: ignore[attr-defined]
    assert told == end


def test_every_event_has_a_shape() -> None:
    """Each kind of event that the worker's side sends is known to the grader's."""
    sent = set()
    for file in Path(messages.__file__).parent.glob("inside/*.py"):
        text = file.read_text(encoding="utf-8")
        sent |= {part.split('"')[0] for part in text.split('events.send("')[1:]}
    assert sent == set(messages._SHAPES)


@pytest.mark.parametrize("name", ["no JSON", "deep", "not UTF-8", "an end without its parts",
                                  "bytes that are not hex", "an end of the process"])
def test_a_program_that_writes_into_the_channel_fails_its_test(
    workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    source = act(f"import os\nfor fd in range(3, 64):\n    try: os.write(fd, {line(WRONG[name])!r} "
                 "+ b'\\n')\n    except OSError: pass")
    results = run(workers, tmp_path, source).results
    assert results["first"]["failure"] is None
    assert results["second"]["failure"]["cause"] == "events", results
    assert results["third"]["failure"] is None


def test_a_program_that_writes_into_the_channel_at_import_is_told(
    workers: WorkerPool, tmp_path: Path
) -> None:
    source = ("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'[' * 60000 + b'\\n')\n"
              "    except OSError: pass\n")
    outcome = run(workers, tmp_path, source + act("return"))
    assert outcome.broken is not None
    assert outcome.broken[0] == "toy"
    assert outcome.broken[1]["cause"] == "events"


def test_a_descriptor_of_any_number_can_be_waited_for() -> None:
    """select() takes none from 1024 on; a machine with many processors has as many workers."""
    import os
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[0] < 1100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1100, limit[1]), limit[1]))
    end, write = os.pipe()
    high = 1080
    os.dup2(end, high)
    try:
        assert worker_handle.readable([high], 0.0) == []
        os.write(write, b"x")
        assert worker_handle.readable([high], 60.0) == [high]
    finally:
        for fd in (end, write, high):
            os.close(fd)


# ---- what is printed -----------------------------------------------------------------------------


def test_a_long_output_is_cut_and_fails_nothing(workers: WorkerPool, tmp_path: Path) -> None:
    source = act("print('first line')\nfor n in range(40_000): print(n, 'x' * 100)\n"
                 "print('last line')")
    result = run(workers, tmp_path, source).results["second"]
    assert result["failure"] is None
    assert result["printed"].startswith("first line\n0 x")
    assert result["printed"].endswith("last line\n")
    assert "bytes cut …]" in result["printed"]
    assert len(result["printed"]) < 5000
