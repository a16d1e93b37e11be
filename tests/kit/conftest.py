"""What the kit's tests share: the course, one zygote for all of them, and each module's trials."""

from collections.abc import Callable, Iterator

import pytest

from grader import course as courses
from grader.author.trials import Trials
from grader.course import Course
from grader.worker.session import Nursery


@pytest.fixture(scope="session")
def course() -> Course:
    return courses.load()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


@pytest.fixture(scope="session")
def trials(course: Course, nursery: Nursery) -> Callable[[str], Trials]:
    """Return the trials of a module's programs by its name; each part of them runs once."""
    of = {m.name: Trials(course, nursery, m) for m in course}
    return of.__getitem__


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true",
                     help="write the golden texts anew instead of comparing them")
