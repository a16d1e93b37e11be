"""Where workers come from and where they go: a lost fork server, a check that is stopped, no
leaks."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from grader import ROOT
from grader.authoring.suite_results import PATIENT
from grader.errors import KitError
from grader.sandbox import landlock
from grader.sandbox import run as runs
from grader.sandbox.api import Outcome, Run, WorkerPool
from grader.sandbox.limits import Limits
from grader.sandbox.worker_handle import Worker
from tests.kit.support.copies import environment
from tests.kit.support.toys import (
    act,
    job,
    needs_proc,
    needs_subreaper,
    processes,
    run,
    wait_for,
    wait_until_gone,
)

KILL_ABOVE = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(1000)"


def test_a_test_that_kills_the_forkserver_costs_itself(tmp_path: Path) -> None:
    with WorkerPool() as workers:
        lost = workers.scratch
        results = run(workers, tmp_path, act(KILL_ABOVE)).results
        assert workers.scratch != lost
    assert results["second"]["failure"]["what"].startswith("it killed the process above it")
    assert results["first"]["failure"] is None
    assert results["third"]["failure"] is None
    wait_until_gone(lost)
    wait_until_gone(workers.scratch)


def test_an_import_that_kills_the_forkserver_is_told(tmp_path: Path) -> None:
    with WorkerPool() as workers:
        outcome = run(workers, tmp_path, KILL_ABOVE)
    assert outcome.broken is not None
    assert outcome.broken[1]["what"].startswith("it killed the process above it")


def test_a_forkserver_is_not_replaced_for_ever(tmp_path: Path) -> None:
    suite = "from tinyllm.toy import act\n" + "".join(
        f"def test_t{i}():\n    act()\n" for i in range(20))
    with WorkerPool() as workers:
        outcome = run(workers, tmp_path / "bad", act(KILL_ABOVE), suite)
        after = run(workers, tmp_path / "good", act("return"))
    assert len(outcome.results) == 2
    assert "the process that starts all tests was killed" in outcome.unjudged
    assert [r["failure"] for r in after.results.values()] == [None, None, None]
    wait_until_gone(workers.scratch)


def test_a_run_beside_one_that_kills_the_forkserver_is_not_charged(tmp_path: Path) -> None:
    begun = {"good": tmp_path / "good begun", "bad": tmp_path / "bad begun"}
    killed = tmp_path / "killed"
    wait = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.01)\n"
    sources = {"bad": act(wait.format(str(begun["good"])) + KILL_ABOVE),
               "good": act(wait.format(str(killed)) + "time.sleep(0.5)")}
    outcomes: dict[str, Outcome] = {}
    with WorkerPool() as workers:
        def judge(name: str) -> None:
            plan = job(tmp_path / name, sources[name])
            outcomes[name] = Run(workers, plan, Limits(seconds=60, import_seconds=60),
                                 lambda test: begun[name].touch()).go()

        threads = [threading.Thread(target=judge, args=(name,)) for name in sources]
        for thread in threads:
            thread.start()
        wait_for(lambda: workers.one_at_a_time)
        killed.touch()
        for thread in threads:
            thread.join()
    assert [r["failure"] for r in outcomes["good"].results.values()] == [None, None, None]
    assert outcomes["bad"].results["second"]["failure"]["what"].startswith("it killed the process")
    assert outcomes["bad"].results["third"]["failure"] is None


def test_a_forkserver_that_is_stopped_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_REAP_SECONDS", 0.5)
    with WorkerPool() as workers:
        results = run(workers, tmp_path, act("import os\nos.kill(os.getppid(), 19)")).results
    assert [r["failure"] for r in results.values()] == [None, None, None]
    wait_until_gone(workers.scratch)


def test_a_request_that_fails_leaves_no_descriptor(tmp_path: Path) -> None:
    workers = WorkerPool()
    workers.forkserver.kill()
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(KitError), workers.worker(job(tmp_path, act("return")) | {"mark": "x"}):
        pass
    assert len(os.listdir("/dev/fd")) == before
    workers.close()
    wait_until_gone(workers.scratch)


def test_a_stray_that_goes_on_writing_does_not_hold_the_grader() -> None:
    pipes = [os.pipe() for _ in range(4)]
    worker = Worker(b"mark", *(read for read, _ in pipes))
    worker.ended = 0
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            os.write(pipes[1][1], b"x" * 4096)

    def listen() -> None:
        worker.drain()
        worker.last_events()

    stray = threading.Thread(target=write)
    grader = threading.Thread(target=listen, daemon=True)
    stray.start()
    grader.start()
    grader.join(timeout=60)
    held = grader.is_alive()
    stop.set()
    while stray.is_alive():
        worker.drain()
        stray.join(timeout=0.01)
    assert not held
    worker.close()
    for _, end in pipes:
        os.close(end)


STOPPED = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
import grader.grading.check as check
from grader.cli import main as cli
from grader.sandbox.limits import Limits
whole = check.CheckOptions
check.CheckOptions = lambda *words: whole(*words, limits=Limits(seconds=600, import_seconds=600))
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("body", ["while True: pass", "import time\ntime.sleep(1000)"])
def test_a_check_that_is_stopped_ends_at_once_and_leaves_nothing(
    tmp_path: Path, body: str
) -> None:
    module = tmp_path / "tinyllm/kv_pool.py"
    module.parent.mkdir()
    module.write_text(body + "\n")
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, "check", "kv_pool", "--bind", str(tmp_path)],
        cwd=ROOT, env=environment(ROOT, TMPDIR=str(tmp_path)), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    wait_for(lambda: any(tmp_path.glob("ol-*/1")))  # a worker's own folder
    (scratch,) = tmp_path.glob("ol-*")
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    wait_until_gone(str(scratch))


def test_what_fails_in_one_thread_ends_all_workers(tmp_path: Path) -> None:
    """Ctrl-C does the same: no command waits for runs whose outcome it will not use."""
    patient = Limits(seconds=3600, import_seconds=3600)

    def one(name: str) -> Outcome:
        if name == "bad":
            wait_for((tmp_path / "begun").exists)
            raise KeyError(name)
        return Run(workers, job(tmp_path / name, act("import time\ntime.sleep(3600)")), patient,
                   lambda test: (tmp_path / "begun").touch()).go()

    with WorkerPool() as workers, pytest.raises(KeyError, match="bad"):
        workers.all(one, ["hanging", "bad"], 2)
    wait_until_gone(workers.scratch)


SIMULATOR = """
import os, time
def stop(self, *words):
    {body}
