"""The story of a test: the calls made to the learner's program, and the objects they made.

The grader asks for it with `watch`; without that nothing is recorded. Only the outermost call
counts: what a program calls inside itself is its own affair.
"""

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.judging.words import say

_MOST = 4000  # steps kept of one example


@dataclass
class Step:
    """One call: what was called, what came of it, and where the called code stands."""

    text: str
    outcome: str = ""
    subject: Any = None
    name: str = ""
    args: tuple[Any, ...] = ()
    result: Any = None
    failed: bool = False
    query: bool = False
    where: tuple[str, int, str] | None = None


@dataclass
class Story:
    """The steps of the example that is running, and short names for the objects in them."""

    steps: list[Step] = field(default_factory=list)
    labels: dict[int, tuple[str, Any]] = field(default_factory=dict)
    depth: int = 0
    forgotten: int = 0

    def clear(self) -> None:
        """Begin a new example."""
        self.steps.clear()
        self.labels.clear()
        self.depth = 0
        self.forgotten = 0

    def add(self, step: Step) -> None:
        self.steps.append(step)
        if len(self.steps) > _MOST:
            del self.steps[: _MOST // 2]
            self.forgotten += _MOST // 2

    def name(self, thing: Any, stem: str) -> str:
        """Give ``thing`` its short name: pool, then pool2, pool3."""
        taken = sum(1 for label, _ in self.labels.values() if label.rstrip("0123456789") == stem)
        label = stem if taken == 0 else f"{stem}{taken + 1}"
        self.labels[id(thing)] = (label, thing)
        return label

    def word(self, value: Any) -> str:
        """Write an argument or a result: a known object by its short name."""
        known = self.labels.get(id(value))
        return known[0] if known and known[1] is value else say(value)

    def objects(self) -> list[tuple[str, Any]]:
        """Return the named objects, oldest first."""
        return list(self.labels.values())


STORY = Story()


def new_example() -> None:
    """Forget the steps so far: a property's next example begins here."""
    STORY.clear()


def note(text: str) -> None:
    """Add a step that no call shows, such as values written into a slab."""
    STORY.add(Step(text))


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
            wrapped: Any = property(_method(raw.fget, attribute, name in queries, is_call=False))
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


def _where(function: Any) -> tuple[str, int, str] | None:
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno, code.co_name) if code else None


def _run(step: Step, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call ``function`` as one step of the story."""
    STORY.depth += 1
    try:
        step.result = function(*args, **kwargs)
    except BaseException as error:
        step.failed = True
        step.outcome = f"raises {type(error).__name__}"
        STORY.add(step)
        raise
    finally:
        STORY.depth -= 1
    return step.result


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return ", ".join(
        [STORY.word(a) for a in args] + [f"{k}={STORY.word(v)}" for k, v in kwargs.items()]
    )


def _function(function: Callable[..., Any], name: str, query: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if STORY.depth:
            return function(*args, **kwargs)
        step = Step(f"{name}({_arguments(args, kwargs)})", name=name, args=args, query=query,
                    where=_where(function))
        result = _run(step, function, args, kwargs)
        step.outcome = STORY.word(result)
        STORY.add(step)
        return result

    return recorded


def _method(
    function: Callable[..., Any], name: str, query: bool, is_call: bool = True
) -> Callable[..., Any]:
    @functools.wraps(function)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if STORY.depth:
            return function(self, *args, **kwargs)
        text = f"{STORY.word(self)}.{name}" + (f"({_arguments(args, kwargs)})" if is_call else "")
        step = Step(text, subject=self, name=name, args=args, query=query, where=_where(function))
        result = _run(step, function, (self, *args), kwargs)
        step.outcome = STORY.word(result) if result is not None or query else ""
        STORY.add(step)
        return result

    return recorded


def _constructor(cls: type, function: Callable[..., None]) -> Callable[..., None]:
    stem = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", cls.__name__)[-1].lower()  # KvPool: pool

    @functools.wraps(function)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> None:
        if STORY.depth or type(self) is not cls:
            function(self, *args, **kwargs)
            return
        step = Step(f"{cls.__name__}({_arguments(args, kwargs)})", subject=self,
                    name=cls.__name__, args=args, where=_where(function))
        _run(step, function, (self, *args), kwargs)
        step.text = f"{STORY.name(self, stem)} = {step.text}"
        STORY.add(step)

    return recorded
