"""How values are written for a learner: short, exact, and never by trusting their own repr."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from operator import index
from typing import Any

import numpy as np

_LONG = 12  # entries of a list that are shown
_PLAIN = (bool, float, str, bytes, bytearray, memoryview, np.ndarray, BaseException, list, tuple)


def say(value: Any, part: Callable[[Any], str] | None = None) -> str:
    """Return ``value`` in a learner's terms: large integers in hex, bytes by their front.

    ``part`` says what a list or tuple holds; `say` itself unless another is given.
    """
    part = part or say
    if value is None or isinstance(value, bool | str):
        return repr(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        shown = data[:8].hex(" ") + (" …" if len(data) > 8 else "")
        return f"<{len(data)} bytes{': ' + shown if data else ''}>"
    if isinstance(value, np.ndarray):
        return f"<{value.dtype} {list(value.shape)}>"
    if isinstance(value, BaseException):
        return say_error(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        pairs = ", ".join(f"{k}={part(v)}" for k, v in zip(value._fields, value, strict=True))
        return f"{type(value).__name__}({pairs})"
    if isinstance(value, list | tuple):
        return _say_many(value, part)
    if is_dataclass(value) and not isinstance(value, type):
        return _say_fields(value)
    if (number := integer(value)) is not None:
        return str(number) if -(2**32) <= number < 2**32 else f"{number:#018x}"
    try:
        return re.sub(r" at 0x[0-9a-f]+>", ">", repr(value))  # an address says nothing
    except Exception:
        return f"<{type(value).__name__}>"


def opaque(value: Any) -> bool:
    """True for an object that has no value to show, such as a node of somebody's tree: its own
    repr may be anything, the whole tree included."""
    return value is not None and not isinstance(value, _PLAIN) and integer(value) is None


def say_error(error: BaseException) -> str:
    """Return ``Name: message``, even where the exception's own ``__str__`` is broken."""
    try:
        text = str(error)
    except BaseException:  # the learner's own __str__ may raise anything
        text = "(its message cannot be printed)"
    status = getattr(type(error), "status", None)
    name = type(error).__name__ + (f" ({status})" if isinstance(status, str) else "")
    return f"{name}: {text}" if text else name


def integer(value: Any) -> int | None:
    """Return ``value`` as a plain int where it is one (numpy's count, a bool does not)."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def _say_fields(value: Any) -> str:
    """Write a data class without the fields that have their default."""
    shown = [f"{f.name}={say(getattr(value, f.name, None))}" for f in fields(value)
             if getattr(value, f.name, None) != f.default]
    return f"{type(value).__name__}({', '.join(shown)})"


def _say_many(values: Sequence[Any], part: Callable[[Any], str]) -> str:
    shown = [part(v) for v in values[:_LONG]]
    if len(values) > _LONG:
        shown.append(f"… {len(values)} in all")
    left, right = "()" if isinstance(values, tuple) else "[]"
    return f"{left}{', '.join(shown)}{right}"
