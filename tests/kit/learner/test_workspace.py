"""Nothing of the learner's is ever lost: start, reset, undo, reports, kills."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader import ROOT
from grader.course.model import Course
from tests.kit.support.copies import command, copy, environment, ol, solve

MINE = "# mine\nx = 1\n"
POOL = "work/tinyllm/kv_pool.py"
HASH = "work/tinyllm/block_hash.py"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy with its files laid out and one of them begun."""
    here = copy(tmp_path)
    done = ol(here, "start", "block_hash", "kv_pool", "kv_export")
    assert done.returncode == 0, done.stderr
    (here / POOL).write_text(MINE)
    return here


def stub(place: Path) -> str:
    return (place / "stubs/tinyllm/kv_pool.py").read_text()


def test_start_lays_out_what_is_absent_and_only_that(place: Path) -> None:
    (place / "work/tinyllm/block_hash.py").unlink()
    done = ol(place, "start")
    assert "laid out  work/tinyllm/block_hash.py" in done.stdout
    assert "kv_export.py" not in done.stdout.split("\n\n")[0]
    assert (place / POOL).read_text() == MINE


def test_start_overwrites_no_empty_file(place: Path) -> None:
    (place / POOL).write_text("")
    assert ol(place, "start").returncode == 0
    assert (place / POOL).read_text() == ""


def test_reset_keeps_the_file_and_undo_brings_it_back(place: Path) -> None:
    done = ol(place, "reset", "kv_pool")
    assert done.returncode == 0
    assert (place / POOL).read_text() == stub(place)
    assert "snapshot 1" in done.stdout
    done = ol(place, "undo")
    assert done.returncode == 0
    assert (place / POOL).read_text() == MINE
    assert ol(place, "undo").returncode == 0  # an undo can be undone
    assert (place / POOL).read_text() == stub(place)


def test_undo_keeps_what_was_written_since(place: Path) -> None:
    ol(place, "reset", "kv_pool")
    (place / POOL).write_text("# newer\n")
    ol(place, "undo")
    assert (place / POOL).read_text() == MINE
    ol(place, "undo")
    assert (place / POOL).read_text() == "# newer\n"


def test_undo_by_number_and_the_list(place: Path) -> None:
    ol(place, "reset", "kv_pool")
    (place / POOL).write_text("# second\n")
    ol(place, "reset", "rt.04")
    listing = ol(place, "undo", "--list").stdout
    assert [line.split()[:2] for line in listing.splitlines()] == [["1", "reset"], ["2", "reset"]]
    ol(place, "undo", "1")
    assert (place / POOL).read_text() == MINE


def test_reset_of_a_stub_and_undo_of_nothing_say_so(tmp_path: Path) -> None:
    here = copy(tmp_path)
    ol(here, "start", "kv_pool")
    assert "Nothing to do" in ol(here, "reset", "kv_pool").stdout
    done = ol(here, "undo")
    assert done.returncode == 2
    assert "nothing to undo" in done.stderr
    assert ol(here, "undo", "7").returncode == 2


def test_a_lost_file_comes_back_by_undo(place: Path) -> None:
    """What a kill between the two moves of a reset leaves behind."""
    ol(place, "reset", "kv_pool")
    (place / POOL).unlink()
    assert ol(place, "undo").returncode == 0
    assert (place / POOL).read_text() == MINE


def test_a_report_overwrites_only_a_report(place: Path) -> None:
    for option in ("--json", "--junit"):
        done = ol(place, "check", "kv_pool", option, POOL)
        assert done.returncode == 2
        assert "is no earlier report" in done.stderr
        assert (place / POOL).read_text() == MINE
        for _ in range(2):
            done = ol(place, "check", "kv_pool", option, "out")
            assert done.returncode == 1, done.stderr
        assert ol(place, "check", "kv_pool", option, "no/such/out").returncode == 2
        assert ol(place, "check", "kv_pool", option, "work").returncode == 2
        (place / "out").unlink()


def test_a_check_writes_nothing_beside_the_learners_files(place: Path) -> None:
    before = sorted(p.name for p in (place / "work").rglob("*") if ".history" not in p.parts)
    ol(place, "check", "kv_pool")
    after = sorted(p.name for p in (place / "work").rglob("*") if ".history" not in p.parts)
    assert after == before


