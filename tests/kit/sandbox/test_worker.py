"""What learner code may do to the process that judges it, and what that costs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.errors import KitError
from grader.sandbox import landlock
from grader.sandbox.api import Run, WorkerPool
from tests.kit.support.toys import (
    FAST,
    act,
    job,
    needs_proc,
    needs_subreaper,
    run,
    wait_until_gone,
)


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as one:
        yield one
    wait_until_gone(one.scratch)


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
    "a flood of output": ("while True: print('x' * 100000)", "time", "not done after 2 seconds"),
    "files that are large together": (
        "import time\nfor n in range(40):\n"
        "    with open(str(n), 'wb') as f: f.write(bytes(8 << 20))\ntime.sleep(1000)",
        "file size", "limit of 256 MiB in all"),
    "files without a name that are large together": (
        "import os, time\nact.kept = []\nfor n in range(40):\n"
        "    act.kept.append(f := open('x', 'wb'))\n    os.remove('x')\n"
        "    f.write(bytes(8 << 20))\n    f.flush()\ntime.sleep(1000)",
        "file size", "limit of 256 MiB in all"),
    "very many files": ("n = 0\nwhile True:\n    open(str(n), 'w').close()\n    n += 1",
                        "file size", "limit of 256 MiB in all"),
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
    "a child behind others that ended": (
        "import subprocess, time\nx = [subprocess.Popen(['true']) for _ in range(12)]\n"
        "x.append(subprocess.Popen(['sleep', '1000']))\ntime.sleep(0.2)\nact.kept = x",
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
    "closing every descriptor": ("import os\nos.closerange(0, 100)", "ended",
                                 "it closed descriptors that are not its own"),
    "an endless loop in another group": (
        "import os, time\nchild = os.fork()\nif child == 0:\n    os.setpgid(0, 0)\n"
        "    time.sleep(1000)\ntime.sleep(0.2)\nos.setpgid(0, child)\nwhile True: pass",
        "time", "not done after"),
    "a priority above all others": (
        "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))", "error",
        "PermissionError"),
    "a stop of itself": ("import os\nos.kill(os.getpid(), 19)", "time", "not done after"),
    "a signal without a name": ("import os\nos.kill(os.getpid(), 40)", "signal", "signal 40"),
    "an exit with a broken __repr__": ("class Bad:\n    def __repr__(self): 1 / 0\n"
                                       "raise SystemExit(Bad())", "exit", "sys.exit(<Bad>)"),
    "a todo with a broken __str__": ("class Bad(NotImplementedError):\n"
                                     "    def __str__(self): 1 / 0\nraise Bad", "todo",
                                     "NotImplementedError: (its message cannot be printed)"),
    "a closed standard output": ("import sys\nsys.stdout.close()\n1 / 0", "error",
                                 "raised ZeroDivisionError"),
    "a standard output that exits": ("import sys\nclass Out:\n    def flush(self): sys.exit()\n"
                                     "sys.stdout = Out()\n1 / 0", "error", "ZeroDivisionError"),
    "a message of 50 MB": ("raise ValueError('x' * 50_000_000)", "error",
                           "xxx… 50000000 characters in all"),
    "a message that is no UTF-8 and clears the screen": (
        "raise ValueError('\\udc80 \\x1b[2J')", "error", "ValueError: \\udc80 \\x1b[2J"),
    "a message of a text class": ("class Text(str):\n    def __format__(self, _): 1 / 0\n"
                                  "    def __len__(self): 1 / 0\n"
                                  "class Bad(Exception):\n"
                                  "    def __str__(self): return Text('mine')\nraise Bad",
                                  "error", "raised Bad: mine"),
    "a metaclass that refuses": ("class Meta(type):\n    def __getattribute__(cls, name):\n"
                                 "        raise SystemExit\n"
                                 "class Bad(Exception, metaclass=Meta): pass\nraise Bad",
                                 "error", "raised Bad"),
    "an error that denies its class": ("class Bad(Exception):\n"
                                       "    __class__ = property(lambda self: 1 / 0)\nraise Bad",
                                       "error", "raised Bad"),
    "an error that claims to be a judgement": (
        "from grader.assertions import Wrong\nclass Bad(Exception):\n    __class__ = Wrong\n"
        "raise Bad", "error", "raised Bad"),
}
LINUX_ONLY = {"a priority above all others": needs_proc,
              "files without a name that are large together": needs_proc,
              "a child in a session of its own": needs_subreaper,
              "a daemon forked twice": needs_subreaper}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=LINUX_ONLY.get(name, ())) for name in BEHAVIOURS])
def test_a_bad_call_costs_its_own_test_and_is_told(
    workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    body, cause, words = BEHAVIOURS[name]
    outcome = run(workers, tmp_path, act(body))
    results = outcome.results
    assert set(results) == {"first", "second", "third"}, outcome
    assert results["first"]["failure"] is None
    assert results["third"]["failure"] is None
    failure = results["second"]["failure"]
    assert failure is not None, f"{name} passed"
    assert (failure["cause"], words in failure["what"]) == (cause, True), failure


def test_a_fork_that_goes_on_with_the_tests_says_nothing(
    workers: WorkerPool, tmp_path: Path
) -> None:
    told: list[str] = []
    plan = job(tmp_path, act("import os\nos.fork()"))
    outcome = Run(workers, plan, FAST, told.append).go()
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
    "a flood of output": ("while True: print('x' * 100000)", "time"),
}


@pytest.mark.parametrize("name", AT_IMPORT)
def test_a_bad_import_is_told_once(workers: WorkerPool, tmp_path: Path, name: str) -> None:
    source, cause = AT_IMPORT[name]
    outcome = run(workers, tmp_path, source)
    assert outcome.results == {}
    assert outcome.broken is not None
    assert outcome.broken[0] == "toy"
    assert outcome.broken[1]["cause"] == cause, outcome.broken


@pytest.mark.parametrize("after", ["while True: pass", "os._exit(0)", "1 / 0"])
def test_a_program_that_removes_its_own_file_is_judged(
    workers: WorkerPool, tmp_path: Path, after: str
) -> None:
    suite = "from tinyllm.toy import act\ndef test_it():\n    act()\n"
    outcome = run(workers, tmp_path, act(f"import os\nos.remove(__file__)\n{after}"), suite)
    assert outcome.results["it"]["failure"]["cause"] in ("time", "ended", "error")


@needs_proc
def test_memory_is_that_of_all_processes(workers: WorkerPool, tmp_path: Path) -> None:
    body = ("import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
            "        kept = b'x' * (64 << 20)\n        time.sleep(1000)\ntime.sleep(1000)")
    failure = run(workers, tmp_path, act(body)).results["second"]["failure"]
    assert "memory limit of 128 MiB" in failure["what"]


@needs_proc
def test_memory_that_a_fork_shares_is_not_counted_again(
    workers: WorkerPool, tmp_path: Path
) -> None:
    body = ("import os, time\nkept = b'x' * (100 << 20)\nfor _ in range(6):\n"
            "    if os.fork() == 0:\n        time.sleep(1)\n        os._exit(0)\n"
            "for _ in range(6): os.wait()")
    assert run(workers, tmp_path, act(body)).results["second"]["failure"] is None


def test_many_hangs_do_not_take_for_ever(workers: WorkerPool, tmp_path: Path) -> None:
    suite = "from tinyllm.toy import act\n" + "".join(
        f"def test_t{i}():\n    act()\n" for i in range(20))
    outcome = run(workers, tmp_path, act("while True: pass"), suite)
    assert len(outcome.results) == 4
    assert "ran into their time limit" in outcome.unjudged


def test_many_ends_do_not_take_for_ever(workers: WorkerPool, tmp_path: Path) -> None:
    suite = "from tinyllm.toy import act\n" + "".join(
        f"def test_t{i}():\n    act()\n" for i in range(20))
    outcome = run(workers, tmp_path, act("import os\nos.abort()"), suite)
    assert len(outcome.results) == 10
    assert "ended the whole process" in outcome.unjudged


def test_the_end_of_an_object_is_an_affair_of_the_test_that_made_it(
    workers: WorkerPool, tmp_path: Path
) -> None:
    """It comes when the story lets go of it, and is told as the step that was running."""
    source = ("import os\nclass Toy:\n    def __init__(self):\n        pass\n"
              "    def __del__(self):\n        end(self)\ndef end(toy):\n    os.abort()\n")
    suite = ("from tinyllm.toy import Toy\ndef test_it():\n    Toy()\n"
             "def test_that():\n    pass\n")
    plan = job(tmp_path, source, suite)
    plan["watch"] = {"toy": {"names": ["Toy.__init__"], "queries": [],
                             "behind": {"end": (plan["files"]["toy"], 6, "toy_end")}}}
    results = Run(workers, plan, FAST).go().results
    assert results["that"]["failure"] is None
    failure = results["it"]["failure"]
    assert failure["cause"] == "signal"
    assert [step["text"] for step in failure["steps"]] == ["toy = Toy()", "toy_end"]


def test_a_test_that_the_suite_lacks_gets_no_result(workers: WorkerPool, tmp_path: Path) -> None:
    plan = job(tmp_path, act("return"))
    plan["tests"].append("fourth")
    outcome = Run(workers, plan, FAST).go()
    assert "fourth" not in outcome.results
    assert len(outcome.results) == 3
    assert outcome.unjudged


def test_of_two_tests_of_one_name_the_one_in_the_file_asked_for_runs(
    workers: WorkerPool, tmp_path: Path
) -> None:
    """Whichever file comes first, and whether or not the other one is collected, too."""
    plan = job(tmp_path, act("return 1"), "def test_it():\n    assert False\n")
    mine, other = tmp_path / "a" / "test_mine.py", Path(plan["suite"][0])
    mine.parent.mkdir()
    mine.write_text("def test_it():\n    pass\n", encoding="utf-8")
    for suite in ([mine], [mine, other], [other, mine]):
        plan |= {"suite": [str(file) for file in suite], "where": {"it": str(mine)}}
        assert Run(workers, plan, FAST).go().results["it"]["failure"] is None, suite


def test_what_a_test_left_out_is_told_once(workers: WorkerPool, tmp_path: Path) -> None:
    """It is no failure, and no matter of that test alone."""
    suite = "from grader.assertions import left_out\n" + "".join(
        f"def test_{name}():\n    left_out('there is no room')\n" for name in "ab")
    outcome = run(workers, tmp_path, act("return"), suite)
    assert [r["failure"] for r in outcome.results.values()] == [None, None]
    assert outcome.left_out == ["there is no room"]


def test_hypothesis_settings_of_the_learner_do_not_count(
    workers: WorkerPool, tmp_path: Path
) -> None:
    """A profile without phases once turned every property into a test that never ran."""
    suite = ("from hypothesis import given, strategies as st\nfrom tinyllm.toy import good\n"
             "@given(st.integers())\ndef test_it(n):\n    assert n < good()\n")
    source = ("from hypothesis import settings\nsettings.register_profile('x', phases=())\n"
              "settings.load_profile('x')\n" + act("return"))
    assert run(workers, tmp_path, source, suite).results["it"]["failure"] is not None


def test_a_suite_that_cannot_be_collected_is_the_kits_fault(
    workers: WorkerPool, tmp_path: Path
) -> None:
    with pytest.raises(KitError, match="cannot be collected"):
        run(workers, tmp_path, act("return"), "1 / 0\ndef test_a():\n    pass\n")


def test_a_name_that_the_file_lacks_is_told(workers: WorkerPool, tmp_path: Path) -> None:
    suite = "from tinyllm.toy import nothing\ndef test_a():\n    pass\n"
    outcome = run(workers, tmp_path, act("return"), suite)
    assert outcome.broken is not None
    assert outcome.broken[1]["what"] == "the file has no nothing, which its contract names"


def test_a_function_that_was_deleted_costs_the_tests_that_call_it(
    workers: WorkerPool, tmp_path: Path
) -> None:
    outcome = run(workers, tmp_path, "def good():\n    return 1\n")
    assert outcome.results["first"]["failure"] is None
    assert outcome.results["second"]["failure"]["what"] == "act is not written yet"
    assert outcome.results["third"]["failure"] is None


def test_a_program_cannot_change_its_judges_at_import(workers: WorkerPool, tmp_path: Path) -> None:
    suite = ("from grader.assertions import same\nfrom tinyllm.toy import act\n"
             "def test_it():\n    same(act(), 3, 'the answer')\n")
    source = ("import json, os, sys, time, types\nimport grader.assertions as judging\n"
              "from grader.assertions import comparisons as checks\n"
              "judging.same = checks.same = lambda *_: None\nchecks._equal = lambda *_: True\n"
              "sys.modules['grader.assertions'] = types.SimpleNamespace(same=judging.same)\n"
              "time.perf_counter = json.dumps = os.write = os.waitpid = None\n" + act("return 4"))
    failure = run(workers, tmp_path, source, suite).results["it"]["failure"]
    assert (failure["what"], failure["expected"], failure["got"]) == ("the answer", "3", "4")


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_nothing_outside_the_scratch_folder_can_be_changed(
    workers: WorkerPool, tmp_path: Path
) -> None:
    """A loop that removes files from the wrong folder once took what was not its own."""
    for name in ("precious", "emptied", "renamed"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "folder").mkdir()
    source = act(f"""import os
os.chdir({str(tmp_path)!r})
for change in (lambda: os.remove('precious'), lambda: open('emptied', 'w'), lambda: os.mkdir('new'),
               lambda: os.rename('renamed', 'other'), lambda: os.rmdir('folder'),
               lambda: os.truncate('emptied', 0), lambda: os.symlink('precious', 'link')):
    try:
        change()
    except PermissionError:
        continue
    raise AssertionError('it was allowed')
with open(os.environ['HOME'] + '/own', 'w') as file:
    file.write('allowed')""")
    outcome = run(workers, tmp_path / "toy", source)
    assert outcome.results["second"]["failure"] is None, outcome
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "emptied", "folder", "precious", "renamed", "toy"]
    assert (tmp_path / "emptied").read_text() == "mine"


def test_workers_do_not_see_the_project_or_the_environment(
    workers: WorkerPool, tmp_path: Path
) -> None:
    source = act("import os, sys\nassert 'SECRET' not in os.environ\n"
                 "try:\n    import reference\nexcept ModuleNotFoundError:\n    return\n"
                 "raise AssertionError(reference)")
    os.environ["SECRET"] = "x"
    try:
        with WorkerPool() as fresh:
            outcome = run(fresh, tmp_path, source)
    finally:
        del os.environ["SECRET"]
    assert outcome.results["second"]["failure"] is None, outcome
