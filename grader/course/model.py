"""The course as data: lessons, modules, what is filled in, the catalogue of tests.

`manifest` reads it. Nothing here runs a suite.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from grader.course.docstrings import tests_in
from grader.errors import CallError, KitError

PACKAGE = "tinyllm"


@dataclass(frozen=True)
class Fill:
    """A function or method that the learner writes."""

    name: str
    pass_: int
    todo: str
    approach: tuple[str, ...]
    example: str
    query: bool
    stands_for: tuple[str, ...] = ()  # of a program: "module.Class.method", behind which it works

    @property
    def shown(self) -> str:
        """Return the name as a learner reads it: a constructor by its class."""
        return self.name.removesuffix(".__init__")


class Row(NamedTuple):
    """A test as the manifest names it: ``rules`` are the rules of the contract that it checks, and
    a ``machine`` makes random calls and compares every answer with a plain model."""

    name: str
    kinds: tuple[str, ...]
    pass_: int
    rules: tuple[str, ...] = ()
    machine: bool = False


@dataclass(frozen=True)
class Test:
    """A row of the catalogue. ``sentence`` and ``why`` come from the test's docstring."""

    name: str
    kinds: tuple[str, ...]
    pass_: int
    file: Path
    sentence: str
    why: str
    rules: tuple[str, ...] = ()
    machine: bool = False

    @property
    def random(self) -> bool:
        """True where its examples are drawn by chance."""
        return "property" in self.kinds


@dataclass(frozen=True)
class View:
    """What draws an object of the learner's at the moment of a failure."""

    cls: str
    file: Path


@dataclass(frozen=True)
class Table:
    """A table that the chapter shows between the markers of ``mark``: ``head``, and the rows that
    the constant ``name`` of a source file holds, in plain values."""

    mark: str
    file: Path
    name: str
    head: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Read the constant; nothing is run."""
        for node in ast.parse(self.file.read_text(encoding="utf-8")).body:
            if (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                    and node.targets[0].id == self.name):
                return [tuple(map(str, row)) for row in ast.literal_eval(node.value)]
        raise KitError(f"{self.file} has no {self.name}, which a chapter shows")


@dataclass(frozen=True)
class Script:
    """A program beside a suite that runs over the bound modules, for at most ``seconds``. Of
    modules that its own does not need, it has those named ``beside``, from the reference. ``offer``
    says to whoever has passed what it is good for."""

    file: Path
    seconds: float
    beside: tuple[str, ...] = field(default=(), kw_only=True)
    offer: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Parity(Script):
    """A script that holds a program against an independent reading of a format."""

    name: str
    title: str


@dataclass(frozen=True)
class Bench(Script):
    """A script that measures rounds of several series, and what must come of it.

    The verdict is the median over the rounds of ``base`` / ``over``, at least ``budget``. It counts
    only while ``base`` / ``control``, the same thing measured twice, is about 1. ``share`` names
    what the script measures alone, too.
    """

    name: str
    title: str
    budget: float
    base: str
    over: str
    control: str
    share: str = field(default="bookkeeping", kw_only=True)


@dataclass(frozen=True)
class Mutation:
    """How a learner's own tests of a module are graded: the share of the planted bugs, by their
    weights (1 where none is given), that they must catch; bugs that they must catch whatever the
    share; names of tests that the lesson asks for."""

    threshold: float = 0.70
    required: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """What makes a module one in another language: it is built, and then stands for others.

    ``source`` is what the learner writes, below work/, stubs/ and reference/. The modules that it
    ``stands_for`` are Python again, in the reference's `adapter` folder beside the program's, and
    their suites judge it. ``driver`` is the folder beside its own suite that is built with it.
    """

    language: str
    source: str
    stands_for: tuple[str, ...]
    driver: str
    begin: str  # what the stub has between its includes and its functions
    leaves_out: tuple[str, ...]  # tests of what is given here, or is Python's own affair

    @property
    def room(self) -> str:
        """Return the folder of this language below work/ and reference/."""
        return self.source.split("/")[0]


@dataclass(frozen=True)
class Module:
    """One exercise: a file the learner writes, and the suite that judges it."""

    name: str
    title: str
    lesson: str
    hours: float
    needs: tuple[str, ...]
    doc: str
    fills: tuple[Fill, ...]
    view: View | None
    bench: Bench | None
    demo: Script | None
    mutation: Mutation
    parity: Parity | None
    study: Script | None
    tables: tuple[Table, ...]
    seconds: float
    folder: Path
    rows: tuple[Row, ...]
    root: Path
    optional: bool = False  # nobody is sent there before the rest of the course is green
    program: Program | None = None
    shared: tuple["Module", ...] = ()  # modules that a program stands for: their tests are its too

    @property
    def file_name(self) -> str:
        """Where the module lies in any folder that holds a package: tinyllm/<name>.py."""
        return self.program.source if self.program else f"{PACKAGE}/{self.name}.py"

    @property
    def test_rooms(self) -> tuple[str, ...]:
        """The folders of a learner's tests of a program: of all that it stands for, and its own."""
        return (*(m.name for m in self.shared), self.name) if self.program else ()

    @property
    def suite(self) -> Path:
        return self.root / "tests" / self.name

    @cached_property
    def tests(self) -> tuple[Test, ...]:
        """The catalogue, in the manifest's order; of a program its own tests first in each pass:
        they tell lines. One that has the name of a test that it shares stands for that one, too."""
        found = tests_in(self.suite)
        missing = [row.name for row in self.rows if row.name not in found]
        if missing:
            raise KitError(f"{self.folder / 'module.toml'} names tests that {self.suite} lacks: "
                           f"{', '.join(missing)}")
        own = [Test(*row[:3], *found[row.name], *row[3:]) for row in self.rows]
        taken = {*(test.name for test in own), *(self.program.leaves_out if self.program else ())}
        shared = [t for module in self.shared for t in module.tests if t.name not in taken]
        return tuple(sorted(own + shared, key=lambda t: t.pass_) if shared else own)

    def holds(self, test: Test) -> bool:
        """Say whether a test is of the module's own suite, and not of one that it shares."""
        return test.file.is_relative_to(self.suite)

    @cached_property
    def uncatalogued(self) -> tuple[str, ...]:
        """Tests of the suite that the manifest does not name."""
        named = {row.name for row in self.rows}
        return tuple(name for name in tests_in(self.suite) if name not in named)