def test_line_ends_of_another_system_are_no_beginning(place: Path) -> None:
    (place / POOL).write_bytes(stub(place).replace("\n", "\r\n").encode())
    assert "still the stub" in ol(place, "progress").stdout


@pytest.mark.parametrize(("words", "status"), [
    (["start"], 2), (["reset", "kv_pool"], 2), (["undo"], 2), (["check", "kv_pool"], 1)])
def test_a_workspace_that_cannot_be_written_to_is_said_in_a_sentence(
    place: Path, words: list[str], status: int
) -> None:
    """A file in a folder's place refuses root, too. A verdict stands all the same."""
    ol(place, "reset", "kv_pool")
    ol(place, "undo")
    for file in (place / "work/.history").rglob("*"):
        if file.is_file():
            file.unlink()
    shutil.rmtree(place / "work/.history")
    (place / "work/.history").write_text("in the way")
    (place / "work/tinyllm/kv_export.py").unlink()
    done = ol(place, *words)
    assert done.returncode == status, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert (place / POOL).read_text() == MINE


def test_a_snapshot_is_never_added_to(place: Path) -> None:
    kept = place / "work/.history/999999-reset/tinyllm/kv_pool.py"
    kept.parent.mkdir(parents=True)
    kept.write_text("# old\n")
    for text in ("# a\n", "# b\n"):
        (place / POOL).write_text(text)
        assert ol(place, "reset", "kv_pool").returncode == 0
    held = {p.read_text() for p in (place / "work/.history").rglob("kv_pool.py")}
    assert held == {"# old\n", "# a\n", "# b\n"}
    assert "1000001" in ol(place, "undo", "--list").stdout


def test_what_is_no_file_is_left_alone_and_said(place: Path) -> None:
    (place / "work/tinyllm/block_hash.py").write_text("# mine\n")
    (place / POOL).unlink()
    makers: list[Callable[[Path], None]] = [Path.mkdir, os.mkfifo]
    for make in makers:
        make(place / POOL)
        done = ol(place, "reset", "rt.04")
        assert done.returncode == 2, done
        assert done.stderr.count("\n") == 1, done.stderr
        for verb, status in (("check", 1), ("progress", 0), ("doctor", 2)):
            done = ol(place, verb)
            assert (done.returncode, done.stderr) == (status, ""), done
            assert "cannot be read" in " ".join(done.stdout.split()), done
        assert (place / "work/tinyllm/block_hash.py").read_text() == "# mine\n"
        if (place / POOL).is_dir():
            (place / POOL).rmdir()


