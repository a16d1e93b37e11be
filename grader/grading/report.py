"""What a check found out, as data. Every form that a person or a machine reads is made from this.

`formats/grade-report.schema.json` is the same model for other programs. Nothing that renders a
report can change a verdict.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1


class Verdict(StrEnum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    TODO = "todo"  # it needs a function that is not written yet
    BLOCKED = "blocked"  # it could not be judged, through no fault that it found


class Status(StrEnum):
    """What became of one module."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_BEGUN = "not begun"  # its file is the stub, empty or absent, and nobody asked for it
    NEEDS = "needs"  # a module that it needs is not built
    BROKEN = "broken"  # it could not be imported


@dataclass(frozen=True)
class Step:
    """One call that led to a failure, made ``times`` times in a row."""

    text: str
    outcome: str
    failed: bool
    times: int = 1


@dataclass(frozen=True)
class Picture:
    """An object of the learner's at the moment of the failure, as a table."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Line:
    """A line of the learner's code."""

    file: str
    line: int
    function: str
    text: str


@dataclass(frozen=True)
class Bytes:
    """The surroundings of the first wrong byte: hex texts that begin at ``start``."""

    offset: int
    start: int
    expected: str
    got: str


@dataclass(frozen=True)
class Failure:
    """Why a test did not pass. ``cause`` is one word for programs, ``what`` a text for people."""

    cause: str
    what: str
    expected: str | None = None
    got: str | None = None
    bytes: Bytes | None = None
    steps: list[Step] = field(default_factory=list)
    steps_left_out: int = 0  # after the first
    pictures: list[Picture] = field(default_factory=list)
    code: list[Line] = field(default_factory=list)

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Failure":
        """Build a failure from a worker's account of it."""
        place = data.get("bytes")
        return Failure(
            cause=str(data["cause"]),
            what=str(data["what"]),
            expected=data.get("expected"),
            got=data.get("got"),
            bytes=Bytes(**place) if place else None,
            steps=[Step(**s) for s in data.get("steps", [])],
            steps_left_out=data.get("steps_left_out", 0),
            pictures=[Picture(**p) for p in data.get("pictures", [])],
            code=[Line(**x) for x in data.get("code", [])],
        )


@dataclass(frozen=True)
class TestResult:
    """One test of the catalogue, what became of it, and what the program printed meanwhile."""

    name: str
    kinds: list[str]
    pass_: int
    sentence: str
    why: str
    verdict: Verdict
    seconds: float = 0.0
    failure: Failure | None = None
    printed: str = ""


class Confidence(StrEnum):
    """How sure a guess is, as the diagnosis' benchmark found it to be."""

    LIKELY = "likely"
    PERHAPS = "perhaps"


@dataclass(frozen=True)
class Suspect:
    """A planted bug that a module's failures look like: a guess, and no part of a verdict.
    ``tests`` are the failing tests that it would fail, too."""

    bug: str
    pitfall: str
    symptom: str
    sure: Confidence
    likeness: float
    tests: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Lesson:
    """A lesson of the judged modules, with the titles of its passes 1, 2, …"""

    id: str
    passes: list[str]


@dataclass(frozen=True)
class OwnTests:
    """What the learner's own tests of a module are worth: the share of the planted bugs that they
    catch, in whole per cent of their weight, and whether that is enough."""

    score: float
    threshold: float
    caught: int
    bugs: int
    missed: list[str]  # bugs that must be caught and are not
    not_counted: int  # tests
    passed: bool


@dataclass(frozen=True)
class ModuleResult:
    """One module: its file, its status with a sentence where one is needed, its tests.

    ``sha256`` is of the file when the check began, None where there was none. ``suspects`` are the
    classic bugs that its failures look like, nearest first. ``own_tests`` is there where a passed
    module has tests of the learner's. Neither is a part of the verdict.
    """

    name: str
    title: str
    lesson: str
    file: str
    status: Status
    sentence: str = ""
    failure: Failure | None = None
    tests: list[TestResult] = field(default_factory=list)
    seconds: float = 0.0
    sha256: str | None = None
    suspects: list[Suspect] = field(default_factory=list)
    own_tests: OwnTests | None = None

    def count(self, verdict: Verdict) -> int:
        return sum(t.verdict is verdict for t in self.tests)


@dataclass(frozen=True)
class Report:
    """A whole check. ``asked`` names the modules that had to pass; with ``reference_needs`` those
    that they need were the reference's."""

    kit: str
    binding: str
    seed: int
    asked: list[str]
    modules: list[ModuleResult]
    lessons: list[Lesson]
    seconds: float
    reference_needs: bool = False
    only: str | None = None
    pool: str | None = None  # the language of the program that stood for some of them
    schema: int = SCHEMA

    @property
    def passed(self) -> bool:
        """True when something was asked and all of it passed: never without evidence."""
        judged = [m for m in self.modules if m.name in self.asked]
        return bool(judged) and all(
            m.status is Status.PASSED and m.tests
            and all(t.verdict is Verdict.PASSED for t in m.tests)
            for m in judged
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as the published schema has it."""
        data = asdict(self)
        for module in data["modules"]:
            for test in module["tests"]:
                test["pass"] = test.pop("pass_")
        return {**data, "verdict": "passed" if self.passed else "failed"}
