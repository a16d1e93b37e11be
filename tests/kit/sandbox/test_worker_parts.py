"""The worker's parts one by one, and what they do on a system that lacks something."""

import json
import os
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader import ROOT
from grader.assertions import steps
from grader.assertions.steps import STORY, Step
from grader.assertions.wording import say, say_error
from grader.learner.plain_text import plain_all
from grader.sandbox import channel, exit_reasons, processes
from grader.sandbox.channel import Events, Lines
from grader.sandbox.processes import Process
from grader.sandbox.worker_handle import Printed
from tests.kit.support.toys import needs_proc

# ---- words ---------------------------------------------------------------------------------------


class Hostile:
    """Refuses every question."""

    def __repr__(self) -> str:
        raise SystemExit

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise KeyboardInterrupt


def test_a_long_value_is_cut_and_says_so() -> None:
    assert say("é" * 500) == f"'{'é' * 300}'… 500 characters in all"
    assert say("\0" * 300) == repr("\0" * 300)
    assert say([["x" * 200] * 9] * 9).endswith("characters in all")
    assert len(say([["x" * 200] * 9] * 9)) < 400
    assert say_error(ValueError("x" * 10**6)).endswith("x… 1000000 characters in all")


def test_a_tuple_of_one_has_its_comma() -> None:
    assert say((5,)) == "(5,)"
    assert say([5]) == "[5]"
    assert say(()) == "()"


def test_a_report_is_told_as_it_was_when_it_was_made() -> None:
    @dataclass
    class Report:
        times: list[int]

    told = Report([1])
    step = Step("method", "report", subject=None)
    STORY.clear()
    steps._run(step, lambda: told)
    told.times.append(5)
    assert step.outcome == "Report(times=[1])"
    STORY.clear()


def test_a_value_that_holds_itself_has_an_end() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    assert "[…]" in say(loop)
    assert "[…]" in STORY.word(loop)


def test_a_value_that_refuses_every_question_has_a_name() -> None:
    assert say(Hostile()) == "<Hostile>"
    assert say([1, Hostile()]) == STORY.word([1, Hostile()]) == "[1, <Hostile>]"


def test_an_answer_that_refuses_every_question_is_told() -> None:
    STORY.clear()
    step = Step("function", "act", query=True)
    step.result = Hostile()
    STORY.add(step)
    assert [(s.text, s.outcome) for s in STORY.told([step, step])] == [("act()", "<Hostile>")] * 2
    STORY.clear()


def test_an_error_whose_class_refuses_has_a_name() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            raise SystemExit

    bad = types.new_class("Bad", (Exception,), {"metaclass": Meta})
    assert say_error(BaseException.__new__(bad)) == "Bad"


def test_an_annotation_that_cannot_be_worked_out_is_none() -> None:
    """From Python 3.14 on, annotations are worked out when somebody asks."""
    class Lazy:
        @property
        def __annotations__(self) -> Any:  # type: ignore[override]
            raise NameError("BlockId")

    assert Step("function", "f", Lazy()).outcome == ""  # type: ignore[arg-type]
    assert Step("function", "f", Lazy(), query=True).outcome == "None"  # type: ignore[arg-type]


# ---- what leaves a worker ------------------------------------------------------------------------


def test_every_text_that_leaves_is_plain() -> None:
    told = plain_all({"what": "\x1b[2J\t\n\udc80\u202e", "steps": [{"text": "\r"}], "n": 1})
    assert told == {"what": "\\x1b[2J\t\n\\udc80\\u202e", "steps": [{"text": "\\r"}], "n": 1}


def test_printed_text_is_plain_but_for_tabs_and_newlines() -> None:
    printed = Printed(b"<mark>")
    printed.add(b"\x1b[2J\ta\xff\r\nb\x07<mark>")
    assert printed.take() == "\\x1b[2J\ta\N{REPLACEMENT CHARACTER}\nb\\x07"


