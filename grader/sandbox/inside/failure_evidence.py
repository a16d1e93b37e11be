"""A worker's account of a failure: what was wrong, the steps, the learner's lines, the picture.

It is made inside the worker because only there do the objects still exist, and it is plain data,
the fields of `grader.grading.report.Failure`, because nothing of the learner's may leave as an
object.
"""

import contextlib
import errno
import importlib
import linecache
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from grader.binding.finder import Binding
from grader.sandbox.limits import MIB

_STEPS = 20  # commands shown of a long story
_NEAR = 40  # steps looked at while a test still runs, when there is no time for more
_UNMAPPED = ("cannot map zero-fill pages", "failed to map segment")  # of a library
_WINDOW = 8  # bytes shown before and after the first wrong one


class Evidence:
    """Writes failures down in the terms of one binding."""

    def __init__(self, binding: Binding, job: dict[str, Any]) -> None:
        self.job = job
        self.places = {name: tuple(place) for name, place in job.get("places", {}).items()}
        self.learner = set(job.get("lines") or (str(Path(binding.files[name]))
                                                for name in binding.own))
        self.learner |= {place[0] for place in self.places.values()}
        self.judged = binding.files.get((job["modules"] or [""])[-1])
        judging = importlib.import_module("grader.assertions.steps")
        self.story, self._watch = judging.STORY, judging.watch
        self._in_passing = judging.in_passing
        self.words = importlib.import_module("grader.assertions.wording")
        self.wrong = importlib.import_module("grader.assertions.comparisons").Wrong

    def watch(self, module: ModuleType, name: str) -> None:
        """Record the calls that suites make to a module's fills."""
        names = self.job["watch"].get(name, {"names": [], "queries": []})
        for function in names["names"]:
            if "." not in function and not hasattr(module, function):
                # A function that was deleted costs the tests that call it, not the suite.
                setattr(module, function, _absent(f"{name}: {function}"))
        for function, place in names.get("behind", {}).items():
            owner_name, _, attribute = function.rpartition(".")
            found = vars(getattr(module, owner_name) if owner_name else module)[attribute]
            getattr(found, "fget", found).place = tuple(place)
            if function not in names["names"]:  # nobody calls it: it ends what is made
                setattr(module, function, self._in_passing(found, place[2]))
        self._watch(module, names["names"], names["queries"])
        for function in names["names"]:
            owner_name, _, attribute = function.rpartition(".")
            owner = getattr(module, owner_name, None)
            if isinstance(owner, type) and not hasattr(owner, attribute):
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(owner, attribute, _Absent(f"{name}: {function}"))

    def of_import(self, error: BaseException) -> dict[str, Any]:
        """Say why a module of the learner's cannot be imported."""
        try:
            return self._of_import(error)
        except BaseException:
            return self._bare("import", error)

    def of(self, error: BaseException) -> dict[str, Any]:
        """Say what a test's exception means to the learner."""
        try:
            return self._of(error)
        except BaseException:  # the exception is the learner's, and may do anything when asked
            return self._bare("error", error)

    def left_behind(self, kind: str) -> dict[str, Any]:
        """Say that a thread or a child process outlived the call that began it."""
        what = {"thread": "a thread was left running",
                "child": "a child process was left running"}[kind]
        return _failure(kind, what, **self._story())

    def of_now(self) -> dict[str, Any]:
        """Tell the steps up to this moment, the one that is not done yet included."""
        self.story.depth += 1  # what an object is asked to be put into words is no step
        try:
            steps, running = self.story.steps, self.story.running
            near = steps[:1] + steps[max(len(steps) - _NEAR, 1) :]
            told = self._told(near + ([running] if running else []), len(steps) - len(near))
            if running and (where := self._where(running)):
                return {**told, "code": [_line(*where)]}
            return {**told, "code": self._last()}
        finally:
            self.story.depth -= 1

    def _of_import(self, error: BaseException) -> dict[str, Any]:
        cause, what = self._cause(error)
        code = self._lines(error.__traceback__)
        if isinstance(error, SyntaxError):
            cause, what = "syntax", self.words.say_error(error)
            if error.filename in self.learner:
                code = [_line(str(error.filename), error.lineno or 1, "")]
        return _failure("import" if cause == "error" else cause, what, code=code)

    def _of(self, error: BaseException) -> dict[str, Any]:
        if isinstance(error, self.wrong):
            told = _compare(error.expected, error.got)
            cause = error.__cause__
            code = [self._built(*place) for place in error.places]
            code = code or (self._lines(cause.__traceback__) if cause else [])
            code = code or self._asked(error.what) or self._last(queries=error.last_call)
            return _failure(error.cause, error.what, **told, **self._story(), code=code)
        cause_name, what = self._cause(error)
        code = self._lines(error.__traceback__)
        asserted = isinstance(error, AssertionError) or type(error).__name__ == "Failed"
        return _failure(cause_name, what, asserted=asserted, **self._story(),
                        code=code or self._last())

    def _bare(self, cause: str, error: BaseException) -> dict[str, Any]:
        return _failure(cause, f"it raised {self.words.class_name(type(error))}")

    def _cause(self, error: BaseException) -> tuple[str, str]:
        """Return the cause, one word, and the sentence for an exception that no check raised."""
        said = self.words.say_error(error)
        names = [cls.__name__ for cls in type(error).__mro__]
        if isinstance(error, NotImplementedError):
            return "todo", self._todo(error)
        if isinstance(error, SystemExit):
            code = self.words.say(error.code)
            return "exit", f"it called sys.exit({code}), which ends the whole program"
        if "Exit" in names or isinstance(error, KeyboardInterrupt):
            return "exit", f"it raised {type(error).__name__}, which ends the whole run"
        if isinstance(error, RecursionError):
            return "recursion", "it called itself without end: the recursion limit was reached"
        if isinstance(error, MemoryError) and not hasattr(type(error), "status"):
            limit = self.job["limits"]["memory"] // MIB
            return "memory", f"it asked for more than the memory limit of {limit} MiB"
        if type(error).__name__ == "BdbQuit":
            return "stdin", "it called breakpoint(), but nobody can type during a check"
        if isinstance(error, EOFError):
            return "stdin", "it read from the standard input, which is closed during a check"
        if isinstance(error, OSError) and any(sign in said for sign in _UNMAPPED):
            limit = self.job["limits"]["memory"] // MIB
            return "memory", (f"it cannot be loaded within the memory limit of {limit} MiB: is "
                              "there a very large array?")
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            limit = self.job["limits"]["file_size"] // MIB
            return "file size", f"it wrote a file larger than the limit of {limit} MiB"
        if isinstance(error, OSError) and error.errno == errno.EAGAIN:
            most = self.job["limits"]["processes"]
            return "processes", f"it wanted more than the limit of {most} processes and threads"
        if "Skipped" in names or "XFailed" in names:
            return "skipped", "it skipped the test that judges it, which is no pass"
        if "Flaky" in names or "FlakyFailure" in names:
            return "flaky", ("the same calls were right once and wrong once: something survives "
                             "from one example to the next, or depends on chance")
        return "error", f"it raised {said}"

    def _todo(self, error: NotImplementedError) -> str:
        text = self.words.message(error)
        if re.fullmatch(r"\w+: [\w.]+", text):
            return f"{text.split(': ')[1]} is not written yet"
        return "it raised NotImplementedError" + (f": {text}" if text else "")

    def _lines(self, trace: TracebackType | None) -> list[dict[str, Any]]:
        """Return the learner's lines of a traceback, the innermost last."""
        found = []
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename in self.learner:
                found.append(_line(code.co_filename, trace.tb_lineno, code.co_name))
            trace = trace.tb_next
        return found[:1] + found[1:][-4:]  # of a deep recursion, the entry and the end

    def _asked(self, what: str) -> list[dict[str, Any]]:
        """Return where the query that ``what`` names begins, if nothing but queries was called of
        an object that was just made: no command can have led to the wrong answer."""
        if any(not step.query and step.form != "make" for step in self.story.steps):
            return []
        words = set(re.findall(r"\w+", what))
        found = [where for step in self.story.steps
                 if step.name in words and (where := self._where(step))]
        return [_line(*found[-1])] if found else []

    def _last(self, queries: bool = False) -> list[dict[str, Any]]:
        """Return where the code of the last command begins: the place to start reading. A query
        mostly tells what a command did wrong, unless the query itself is what is judged. A test may
        call what is needed, too, to work out what is right."""
        mine = [(s, where) for s in self.story.steps if (where := self._where(s))]
        mine = [pair for pair in mine if pair[1][0] == self.judged] or mine
        doing = mine if queries else [pair for pair in mine if not pair[0].query] or mine
        return [_line(*doing[-1][1])] if doing else []

    def _where(self, step: Any) -> tuple[str, int, str] | None:
        """Return where the learner wrote what a step called, if that is the learner's."""
        where = step.where or self.places.get(step.name)
        return where if where and where[0] in self.learner else None

    def _built(self, file: str, line: int, function: str) -> dict[str, Any]:
        """Return a line of a program that was built, told by the file's name alone."""
        folders = {Path(place[0]).parent for place in self.places.values()}
        return _line(str(next(iter(folders), Path()) / Path(file).name), line, function)

    def _story(self) -> dict[str, Any]:
        return {**self._told(self.story.steps), "pictures": self._pictures()}

    def _told(self, steps: list[Any], passed_over: int = 0) -> dict[str, Any]:
        """Return the commands, and the last step whatever it is; of many, the first and the last
        ones. The same step again and again is told once."""
        told: list[dict[str, Any]] = []
        for step in self.story.told(steps):
            words = _step(step, done=step is not self.story.running)
            if told and words == {**told[-1], "times": 1}:
                told[-1]["times"] += 1
            else:
                told.append(words)
        left_out = len(told) - _STEPS if len(told) > _STEPS + 1 else 0
        return {"steps": told[:1] + told[1 + left_out :] if left_out else told,
                "steps_left_out": left_out + self.story.forgotten + passed_over}

    def _pictures(self) -> list[dict[str, Any]]:
        """Draw the objects of the story that the module has a view for, the last two."""
        view = self.job.get("view")
        if not view:
            return []
        draw = importlib.import_module(view["module"]).view
        self.story.depth += 1  # what the view asks is no step
        pictures = []
        try:
            for label, thing in self.story.objects()[-2:]:
                if type(thing).__name__ == view["class"]:
                    drawn = draw(thing, list(self.story.steps))
                    pictures += [{**picture, "title": f"{label}: {picture['title']}"}
                                 for picture in (drawn if isinstance(drawn, list) else [drawn])]
        except BaseException:
            return pictures  # a picture is a courtesy: the failure stands without it
        finally:
            self.story.depth -= 1
        return pictures


