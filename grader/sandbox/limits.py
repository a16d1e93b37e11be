"""What a worker may use, set from inside where the system can, watched from outside where not."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from time import sleep
from typing import Any

from grader.sandbox.processes import address_space, threads_of_user

MIB = 1 << 20
LINUX = sys.platform == "linux"
_CAP_DAC_READ_SEARCH, _CAP_NET_ADMIN, _CAP_SYS_MODULE, _CAP_SYS_RAWIO = 2, 12, 16, 17
_CAP_SYS_CHROOT, _CAP_SYS_PTRACE, _CAP_SYS_ADMIN, _CAP_SYS_BOOT, _CAP_SYS_NICE = 18, 19, 21, 22, 23
_CAP_SYS_RESOURCE, _CAP_SYS_TIME, _CAP_MKNOD = 24, 25, 27
_LONELY_USERS = 1_000_000_000  # user ids that no system gives out
_QUICK_FORKS = 4  # as many as make 16 processes of one
_FORK_SECONDS = 0.2


@dataclass(frozen=True)
class Limits:
    """``seconds`` for a test (`allowance` says what counts), ``import_seconds`` for the imports and
    the collection, ``memory`` bytes beyond what a fresh worker has, ``file_size`` bytes of a file
    written and ``files`` of all files together, ``processes`` alive at once (0: any number).
    ``cpu`` seconds of processor time bound an orphan; None where CPU time is measured, because
    under that limit Linux tells a process its own CPU time by the tick, 4 ms, and not by the
    microsecond. Where the address space is not ``mapped`` by need alone, as a sanitizer's is not,
    memory is watched from outside."""

    seconds: float = 5.0
    import_seconds: float = 5.0
    memory: int = 1024 * MIB
    file_size: int = 16 * MIB
    files: int = 256 * MIB
    processes: int = 32
    cpu: int | None = 600
    mapped: bool = True

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def apply(limits: Limits) -> None:
    """Limit this process. Where the system lacks a limit, the grader watches from outside."""
    base = address_space()
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_FSIZE, limits.file_size)
    if limits.cpu is not None:  # a test's own limit is kept by the grader
        _set(resource.RLIMIT_CPU, limits.cpu)
    if base is not None and limits.mapped:
        _set(resource.RLIMIT_AS, base + limits.memory)
    if limits.processes:
        _bound_processes(limits.processes)
    adopt_orphans()
    die_with_parent()


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies (Linux), to find it later."""
    _prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def die_with_parent() -> None:
    """Be killed when the parent goes (Linux); elsewhere the closed channel ends a worker."""
    _prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _bound_processes(most: int) -> None:
    """Let the kernel refuse a fork too many. It counts by user, and never refuses root: so a
    worker of root's becomes, for that count alone, a user that nobody else is."""
    if LINUX and os.geteuid() == 0:
        os.setresuid(_LONELY_USERS + os.getpid(), -1, -1)  # type: ignore[attr-defined, unused-ignore]
        _drop_capabilities(
            _CAP_DAC_READ_SEARCH, _CAP_NET_ADMIN, _CAP_SYS_MODULE, _CAP_SYS_RAWIO, _CAP_SYS_CHROOT,
            _CAP_SYS_PTRACE, _CAP_SYS_ADMIN, _CAP_SYS_BOOT, _CAP_SYS_NICE, _CAP_SYS_RESOURCE,
            _CAP_SYS_TIME, _CAP_MKNOD)
        _set(resource.RLIMIT_NPROC, most)
    elif (others := threads_of_user(os.getuid())) is not None:
        _set(resource.RLIMIT_NPROC, others + most)
    else:
        _slow_down_forks()


def _slow_down_forks() -> None:
    """Make a fork take a moment once a process and its parents have done several: a program that
    forks without end doubles faster than the grader, watching from outside, can look."""
    forks = 0

    def before() -> None:
        nonlocal forks
        forks += 1
        if forks > _QUICK_FORKS:
            sleep(_FORK_SECONDS)

    os.register_at_fork(before=before)


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


def _set(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (soft, soft))


def _prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
