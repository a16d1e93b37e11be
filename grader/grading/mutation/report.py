"""What a mutation run found out, as data (`formats/mutation-report.schema.json`)."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1


class Standing(StrEnum):
    """Whether a test counts, and why not."""

    VALID = "valid"
    UNFAIR = "demands more than the contract"  # a right program fails it
    FLAKY = "flaky"
    HANGS = "hangs"
    SKIPS = "skips itself"
    LEAVES = "ends the run"
    REFUSED = "refused"  # it reaches for the answers
    RECOGNISES = "looks at the program's text"  # it fails a right program that it has not seen
    BROKEN = "fails on the reference"
    UNJUDGED = "not judged"


@dataclass(frozen=True)
class TestJudged:
    """A test of the learner's: its standing with a sentence, how many bugs it was the first to
    catch, and whether it catches any. ``catches`` has all that it catches, in a matrix run."""

    name: str
    standing: Standing
    sentence: str = ""
    first: int = 0
    useful: bool = False
    catches: list[str] | None = None


@dataclass(frozen=True)
class FileTrouble:
    """A file of tests that could not be read as one, and why."""

    file: str
    sentence: str


@dataclass(frozen=True)
class Bug:
    """A planted bug: what it is, what a user would see, its weight, and the first test in the
    order of the files that catches it, with how."""

    id: str
    pitfall: str
    symptom: str
    weight: float
    required: bool
    caught_by: str | None = None
    how: str = ""

    @property
    def caught(self) -> bool:
        return self.caught_by is not None


@dataclass(frozen=True)
class Unseen:
    """Planted bugs that no test of a learner's can see, and why; they are left out of the score."""

    why: str
    bugs: list[str]


@dataclass(frozen=True)
class Survivor:
    """A generated mutant that no test caught: the function that it changes and the lines, as they
    were and as they are. Those of the reference are told only on demand."""

    id: str
    function: str
    line: int | None = None
    was: list[str] = field(default_factory=list)
    now: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Generated:
    """What became of generated mutants, of ``whose`` code: "reference" or "yours". ``left_out``
    are those that no test need tell from the original; ``failing`` are tests that fail on the code
    as it is, and were not tried."""

    whose: str
    tried: int
    survivors: list[Survivor]
    left_out: int = 0
    failing: list[str] = field(default_factory=list)

    @property
    def caught(self) -> int:
        return self.tried - len(self.survivors)


@dataclass(frozen=True)
class MutationReport:
    """How good a learner's tests of a module are."""

    kit: str
    module: str
    folder: str
    threshold: float
    tests: list[TestJudged]
    files: list[FileTrouble]
    bugs: list[Bug]
    missing: list[str]  # names of tests that the lesson asks for
    right: int  # right programs that every valid test passes
    controls: int
    matrix: bool = False
    generated: list[Generated] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def caught(self) -> list[Bug]:
        return [b for b in self.bugs if b.caught]

    @property
    def survivors(self) -> list[Bug]:
        return [b for b in self.bugs if not b.caught]

    @property
    def valid(self) -> list[TestJudged]:
        return [t for t in self.tests if t.standing is Standing.VALID]

    @property
    def score(self) -> float:
        """The weight of what was caught over all weight, rounded as it is shown: a whole per cent,
        towards zero."""
        whole = sum(b.weight for b in self.bugs)
        return int(100 * sum(b.weight for b in self.caught) / whole + 1e-9) / 100 if whole else 0.0

    @property
    def passed(self) -> bool:
        """Never without a test that counts."""
        return (bool(self.valid) and self.score >= self.threshold
                and not any(b.required for b in self.survivors))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        return {**data, "verdict": "passed" if self.passed else "failed", "score": self.score}
