"""What the kit's tests share: the course, one fork server for all of them, and each module's
trials."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.authoring.suite_results import Trials
from grader.course import manifest as courses
from grader.course.model import Course, Module
from grader.sandbox.api import WorkerPool
from tests.kit.support.planted import MODULE, Plant


@pytest.fixture(scope="session")
def course() -> Course:
    return courses.load()


@pytest.fixture(scope="session")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool() as one:
        yield one


@pytest.fixture(scope="session")
def trials(course: Course, workers: WorkerPool) -> Callable[[str], Trials]:
    """Return the trials of a module's programs by its name; each part of them runs once."""
    of = {m.name: Trials(course, workers, m) for m in course}
    return of.__getitem__


@pytest.fixture
def plant(course: Course, tmp_path: Path) -> Plant:
    """Return what makes the module with other planted bugs: those of a TOML text."""
    def planted(text: str) -> Module:
        (tmp_path / "mutants.toml").write_text("schema = 1\n" + text, encoding="utf-8")
        return replace(course.module(MODULE), folder=tmp_path)

    return planted


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true",
                     help="write the golden texts anew instead of comparing them")
