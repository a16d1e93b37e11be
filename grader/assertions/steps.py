"""The story of a test: the calls made to the learner's program, and the objects they made.

The grader asks for it with `watch`; without that nothing is recorded. Only the outermost call
counts: what a program calls inside itself is its own affair.
"""

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from grader.assertions.wording import class_name, opaque, say

_MOST = 4000  # steps kept of one example


class Step:
    """One call: what was called on what, and what came of it. ``subject`` is the object whose
    method it is, or which it made; ``query`` says that it only answers.

    It is put into words only when somebody asks: most steps are never read. ``said`` is an answer
    that was put into words at once, because whoever has it may change it.
    """

    __slots__ = ("args", "form", "function", "kwargs", "name", "query", "raised", "result",
                 "said", "subject")

    def __init__(self, form: str, name: str, function: Callable[..., Any] | None = None,
                 subject: Any = None, args: tuple[Any, ...] = (),
                 kwargs: dict[str, Any] | None = None, query: bool = False) -> None:
        self.form, self.name, self.function, self.subject = form, name, function, subject
        # Lists may change before anybody reads this.
        self.args = tuple(list(a) if type(a) is list else a for a in args)
        self.kwargs, self.query = kwargs or {}, query
        self.result: Any = None
        self.raised: str | None = None
        self.said = ""

    @property
    def failed(self) -> bool:
        return self.raised is not None

    @property
    def text(self) -> str:
        """The call, as a learner would write it."""
        said = [STORY.word(a) for a in self.args]
        said += [f"{k}={STORY.word(v)}" for k, v in self.kwargs.items()]
        call = f"{self.name}({', '.join(said)})"
        if self.name == "__len__":
            return f"len({STORY.word(self.subject)})"
        if self.form == "method":
            return f"{STORY.word(self.subject)}.{call}"
        if self.form == "property":
            return f"{STORY.word(self.subject)}.{self.name}"
        if self.form == "make":
            return call if self.failed else f"{STORY.word(self.subject)} = {call}"
        return self.name if self.form == "note" else call

    @property
    def outcome(self) -> str:
        """The answer, or the error's name; nothing where a command has no answer."""
        if self.raised is not None:
            return f"raises {self.raised}"
        if self.form in ("make", "note") or (self.result is None and not self._answers()):
            return ""
        return self.said or STORY.word(self.result)

    def _answers(self) -> bool:
        """True where None is an answer, such as a miss, and not the lack of one."""
        with contextlib.suppress(Exception):  # an annotation may be worked out only when asked for
            promised = getattr(self.function, "__annotations__", {}).get("return")
            return self.query or promised not in (None, "None")
        return self.query

    @property
    def where(self) -> tuple[str, int, str] | None:
        """File, line and name of the code that was called, or that is behind what was called."""
        if place := getattr(self.function, "place", None):
            return tuple(place)
        code = getattr(self.function, "__code__", None)
        return (code.co_filename, code.co_firstlineno, code.co_name) if code else None


class Said:
    """A step of which only words are left: what was in it may have gone."""

    __slots__ = ("args", "failed", "form", "name", "outcome", "query", "result", "text", "where")

    def __init__(self, step: Step) -> None:
        self.name, self.text, self.outcome = step.name, step.text, step.outcome
        self.form = step.form
        self.failed, self.query, self.where = step.failed, step.query, step.where
        self.args: tuple[Any, ...] = ()
        self.result: Any = None


