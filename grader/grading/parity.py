"""Parity: several programs held against one reading of a format, and so against each other.

The script beside a module's suite compares one program with the reading; here it runs over every
program that there is. It tells `compared` (what, count, differences) and `difference` (what, where,
expected, got).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grader.course.model import Course, Module
from grader.errors import CallError
from grader.grading.script import ScriptResult, run_script
from grader.grading.target import NO_NATIVE, NativeOptions, target_of
from grader.learner.workspace import State, source_of, state_of
from grader.sandbox.api import WorkerPool


@dataclass(frozen=True)
class Contender:
    """A program that takes part: whose it is, and what stands behind the module's name."""

    name: str
    where: str
    pool: NativeOptions = NO_NATIVE


@dataclass
class Compared:
    """What came of one program: counts of (compared, different) by kind, the differences shown."""

    contender: Contender
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    differences: list[dict[str, str]] = field(default_factory=list)
    played: ScriptResult = field(default_factory=ScriptResult)

    @property
    def agrees(self) -> bool:
        """True when something was compared, to the end, and nothing differed."""
        return bool(self.counts) and self.played.failure is None and not any(
            different for _, different in self.counts.values())

    def take(self, figure: dict[str, Any]) -> None:
        """Take in one figure; what is of no known kind is passed over."""
        match figure:
            case {"kind": "compared", "what": what, "count": count, "differences": different}:
                self.counts[str(what)] = (int(count), int(different))
            case {"kind": "difference", **parts}:
                self.differences.append({str(k): str(v) for k, v in parts.items()})


def named(course: Course, name: str) -> Module:
    """Return the module whose parity suite has this name."""
    known = {m.parity.name: m for m in course if m.parity}
    if name not in known:
        raise CallError(f"there is no parity suite {name}: there is {', '.join(known) or 'none'}")
    return known[name]


def contenders(course: Course, module: Module, cc: str | None = None) -> list[Contender]:
    """Return the programs that there may be: the learner's, and the references."""
    languages = [m.program.language for m in course if m.program and module in m.shared]
    return [Contender(f"{whose} in {x}" if x else whose, where,
                      NativeOptions(x, cc) if x else NO_NATIVE)
            for whose, where in (("yours", "work"), ("the reference", "reference"))
            for x in (None, *languages)]


def lacking(course: Course, module: Module, contender: Contender) -> list[Module]:
    """Return the modules of a program that are not begun: it cannot take part."""
    parts = {target_of(course, contender.pool.language, m).name:
             target_of(course, contender.pool.language, m)
             for m in (*course.closure(module), module)}
    source = source_of(contender.where)
    return [m for m in parts.values() if state_of(m, source) is not State.BEGUN]


def compare(course: Course, module: Module, workers: WorkerPool, contender: Contender,
            tell: Callable[[str], None]) -> Compared:
    """Hold one program against the reading."""
    assert module.parity is not None
    compared = Compared(contender)

    def take(figure: dict[str, Any]) -> None:
        compared.take(figure)
        tell(f"{contender.name}: {figure.get('what', '')}")

    compared.played = run_script(course, module, module.parity, workers, contender.where,
                           reference_needs=False, figure=take, pool=contender.pool)
    return compared
