"""Comparisons. Each raises `Wrong`, which keeps its parts apart for whoever prints it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from grader.assertions.wording import integer, say, say_error


class Wrong(AssertionError):
    """A judgement against the learner's program.

    ``what`` names the thing that is wrong; ``expected`` and ``got`` are texts, or bytes where a
    place inside them matters.
    """

    def __init__(
        self, what: str, expected: str | bytes | None = None, got: str | bytes | None = None
    ) -> None:
        super().__init__(what)
        self.what, self.expected, self.got = what, expected, got
        self.cause = "wrong"  # the kind of failure, for programs
        self.last_call = False  # the last call itself is what is wrong, whatever it is
        self.places: list[tuple[str, int, str]] = []  # file, line, function, where Python sees none

    def __str__(self) -> str:
        parts = [self.what]
        for name, value in (("expected", self.expected), ("got", self.got)):
            if value is not None:
                parts.append(f"  {name}: {value.hex(' ') if isinstance(value, bytes) else value}")
        return "\n".join(parts)


def demand(condition: bool, what: str, expected: str = "", got: str = "") -> None:
    """Fail with ``what`` unless ``condition`` is true."""
    if not condition:
        raise Wrong(what, expected or None, got or None)


def same(got: Any, want: Any, what: str) -> None:
    """Fail unless ``got`` is ``want``: an int, None, a bool, a str, or lists and tuples of them.

    Integers compare by value whatever their type (a numpy integer will do, a bool will not);
    lists, tuples and arrays compare entry by entry. An object that claims to equal everything
    equals nothing here.
    """
    if not _equal(got, want):
        raise Wrong(what, say(want), say(got))


def same_bytes(got: Any, want: bytes, what: str) -> None:
    """Fail unless ``got`` is bytes-like and holds exactly ``want``."""
    if not isinstance(got, bytes | bytearray | memoryview):
        raise Wrong(what, f"{len(want)} bytes", say(got))
    if bytes(got) != want:
        raise Wrong(what, want, bytes(got))


def same_array(got: Any, want: np.ndarray, what: str) -> None:
    """Fail unless ``got`` is an array of the same dtype, shape and bits as ``want``."""
    if not isinstance(got, np.ndarray) or got.dtype != want.dtype or got.shape != want.shape:
        raise Wrong(what, say(want), say(got))
    unsigned = f"u{want.dtype.itemsize}"
    left = np.ascontiguousarray(got).view(unsigned)
    right = np.ascontiguousarray(want).view(unsigned)
    different = np.argwhere(left != right)
    if len(different):
        at = tuple(int(i) for i in different[0])
        raise Wrong(
            f"{what}, at {list(at)} ({len(different)} of {want.size} values differ)",
            str(want[at]),
            str(got[at]),
        )


def refuses(
    errors: type[Exception] | tuple[type[Exception], ...], what: str, call: Callable[[], Any]
) -> Exception:
    """Call ``call`` and return the error it raises, which must be one of ``errors``.

    Fails when the call returns, or raises anything else. A ``NotImplementedError`` passes
    through: code that is not written yet is not wrong.
    """
    allowed = errors if isinstance(errors, tuple) else (errors,)
    names = " or ".join(f"{e.__name__} ({e.status})" if hasattr(e, "status") else e.__name__
                        for e in allowed)
    try:
        result = call()
    except allowed as error:
        return error
    except NotImplementedError:
        raise
    except Exception as error:
        raise _not_refused(what, names, say_error(error)) from error
    raise _not_refused(what, names, f"no error; it returned {say(result)}")


def _not_refused(what: str, names: str, got: str) -> Wrong:
    wrong = Wrong(what, names, got)
    wrong.last_call = True
    return wrong


def _equal(got: Any, want: Any) -> bool:
    if want is None or isinstance(want, bool):
        return got is want or (isinstance(got, np.bool_) and bool(got) is want)
    if (number := integer(want)) is not None:
        return integer(got) == number
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple | np.ndarray) or len(got) != len(want):
            return False
        return all(_equal(g, w) for g, w in zip(got, want, strict=True))
    return type(got) is type(want) and bool(got == want)
