"""A command, once for each call into the file system that it makes, with that call hurt.

    python -P interrupted.py HOW EXCHANGES WORD…

Run in a copy of the project whose folder `before` is a workspace. HOW is `kill` (the process ends
before the call), `fail` (the call fails for want of room) or `full` (so does every later one that
needs room). EXCHANGES is `yes` or `no`: whether two files can change places at once. The words are
a command's, or `keep`: what a check does that has found the pool good. Each run is one line of
JSON.
"""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader.cli import start
from grader.cli.main import main
from grader.course import manifest
from grader.grading import progress
from grader.grading.report import ModuleResult, Report, Status, TestResult, Verdict
from grader.learner import atomic_files, workspace

_STEPS = ("mkdir", "open", "fsync", "link", "rename", "replace", "unlink", "rmdir")
_ROOM = ("mkdir", "open", "fsync", "link")  # the calls that need some on the disk
_WHOLE = "no call was hurt"
_FILE = Path("work/tinyllm/kv_pool.py")


class Hurt:
    """Stands between the program and its calls, of which number ``n`` never happens."""

    def __init__(self, how: str, n: int) -> None:
        self.how, self.left = how, n

    def __call__(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == 0 and self.how == "kill":
                os._exit(9)
            if self.left == 0 or (self.left < 0 and self.how == "full" and name in _ROOM):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(words[0]))
            return function(*words, **more)
        return call


def command(words: list[str]) -> None:
    """Carry out a command and exit."""
    if words != ["keep"]:
        main(words)
    courses = manifest.load()
    test = TestResult("one", [], 1, "", "", Verdict.PASSED)
    result = ModuleResult("kv_pool", "", "", "", Status.PASSED, tests=[test],
                          sha256=workspace.digest(_FILE))
    try:
        progress.record(courses, Report("", "work", 0, ["kv_pool"], [result], [], 0.0))
    except OSError as error:  # as the check's verb does it
        print(f"ol: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def child(how: str, n: int, exchanges: bool, words: list[str], tells: int) -> None:
    """Be a process in which call ``n`` is hurt."""
    os.dup2(tells, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    hurt = Hurt(how, n)
    for name in _STEPS:
        setattr(os, name, hurt(name, getattr(os, name)))
    exchange = atomic_files.Draft.exchange if exchanges else lambda draft, path: False
    for owner, name, function in ((atomic_files.Draft, "exchange", hurt("exchange", exchange)),
                                  (start, "_first_red", lambda module: None)):
        setattr(owner, name, function)
    status = 3
    try:
        command(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    if hurt.left > 0:
        print(_WHOLE, file=sys.stderr)
    sys.stderr.flush()
    os._exit(status)


def one(how: str, n: int, exchanges: bool, words: list[str]) -> bool:
    """Run the command with call ``n`` hurt and say what came of it; False when it makes fewer."""
    shutil.rmtree("work", ignore_errors=True)
    shutil.copytree("before", "work")
    heard, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        child(how, n, exchanges, words, tells)
    os.close(tells)
    with os.fdopen(heard) as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    strays = [str(p) for p in Path("work").rglob("*.tmp") if ".history" not in p.parts]
    print(json.dumps({
        "n": n, "status": status, "said": said, "strays": strays,
        "here": _FILE.read_text() if _FILE.exists() else None,
        "held": [p.read_text() for p in Path("work").rglob("kv_pool.py")]}))
    return _WHOLE not in said


def every() -> None:
    """Hurt one call after another, until there is none left to hurt."""
    how, exchanges, *words = sys.argv[1:]
    manifest.load()
    n = 1
    while one(how, n, exchanges == "yes", words):
        n += 1


if __name__ == "__main__":
    every()
