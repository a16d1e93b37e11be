"""Snapshots of the learner's files: no command deletes one, and a check that passes keeps a copy.

A snapshot is a folder `work/.history/<number>-<verb>/` with the files in their places. Where a
command puts another file in the place of one, the new file is whole on the disk first; then the two
change places at once, where the system can do that, and else by a rename into the snapshot and a
link that refuses to overwrite. So a kill between any two steps leaves every version somewhere, and
a step that fails is taken back with all before it.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course.model import Module
from grader.errors import CallError
from grader.learner import workspace
from grader.learner.atomic_files import Draft, abandoned, create
from grader.learner.workspace import State

_NAME = re.compile(r"(\d{6,})-(\w+)")
_CHECK = "check"  # the verb of the snapshots that no command but `ol undo NUMBER` brings back


@dataclass(frozen=True)
class Snapshot:
    """Files that a command moved out of the way, or one that a check found good."""

    number: int
    verb: str
    folder: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The files' places, relative to the workspace."""
        return tuple(sorted(p.relative_to(self.folder) for p in self.folder.rglob("*")
                            if p.is_file() and p.suffix != ".tmp"))

    @property
    def said(self) -> str:
        """Which version of the files it has, in a few words."""
        return ("as a check found it good" if self.verb == _CHECK
                else f"as it was before `{self.verb}`")


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
        return _replace("reset", {Path(m.file_name): workspace.stub(m) for m in modules})


def undo(number: int | None = None) -> Snapshot:
    """Bring back the files of the last command's snapshot, or of the one with this number.

    What is in their place goes into a snapshot of its own first, so an undo can be undone.
    """
    with _lock():
        chosen = _chosen(number)
        data = {file: (chosen.folder / file).read_bytes() for file in chosen.files}
        if all(workspace.read(workspace.work() / file) == old for file, old in data.items()):
            raise CallError(f"your files are already as snapshot {chosen.number} has them")
        _replace("undo", data)
        return chosen


def keep(module: Module, sha256: str | None) -> None:
    """Keep a copy of a module's file, which a check found good, unless the last one is the same or
    the file is no longer the one with this digest."""
    file = Path(module.file_name)
    with _lock():
        here = workspace.work() / file
        last = next((s for s in reversed(snapshots()) if s.verb == _CHECK and file in s.files),
                    None)
        data = workspace.read(here)  # once: an editor may save it at any moment
        if data is not None and hashlib.sha256(data).hexdigest() == sha256 and (
                last is None or (last.folder / file).read_bytes() != data):
            create(_next(_CHECK).folder / file, data, scratch=_folder())


def way_back(module: Module) -> str:
    """Return how the learner's file of a module, which is not there, comes back: what is promised
    here is what the command does."""
    file, stub = Path(module.file_name), workspace.stub(module)
    for snapshot in reversed(snapshots()):
        if file in snapshot.files and (snapshot.folder / file).read_bytes() != stub:
            with_it = [f"work/{other}" for other in snapshot.files if other != file]
            return f"`ol undo {snapshot.number}` brings it back {snapshot.said}" + (
                f", and with it {', '.join(with_it)}" if with_it else "")
    return ""


def said_of(module: Module, state: State) -> str:
    """Return what the learner's file of a module is like, and how it comes back if it is lost."""
    way = way_back(module) if state is State.MISSING else ""
    return state.sentence + (f": {way}" if way else "")


def _chosen(number: int | None) -> Snapshot:
    """Return the snapshot that an undo is about."""
    known = snapshots()
    if number is not None:
        found = next((s for s in known if s.number == number), None)
        if found is None:
            raise CallError(f"there is no snapshot {number}: `ol undo --list` shows them")
        return found
    moved = [s for s in known if s.verb != _CHECK]
    if not moved:
        raise CallError("there is nothing to undo: no command has moved a file yet" + (
            "; `ol undo --list` shows what checks have kept" if known else ""))
    return moved[-1]


def _next(verb: str) -> Snapshot:
    """Return a snapshot in the making: its folder appears with the first file."""
    numbers = [int(m[1]) for p in _folder().glob("*-*") if (m := _NAME.fullmatch(p.name))]
    number = max(numbers, default=0) + 1
    return Snapshot(number, verb, _folder() / f"{number:06d}-{verb}")


