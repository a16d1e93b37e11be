"""Snapshots of the learner's files: `reset` and `undo` move files, they never delete any.

A snapshot is a folder `work/.history/<number>-<verb>/` with the files in their places. A file gets
into one by a rename, which takes the very file an editor saved last, and out of one by a copy that
refuses to overwrite. So a kill between any two steps leaves every version somewhere.
"""

import contextlib
import fcntl
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader import workspace
from grader.course import Module
from grader.errors import CallError
from grader.files import create

_NAME = re.compile(r"(\d{6,})-(\w+)")


@dataclass(frozen=True)
class Snapshot:
    """Files that a command moved out of the way."""

    number: int
    verb: str
    folder: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The files' places, relative to the workspace."""
        return tuple(sorted(p.relative_to(self.folder) for p in self.folder.rglob("*")
                            if p.is_file() and p.suffix != ".tmp"))


def snapshots() -> list[Snapshot]:
    """Return the snapshots that hold anything, oldest first."""
    found = []
    for folder in _folder().glob("*-*"):
        match = _NAME.fullmatch(folder.name)
        if match and folder.is_dir():
            snapshot = Snapshot(int(match[1]), match[2], folder)
            if snapshot.files:
                found.append(snapshot)
    return sorted(found, key=lambda s: s.number)


def reset(modules: tuple[Module, ...]) -> Snapshot | None:
    """Put the stubs of ``modules`` in place of the learner's files, which go into a snapshot.

    Returns it, or None where no file differed from its stub.
    """
    with _lock():
        snapshot = _Moving("reset")
        _no_links(Path(m.file_name) for m in modules)
        for module in modules:
            here = workspace.work() / module.file_name
            if workspace.read(here) == workspace.stub(module):
                continue
            snapshot.move(Path(module.file_name))
            _put(here, workspace.stub(module))
        return snapshot.done()


def undo(number: int | None = None) -> Snapshot:
    """Bring back the files of the last snapshot, or of the one with this number.

    What is in their place goes into a snapshot of its own first, so an undo can be undone.
    """
    with _lock():
        known = snapshots()
        if not known:
            raise CallError("there is nothing to undo: no command has moved a file yet")
        if number is None:
            chosen = known[-1]
        else:
            found = [s for s in known if s.number == number]
            if not found:
                raise CallError(f"there is no snapshot {number}: `ol undo --list` shows them")
            chosen = found[0]
        moving, changed = _Moving("undo"), False
        _no_links(chosen.files)
        for file in chosen.files:
            data = (chosen.folder / file).read_bytes()
            here = workspace.work() / file
            if workspace.read(here) == data:
                continue
            moving.move(file)
            _put(here, data)
            changed = True
        if not changed:
            raise CallError(f"your files are already as snapshot {chosen.number} has them")
        return chosen


class _Moving:
    """A snapshot in the making: its folder appears with the first file."""

    def __init__(self, verb: str) -> None:
        numbers = [int(m[1]) for p in _folder().glob("*-*") if (m := _NAME.fullmatch(p.name))]
        number = max(numbers, default=0) + 1
        self.snapshot = Snapshot(number, verb, _folder() / f"{number:06d}-{verb}")
        self.moved = False

    def move(self, file: Path) -> None:
        """Take the learner's file, as it is at this moment, into the snapshot."""
        there = self.snapshot.folder / file
        if not self.moved:
            self.snapshot.folder.mkdir(parents=True)  # a snapshot is never added to
        self.moved = True
        there.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(workspace.work() / file, there)

    def done(self) -> Snapshot | None:
        return self.snapshot if self.snapshot.files else None


def _no_links(files: Iterable[Path]) -> None:
    """Refuse, before anything is moved, what is no file: a link would lead elsewhere from where
    it went."""
    for here in (workspace.work() / file for file in files):
        if here.exists() and not here.is_file():
            raise CallError(f"{here} is no file; nothing was done")
        if here.is_symlink():
            raise CallError(f"{here} is a link to {os.readlink(here)}: put the file itself in its "
                            "place, or change it there; nothing was done")


def _put(here: Path, data: bytes) -> None:
    if not create(here, data, scratch=_folder()):
        raise CallError(f"{here} was written again just now by another program; it was left as "
                        "it is, and the version before it is in the last snapshot")


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Keep two commands from moving files at the same time."""
    _folder().mkdir(parents=True, exist_ok=True)
    with open(_folder() / "lock", "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("ol: another ol is moving files here; this one waits for it to end.",
                  file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        for left in _folder().glob(".*.tmp"):  # by a command that was killed
            left.unlink(missing_ok=True)
        yield


def _folder() -> Path:
    return workspace.memory()
