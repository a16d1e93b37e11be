"""What the system tells about processes: all of it on Linux, as much as `ps` knows elsewhere."""

import contextlib
import os
import re
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_MOST_FILES = 20_000  # of a worker
PROC = Path("/proc")  # where there is none, everything here goes on without it


class Process(NamedTuple):
    """A living process: its resident bytes, the seconds of processor time that it and its children
    that have ended used, and whether it would run now if it were given a processor."""

    resident: int
    cpu: float
    runnable: bool


def group(leader: int, most: int) -> dict[int, Process]:
    """Return the living processes of a group, and its leader though it may have left. Of more than
    ``most`` it returns one more: processes that fork without end must be counted quickly."""
    listed = _listed_by_proc(leader) if (PROC / "self/stat").exists() else _listed_by_ps(leader)
    return dict(islice(listed, most + 1))


def memory(processes: dict[int, Process]) -> int:
    """Return the bytes that the processes of a group hold: of the largest, or what is in each
    process alone, whichever is more. What a fork shares with its parent is not counted again."""
    largest = max((p.resident for p in processes.values()), default=0)
    if len(processes) < 2:
        return largest
    return max(largest, sum(_private(process) for process in processes))


def stored(folder: str, processes: Iterable[int]) -> int:
    """Return the bytes of all files below a worker's folder, and of those that its processes hold
    open and that have no name any more. Very many files count as very many bytes, so that this
    takes no time to speak of."""
    total = seen = 0
    waiting = [folder] if folder else []
    while waiting and seen < _MOST_FILES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in islice(entries, _MOST_FILES):
                seen += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += _room(entry.stat(follow_symlinks=False))
    for process in processes:
        with contextlib.suppress(OSError):
            for name in os.listdir(PROC / str(process) / "fd"):
                with contextlib.suppress(OSError):
                    look = os.stat(PROC / str(process) / "fd" / name)
                    total += _room(look) if stat.S_ISREG(look.st_mode) and not look.st_nlink else 0
    return total + (sys.maxsize if seen >= _MOST_FILES else 0)


def _room(look: os.stat_result) -> int:
    return max(look.st_blocks * 512, 0)


def cpu_of(process: int) -> float | None:
    """Return the processor time of one process, None where the system does not tell it quickly."""
    try:
        return _cpu(_fields(process))
    except (OSError, ValueError, IndexError):
        return None


def children_of_this_process() -> list[int]:
    """Return the process ids of direct children, where the system tells (Linux)."""
    found: list[int] = []
    for file in (PROC / "self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in file.read_text().split()]
    return found


def known_by(setting: str) -> list[int]:
    """Return the processes that were started with a setting in their environment, or are forked
    from one that was, where the system tells (Linux)."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if setting.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
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


def _fields(process: int | str) -> list[str]:
    """Return what /proc/PID/stat has behind the process's name: its state comes first."""
    text = (PROC / str(process) / "stat").read_text(errors="replace")
    return text[text.rindex(")") + 2 :].split()


def _cpu(fields: list[str]) -> float:
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _listed_by_proc(leader: int) -> Iterator[tuple[int, Process]]:
    """Yield the processes of a group, the newest first."""
    page = resource.getpagesize()
    for process in sorted(filter(str.isdigit, os.listdir(PROC)), key=int, reverse=True):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = _fields(process)
            if leader in (int(fields[2]), int(process)) and fields[0] != "Z":
                yield int(process), Process(int(fields[21]) * page, _cpu(fields),
                                            _runnable(process, fields))


def _runnable(process: str, fields: list[str]) -> bool:
    """Say whether a thread of a process runs, or would if it could: it waits for a processor or for
    a disk, and not for a lock or for time to pass."""
    if fields[0] in "RD" or int(fields[17]) == 1:
        return fields[0] in "RD"
    for thread in os.listdir(PROC / process / "task"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if _fields(f"{process}/task/{thread}")[0] in "RD":
                return True
    return False


def _listed_by_ps(leader: int) -> Iterator[tuple[int, Process]]:
    with contextlib.suppress(OSError):
        listing = subprocess.run(["ps", "-axo", "pid=,pgid=,rss=,stat=,time="],
                                 capture_output=True, text=True, check=False).stdout
        for line in listing.splitlines():
            with contextlib.suppress(ValueError):
                process, of, kib, state, time = line.split()
                if leader in (int(of), int(process)) and not state.startswith("Z"):
                    yield int(process), Process(int(kib) * 1024, _seconds(time),
                                                state[0] in "RDU")


def _seconds(time: str) -> float:
    """Read a time as `ps` tells it: [[days-]hours:]minutes:seconds."""
    days, _, rest = time.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + 86400 * int(days or 0)


def _private(process: int) -> int:
    """Return the bytes that no other process has, 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        text = (PROC / str(process) / "smaps_rollup").read_text()
        return sum(int(kib) * 1024 for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M))
    return 0