def _replace(verb: str, wanted: dict[Path, bytes]) -> Snapshot | None:
    """Put ``wanted`` in place of the learner's files, which go into a snapshot; return it, or None
    where there was nothing to move. All of it is done, or nothing."""
    _no_links(wanted)
    swaps = [_Swap(file, data) for file, data in wanted.items()
             if workspace.read(workspace.work() / file) != data]
    snapshot = _next(verb)
    try:
        for swap in swaps:
            swap.draft(snapshot)
        for swap in swaps:
            swap.go()
    except BaseException as error:
        for swap in reversed(swaps):
            swap.take_back()
        if isinstance(error, OSError):
            raise CallError(_failed(error, swaps)) from error
        raise
    finally:
        for swap in swaps:
            swap.clean()
        _remove_empty(snapshot.folder)
    return snapshot if snapshot.files else None


class _Swap:
    """One file put in the place of another, which goes into a snapshot."""

    def __init__(self, file: Path, data: bytes) -> None:
        self.file, self.data = file, data
        self.here = workspace.work() / file
        self.new: Draft | None = None

    def draft(self, snapshot: Snapshot) -> None:
        """Do all that needs room, without touching the file."""
        self.there = snapshot.folder / self.file
        self.there.parent.mkdir(parents=True, exist_ok=True)
        self.here.parent.mkdir(parents=True, exist_ok=True)
        self.new = Draft(self.data, self.there.parent)

    def go(self) -> None:
        """Let the two change places; the learner's file is taken as it is at this moment."""
        assert self.new is not None
        if self._exchanged(self.new):
            return
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.here, self.there)
        if not self.new.place(self.here):
            raise CallError(f"{self.here} was written again just now by another program; it was "
                            f"left as it is, and the version before it is {self.there}")

    def _exchanged(self, new: Draft) -> bool:
        """Do it so that one of the two is there at every moment; False, and nothing done, where
        the system cannot."""
        try:
            os.link(self.here, self.there)
        except OSError:
            return False
        if not new.exchange(self.here):
            self.there.unlink()
            return False
        if os.path.samefile(new.file, self.there):
            new.file.unlink()
        else:  # an editor has saved it since the link: that is what counts
            os.replace(new.file, self.there)
        return True

    def take_back(self) -> None:
        """Make the file be where it was. What another program wrote there meanwhile stays."""
        with contextlib.suppress(OSError):
            if self.new is None or (os.path.lexists(self.here) and not self.new.is_at(self.here)):
                return
            if self.there.exists():
                os.rename(self.there, self.here)
            elif self.new.is_at(self.here):
                self.here.unlink()

    @property
    def is_away(self) -> bool:
        """True when the learner's file could not be put back."""
        return (self.new is not None and self.there.exists()
                and not os.path.lexists(self.here))

    def clean(self) -> None:
        if self.new is not None:
            self.new.discard()


def _failed(error: OSError, swaps: list[_Swap]) -> str:
    """Say what could not be done, and where the learner's files are."""
    where = "; ".join(f"{s.here} is {s.there}" for s in swaps if s.is_away)
    return (f"{error.filename or workspace.work()}: {error.strerror}; "
            + (where or "your files are as they were"))


def _remove_empty(folder: Path) -> None:
    """Remove a snapshot's folder, and those in it, as far as they hold nothing."""
    with contextlib.suppress(OSError):
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)


def _no_links(files: Iterable[Path]) -> None:
    """Refuse, before anything is moved, what is no file: a link would lead elsewhere from where
    it went."""
    for here in (workspace.work() / file for file in files):
        if here.exists() and not here.is_file():
            raise CallError(f"{here} is not a file; nothing was done")
        if here.is_symlink():
            raise CallError(f"{here} is a link to {os.readlink(here)}: put the file itself in its "
                            "place, or change it there; nothing was done")


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
        except OSError:
            pass  # a file system without locks: there, two commands at a time are the caller's risk
        for left in abandoned(_folder()):
            left.unlink(missing_ok=True)
        yield


def _folder() -> Path:
    return workspace.memory()