def test_a_handler_that_comes_in_the_middle_of_an_event_is_silent(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    events = Events(write)

    def interrupted(fd: int, data: memoryview) -> int:
        events.send("story")
        return os.write(fd, data[:7])

    monkeypatch.setattr(channel, "write", interrupted)
    events.send("begin", test="one")
    events.send("end", test="one")
    told = [json.loads(line) for line in Lines().feed(os.read(read, 4096))]
    assert [m["event"] for m in told] == ["begin", "end"]
    os.close(read)
    os.close(write)


def test_a_line_without_an_end_is_not_kept() -> None:
    lines = Lines()
    for _ in range(5):
        lines.feed(b"x" * (4 << 20))
    assert len(lines.rest) <= 16 << 20


# ---- the ends of workers -------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "said"), [
    (0, "exit status 0"), (-11, "a segmentation fault"), (-9, "a kill (SIGKILL)"),
    (-25, "died of SIGXFSZ"), (-40, "died of signal 40"), (-200, "died of signal 200")])
def test_every_end_has_a_sentence(status: int, said: str) -> None:
    assert said in exit_reasons.ended(status)["what"]


def test_a_trace_is_read_whatever_has_become_of_the_file(tmp_path: Path) -> None:
    there, gone, folder = tmp_path / "é.py", tmp_path / "gone.py", tmp_path / "folder.py"
    there.write_text("x = 1\nwhile True: pass\n", encoding="utf-8")
    folder.mkdir()
    trace = "".join(f'  File "{name}", line 2 in act\n' for name in (
        folder, gone, str(there).replace("é", "\\xe9"), "/elsewhere.py"))
    lines = exit_reasons.stack(trace.encode(), {str(there), str(gone), str(folder)})
    assert [(x["file"], x["text"]) for x in lines] == [
        (str(there), "while True: pass"), (str(gone), ""), (str(folder), "")]


# ---- systems -------------------------------------------------------------------------------------


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A system without /proc; return a folder for its programs."""
    monkeypatch.setattr(processes, "PROC", tmp_path / "proc")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_proc_ps_tells_the_group(no_proc: Path) -> None:
    (no_proc / "ps").write_text(
        "#!/bin/sh\necho '  1  1  100 Ss 0:00.01'\necho ' 70 70 2048 R+ 1:02.50'\n"
        "echo ' 71 70 4096 S 1-02:03:04'\necho ' 72 70 0 Z 0:00'\necho 'what else'\n")
    (no_proc / "ps").chmod(0o755)
    group = processes.group(70, 32)
    assert group == {70: Process(2 << 20, 62.5, True), 71: Process(4 << 20, 93784.0, False)}
    assert processes.memory(group) == 4 << 20
    assert set(processes.group(70, 0)) == {70}
    assert processes.cpu_of(70) is None


def test_without_proc_and_ps_nothing_is_told(no_proc: Path) -> None:
    assert processes.group(70, 32) == {}
    assert processes.memory({}) == 0
    assert processes.children_of_this_process() == []
    assert processes.threads_of_user(os.getuid()) is None
    assert processes.address_space() is None
    assert processes.threads_of_this_process() >= 1


def test_memory_is_the_largest_or_what_each_has_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    for process, private in {"7": 300, "8": 500}.items():
        (tmp_path / process).mkdir()
        (tmp_path / process / "smaps_rollup").write_text(
            f"Rss: 900 kB\nShared_Dirty: 400 kB\nPrivate_Clean:  100 kB\n"
            f"Private_Dirty:  {private} kB\n")
    large, small = Process(900 << 10, 0.0, True), Process(800 << 10, 0.0, True)
    assert processes.memory({7: large}) == 900 << 10
    assert processes.memory({7: large, 8: small}) == 1000 << 10
    assert processes.memory({7: large, 9: small}) == 900 << 10


@needs_proc
def test_this_process_is_in_its_group() -> None:
    this = processes.group(os.getpgrp(), 4096)[os.getpid()]
    assert this.resident > 1 << 20
    assert this.runnable
    assert processes.threads_of_user(os.stat("/proc/self").st_uid)


BARE = """
import os, resource
from pathlib import Path
from grader.sandbox import limits, processes
processes.PROC, limits.LINUX = Path("/nowhere"), False
limits.sleep = lambda seconds: print("slow")
limits.apply(limits.Limits())
for which in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
    print(resource.getrlimit(which)[0] == resource.getrlimit(which)[1] != resource.RLIM_INFINITY)
for _ in range(6):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


def test_without_proc_and_prctl_the_other_limits_hold() -> None:
    done = subprocess.run([sys.executable, "-u", "-c", BARE], cwd=ROOT, capture_output=True,
                          text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == ["False", "True", "slow", "slow"]
