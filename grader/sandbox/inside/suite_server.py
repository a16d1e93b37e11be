"""A suite server: a fork server with everything ready to run one set of tests on many programs.

It has read and compiled the tests, imported the modules under the one that differs, and brought
pytest to the point where it would import the tests. From there it forks a worker for each program,
which binds it, imports the tests afresh, and runs them. No line of the tests runs in the suite
server.
"""

import importlib
import os
import traceback
from functools import partial
from typing import Any

import pytest
from cffi import FFI
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.binding.finder import Binding, compile_once, compile_texts, install
from grader.course.model import PACKAGE
from grader.sandbox.inside import patch_server, worker_main
from grader.sandbox.inside.pytest_plugin import At, start
from grader.sandbox.inside.server_role import Serve, ServerRole
from grader.sandbox.inside.trial_plugin import Trial


def run(job: dict[str, Any], serve: Serve) -> None:
    """Prepare what ``job`` says and fork workers for as long as ``serve`` does."""
    install(Binding(job["files"], (), job["tests_room"]))
    compile_once(job["files"].values())
    for name in job["modules"]:
        importlib.import_module(f"{PACKAGE}.{name}")
    worker_main.import_judges()
    worker_main.settle_hypothesis(trial=True)
    _warm_up()
    if not all(file.endswith(".py") for file in job["files"].values()):
        FFI().cdef("int nothing(void);")  # so that its parser is loaded
    trial = Trial(job)

    def wait(session: pytest.Session) -> None:
        try:
            trial.prepare(session)
            serve(ServerRole(partial(worker_main.run, suite=trial.run), compile_texts,
                        partial(patch_server.run, trial=trial)))
        except BaseException:
            traceback.print_exc()  # pytest would keep it to itself
        os._exit(0)  # the workers have gone, and there is nothing more to say

    start(job, [trial, At(wait)])


def _warm_up() -> None:
    """Test a property that cannot fail: hypothesis loads and computes much when it does its first,
    and each worker would do that again."""
    pairs = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
    words = st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.binary(max_size=3))

    @settings(max_examples=5)
    @given(st.lists(pairs, max_size=5), st.lists(words, max_size=5))
    def anything(some: object, others: object) -> None:
        pass

    anything()