def _step(step: Any, done: bool) -> dict[str, Any]:
    return {"text": step.text, "outcome": step.outcome if done else "is not done",
            "failed": step.failed or not done, "times": 1}


def _absent(what: str) -> Callable[..., Any]:
    def absent(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(what)

    return absent


class _Absent:
    """Stands for a method or a property that a class lacks; an object's own attribute of that
    name goes first."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __get__(self, thing: object, owner: type) -> "_Absent":
        if thing is None:
            return self
        raise NotImplementedError(self.what)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(self.what)


def _failure(cause: str, what: str, **more: Any) -> dict[str, Any]:
    return {"cause": cause, "what": what, **more}


def _line(file: str, line: int, function: str) -> dict[str, Any]:
    return {"file": file, "line": line, "function": function,
            "text": linecache.getline(file, line).strip()}


def _compare(expected: Any, got: Any) -> dict[str, Any]:
    """Return both sides as texts, or, of bytes, the surroundings of the first difference."""
    if not isinstance(expected, bytes) or not isinstance(got, bytes):
        return {"expected": expected, "got": got}
    at = next((i for i, (e, g) in enumerate(zip(expected, got, strict=False)) if e != g),
              min(len(expected), len(got)))
    start = max(at - _WINDOW, 0) // 4 * 4
    end = start + 2 * _WINDOW
    return {"expected": f"{len(expected)} bytes",
            "got": f"{len(got)} bytes, the first wrong one at {at}",
            "bytes": {"offset": at, "start": start,
                      "expected": expected[start:end].hex(), "got": got[start:end].hex()}}
