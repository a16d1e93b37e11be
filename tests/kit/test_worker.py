"""What learner code may do to the process that judges it, and what that costs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.errors import KitError
from grader.worker.session import Nursery, Run
from tests.kit.toys import FAST, act, job, processes, run


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one
    _all_gone(one.scratch)


def _all_gone(scratch: str) -> None:
    """Wait until nothing that a worker started is running, and its folder is gone."""
    deadline = time.monotonic() + 20
    while processes(scratch) or Path(scratch).exists():
        assert time.monotonic() < deadline, processes(scratch)
        time.sleep(0.02)


BEHAVIOURS = {
    "an endless loop": ("while True: pass", "time", "not done after 2 seconds"),
    "a sleep without end": ("import time\ntime.sleep(1000)", "time", "not done after"),
    "a lock taken twice": ("import threading\nlock = threading.Lock()\nlock.acquire()\n"
                           "lock.acquire()", "time", "not done after"),
    "sys.exit": ("import sys\nsys.exit(0)", "exit", "sys.exit(0)"),
    "os._exit": ("import os\nos._exit(0)", "ended", "exit status 0"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "exit", "KeyboardInterrupt"),
    "pytest.exit": ("import pytest\npytest.exit('bye', returncode=0)", "exit", "Exit"),
    "pytest.skip": ("import pytest\npytest.skip('no')", "skipped", "skipped"),
    "pytest.xfail": ("import pytest\npytest.xfail('no')", "skipped", "skipped"),
    "recursion without end": ("act()", "recursion", "called itself without end"),
    "a recursion limit raised": ("import sys\nsys.setrecursionlimit(10**9)\n"
                                 "f = lambda n: sorted([n], key=f)\nf(1)", "signal", "died of"),
    "a list of 100 GB": ("[0] * (100 * 2**30 // 8)", "memory", "memory limit of 128 MiB"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory",
                          "memory limit of 128 MiB"),
    "a flood of output": ("while True: print('x' * 100000)", "output", "limit of 1 MiB"),
    "a read of stdin": ("input('number? ')", "stdin", "standard input"),
    "a huge file": ("with open('big', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
                    "file size", "limit of 16 MiB"),
    "a thread left behind": ("import threading, time\nthreading.Thread(target=time.sleep, "
                             "args=(1000,), daemon=True).start()", "thread", "thread was left"),
    "a child left behind": ("import subprocess\nsubprocess.Popen(['sleep', '1000'])",
                            "child", "child process was left"),
    "a child in a session of its own": (
        "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)",
        "child", "child process was left"),
    "a daemon forked twice": ("import os, time\nif os.fork() == 0:\n    os.setsid()\n"
                              "    if os.fork() == 0: time.sleep(1000)\n    os._exit(0)\nos.wait()",
                              "child", "child process was left"),
    "forks without end": ("import os\nwhile True: os.fork()", "processes", "limit of 32 processes"),
    "a broken __str__": ("class Bad(Exception):\n    def __str__(self): raise ValueError\n"
                         "raise Bad", "error", "Bad: (its message cannot be printed)"),
    "a __repr__ without end": ("class Bad(Exception):\n    def __repr__(self):\n"
                               "        return repr(self)\nraise Bad(1)", "error", "raised Bad"),
    "a segmentation fault": ("import ctypes\nctypes.string_at(0)", "signal", "segmentation fault"),
    "an abort": ("import os\nos.abort()", "signal", "abort"),
    "a kill of itself": ("import os\nos.kill(os.getpid(), 9)", "signal", "SIGKILL"),
    "an ordinary exception": ("return {}[5]", "error", "raised KeyError: 5"),
    "an assertion of its own": ("assert False, 'mine'", "error", "AssertionError: mine"),
    "closing every descriptor": ("import os\nos.closerange(0, 100)", "ended", "ended"),
}


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_bad_call_costs_its_own_test_and_is_told(
    nursery: Nursery, tmp_path: Path, name: str
) -> None:
    body, cause, words = BEHAVIOURS[name]
    outcome = run(nursery, tmp_path, act(body))
    results = outcome.results
    assert set(results) == {"first", "second", "third"}, outcome
    assert results["first"]["failure"] is None
    assert results["third"]["failure"] is None
    failure = results["second"]["failure"]
    assert failure is not None, f"{name} passed"
    assert (failure["cause"], words in failure["what"]) == (cause, True), failure


def test_a_fork_that_goes_on_with_the_tests_says_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    told: list[str] = []
    plan = job(tmp_path, act("import os\nos.fork()"))
    outcome = Run(nursery, plan, FAST, told.append).go()
    assert set(outcome.results) == {"first", "second", "third"}
    assert told == ["first", "second", "third"]


AT_IMPORT: dict[str, tuple[str | bytes, str]] = {
    "an endless loop": ("while True: pass", "time"),
    "sys.exit": ("import sys\nsys.exit(0)", "exit"),
    "os._exit": ("import os\nos._exit(0)", "ended"),
    "a syntax error": ("def f(:\n", "syntax"),
    "a module that is not there": ("import nosuchmodule", "import"),
    "a module of the course that is not bound": ("import tinyllm.kv_pool", "import"),
    "no such name": ("from tinyllm.errors import Nothing", "import"),
    "bytes that are no UTF-8": (b"x = '\xff\xfe'\n", "syntax"),
    "a NUL byte": (b"x = 1\0\n", "syntax"),
    "a thread left behind": ("import threading, time\nthreading.Thread(target=time.sleep, "
                             "args=(1000,)).start()", "thread"),
    "a segmentation fault": ("import ctypes\nctypes.string_at(0)", "signal"),
    "a flood of output": ("while True: print('x' * 100000)", "output"),
}


@pytest.mark.parametrize("name", AT_IMPORT)
def test_a_bad_import_is_told_once(nursery: Nursery, tmp_path: Path, name: str) -> None:
    source, cause = AT_IMPORT[name]
    outcome = run(nursery, tmp_path, source)
    assert outcome.results == {}
    assert outcome.broken is not None
    assert outcome.broken[0] == "toy"
    assert outcome.broken[1]["cause"] == cause, outcome.broken


def test_a_hang_names_the_learners_line(nursery: Nursery, tmp_path: Path) -> None:
    outcome = run(nursery, tmp_path, act("x = 0\nwhile True:\n    x += 1"))
    code = outcome.results["second"]["failure"]["code"]
    assert code[-1]["function"] == "act"
    assert code[-1]["text"] in ("while True:", "x += 1")


@pytest.mark.parametrize("body", ["while True: pass", "import time\ntime.sleep(1000)",
                                  "import threading\nx = threading.Lock()\nx.acquire()\n"
                                  "x.acquire()"])
def test_a_hang_tells_the_steps_that_led_to_it(
    nursery: Nursery, tmp_path: Path, body: str
) -> None:
    suite = "from tinyllm.toy import act, good\ndef test_it():\n    good()\n    act()\n"
    failure = run(nursery, tmp_path, act(body), suite).results["it"]["failure"]
    assert [(s["text"], s["outcome"]) for s in failure["steps"]] == [
        ("good()", "1"), ("act()", "is not done")]


def test_what_a_test_printed_is_kept_at_both_ends(nursery: Nursery, tmp_path: Path) -> None:
    outcome = run(nursery, tmp_path, act("print('begin')\nprint('m' * 9000)\nprint('end')\n1/0"))
    printed = outcome.results["second"]["printed"]
    assert printed.startswith("begin")
    assert printed.rstrip().endswith("end")
    assert "bytes cut" in printed
    assert outcome.results["first"]["printed"] == ""


def test_many_hangs_do_not_take_for_ever(nursery: Nursery, tmp_path: Path) -> None:
    suite = "from tinyllm.toy import act\n" + "".join(
        f"def test_t{i}():\n    act()\n" for i in range(20))
    outcome = run(nursery, tmp_path, act("while True: pass"), suite)
    assert len(outcome.results) == 6
    assert "ran into their time limit" in outcome.unjudged


def test_a_test_that_the_suite_lacks_gets_no_result(nursery: Nursery, tmp_path: Path) -> None:
    plan = job(tmp_path, act("return"))
    plan["tests"].append("fourth")
    outcome = Run(nursery, plan, FAST).go()
    assert "fourth" not in outcome.results
    assert len(outcome.results) == 3
    assert outcome.unjudged


def test_an_object_equal_to_everything_equals_nothing(nursery: Nursery, tmp_path: Path) -> None:
    suite = ("from tests.judging import same\nfrom tinyllm.toy import act\n"
             "def test_it():\n    same(act(), 3, 'the answer')\n")
    source = act("class Yes:\n    def __eq__(self, other): return True\n"
                 "    def __index__(self): return 4\nreturn Yes()")
    failure = run(nursery, tmp_path, source, suite).results["it"]["failure"]
    assert failure["what"] == "the answer"


def test_hypothesis_settings_of_the_learner_do_not_count(nursery: Nursery, tmp_path: Path) -> None:
    """A profile without phases once turned every property into a test that never ran."""
    suite = ("from hypothesis import given, strategies as st\nfrom tinyllm.toy import good\n"
             "@given(st.integers())\ndef test_it(n):\n    assert n < good()\n")
    source = ("from hypothesis import settings\nsettings.register_profile('x', phases=())\n"
              "settings.load_profile('x')\n" + act("return"))
    assert run(nursery, tmp_path, source, suite).results["it"]["failure"] is not None


def test_a_suite_that_cannot_be_collected_is_the_kits_fault(
    nursery: Nursery, tmp_path: Path
) -> None:
    with pytest.raises(KitError, match="cannot be collected"):
        run(nursery, tmp_path, act("return"), "1 / 0\ndef test_a():\n    pass\n")


def test_a_name_that_the_file_lacks_is_told(nursery: Nursery, tmp_path: Path) -> None:
    suite = "from tinyllm.toy import nothing\ndef test_a():\n    pass\n"
    outcome = run(nursery, tmp_path, act("return"), suite)
    assert outcome.broken is not None
    assert outcome.broken[1]["what"] == "the file has no nothing, which its contract names"


def test_a_function_that_was_deleted_costs_the_tests_that_call_it(
    nursery: Nursery, tmp_path: Path
) -> None:
    outcome = run(nursery, tmp_path, "def good():\n    return 1\n")
    assert outcome.results["first"]["failure"] is None
    assert outcome.results["second"]["failure"]["what"] == "act is not written yet"
    assert outcome.results["third"]["failure"] is None


def test_workers_do_not_see_the_project_or_the_environment(
    nursery: Nursery, tmp_path: Path
) -> None:
    source = act("import os, sys\nassert 'SECRET' not in os.environ\n"
                 "try:\n    import reference\nexcept ModuleNotFoundError:\n    return\n"
                 "raise AssertionError(reference)")
    os.environ["SECRET"] = "x"
    try:
        with Nursery() as fresh:
            outcome = run(fresh, tmp_path, source)
    finally:
        del os.environ["SECRET"]
    assert outcome.results["second"]["failure"] is None, outcome


def test_killing_the_grader_leaves_nothing_running(tmp_path: Path) -> None:
    script = tmp_path / "go.py"
    script.write_text(
        "from pathlib import Path\n"
        "from grader.worker.session import Nursery\n"
        "from tests.kit.toys import act, run\n"
        "with Nursery() as n:\n"
        "    print(n.scratch, flush=True)\n"
        "    run(n, Path(__file__).parent / 'toy', act('import subprocess\\nsubprocess.Popen("
        "[\"sleep\", \"1000\"], start_new_session=True)\\nwhile True: pass'))\n")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    scratch = process.stdout.readline().strip()
    deadline = time.monotonic() + 20
    while not any("sleep" in line for line in processes(scratch)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _all_gone(scratch)
