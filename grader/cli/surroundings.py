"""What a command finds around it: its streams, and the folder that it is called in."""

import io
import os
import sys
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.errors import CallError


class _Outlet(io.FileIO):
    """An output whose reader may go away: what is printed then goes nowhere, and the work, such as
    the report in a file, goes on."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return len(data)


def open_streams() -> None:
    """Give print outputs that take any text and outlive their readers. Where the caller has closed
    one it goes nowhere: a file that is opened later must not become the standard output."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for name, fd in (("stdout", 1), ("stderr", 2)):
        raw = _Outlet(fd, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="replace",
            line_buffering=raw.isatty() or fd == 2))


def drop_output() -> None:
    """Let what could not be printed go, where the output takes nothing: the end must not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def stand_in_this_checkout() -> None:
    """Refuse a call from a folder that is gone, or from inside another checkout: its files are
    not what this one's program would act on."""
    try:
        here = Path.cwd()
    except OSError:
        raise CallError("the current folder no longer exists: change to one that does") from None
    for folder in (here, *here.parents):
        if folder == ROOT:
            return
        if all((folder / file).is_file() for file in ("grader/run", "course/course.toml")):
            raise CallError(f"this is the ol of {ROOT}, and you are in another checkout, {folder}: "
                            f"call its own, {folder}/.venv/bin/ol, or `make` in it")
