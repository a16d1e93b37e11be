"""How many processors this process may use, which may be fewer than the machine has.

A container may be bound to some processors (its affinity), or may use only so much time of all of
them (its quota, in a control group). More workers than that would only slow each other down.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def processors() -> int:
    """Return the number of processors that this process may use, at least 1."""
    return max(1, min([_affinity(), *map(math.ceil, _quotas())]))


def _affinity() -> int:
    """Return the processors that this process may run on; on a system that does not tell, all."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13; also reads PYTHON_CPU_COUNT
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas() -> Iterator[float]:
    """Yield the quota, in processors, of each control group that this process is in, or below."""
    with contextlib.suppress(OSError):
        for line in (PROC / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, name = line.split(":", 2)
            if not controllers:
                yield from _of_groups(GROUPS, name, _quota_v2)
                yield from _of_groups(GROUPS / "unified", name, _quota_v2)
            elif "cpu" in controllers.split(","):
                for folder in (controllers, "cpu"):
                    yield from _of_groups(GROUPS / folder, name, _quota_v1)


def _of_groups(root: Path, name: str, quota: Callable[[Path], float | None]) -> Iterator[float]:
    """Yield the quotas of the group ``name`` and of those above it. In a container the name may be
    one of the host's, which is not there: the groups that are, end at the root."""
    group = root / name.strip("/")
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):
            if found := quota(folder):
                yield found
        if folder == root:
            return


def _quota_v2(folder: Path) -> float | None:
    quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="utf-8"))
    period = int((folder / "cpu.cfs_period_us").read_text(encoding="utf-8"))
    return quota / period if quota > 0 else None
