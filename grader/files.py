"""Files: written so that a kill at any moment leaves the old one or the new one, whole; named
as short as can be."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: at every moment it is the old file or the new one."""
    temporary = _temporary(path, data, path.parent)
    try:
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def create(path: Path, data: bytes, scratch: Path) -> bool:
    """Create ``path`` with ``data`` at one stroke; False, and nothing done, where it exists.

    ``scratch`` is a folder on the same file system, for the file in the making.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path, data, scratch)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without hard links: claim the name, then put the whole file under it.
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            return False
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def near(file: str) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _temporary(path: Path, data: bytes, folder: Path) -> Path:
    """Return a new file in ``folder`` that holds ``data``, safely on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=folder)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
