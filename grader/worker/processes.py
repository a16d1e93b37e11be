"""What the system tells about processes: all of it on Linux, as much as `ps` knows elsewhere."""

import contextlib
import os
import re
import resource
import subprocess
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

PROC = Path("/proc")  # where there is none, everything here goes on without it


def group(leader: int, most: int) -> dict[int, int]:
    """Return the living processes of a group, each with its resident bytes. Of more than ``most``
    it returns one more: who looks at processes that fork without end must be quick."""
    listed = _listed_by_proc() if (PROC / "self/stat").exists() else _listed_by_ps()
    mine = ((process, resident) for process, of, resident in listed if of == leader)
    return dict(islice(mine, most + 1))


def memory(processes: dict[int, int]) -> int:
    """Return the bytes that the processes of a group hold: of the largest, or what is in each
    process alone, whichever is more. What a fork shares with its parent is not counted again."""
    largest = max(processes.values(), default=0)
    if len(processes) < 2:
        return largest
    return max(largest, sum(_private(process) for process in processes))


def children_of_this_process() -> list[int]:
    """Return the process ids of direct children, where the system tells (Linux)."""
    found: list[int] = []
    for file in (PROC / "self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in file.read_text().split()]
    return found


def threads_of_this_process() -> int:
    """Return how many threads this process has, those that Python does not know included."""
    try:
        return len(os.listdir(PROC / "self/task"))
    except OSError:
        return threading.active_count()


def threads_of_user(user: int) -> int | None:
    """Return how many threads a user has in all, None where the system does not tell."""
    count = 0
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                count += len(os.listdir(folder / "task"))
    return count or None


def address_space() -> int | None:
    """Return this process's size in bytes, None where the system does not tell."""
    try:
        return int((PROC / "self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _listed_by_proc() -> Iterator[tuple[int, int, int]]:
    """Give process, group and resident bytes of every process, the newest first."""
    page = resource.getpagesize()
    for folder in sorted(filter(str.isdigit, os.listdir(PROC)), key=int, reverse=True):
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (PROC / folder / "stat").read_text(errors="replace")
            fields = text[text.rindex(")") + 2 :].split()
            if fields[0] != "Z":
                yield int(folder), int(fields[2]), int(fields[21]) * page


def _listed_by_ps() -> Iterator[tuple[int, int, int]]:
    with contextlib.suppress(OSError):
        listing = subprocess.run(["ps", "-axo", "pid=,pgid=,rss=,stat="], capture_output=True,
                                 text=True, check=False).stdout
        for line in listing.splitlines():
            with contextlib.suppress(ValueError):
                process, of, kib, state = line.split()
                if not state.startswith("Z"):
                    yield int(process), int(of), int(kib) * 1024


def _private(process: int) -> int:
    """Return the bytes that no other process has, 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        text = (PROC / str(process) / "smaps_rollup").read_text()
        return sum(int(kib) * 1024 for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M))
    return 0
