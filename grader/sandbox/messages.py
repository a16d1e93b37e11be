"""The shape of every event. A worker runs a learner's code, so anything may come out of it: an
event that is not of its shape is not taken in, and the code that reads the others need not check.
"""

from json import loads
from math import isfinite
from typing import Any

from grader.learner.plain_text import plain_all

Message = dict[str, Any]

_LARGEST = 1 << 63
_LINE = {"file": str, "line": int, "function": str, "text": str}
_STEP = {"text": str, "outcome": str, "failed": bool, "times": int}
_PICTURE = {"title": str, "columns": [str], "rows": [[str]]}
_BYTES = {"offset": int, "start": int, "expected": "hex", "got": "hex"}
_STORY = {"steps?": [_STEP], "steps_left_out?": int, "pictures?": [_PICTURE], "code?": [_LINE]}
_FAILURE = {"cause": str, "what": str, "expected?": (str, None), "got?": (str, None),
            "bytes?": (_BYTES, None), "asserted?": bool, **_STORY}
_SHAPES: dict[str, tuple[dict[str, Any], ...]] = {
    "import": ({"module": str},),
    "broken": ({"module": str, "failure": _FAILURE},),
    "imported": ({"calls": [str]},),
    "uncollected": ({"text": str}, {"file": str, "failure": _FAILURE}),
    "collect": ({"file": str},),
    "collected": ({"tests": [{"name": str, "property": bool}]},),
    "calls": ({"of": str, "calls": [str]},),
    "begin": ({"test": str},),
    "end": ({"test": str, "seconds": float, "failure": (_FAILURE, None), "left": (str, None),
             "left_out?": [str]},),
    "figure": ({"figure": dict},),
    "story": (_STORY,),
    "done": ({},),
}
MALFORMED: Message = {"event": "malformed"}
"""Stands for a line that is not an event."""


def read(line: bytes) -> Message:
    """Return the event that a line holds, its texts made plain; `MALFORMED` where it holds none."""
    try:
        message = loads(line)
    except (ValueError, RecursionError):
        return MALFORMED
    if not isinstance(message, dict) or not isinstance(kind := message.pop("event", None), str):
        return MALFORMED
    if not any(_fits(message, shape) for shape in _SHAPES.get(kind, ())):
        return MALFORMED
    if kind == "figure" and not isinstance(message["figure"].get("kind"), str):
        return MALFORMED
    try:
        plain: Message = plain_all(message)
    except RecursionError:  # a figure may be of any shape
        return MALFORMED
    return {"event": kind, **plain}


def _fits(value: Any, shape: Any) -> bool:
    if isinstance(shape, tuple):
        return any(_fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(part, shape[0]) for part in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and _has_parts(value, shape)
    if shape is int:
        return type(value) is int and -_LARGEST < value < _LARGEST
    if shape is float:
        return type(value) in (int, float) and abs(value) < _LARGEST and isfinite(value)
    if shape == "hex":
        return type(value) is str and _is_hex(value)
    return value is None if shape is None else type(value) is shape


def _has_parts(value: dict[str, Any], shape: dict[str, Any]) -> bool:
    """Say whether a value has each part of ``shape``, those with a question mark if it has them,
    and no other."""
    known = {name.removesuffix("?"): part for name, part in shape.items()}
    return (value.keys() <= known.keys()
            and all(name.endswith("?") or name in value for name in shape)
            and all(_fits(part, known[name]) for name, part in value.items()))


def _is_hex(text: str) -> bool:
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True
