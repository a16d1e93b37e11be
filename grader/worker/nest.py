"""A nest: a zygote with everything ready to run one set of tests on many programs.

It has read and compiled the tests, imported the modules under the one that differs, and brought
pytest to the point where it would import the tests. From there it forks a worker for each program,
which binds it, imports the tests afresh, and runs them. No line of the tests runs in the nest.
"""

import importlib
import os
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from grader.binding import Binding, compile_once, compile_text, install
from grader.course import PACKAGE
from grader.worker import inside
from grader.worker.plugin import arguments
from grader.worker.trial import At, Trial

Work = Callable[[dict[str, Any], int, int], int]
Serve = Callable[[Callable[[dict[str, Any]], None], Work], None]


def run(job: dict[str, Any], serve: Serve) -> None:
    """Prepare what ``job`` says and fork workers for as long as ``serve`` does."""
    install(Binding(job["files"], (), job["tests_room"]))
    compile_once(job["files"].values())
    for name in job["modules"]:
        importlib.import_module(f"{PACKAGE}.{name}")
    inside.import_judges()
    inside.settle_hypothesis(trial=True)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    trial = Trial(job)

    def wait(session: pytest.Session) -> None:
        try:
            trial.prepare(session)
            serve(_compile, partial(inside.run, suite=trial.run))
        except BaseException:
            traceback.print_exc()  # pytest would keep it to itself
        os._exit(0)  # the workers have gone, and there is nothing more to say

    pytest.main(arguments(job), plugins=[trial, At(wait)])


def _compile(job: dict[str, Any]) -> None:
    """Compile the programs of a job, so that a worker need not: its memory is not warm."""
    for name, text in job["texts"].items():
        compile_text(name, text)
