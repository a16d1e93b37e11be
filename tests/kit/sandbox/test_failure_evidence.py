"""What a failure tells a learner: the judgement, the steps, the place, what was printed."""

from pathlib import Path

import pytest

from grader.sandbox.api import Run, WorkerPool
from tests.kit.support.toys import FAST, act, job, run


def test_a_hang_names_the_learners_line(workers: WorkerPool, tmp_path: Path) -> None:
    outcome = run(workers, tmp_path, act("x = 0\nwhile True:\n    x += 1"))
    code = outcome.results["second"]["failure"]["code"]
    assert code[-1]["function"] == "act"
    assert code[-1]["text"] in ("while True:", "x += 1")


@pytest.mark.parametrize("body", ["while True: pass", "import time\ntime.sleep(1000)",
                                  "import threading\nx = threading.Lock()\nx.acquire()\n"
                                  "x.acquire()"])
def test_a_hang_tells_the_steps_that_led_to_it(
    workers: WorkerPool, tmp_path: Path, body: str
) -> None:
    suite = "from tinyllm.toy import act, good\ndef test_it():\n    good()\n    act()\n"
    failure = run(workers, tmp_path, act(body), suite).results["it"]["failure"]
    assert [(s["text"], s["outcome"]) for s in failure["steps"]] == [
        ("good()", "1"), ("act()", "is not done")]


SUDDEN_ENDS = {
    "os._exit": "import os\nos._exit(3)",
    "a segmentation fault": "import ctypes\nctypes.string_at(0)",
    "a kill of itself": "import os\nos.kill(os.getpid(), 9)",
    "a flood of output": "while True: print('x' * 100000)",
}


@pytest.mark.parametrize("name", SUDDEN_ENDS)
def test_a_sudden_end_tells_the_steps_that_led_to_it(
    workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    suite = "from tinyllm.toy import act, good\ndef test_it():\n    good()\n    act()\n"
    failure = run(workers, tmp_path, act(SUDDEN_ENDS[name]), suite).results["it"]["failure"]
    assert [(s["text"], s["outcome"]) for s in failure["steps"]] == [
        ("good()", "1"), ("act()", "is not done")]
    assert failure["code"][-1]["function"] == "act"


def test_a_sudden_end_between_calls_tells_the_steps_that_were_done(
    workers: WorkerPool, tmp_path: Path
) -> None:
    suite = ("import os\nfrom tinyllm.toy import act, good\ndef test_it():\n    good()\n"
             "    for _ in range(60): act()\n    os._exit(3)\n")
    failure = run(workers, tmp_path, act("return"), suite).results["it"]["failure"]
    assert [(s["text"], s["outcome"], s["times"]) for s in failure["steps"]] == [
        ("good()", "1", 1), ("act()", "", 40)]
    assert failure["steps_left_out"] == 20


def test_a_sudden_end_that_does_not_come_again_is_still_told(
    workers: WorkerPool, tmp_path: Path
) -> None:
    body = ("import os\nfrom grader.assertions.steps import STORY\n"
            "if STORY.tell is None: os._exit(3)")
    results = run(workers, tmp_path, act(body)).results
    assert results["second"]["failure"] == {
        "cause": "ended", "what": "it ended the whole process (exit status 3)", "code": []}
    assert results["third"]["failure"] is None


def test_a_worker_is_asked_again_and_again(workers: WorkerPool, tmp_path: Path) -> None:
    body = "import os\nfor _ in range(300): os.kill(os.getpid(), 10)"
    results = run(workers, tmp_path, act(body)).results
    assert [r["failure"] for r in results.values()] == [None, None, None]


def test_what_a_test_printed_is_shown_and_not_obeyed(workers: WorkerPool, tmp_path: Path) -> None:
    outcome = run(workers, tmp_path, act("print('\\x1b[2J\\ta\\udc80\\r\\nb')"))
    assert outcome.results["second"]["printed"] == "\\x1b[2J\ta\\udc80\nb\n"


def test_what_a_test_printed_is_kept_at_both_ends(workers: WorkerPool, tmp_path: Path) -> None:
    outcome = run(workers, tmp_path, act("print('begin')\nprint('m' * 9000)\nprint('end')\n1/0"))
    printed = outcome.results["second"]["printed"]
    assert printed.startswith("begin")
    assert printed.rstrip().endswith("end")
    assert "bytes cut" in printed
    assert outcome.results["first"]["printed"] == ""


METHODS = ("class Toy:\n    def __init__(self): self.own = 1\n    def put(self): return 2\n")


@pytest.mark.parametrize("asked", ["toy.look_up(3)", "toy.size"])
def test_a_method_that_a_class_lacks_is_not_written_yet(
    workers: WorkerPool, tmp_path: Path, asked: str
) -> None:
    suite = f"from tinyllm.toy import Toy\ndef test_it():\n    toy = Toy()\n    {asked}\n"
    plan = job(tmp_path, METHODS, suite)
    plan["watch"]["toy"]["names"] = ["Toy.__init__", "Toy.look_up", "Toy.size", "Toy.put"]
    failure = Run(workers, plan, FAST).go().results["it"]["failure"]
    name = asked.removeprefix("toy.").removesuffix("(3)")
    assert (failure["cause"], failure["what"]) == ("todo", f"Toy.{name} is not written yet")


def test_an_attribute_of_an_object_is_as_good_as_a_property(
    workers: WorkerPool, tmp_path: Path
) -> None:
    suite = ("from tinyllm.toy import Toy\ndef test_it():\n    assert Toy().own == 1\n"
             "    assert Toy().put() == 2\n")
    plan = job(tmp_path, METHODS, suite)
    plan["watch"]["toy"]["names"] = ["Toy.own", "Toy.put"]
    assert Run(workers, plan, FAST).go().results["it"]["failure"] is None


@pytest.mark.parametrize("body", ["raise SystemExit", "raise KeyboardInterrupt", "return 5",
                                  "return 'x' * 10 ** 7", "return '\\udc80'"])
def test_an_answer_whose_repr_misbehaves_is_told(
    workers: WorkerPool, tmp_path: Path, body: str
) -> None:
    suite = ("from grader.assertions import same\nfrom tinyllm.toy import act\n"
             "def test_it():\n    same(act(), 3, 'the answer')\n")
    source = act(f"class Odd:\n    def __repr__(self):\n        {body}\nreturn Odd()")
    failure = run(workers, tmp_path, source, suite).results["it"]["failure"]
    assert (failure["cause"], failure["what"]) == ("wrong", "the answer")
    assert len(failure["got"].encode()) < 400


def test_an_object_equal_to_everything_equals_nothing(workers: WorkerPool, tmp_path: Path) -> None:
    suite = ("from grader.assertions import same\nfrom tinyllm.toy import act\n"
             "def test_it():\n    same(act(), 3, 'the answer')\n")
    source = act("class Yes:\n    def __eq__(self, other): return True\n"
                 "    def __index__(self): return 4\nreturn Yes()")
    failure = run(workers, tmp_path, source, suite).results["it"]["failure"]
    assert failure["what"] == "the answer"