@dataclass(frozen=True)
class Lesson:
    """A chapter of the seeds, by its id: one or more modules and the passes across them."""

    id: str
    title: str
    modules: tuple[str, ...]
    passes: tuple[str, ...]


@dataclass(frozen=True)
class Course:
    """All modules, in learning order."""

    title: str
    lessons: tuple[Lesson, ...]
    modules: tuple[Module, ...]
    given: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def module(self, name: str) -> Module:
        for module in self.modules:
            if module.name == name:
                return module
        raise CallError(f"there is no module {name}: {_did_you_mean(name, self._words())}")

    def program(self, language: str) -> Module:
        """Return the module that is a program in ``language``."""
        programs = {m.program.language: m for m in self.modules if m.program}
        if language not in programs:
            raise CallError(f"there is no program in {language} in this course: "
                            f"{', '.join(programs) or 'nothing'} is there")
        return programs[language]

    def lesson(self, module: Module) -> Lesson:
        return next(lesson for lesson in self.lessons if lesson.id == module.lesson)

    def named(self, words: Iterable[str]) -> tuple[Module, ...]:
        """Return the modules that ``words`` name, each a module or a lesson's id, in order."""
        wanted = set()
        for word in words:
            lesson = next((x for x in self.lessons if x.id == word), None)
            wanted |= set(lesson.modules) if lesson else {self.module(word).name}
        return tuple(m for m in self.modules if m.name in wanted)

    def closure(self, module: Module) -> tuple[Module, ...]:
        """Return the modules that ``module`` needs, directly or not, in learning order."""
        wanted: set[str] = set()
        queue = list(module.needs)
        while queue:
            if (name := queue.pop()) not in wanted:
                wanted.add(name)
                queue += self.module(name).needs
        return tuple(m for m in self.modules if m.name in wanted)

    def _words(self) -> list[str]:
        return [m.name for m in self.modules] + [x.id for x in self.lessons]


def _did_you_mean(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
