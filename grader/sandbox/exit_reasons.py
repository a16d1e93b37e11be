"""What the end of a worker says about the learner's program: accounts without a word of its own."""

import contextlib
import re
import signal
from pathlib import Path
from typing import Any

from grader.course.model import PACKAGE
from grader.errors import KitError
from grader.learner.plain_text import plain
from grader.sandbox.channel import CLOSED, FAULT
from grader.sandbox.limits import MIB, Limits

_SIGNALS = {"SIGSEGV": "a segmentation fault: memory was touched that is not there",
            "SIGABRT": "an abort", "SIGKILL": "a kill", "SIGXCPU": "the limit of processor time"}
_NO_VERDICT = ("skipped", "exit", "ended", "refused", "not judged")


def kills(failure: dict[str, Any]) -> bool:
    """True when a test that ended so has judged the program. Who skips or leaves has not."""
    return failure["cause"] not in _NO_VERDICT


def ended(status: int | None) -> dict[str, Any]:
    """Account for a worker that ended by itself. A negative status is minus a signal's number."""
    if status == CLOSED:
        return _account("ended", "it closed descriptors that are not its own, by which the grader "
                                 "is told how each test ends")
    if status == FAULT:
        return _account("ended", "it has replaced or broken something that its tests are run with, "
                                 "such as a module of Python's own")
    if status is None or status >= 0:
        return _account("ended", f"it ended the whole process (exit status {status})")
    name = f"signal {-status}"
    with contextlib.suppress(ValueError):  # a number that has no name, such as a real-time signal
        name = signal.Signals(-status).name
    said = f"{_SIGNALS[name]} ({name})" if name in _SIGNALS else name
    return _account("signal", f"the process died of {said}")


def forkserver_killed() -> dict[str, Any]:
    return _account("signal", "it killed the process above it, which starts all tests")


def malformed() -> dict[str, Any]:
    return _account("events", "it wrote into a descriptor that is not its own, by which the "
                              "grader is told how each test ends")


def filled(limits: Limits) -> dict[str, Any]:
    return _account("file size", "its files were larger than the limit of "
                                 f"{limits.files // MIB} MiB in all")


def multiplied(limits: Limits) -> dict[str, Any]:
    return _account("processes", f"it had more than the limit of {limits.processes} processes")


def swollen(limits: Limits) -> dict[str, Any]:
    return _account("memory",
                    f"it used more than the memory limit of {limits.memory // MIB} MiB")


def late(seconds: float) -> dict[str, Any]:
    return _account("time", f"it was not done after {seconds:g} seconds")


def lacking(text: str) -> tuple[str, dict[str, Any]]:
    """Return module and account of a suite that cannot be collected because a name is missing."""
    found = re.search(rf"cannot import name '(\w+)' from '{PACKAGE}\.(\w+)'", text)
    if not found:
        raise KitError(f"a suite cannot be collected:\n{text}")
    return found[2], _account("import", f"the file has no {found[1]}, which its contract names")


def stack(trace: bytes, files: set[str]) -> list[dict[str, Any]]:
    """Read faulthandler's trace (innermost first) and return the lines of it that are in
    ``files``, the innermost last."""
    text = trace.decode("utf-8", "replace")
    written = {file.encode("ascii", "backslashreplace").decode(): file for file in files}
    found = []
    for file, line, function in re.findall(r'File "(.+)", line (\d+) in (\S+)', text):
        if file in written:
            found.append({"file": written[file], "line": int(line), "function": function,
                          "text": _source_line(Path(written[file]), int(line))})
    return found[::-1][-5:]


def _source_line(file: Path, number: int) -> str:
    """Return a line of a file, nothing where the learner's code has changed or removed it."""
    with contextlib.suppress(OSError):
        if file.is_file():
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            return plain(lines[number - 1]).strip() if 0 < number <= len(lines) else ""
    return ""


def _account(cause: str, what: str) -> dict[str, Any]:
    return {"cause": cause, "what": what}