Simulator.step = Simulator.run = stop
"""
INTERRUPTED = ("import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "from grader.cli import main as cli\ncli.main(sys.argv[1:])\n")


def simulating(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """Start a study over a simulator that does this in each of its parts."""
    source = (ROOT / "reference/tinyllm/simulator.py").read_text(encoding="utf-8")
    (tmp_path / "tinyllm").mkdir()
    (tmp_path / "tinyllm/simulator.py").write_text(
        source + SIMULATOR.format(body=body), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "simulate", "preset:chat", "--requests", "50",
         "--bind", str(tmp_path), "--jobs", "2"], cwd=ROOT, text=True, start_new_session=True,
        env=environment(ROOT, TMPDIR=str(tmp_path)), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def test_a_study_that_is_stopped_ends_at_once(tmp_path: Path) -> None:
    """A part of it may take an hour."""
    process = simulating(tmp_path, "time.sleep(3600)")
    try:
        wait_for(lambda: any(tmp_path.glob("ol-*/3")))  # the second part's folder
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130


def test_a_part_that_fails_ends_its_study(tmp_path: Path) -> None:
    process = simulating(tmp_path, "time.sleep(0 if os.getcwd().endswith('3') else 3600); 1 / 0")
    try:
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "ZeroDivisionError" in text


@needs_proc
def test_a_worker_has_no_descriptors_of_the_forkservers(
    workers: WorkerPool, tmp_path: Path
) -> None:
    body = ("import os\nfound = set()\nfor fd in os.listdir('/proc/self/fd'):\n"
            "    try: found.add(os.readlink(f'/proc/self/fd/{fd}'))\n"
            "    except OSError: pass\n"
            "shared = [x for x in found if x.startswith(('pipe', 'socket'))]\n"
            "assert len(shared) == 3, found")  # events, output, trace
    assert run(workers, tmp_path, act(body)).results["second"]["failure"] is None


DAEMON = """import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir('/')
        os.execve('/bin/sleep', ['sleep', '{seconds}'], {env})
    os._exit(0)
