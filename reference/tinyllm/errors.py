"""The errors of tinyllm: one class for each status of the C interface (rt.04, section 4).

Every error is a ``KvError``, carries the C status it stands for in ``status``, and, where Python
has a builtin for the same idea, is one of those too, so that ``except ValueError`` works.
"""

from typing import ClassVar


class KvError(Exception):
    """Base of every error that this package raises on purpose."""

    status: ClassVar[str] = "TL_EINTERNAL"


class InvalidArgumentError(KvError, ValueError):
    """The call makes no sense: a bad id, a second release, a partial block given a name."""

    status = "TL_EINVAL"


class PoolFullError(KvError):
    """Free and cached blocks together are too few. Nothing was taken."""

    status = "TL_EFULL"


class BufferTooSmallError(KvError):
    """The caller's buffer is too short; ``needed`` is the number of bytes it must hold."""

    status = "TL_EFULL"

    def __init__(self, needed: int) -> None:
        super().__init__(f"the buffer is too small: {needed} bytes are needed")
        self.needed = needed


class HashBusyError(KvError):
    """Another block holds this hash already; the first holder keeps it."""

    status = "TL_EBUSY"


class EnvelopeError(KvError, ValueError):
    """The bytes are no valid export envelope: damaged, of another format, or against a rule."""

    status = "TL_EFORMAT"


class ShapeMismatchError(KvError, ValueError):
    """The envelope is sound, but its blocks have other dimensions than this pool's."""

    status = "TL_ESHAPE"


class UnsupportedError(KvError):
    """A data type or a format that this version does not offer."""

    status = "TL_EUNSUPPORTED"


class PoolMemoryError(KvError, MemoryError):
    """The slab could not be allocated."""

    status = "TL_ENOMEM"
