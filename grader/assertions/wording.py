"""How values are written for a learner: short, exact, and never by trusting their own repr."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from operator import index
from typing import Any

import numpy as np

_LONG = 12  # entries of a list that are shown
_MOST = 300  # characters of a text that are shown
_DEEP = 4  # lists inside lists that are shown
_PLAIN = (bool, float, str, bytes, bytearray, memoryview, np.ndarray, BaseException, list, tuple)

Known = Callable[[Any], str | None]


def say(value: Any, known: Known = lambda value: None) -> str:
    """Return ``value`` in a learner's terms: large integers in hex, bytes by their front.

    The text is short and there always is one, whatever the value does when it is asked. Of what a
    list or tuple holds, ``known`` returns the short names that there are.
    """
    return _say(value, 0, known)


def opaque(value: Any) -> bool:
    """True for an object that has no value to show, such as a node of somebody's tree: its own
    repr may be anything, the whole tree included."""
    try:
        return value is not None and not isinstance(value, _PLAIN) and integer(value) is None
    except BaseException:  # it does not even say what it is
        return True


def say_error(error: BaseException) -> str:
    """Return ``Name: message``, even where the exception's own ``__str__`` is broken."""
    name, text = class_name(type(error)), message(error)
    try:
        status = getattr(type(error), "status", None)
        name += f" ({short(status)})" if isinstance(status, str) else ""
    except BaseException:  # a class of the learner's may refuse even this
        pass
    return f"{name}: {text}" if text else name


def message(error: BaseException) -> str:
    """Return an exception's own message, cut where it is long."""
    try:
        return short(str(error))
    except BaseException:  # the learner's own __str__ may raise anything
        return "(its message cannot be printed)"


def class_name(cls: type) -> str:
    """Return a class's name, even where its metaclass has something else to say."""
    return short(type.__dict__["__name__"].__get__(cls))


def short(text: str) -> str:
    """Return ``text``, or where it is long its begin and how long it is."""
    text = str.__str__(text)  # a plain one: what a learner's __str__ returned may be a subclass
    return text if len(text) <= _MOST else f"{text[:_MOST]}… {len(text)} characters in all"


def integer(value: Any) -> int | None:
    """Return ``value`` as a plain int where it is one (numpy's count, a bool does not)."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def _say(value: Any, depth: int, known: Known) -> str:
    try:
        return _say_text(value) if isinstance(value, str) else short(_said(value, depth, known))
    except BaseException:  # the learner's own __repr__ may raise anything
        return f"<{class_name(type(value))}>"


def _said(value: Any, depth: int, known: Known) -> str:
    if value is None or isinstance(value, bool):
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
        return _say_named(value, depth, known)
    if isinstance(value, list | tuple):
        return _say_many(value, depth, known)
    if is_dataclass(value) and not isinstance(value, type):
        return _say_fields(value, depth, known)
    if (number := integer(value)) is not None:
        return str(number) if -(2**32) <= number < 2**32 else f"{number:#018x}"
    return re.sub(r" at 0x[0-9a-f]+>", ">", repr(value))  # an address says nothing


def _part(value: Any, depth: int, known: Known) -> str:
    return known(value) or _say(value, depth + 1, known)


def _say_text(value: str) -> str:
    value = str.__str__(value)
    more = f"… {len(value)} characters in all" if len(value) > _MOST else ""
    return f"{value[:_MOST]!r}{more}"


def _say_named(value: Any, depth: int, known: Known) -> str:
    """Write a named tuple without the fields that have their default."""
    defaults = dict(getattr(value, "_field_defaults", {}))
    pairs = ", ".join(f"{k}={_part(v, depth, known)}"
                      for k, v in zip(value._fields, value, strict=True)
                      if k not in defaults or (defaults[k] is not v and defaults[k] != v))
    return f"{class_name(type(value))}({pairs})"


def _say_fields(value: Any, depth: int, known: Known) -> str:
    """Write a data class without the fields that have their default."""
    shown = [f"{f.name}={_part(getattr(value, f.name, None), depth, known)}"
             for f in fields(value)
             if getattr(value, f.name, None) != f.default]
    return f"{class_name(type(value))}({', '.join(shown)})"


def _say_many(values: Sequence[Any], depth: int, known: Known) -> str:
    left, right = "()" if isinstance(values, tuple) else "[]"
    if depth >= _DEEP:  # it may hold itself
        return f"{left}…{right}"
    shown = [_part(v, depth, known) for v in values[:_LONG]]
    if len(values) > _LONG:
        shown.append(f"… {len(values)} in all")
    comma = "," if len(values) == 1 and isinstance(values, tuple) else ""
    return f"{left}{', '.join(shown)}{comma}{right}"