os.wait()
{after}
time.sleep(1000)"""
KILLS = {"nothing": "", "the fork server": "os.kill(os.getppid(), 9)", "its guard, too": (
    "above = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(') ')[2].split()[1])\n"
    "os.kill(above, 19)\nos.kill(os.getppid(), 9)\nos.kill(above, 9)")}


@needs_proc
@needs_subreaper
@pytest.mark.parametrize("kills", KILLS)
def test_a_daemon_is_found_whatever_it_has_killed(tmp_path: Path, kills: str) -> None:
    """It has a session and a folder of its own; only where it has killed all processes above it, it
    is known by its environment."""
    seconds = f"{4000 + len(kills)}.{os.getpid()}"
    env = "dict(os.environ)" if "guard" in kills else "{}"
    source = act(DAEMON.replace("{seconds}", seconds).replace("{env}", env)
                 .replace("{after}", KILLS[kills]))
    with WorkerPool() as workers:
        failure = run(workers, tmp_path, source).results["second"]["failure"]
        assert failure is not None
    assert not running(seconds)


def running(word: str) -> list[str]:
    """Return the command lines that have a word in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in (text := file.read_text().replace("\0", " ")):
                found.append(text)
        except OSError:
            continue
    return found


@pytest.mark.skipif(landlock.version() < 6, reason="this kernel cannot keep signals in")
def test_a_program_can_signal_no_process_but_its_own(workers: WorkerPool, tmp_path: Path) -> None:
    body = ("import os, subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
            "os.kill(child.pid, 9)\nchild.wait()\n"
            f"for process in (os.getppid(), {os.getpid()}):\n"
            "    try: os.kill(process, 0)\n    except PermissionError: continue\n"
            "    raise AssertionError(process)")
    plan = job(tmp_path, act(body)) | {"signals": True}
    assert Run(workers, plan, PATIENT).go().results["second"]["failure"] is None


RUNS_ON = {
    "a daemon": ("import subprocess\n"
                 "subprocess.Popen(['sleep', '1000'], start_new_session=True)\nwhile True: pass"),
    "it has left its group": (
        "import os, subprocess\nos.setpgid(0, os.getppid())\n"
        "subprocess.Popen(['sleep', '1000'])\nwhile True: pass")}


@needs_proc
@needs_subreaper
@pytest.mark.parametrize("body", RUNS_ON.values(), ids=RUNS_ON)
def test_killing_the_grader_leaves_nothing_running(tmp_path: Path, body: str) -> None:
    script = tmp_path / "go.py"
    script.write_text(
        "from pathlib import Path\n"
        "from grader.sandbox.api import WorkerPool\n"
        "from tests.kit.support.toys import act, run\n"
        "with WorkerPool() as n:\n"
        "    print(n.scratch, flush=True)\n"
        f"    run(n, Path(__file__).parent / 'toy', act({body!r}))\n")
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    scratch = process.stdout.readline().strip()
    wait_for(lambda: any("sleep" in line for line in processes(scratch)))
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until_gone(scratch)
