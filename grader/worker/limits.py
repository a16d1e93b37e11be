"""What a worker may use, set from inside where the system can, watched from outside where not."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE = 21, 24
_LONELY_USERS = 1_000_000_000  # user ids that no system gives out


@dataclass(frozen=True)
class Limits:
    """``seconds`` of wall time a test, ``import_seconds`` for the imports and the collection,
    ``memory`` bytes beyond what a fresh worker has, ``output`` bytes printed a test, ``file_size``
    bytes of a file written, ``processes`` alive at once."""

    seconds: float = 5.0
    import_seconds: float = 5.0
    memory: int = 1024 * MIB
    output: int = MIB
    file_size: int = 16 * MIB
    processes: int = 32

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def apply(limits: Limits) -> None:
    """Limit this process. Where the system lacks a limit, `usage` watches from outside."""
    base = _address_space()
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, limits.file_size)
    # Bounds an orphan; a test's own limit is wall time, kept by the grader.
    _set(resource.RLIMIT_CPU, 600)
    if base is not None:
        _set(resource.RLIMIT_AS, base + limits.memory)
    _bound_processes(limits.processes)
    adopt_orphans()
    die_with_parent()


def _bound_processes(most: int) -> None:
    """Let the kernel refuse a fork too many. It counts by user, and never refuses root: so a
    worker of root's becomes, for that count alone, a user that nobody else is."""
    if os.geteuid() == 0 and sys.platform == "linux":
        os.setresuid(_LONELY_USERS + os.getpid(), -1, -1)  # type: ignore[attr-defined, unused-ignore]
        _drop_capabilities(_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE)
        _set(resource.RLIMIT_NPROC, most)
    elif (others := _threads_of_user(os.getuid())) is not None:
        _set(resource.RLIMIT_NPROC, others + most)


def _threads_of_user(user: int) -> int | None:
    """Return how many threads a user has in all, None where the system does not tell."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                count += len(os.listdir(folder / "task"))
    return count or None


def _drop_capabilities(*which: int) -> None:
    """Give up capabilities of this process for good (Linux, capget(2))."""
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    class Sets(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint32) for n in ("effective", "permitted", "inheritable")]

    libc = ctypes.CDLL(None)
    header, sets = Header(0x20080522, 0), (Sets * 2)()
    if libc.capget(ctypes.byref(header), sets) == 0:
        for capability in which:
            keep = ~(1 << capability % 32)
            sets[capability // 32].effective &= keep
            sets[capability // 32].permitted &= keep
        libc.capset(ctypes.byref(header), sets)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies (Linux), to find it later."""
    _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def die_with_parent() -> None:
    """Be killed when the parent goes (Linux); elsewhere the closed channel ends a worker."""
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def usage(group: int) -> tuple[int, int]:
    """Return how many processes a group has, and the resident bytes of its largest."""
    if Path("/proc/self/stat").exists():
        return _usage_proc(group)
    return _usage_ps(group)


def children_of_this_process() -> list[int]:
    """Return the process ids of direct children, where the system tells (Linux)."""
    found: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in file.read_text().split()]
    return found


def threads_of_this_process() -> int:
    """Return how many threads this process has, those that Python does not know included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def _usage_proc(group: int) -> tuple[int, int]:
    count = largest = 0
    for folder in os.listdir("/proc"):
        if not folder.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path("/proc", folder, "stat").read_text(errors="replace")
            fields = text[text.rindex(")") + 2 :].split()
            if int(fields[2]) == group and fields[0] != "Z":
                count += 1
                largest = max(largest, int(fields[21]))
    return count, largest * resource.getpagesize()


def _usage_ps(group: int) -> tuple[int, int]:
    listing = subprocess.run(
        ["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    sizes = [int(kib) * 1024 for pgid, kib in rows if int(pgid) == group]
    return len(sizes), max(sizes, default=0)


def _address_space() -> int | None:
    """Return this process's size in bytes, or None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _set(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (soft, soft))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