def test_a_command_that_waits_for_another_says_so(place: Path) -> None:
    (place / "work/.history").mkdir(exist_ok=True)
    with open(place / "work/.history/lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(command("reset", "kv_pool"), cwd=place, env=environment(place),
                              stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            said = waiting.stderr.readline()
            assert said == "ol: another ol is moving files here; this one waits for it to end.\n"
            assert (place / POOL).read_text() == MINE
            fcntl.flock(lock, fcntl.LOCK_UN)
            waiting.communicate()
    assert waiting.returncode == 0
    assert (place / POOL).read_text() == stub(place)


def test_a_damaged_memory_is_no_lost_work(place: Path) -> None:
    for damaged in (b"[" * 100_000, b"{", b"\xff", b"[1]", b'{"kv_pool": {"passes": 3}}'):
        (place / "work/.history").mkdir(exist_ok=True)
        (place / "work/.history/progress.json").write_bytes(damaged)
        assert ol(place, "progress").returncode == 0
        assert ol(place, "check", "kv_pool").returncode == 1


def test_links_are_not_moved(place: Path) -> None:
    (place / POOL).rename(place / "elsewhere.py")
    (place / POOL).symlink_to("../../elsewhere.py")
    done = ol(place, "reset", "rt.04")
    assert done.returncode == 2
    assert "is a link to" in done.stderr
    assert (place / POOL).read_text() == MINE


def test_reports_go_through_links_and_into_pipes(place: Path) -> None:
    (place / "real.json").write_text("")
    (place / "link.json").symlink_to("real.json")
    ol(place, "check", "block_hash", "--json", "link.json")
    assert (place / "link.json").is_symlink()
    assert (place / "real.json").read_text().startswith('{"schema": 1, "verdict"')
    (place / "picture.svg").write_text("<?xml version='1.0'?><svg/>")
    assert ol(place, "check", "block_hash", "--junit", "picture.svg").returncode == 2
    assert ol(place, "check", "block_hash", "--json", "/dev/null").returncode == 1
    assert Path("/dev/null").is_char_device()


def test_undo_is_offered_only_for_a_snapshot_that_has_the_file(place: Path, course: Course) -> None:
    """An undone reset in the history once made it promise a deleted file, and put another one back
    to its stub instead."""
    solve(place, course, ROOT / "reference")
    finished = (place / POOL).read_text()
    ol(place, "reset", "kv_pool")
    ol(place, "undo")
    assert (place / POOL).read_text() == finished
    (place / HASH).unlink()
    done = ol(place, "check", "block_hash")
    assert "`ol start` lays out a fresh one" in done.stdout
    assert "ol undo" not in done.stdout
    (place / HASH).write_text(MINE)
    ol(place, "reset", "block_hash")
    (place / HASH).unlink()
    done = ol(place, "check", "block_hash")
    assert "`ol undo 3` brings it back as it was before `reset`" in " ".join(done.stdout.split())
    assert ol(place, "undo", "3").returncode == 0
    assert (place / HASH).read_text() == MINE
    assert (place / POOL).read_text() == finished


def test_a_file_that_a_check_found_good_comes_back(place: Path, course: Course) -> None:
    solve(place, course, ROOT / "reference")
    good = (place / HASH).read_text()
    for _ in range(2):  # the second check keeps nothing, for nothing has changed
        assert ol(place, "check", "block_hash").returncode == 0
    (place / HASH).unlink()
    (place / POOL).write_text(MINE)
    assert [line.split()[:2] for line in ol(place, "undo", "--list").stdout.splitlines()] == [
        ["1", "check"]]
    done = ol(place, "undo")
    assert done.returncode == 2
    assert "no command has moved a file yet" in done.stderr
    way = "`ol undo 1` brings it back as a check found it good"
    for words in (["check"], ["check", "block_hash"], ["check", "block_manager"], ["progress"],
                  ["doctor"], ["start", "block_hash"]):
        done = ol(place, *words)
        assert way in " ".join(done.stdout.split()), words
    assert ol(place, "undo", "1").returncode == 0
    assert (place / HASH).read_text() == good
    assert (place / POOL).read_text() == MINE
    assert ol(place, "undo").returncode == 0  # what was in its place: the stub
    assert (place / HASH).read_text() != good


def test_what_is_not_good_is_not_kept(place: Path, course: Course) -> None:
    ol(place, "check", "kv_pool")
    ol(place, "check", "block_hash", "--bind", "reference")
    solve(place, course, ROOT / "reference")
    ol(place, "check", "block_hash", "-k", "block_tokens_must_be_one_or_more")
    assert "There are no snapshots" in ol(place, "undo", "--list").stdout


def test_an_edited_provided_file_is_named_where_the_kits_own_is_used(
    place: Path, course: Course
) -> None:
    solve(place, course, ROOT / "reference")
    package = place / "work/tinyllm"
    commands = [["check", "block_hash"], ["demo", "block_manager"], ["doctor"]]
    file = package / "metrics.py"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    for words in commands:  # an untouched copy, also one of another system, is the kit's own
        assert "is used" not in "".join(_said(place, words)), words
    (package / "scheduler.py").write_text("raise RuntimeError('edited')\n")
    (package / "engine").mkdir()
    (package / "engine/__init__.py").write_text("")
    for words in commands:
        said = "".join(_said(place, words))
        assert ("tinyllm/engine/__init__.py, tinyllm/scheduler.py in work differ from what the kit "
                "provides under that name: the kit's own is used" in said), words
    (package / "scheduler.py").unlink()
    (package / "trace.py").unlink()
    assert "not in work/tinyllm: scheduler.py, trace.py, provided by the kit" in "".join(
        _said(place, ["doctor"]))


def _said(place: Path, words: list[str]) -> tuple[str, str]:
    done = ol(place, *words)
    assert done.returncode == 0, done
    return done.stdout, done.stderr


@pytest.mark.parametrize("file", ["stubs/tinyllm/kv_pool.py", "grader/run", "Makefile"])
def test_the_doctor_sees_line_ends_of_windows(place: Path, file: str) -> None:
    assert "line ends of Unix" in ol(place, "doctor").stdout
    data = (place / file).read_bytes()
    (place / file).write_bytes(data.replace(b"\n", b"\r\n"))
    done = ol(place, "doctor")
    assert done.returncode == 2
    assert f"BAD  {file}: line ends of Windows" in done.stdout
    assert f"git checkout -- {file.split('/')[0]}" in done.stdout


def _hurt(place: Path, how: str, exchanges: bool, *words: str) -> list[dict[str, Any]]:
    """Run a command on the workspace once for each call into the file system that it makes, with
    that call hurt; return what came of each run."""
    shutil.rmtree(place / "before", ignore_errors=True)
    shutil.copytree(place / "work", place / "before")
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "tests/kit/support/interrupted.py"), how,
         "yes" if exchanges else "no", *words], cwd=place, env=environment(place),
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) > 5
    return runs


