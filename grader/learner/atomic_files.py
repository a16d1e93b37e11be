"""Files: written so that a kill at any moment leaves the old one or the new one, whole; named
as short as can be."""

import contextlib
import ctypes
import errno
import os
import secrets
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}
_HEAD, _TAIL = ".ol-", ".tmp"  # of a draft's name, around its process's id
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of renameat2(2)


class Draft:
    """A new file, whole and safe on the disk, that has no place yet.

    It lies in a folder on the same file system as its place, so that it gets there by a rename or
    a link: neither needs room for its data.
    """

    def __init__(self, data: bytes, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, descriptor = _new(folder)
        self.identity = _identity(os.fstat(descriptor))
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(folder)
            raise

    def place(self, path: Path) -> bool:
        """Put it at ``path``; False, and nothing done, where something is there."""
        try:
            os.link(self.file, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._claim(path)
        return True

    def _claim(self, path: Path) -> bool:
        """Put it at ``path`` on a file system without hard links: claim the name, then put the
        whole file under it."""
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return False
        try:
            os.replace(self.file, path)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return True

    def exchange(self, path: Path) -> bool:
        """Let it and the file at ``path`` change places: at every moment one of them is there.
        False, and nothing done, where the system cannot do that."""
        call = getattr(ctypes.CDLL(None), "renameat2", None)
        return call is not None and call(_AT_FDCWD, os.fsencode(self.file), _AT_FDCWD,
                                         os.fsencode(path), _RENAME_EXCHANGE) == 0

    def is_at(self, path: Path) -> bool:
        """True when what lies at ``path`` is this very file."""
        with contextlib.suppress(OSError):
            return _identity(os.lstat(path)) == self.identity
        return False

    def discard(self) -> None:
        """Remove it from where it was made; from its place it is not removed."""
        if self.is_at(self.file):
            with contextlib.suppress(OSError):
                self.file.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: at every moment it is the old file or the new one."""
    draft = Draft(data, path.parent)
    try:
        os.replace(draft.file, path)
    except OSError:
        draft.discard()
        raise


def create(path: Path, data: bytes, scratch: Path) -> bool:
    """Create ``path`` with ``data`` at one stroke; False, and nothing done, where it exists.

    ``scratch`` is a folder on the same file system, for the file in the making.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Draft(data, scratch)
    try:
        return draft.place(path)
    finally:
        draft.discard()


def abandoned(folder: Path) -> list[Path]:
    """Return the drafts in a folder whose process has ended before it could remove them."""
    return [file for file in folder.glob(f"{_HEAD}*{_TAIL}") if not _lives(file)]


def _lives(draft: Path) -> bool:
    """Say whether the process that makes a draft is still there; its name begins with its id."""
    number = draft.name[len(_HEAD):].partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return int(number) > 0


def display_path(file: str) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _new(folder: Path) -> tuple[Path, int]:
    """Create an empty file of a name that nothing has, with the rights that the process's mask
    leaves; return its path and a descriptor."""
    while True:
        path = folder / f"{_HEAD}{os.getpid()}-{secrets.token_hex(6)}{_TAIL}"
        with contextlib.suppress(FileExistsError):
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _identity(looks: os.stat_result) -> tuple[int, int]:
    return looks.st_dev, looks.st_ino
