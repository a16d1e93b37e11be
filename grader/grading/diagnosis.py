"""Which planted bug a failure looks like: advice, and never part of a verdict.

Each planted bug is known by its marks: the tests that it fails, and how it fails them (`kills`).
So is a learner's program, and the two sets are laid over each other. A bug's likeness is what both
have in common, as a share of all that either has:

    likeness = weight of the common marks / weight of all marks of the two        0..1

A test that fails and that the bug would pass counts against the bug, and so does one that passes
and that the bug would fail. A mark that many bugs have says little, so it weighs little: the
logarithm of how many bugs there are for one that has it. Tests that were not judged are left out
on both sides.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import log

from grader.course.model import Module
from grader.course.planted_bugs import mutants_of
from grader.grading.failure_signatures import (
    Feature,
    deterministic_tests,
    features,
    load,
    reproducible,
    signature,
)
from grader.grading.report import Confidence, Failure, ModuleResult, Status, Suspect, Verdict

MOST = 3  # bugs that are named
# Measured on the tuning half of `tests/kit/held_out`; `tests/kit/bench/diagnosis.py` holds them.
_LIKELY = 0.5
_PERHAPS = 0.2  # below it nothing is said
_NEAR = 0.1  # those that are no more than this behind the first are as likely as it
_MANY, _MOST_OF = 5, 0.8  # tests, and their share, that make one error of many failures
_NUMBER = re.compile(r"-?\d+")
_WORTH = 0.4  # the share of the first one's likeness that is worth a word

_SLIPS = {f"error | {name}" for name in (
    "NameError", "UnboundLocalError", "AttributeError", "ImportError", "ModuleNotFoundError",
    "TypeError")}


def suspects(module: Module, result: ModuleResult, part: bool = False) -> list[Suspect]:
    """Return the planted bugs that a module's failures look like, nearest first; at most three,
    none where the failures have another reason or fit no bug. ``part``: only some of the module's
    tests were asked for, so what is less than likely is not said."""
    failing = _evidence(module, result)
    if not failing:
        return []
    judged = {t.name for t in result.tests if t.verdict is Verdict.PASSED} | set(failing)
    if not (kills := load(module).of_each_bug()):
        return []
    signs = {t.name: signature(t, failing[t.name])
             for t in deterministic_tests(module) if t.name in failing}
    if _is_slip(failing, signs, kills.values()) or one_error(result):
        return []
    return [replace(suspect, tests=[t for t in signs if t in kills[suspect.bug]])
            for suspect in _named(module, likenesses(signs, kills, judged), part)]


def one_error(result: ModuleResult) -> str | None:
    """Return what every failing test says, where most of a module fails with one and the same
    error: the first thing to look at, and no sign of any planted bug."""
    failing = [t.failure for t in result.tests if t.verdict is Verdict.FAILED and t.failure]
    said = {_NUMBER.sub("#", failure.what) for failure in failing}
    judged = sum(t.verdict in (Verdict.PASSED, Verdict.FAILED) for t in result.tests)
    alike = (len(said) == 1 and all(f.cause != "wrong" for f in failing)
             and len(failing) >= max(_MANY, _MOST_OF * judged))
    return failing[0].what if alike else None


def _named(module: Module, likeness: dict[str, float], part: bool) -> list[Suspect]:
    """Return those of the bugs that are worth a word, nearest first. Of equal ones the first of
    their file goes first: it begins with the lesson's own."""
    ranked = sorted((m for m in mutants_of(module) if m.id in likeness),
                    key=lambda m: -likeness[m.id])
    first = likeness[ranked[0].id] if ranked else 0.0
    near = {m.id for m in ranked if likeness[m.id] >= first - _NEAR}
    level = _confidence(first, len(near))
    if first < _PERHAPS or (part and level is Confidence.PERHAPS):
        return []
    if len(ranked) > MOST and likeness[ranked[MOST].id] == first:
        return []  # as good as any of many
    return [Suspect(m.id, m.pitfall, m.symptom, level if m.id in near else Confidence.PERHAPS,
                    round(likeness[m.id], 2))
            for m in ranked[:MOST]
            if m.id in near or (likeness[m.id] >= max(_PERHAPS, _WORTH * first) and not part)]


def likenesses(signs: dict[str, str], kills: dict[str, dict[str, str]],
               judged: set[str]) -> dict[str, float]:
    """Return bug -> likeness of failures that are told as test -> sign."""
    bugs = {bug: features({t: s for t, s in known.items() if t in judged})
            for bug, known in kills.items()}
    common = Counter(mark for its in bugs.values() for mark in its)
    weight = {mark: log((len(bugs) + 1) / n) for mark, n in common.items()}
    alone = log(len(bugs) + 1)  # of a mark that no bug has
    mine = features(signs)

    def total(of: set[Feature]) -> float:
        return sum(weight.get(mark, alone) for mark in sorted(of))

    return {bug: round(total(mine & its) / total(mine | its), 9)
            for bug, its in bugs.items() if its}


def _evidence(module: Module, result: ModuleResult) -> dict[str, Failure]:
    """Return the failures that tell something, none where the reason is known already: the module
    could not be judged, one that it needs has failed, or most of it is not written."""
    if result.status is not Status.FAILED or result.sentence:
        return {}
    telling = {t.name for t in deterministic_tests(module)}
    failed = {t.name: t.failure for t in result.tests
              if t.verdict is Verdict.FAILED and t.failure}
    sure = {name: f for name, f in reproducible(module, failed).items() if name in telling}
    passes = {t.pass_ for t in result.tests if t.name in failed and t.name in telling}
    # A program that crashes in shared tests is soon given up there: then only its own tests tell
    # how much of it is written.
    own = {t.name for t in module.tests if module.holds(t)}
    crashes = any(f.cause == "signal" for name, f in failed.items() if name not in own)
    here = [t for t in result.tests
            if t.pass_ in passes and (t.name in own or not (module.program and crashes))]
    waiting = sum(t.verdict in (Verdict.TODO, Verdict.BLOCKED) for t in here)
    return sure if 2 * waiting <= len(here) else {}


def _is_slip(failing: dict[str, Failure], signs: dict[str, str],
           kills: Iterable[dict[str, str]]) -> bool:
    """Say whether most of what fails is a slip, such as a name that is not defined, or breaks a
    limit: the failure itself says all about that. What a planted bug does as well is none."""
    known = {pair for its in kills for pair in its.items()}
    slips = [name for name, failure in failing.items() if (name, signs[name]) not in known
             and (failure.cause not in ("wrong", "error") or signs[name] in _SLIPS)]
    return 2 * len(slips) > len(failing)


def _confidence(likeness: float, near: int) -> Confidence:
    """Return how sure the first is, and those that are as near as it; ``near`` counts them all."""
    return Confidence.LIKELY if likeness >= _LIKELY and near <= 2 else Confidence.PERHAPS
