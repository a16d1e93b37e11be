"""Every sentence that a learner can see about a failure, against a named wrong program.

`golden/<name>.txt` is what the terminal shows for `wrong/<name>.toml`, its first expected test or,
where the module cannot be judged, the whole check. `pytest --golden` writes them anew: read the
difference before you commit it.
"""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from grader.authoring.suite_results import PATIENT
from grader.course.model import Course
from grader.grading.check import CheckOptions, check
from grader.grading.report import Report, Verdict
from grader.render import junit, terminal
from grader.sandbox.api import WorkerPool
from grader.sandbox.limits import Limits
from tests.kit.support import wrongs
from tests.kit.support.compiled import skip_without_compiler
from tests.kit.support.judged import KIT
from tests.kit.support.wrongs import Wrong

WRONGS = {w.name: w for w in wrongs.load()}
# These are meant to run into a time limit, so they have a short one; all others never come near.
HANGING = {"alloc_waits_for_room", "eviction_never_ends", "import_never_ends", "c_waits_for_a_hit"}
# Where these are when they are stopped differs from run to run.
UNSTEADY = HANGING - {"c_waits_for_a_hit"} | {"name_before_its_value"}


def judged(course: Course, workers: WorkerPool, wrong: Wrong, folder: Path,
           only: str | None) -> Report:
    limits = Limits(seconds=2.0, import_seconds=4.0) if wrong.name in HANGING else PATIENT
    options = CheckOptions((wrong.module,), str(wrong.write(folder)), only=only, limits=limits)
    return check(course, options, workers)


def shown(report: Report, course: Course, folder: Path) -> str:
    """Return what the terminal shows, without what differs from run to run."""
    stream = io.StringIO()
    terminal.show(report, course, Console(file=stream, highlight=False, markup=False, emoji=False,
                                          width=100))
    text = stream.getvalue().replace(str(folder), "DIR").replace(str(KIT.parent.parent), "KIT")
    text = re.sub(r" +\d+\.\d s", "   0.0 s", text)
    return re.sub(r"killed at call \d+", "killed at call N", text)


def test_there_are_enough_of_them() -> None:
    assert len(WRONGS) >= 15
    golden = {p.stem for p in (KIT / "golden").glob("*.txt")}
    assert golden == set(WRONGS), "`make test ARGS='--golden -k sentences'` writes them"


@pytest.mark.parametrize("name", WRONGS)
def test_a_wrong_program_is_told_what_is_wrong(
    request: pytest.FixtureRequest, course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    wrong = WRONGS[name]
    skip_without_compiler(wrong)
    first = None if wrong.expect == ("*",) else wrong.expect[0]
    report = judged(course, workers, wrong, tmp_path, first)
    assert not report.passed
    text = shown(report, course, tmp_path)
    if name in UNSTEADY:
        text = re.sub(r"  (Steps|Your code|Your program printed)\n(    .*\n)+\n", "", text)
    file = KIT / "golden" / f"{name}.txt"
    if request.config.getoption("--golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"# {wrong.story}\n{text}", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == f"# {wrong.story}\n{text}"
    junit.document(report)


@pytest.mark.parametrize("name", [n for n, w in WRONGS.items() if w.expect != ("*",)])
def test_a_wrong_program_fails_the_tests_that_it_should(
    course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    wrong = WRONGS[name]
    skip_without_compiler(wrong)
    for test in wrong.expect[1:]:
        (module,) = judged(course, workers, wrong, tmp_path, test).modules
        assert [t.verdict for t in module.tests] in ([Verdict.FAILED], [Verdict.TODO]), test
