"""What a worker may write to: its scratch folder, and nothing else of the file system.

A learner's mistake, such as a loop that removes files from the wrong folder, must not reach the
learner's other files. The kernel sees to it (Landlock, Linux 5.13 and newer, for any user); where
it cannot, nothing is confined, and `ol doctor` says so.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_WRITE_FILE = 1 << 1
# Removing and making files and folders of every kind: bits 4 to 12 of landlock(7).
_CHANGE = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # of the second and the third version
_SCOPED = 1 << 0 | 1 << 1  # abstract sockets and signals, of the sixth


class _Rules(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the kernel's version of Landlock, 0 where there is none."""
    if sys.platform != "linux":
        return 0
    return max(int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION)), 0)


def confine(folders: Iterable[str], *, signals: bool = True) -> bool:
    """Let this process and its children change nothing outside ``folders``, for good; devices may
    still be written to. Where the kernel can (Linux 6.12), they can send ``signals`` to each other
    only. False where it can do none of it."""
    if not (offered := version()):
        return False
    handled = _CHANGE | (_REFER if offered >= 2 else 0) | (_TRUNCATE if offered >= 3 else 0)
    libc = ctypes.CDLL(None)
    wanted = _Rules(handled, 0, _SCOPED if signals and offered >= 6 else 0)
    size = ctypes.sizeof(wanted) if wanted.scoped else ctypes.sizeof(ctypes.c_uint64)
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(wanted), size, 0)
    if rules < 0:
        return False
    for folder in folders:
        _allow(libc, rules, folder, handled)
    _allow(libc, rules, "/dev", handled & (_WRITE_FILE | _TRUNCATE))
    done = bool(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
                and libc.syscall(_RESTRICT_SELF, rules, 0) == 0)
    os.close(rules)
    return done


def _allow(libc: ctypes.CDLL, rules: int, folder: str, what: int) -> None:
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined, unused-ignore]
        rule = _Beneath(what, opened)
        libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(opened)