@pytest.mark.parametrize("how", ["kill", "fail", "full"])
@pytest.mark.parametrize(("words", "exchanges"), [
    (("start",), True), (("keep",), True), (("reset", "kv_pool"), True), (("reset", "rt.04"), True),
    (("reset", "rt.04"), False), (("undo",), True), (("undo",), False)])
def test_a_call_that_is_hurt_loses_nothing(
    place: Path, words: tuple[str, ...], how: str, exchanges: bool
) -> None:
    """Every version is somewhere, whole, and where two files can change places at once the
    learner's is where it was or, after the command, where its report says."""
    versions, news = {MINE}, {stub(place)}
    (place / HASH).write_text("# another\n")
    if words == ("undo",):
        ol(place, "reset", "rt.04")
        (place / POOL).write_text("# newer\n")
        versions.add("# newer\n")
        news.add(MINE)
    if words == ("start",):
        (place / "work/tinyllm/kv_export.py").unlink()
        (place / "work/tinyllm/metrics.py").unlink()
    before = (place / POOL).read_text()
    for run in _hurt(place, how, exchanges, *words):
        held = set(run["held"])
        assert versions <= held, run
        assert held <= versions | news, run
        assert run["strays"] == [] or how == "fail", run  # what could not even be removed
        if exchanges or how != "kill":
            assert run["here"] is not None, run
        if how != "kill":
            assert run["status"] in (0, 2), run
            said = run["said"].replace("no call was hurt\n", "")
            assert said.count("\n") == (1 if run["status"] else 0), run
            assert not run["status"] or run["here"] == before, run


def test_killing_any_command_at_any_moment_loses_nothing(place: Path) -> None:
    """A hundred kills at random moments; every version ever written is somewhere, whole."""
    chance = random.Random(20)
    versions = {MINE}
    for round_ in range(100):
        text = f"# version {round_}\n" + "x = 1\n" * chance.randrange(400)
        versions.add(text)
        if (place / POOL).exists() and (place / POOL).read_text() not in (stub(place), text):
            # What an editor would overwrite is kept aside: only the kit must not lose it.
            (place / "work" / f"kept{round_}").mkdir()
            (place / POOL).rename(place / "work" / f"kept{round_}" / "kv_pool.py")
        (place / POOL).write_text(text)
        words = chance.choice([["reset", "kv_pool"], ["undo"], ["start"], ["reset", "rt.04"],
                               ["check", "kv_pool", "-k", "alloc_is_all_or_nothing"]])
        process = subprocess.Popen(command(*words), cwd=place, env=environment(place),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        held = {p.read_text() for p in (place / "work").rglob("kv_pool.py")}
        assert versions <= held, f"lost after {words}"
        assert held <= versions | {stub(place)}, f"a broken file after {words}"
    assert ol(place, "start").returncode == 0
    assert (place / POOL).exists()
