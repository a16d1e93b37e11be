"""What is known of the planted bugs: which tests each of them fails, and how.

`course/<module>/kills.json` holds it, test by test, so that a check can compare a failure with it
without running anything. It is made by `ol author kills` and by nobody's hand. Random tests are
left out: which of their examples fails first is different for every program.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.course.model import Module, Test
from grader.grading.report import Failure

SCHEMA = 1
Failures = Mapping[str, Failure]  # by test
Feature = tuple[str, str]  # a test, and a part of how it fails; "" for that it fails at all
_NUMBER = re.compile(r"-?\d+")
_ARRAY = re.compile(r"<(\w+) (\[.*\])>")
_SEPARATOR = " | "
_ANSWER = 60  # characters of an answer that are kept


@dataclass(frozen=True)
class Kills:
    """test -> sign -> the bugs that fail this test with this sign, in order."""

    rows: dict[str, dict[str, list[str]]]

    def without(self, bugs: set[str]) -> "Kills":
        """Return what is known of all other bugs."""
        kept = {test: {signature: left for signature, those in signs.items()
                       if (left := [bug for bug in those if bug not in bugs])}
                for test, signs in self.rows.items()}
        return Kills({test: signs for test, signs in kept.items() if signs})

    def of_each_bug(self) -> dict[str, dict[str, str]]:
        """Return bug -> test -> sign."""
        found: dict[str, dict[str, str]] = {}
        for test, signs in self.rows.items():
            for signature, bugs in signs.items():
                for bug in bugs:
                    found.setdefault(bug, {})[test] = signature
        return found


def file_of(module: Module) -> Path:
    return module.folder / "kills.json"


def deterministic_tests(module: Module) -> list[Test]:
    """Return the tests that do the same calls in each run, whatever the program."""
    return [t for t in module.tests if not t.random]


def signature(test: Test, failure: Failure) -> str:
    """Return how a test failed, in a text that is the same for programs of other designs.

    It goes from the coarse to the fine: the cause, or what was judged; then the kind of error, or
    how what came compares with what was expected; then, of a worked example, the very answer.
    Other numbers are left out, as ids and all that follows from them are the program's own affair.
    """
    if failure.cause == "error":
        named = re.match(r"it raised (\w+)", failure.what)
        return _SEPARATOR.join(["error", named[1] if named else ""])
    if failure.cause != "wrong":
        return failure.cause
    parts = [_NUMBER.sub("#", re.sub(r", at \[.*", "", failure.what))]
    if how := _comparison(failure):
        parts.append(how)
        if "golden" in test.kinds and not how.lower().endswith("error"):
            parts.append(failure.bytes.got if failure.bytes else (failure.got or "")[:_ANSWER])
    return _SEPARATOR.join(parts)


def features(signs: Mapping[str, str]) -> set[Feature]:
    """Return what a program is known by, from test -> sign: that a test fails, and each part of
    how it does."""
    found: set[Feature] = set()
    for test, how in signs.items():
        parts = how.split(_SEPARATOR)
        found |= {(test, _SEPARATOR.join(parts[:n])) for n in range(len(parts) + 1)}
    return found


def _comparison(failure: Failure) -> str:
    """Return how what came compares with what was expected."""
    if failure.bytes is not None:
        return f"from byte {failure.bytes.offset} on"
    expected, got = failure.expected or "", failure.got or ""
    if got.startswith("no error"):
        return "no error"
    if error := re.match(r"\w+Error\b", got):
        return error[0]
    if "None" in (expected, got):
        return "none" if got == "None" else "not none"
    wanted, came = _numbers(expected), _numbers(got)
    if wanted is None or came is None:
        return _arrays(expected, got) if expected or got else ""
    if len(wanted) != len(came):
        return "fewer" if len(came) < len(wanted) else "more"
    return "".join("<=>"[(c > w) - (c < w) + 1] for w, c in zip(wanted, came, strict=True))


def _arrays(expected: str, got: str) -> str:
    """Return in what two arrays differ, as they are put into words; of anything else nothing."""
    wanted, came = _ARRAY.fullmatch(expected), _ARRAY.fullmatch(got)
    if not wanted or not came:
        return "other"
    return "another type" if wanted[1] != came[1] else "another shape"


def _numbers(text: str) -> list[int] | None:
    """Return the numbers of a plain number or a flat list of them; None for any other text."""
    if not re.fullmatch(r"-?\d+|[\[(](-?\d+(, -?\d+)*,?)?[\])]", text):
        return None
    return [int(n) for n in _NUMBER.findall(text)]


def gather(module: Module, failures: Mapping[str, Failures], unsteady: set[str]) -> Kills:
    """Return the kills of a module from the failures of each of its bugs; of the ``unsteady`` ones
    only that they fail, not how; and nothing that is not `certain`."""
    failures = {bug: reproducible(module, its) for bug, its in failures.items()}
    rows: dict[str, dict[str, list[str]]] = {}
    for test in deterministic_tests(module):
        signs: dict[str, list[str]] = {}
        for bug in sorted(failures):
            if test.name in failures[bug]:
                how = "" if bug in unsteady else signature(test, failures[bug][test.name])
                signs.setdefault(how, []).append(bug)
        if signs:
            rows[test.name] = dict(sorted(signs.items()))
    return Kills(dict(sorted(rows.items())))


def reproducible(module: Module, failures: Failures) -> dict[str, Failure]:
    """Return the failures that are the same on every machine.

    Where a sanitizer ended one of a program's own tests, the program touches memory that is not
    its own, or the like. What that does to a shared test, where no sanitizer watches, depends on
    the machine. So does every crash in a shared test. (Of a module in Python all failures are
    returned; rows that are called unsteady say where it is not so.)
    """
    if module.program is None:
        return dict(failures)
    own = {t.name for t in module.tests if module.holds(t)}
    stopped = any(f.cause == "wrong" and f.expected is None and f.bytes is None
                  for name, f in failures.items() if name in own)
    return {name: f for name, f in failures.items()
            if name in own or not (stopped or f.cause == "signal")}


def text_of(kills: Kills) -> str:
    """Return the file's text: a line a sign, so that a difference can be read."""
    tests = []
    for test, signs in kills.rows.items():
        lines = [f"  {json.dumps(s, ensure_ascii=False)}: {json.dumps(bugs)}"
                 for s, bugs in signs.items()]
        tests.append(f" {json.dumps(test)}: {{\n" + ",\n".join(lines) + "}")
    return f'{{"schema": {SCHEMA}, "kills": {{\n' + ",\n".join(tests) + "}}\n"


def load(module: Module) -> Kills:
    """Return the module's kills; none where the file is absent or cannot be read, because only
    advice hangs on it."""
    try:
        data = json.loads(file_of(module).read_text(encoding="utf-8"))
        return Kills(data["kills"] if data["schema"] == SCHEMA else {})
    except (OSError, ValueError, KeyError, TypeError):
        return Kills({})