@dataclass
class Story:
    """The steps of the example that is running, and short names for the objects in them.

    ``tell``, where there is one, is called before and after each step: for a test whose process
    will end before anybody can ask.
    """

    steps: list[Step] = field(default_factory=list)
    labels: dict[int, tuple[str, Any]] = field(default_factory=dict)
    running: Step | None = None
    depth: int = 0
    forgotten: int = 0
    left_out: list[str] = field(default_factory=list)
    tell: Callable[[], None] | None = None

    def let_go(self) -> None:
        """Let the objects of the steps go. If the end of one of them is the end of the process,
        the steps are told all the same."""
        if self.tell is not None:
            said: list[Any] = [Said(step) for step in self.told(self.steps)]
            self.steps, gone = said, self.steps
            gone.clear()
        else:
            self.steps.clear()
        self.labels.clear()

    def clear(self) -> None:
        """Begin a new example."""
        self.let_go()
        self.steps.clear()
        self.labels.clear()
        self.running = None
        self.depth = 0
        self.forgotten = 0

    def begin(self, step: Step) -> None:
        self.running = step
        if self.tell is not None:
            self.tell()

    def add(self, step: Step) -> None:
        """Take in a step that is done."""
        self.running = None
        self.steps.append(step)
        if len(self.steps) > _MOST:
            del self.steps[: _MOST // 2]
            self.forgotten += _MOST // 2
        if self.tell is not None:
            self.tell()

    def name(self, thing: Any, cls: str) -> None:
        """Give an object its short name: of a Pool pool, then pool2, pool3."""
        stem = _stem(cls)
        taken = sum(1 for label, _ in self.labels.values() if label.rstrip("0123456789") == stem)
        self.labels[id(thing)] = (_numbered(stem, taken), thing)

    def word(self, value: Any) -> str:
        """Write an argument or a result: a known object by its short name."""
        return self._known(value) or say(value, self._known)

    def _known(self, value: Any) -> str | None:
        label, thing = self.labels.get(id(value), (None, None))
        if label is not None and thing is value:
            return label
        return self._handles().get(id(value)) if _is_handle(value) else None

    def _handles(self) -> dict[int, str]:
        """Return short names, by their ``id``, for the handles that calls answered inside a tuple,
        in the order of the answers: of a match's Node node, then node2, node3."""
        names: dict[int, str] = {}
        taken: Counter[str] = Counter()
        for step in self.steps:
            for part in step.result if _is_tuple(step.result) else ():
                if _is_handle(part) and id(part) not in names:
                    stem = _stem(class_name(type(part)))
                    names[id(part)] = _numbered(stem, taken[stem])
                    taken[stem] += 1
        return names

    @staticmethod
    def told(steps: list[Step]) -> list[Step]:
        """Return those of ``steps`` that tell a story: the commands, the questions whose answer
        was a handle for one of them, and the last step, whatever it is."""
        came_from: dict[int, Step] = {}
        kept = steps[-1:]
        for step in steps:
            if not step.query:
                kept += [came_from[id(value)] for value in step.args if id(value) in came_from]
            elif _is_tuple(step.result):
                came_from |= {id(part): step for part in step.result
                              if _is_handle(part) or _is_tuple(part)}
        shown = {id(step) for step in kept}
        return [step for step in steps if not step.query or id(step) in shown]

    def objects(self) -> list[tuple[str, Any]]:
        """Return the named objects, oldest first."""
        return list(self.labels.values())


def _is_handle(value: Any) -> bool:
    """True for what only its maker can read: an object, or a named tuple with one in it."""
    return opaque(value) or (_is_tuple(value) and hasattr(value, "_fields")
                             and any(map(opaque, value)))


def _is_tuple(value: Any) -> bool:
    return issubclass(type(value), tuple)  # an object's own ``__class__`` may do anything


def _changes(value: Any) -> bool:
    """True for a data class whose fields may be set again, or hold what may change."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and not parameters.frozen


def _stem(cls: str) -> str:
    """Return the last word of a class's name, in small letters."""
    words: list[str] = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", cls)
    return (words or [cls])[-1].lower()


def _numbered(stem: str, taken: int) -> str:
    return stem if taken == 0 else f"{stem}{taken + 1}"


STORY = Story()


def new_example() -> None:
    """Forget the steps so far: a property's next example begins here."""
    STORY.clear()


def note(text: str) -> None:
    """Add a step that no call shows, such as values written into a slab."""
    STORY.add(Step("note", text))


def left_out(reason: str) -> None:
    """Let the report say that a part of this test was not judged, and why; the rest counts."""
    STORY.left_out.append(reason)


def watch(module: ModuleType, names: Iterable[str], queries: Iterable[str]) -> None:
    """Record calls to these functions and methods of ``module`` (``"f"`` or ``"Class.method"``).

    ``queries`` are those that only answer; they are told apart so that a printer may leave them
    out. A name that the module lacks is passed over: a test will say so.
    """
    queries = set(queries)
    for name in names:
        owner_name, _, attribute = name.rpartition(".")
        owner = getattr(module, owner_name, None) if owner_name else module
        if owner is None:
            continue
        raw = vars(owner).get(attribute)
        if isinstance(raw, property) and raw.fget is not None:
            wrapped: Any = property(_method(raw.fget, attribute, name in queries, "property"))
        elif raw is not None and attribute == "__init__" and isinstance(owner, type):
            wrapped = _constructor(owner, raw)
        elif callable(raw) and owner_name:
            wrapped = _method(raw, attribute, name in queries)
        elif callable(raw):
            wrapped = _function(raw, attribute, name in queries)
        else:
            continue
        try:
            setattr(owner, attribute, wrapped)
        except (AttributeError, TypeError):
            continue


def in_passing(function: Callable[..., None], name: str) -> Callable[..., None]:
    """Wrap what is called when an object goes: a step only while it runs, wherever that is."""
    @functools.wraps(function)
    def recorded(*args: Any) -> None:
        before = STORY.running
        STORY.begin(Step("note", name, function))
        function(*args)
        STORY.running = before

    return recorded


def _run(step: Step, call: Callable[[], Any]) -> Any:
    """Make a call as one step of the story."""
    STORY.depth += 1
    STORY.begin(step)
    try:
        result = call()
        if _changes(result):
            step.said = STORY.word(result)
    except BaseException as error:
        step.raised = class_name(type(error))
        if step.form == "make":
            step.subject = None  # nothing was made, and nothing may be kept alive
        STORY.add(step)
        raise
    finally:
        STORY.depth -= 1
    step.result = list(result) if type(result) is list else result
    if step.form == "make":
        STORY.name(step.subject, step.name)
    STORY.add(step)
    return result


def _function(function: Callable[..., Any], name: str, query: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if STORY.depth:
            return function(*args, **kwargs)
        step = Step("function", name, function, None, args, kwargs, query)
        return _run(step, lambda: function(*args, **kwargs))

    return recorded


def _method(
    function: Callable[..., Any], name: str, query: bool, form: str = "method"
) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STORY.depth:
            return function(self, *args, **kwargs)
        step = Step(form, name, function, self, args, kwargs, query)
        return _run(step, lambda: function(self, *args, **kwargs))

    return recorded


def _constructor(cls: type, function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        if STORY.depth or type(self) is not cls:
            function(self, *args, **kwargs)
            return
        step = Step("make", class_name(cls), function, self, args, kwargs)
        _run(step, lambda: function(self, *args, **kwargs))

    return recorded
