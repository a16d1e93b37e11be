"""Programs on trial: a module's suite over its stub, its right programs and its planted bugs."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from grader import ROOT
from grader.course import rules
from grader.course.model import PACKAGE, Course, Module, Script, Test
from grader.course.planted_bugs import mutants_of, reference_of
from grader.course.reference_designs import ROOMS, implementations
from grader.course.rules import Freedom
from grader.errors import KitError
from grader.grading.check import CheckOptions, judge
from grader.grading.failure_signatures import Kills, deterministic_tests, gather
from grader.grading.report import Failure, ModuleResult, Verdict
from grader.grading.script import run_script
from grader.sandbox.api import WorkerPool
from grader.sandbox.limits import Limits

PATIENT = Limits(seconds=60, import_seconds=60)  # a gate may share its machine with others

PROBE_FAILED = "\0"  # in front of the reason why a probe has printed nothing
_PROBE = Script(Path(__file__).with_name("probe.py"), 60)

Tell = Callable[[str, str], None]


class Program(NamedTuple):
    """What is tried: a folder or a word of ``--bind``, and with which tests."""

    bind: str
    tests: list[Test]
    reference_needs: bool = True


class Trials:
    """What becomes of each program of one module. A part runs when somebody asks for it, once.

    ``tell`` hears the module's name and the program's when one has been tried.
    """

    def __init__(self, course: Course, workers: WorkerPool, module: Module,
                 tell: Tell = lambda module, program: None) -> None:
        self.course, self.workers, self.module, self.tell = course, workers, module, tell

    @cached_property
    def stub(self) -> ModuleResult:
        """The stub, over the reference's needs."""
        return self._try({"the stub": Program("stubs", list(self.module.tests))})["the stub"]

    @cached_property
    def right(self) -> dict[str, ModuleResult]:
        """The reference and each right program of another design; these with their own needs, and
        where there are needs, over the reference's too."""
        tests = list(self.module.tests)
        programs = {}
        for name, where in self._correct().items():
            own = where == "reference"
            programs[name] = Program(where, tests, reference_needs=own)
            if self.module.needs and not own:
                programs[f"{name} over the reference"] = Program(where, tests)
        return self._try(programs)

    @cached_property
    def bugs(self) -> dict[str, ModuleResult]:
        """Each planted bug that can be applied, under the steady tests and those of its row."""
        reference = reference_of(self.module)
        always = {t.name for t in deterministic_tests(self.module)}
        with tempfile.TemporaryDirectory() as scratch:
            programs = {}
            for mutant in mutants_of(self.module):
                try:
                    source = mutant.applied(reference)
                except KitError:
                    continue  # another gate says so
                place = self._laid_out(Path(scratch, mutant.id), source)
                tests = [t for t in self.module.tests
                         if t.name in always or t.name in mutant.caught_by]
                programs[mutant.id] = Program(str(place), tests)
            return self._try(programs)

    @cached_property
    def machines(self) -> dict[str, ModuleResult]:
        """Each planted bug about the module's subject, under its random machines alone."""
        tests = [t for t in self.module.tests if t.machine]
        if not tests:
            return {}
        reference = reference_of(self.module)
        with tempfile.TemporaryDirectory() as scratch:
            return self._try({m.id: Program(str(self._laid_out(
                Path(scratch, m.id), m.applied(reference))), tests)
                for m in mutants_of(self.module) if not (m.kind or m.unseen)}, shorten=False)

    @cached_property
    def freedoms(self) -> dict[str, dict[str, str]]:
        """What the probe of each freedom prints over each correct program, by both."""
        held = rules.contract_of(self.module).freedoms
        return {freedom.id: {who: self._probed(freedom, where)
                             for who, where in self._correct().items()} for freedom in held}

    def _correct(self) -> dict[str, str]:
        """Return the word or folder of ``--bind`` for each correct program of the module."""
        return {"the reference": "reference"} | {
            name: str(ROOMS / name) for name in implementations()
            if (ROOMS / name / self.module.file_name).is_file()}

    def _probed(self, freedom: Freedom, where: str) -> str:
        """Return what the probe of a freedom prints over one program, or how it failed."""
        plan = {"probe": freedom.probe, "modules": [f"{PACKAGE}.errors", *(
            f"{PACKAGE}.{m.name}" for m in (*self.course.closure(self.module), self.module))]}
        played = run_script(self.course, self.module, _PROBE, self.workers, where,
                      reference_needs=True, figure=lambda figure: None, plan=plan)
        return PROBE_FAILED + played.failure.what if played.failure else played.printed

    def failures(self, bug: str) -> dict[str, Failure]:
        """Return the tests that fail on a planted bug, and how."""
        return {t.name: t.failure for t in self.bugs[bug].tests
                if t.verdict is Verdict.FAILED and t.failure}

    def kills(self) -> Kills:
        """Return what `kills.json` must hold."""
        return gather(self.module, {bug: self.failures(bug) for bug in self.bugs},
                      unsteady(self.module))

    def _laid_out(self, place: Path, source: str) -> Path:
        """Write a program of the module into a new folder; of one in another language, the
        reference's other files lie beside it."""
        (place / PACKAGE).mkdir(parents=True)
        file = place / self.module.file_name
        if self.module.program:
            shutil.copytree((ROOT / "reference" / self.module.file_name).parent, file.parent)
        file.write_text(source, encoding="utf-8", newline="\n")
        return place

    def _try(self, programs: Mapping[str, Program], *,
             shorten: bool = True) -> dict[str, ModuleResult]:
        """Judge programs side by side, one a processor. Without ``shorten`` a random test stops at
        the first example that fails."""
        def one(name: str) -> ModuleResult:
            program = programs[name]
            options = CheckOptions((self.module.name,), program.bind, program.reference_needs,
                        limits=PATIENT, shorten=shorten)
            result = judge(self.course, options, self.workers, self.module, program.tests)
            self.tell(self.module.name, name)
            return result

        return dict(zip(programs, self.workers.all(one, programs), strict=True))


def unsteady(module: Module) -> set[str]:
    """Return the planted bugs that fail in another way each time."""
    return {m.id for m in mutants_of(module) if m.unsteady}
