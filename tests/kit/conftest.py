"""What the kit's tests share: the course, and one zygote for all of them."""

from collections.abc import Iterator

import pytest

from grader import course as courses
from grader.course import Course
from grader.worker.session import Nursery


@pytest.fixture(scope="session")
def course() -> Course:
    return courses.load()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as one:
        yield one


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true",
                     help="write the golden texts anew instead of comparing them")
