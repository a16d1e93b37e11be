"""Files: written so that a kill at any moment leaves the old one or the new one, whole; named
as short as can be."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: at every moment it is the old file or the new one."""
    temporary = _written_beside(path, data)
    try:
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def create(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` at one stroke; False, and nothing done, where it exists."""
    temporary = _written_beside(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def near(file: str) -> str:
    """Return a path as short as it can be said from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _written_beside(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary
