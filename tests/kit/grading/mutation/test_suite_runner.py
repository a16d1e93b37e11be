"""The fast ways of trying many programs come to the same as the slow one."""

from pathlib import Path

import pytest

from grader.course.model import Course
from grader.course.planted_bugs import mutants_of, reference_of
from grader.grading.mutation import generated_mutants
from grader.grading.mutation.candidates import REFERENCE, Program, planted
from grader.grading.mutation.function_patch import patch
from grader.grading.mutation.kill_search import KillSearch
from grader.grading.mutation.suite_runner import Trials, failures
from grader.grading.mutation.test_suite import learners
from grader.sandbox.api import WorkerPool
from tests.kit.grading.mutation.test_own_tests import write
from tests.kit.support.hostile import HEAD

BASE = '''
class Pool:
    size = 4

    def take(self, n=1):
        """Take some."""
        return n + 1

    @staticmethod
    def give(n: int = 0) -> int:
        return n


def one():
    return [x for x in range(3)]
'''

TESTS = HEAD + """
import pytest

KNOWN = block_hash(7, [1, 2])
SEEN = []


@pytest.fixture(scope="module")
def names():
    SEEN.append("names")
    return hash_chain([1, 2, 3, 4], 2)


def test_names(names):
    assert SEEN == ["names"] and len(names) == 2


@pytest.mark.parametrize("parent", [0, 7])
def test_parents(parent):
    assert (block_hash(parent, [1, 2]) == KNOWN) == (parent == 7)


class TestChains:
    def test_one_by_one(self, names):
        assert names[0] == block_hash(0, [1, 2]) and names[1] == block_hash(names[0], [3, 4])
"""


def test_a_patch_is_the_body_of_one_function() -> None:
    changed = BASE.replace("n + 1", "n + 2")
    found = patch(BASE, changed, "Pool.take")
    assert found is not None
    assert (found.line, found.text.splitlines()[-1].strip()) == (5, "return n + 2")
    longer = BASE.replace("        return n + 1", "        n += 1\n        return n")
    assert patch(BASE, longer, "Pool.take") is not None
    assert patch(BASE, BASE.replace("range(3)", "range(4)"), "one") is not None
    assert patch(BASE, BASE.replace("        return n\n", "        return -n\n"),
                 "Pool.give") is not None


@pytest.mark.parametrize(("was", "now", "function"), [
    ("n=1", "n=2", "Pool.take"),  # a default is worked out when the function is made
    ("n: int", "n: str", "Pool.give"), ("-> int", "-> str", "Pool.give"),
    ("size = 4", "size = 5", "Pool.take"), ("n + 1", "n + 2", "one"),
    ("n + 1", "n + 2", "Pool.nothing"), ("n + 1", "n + 2", "Nothing.take")])
def test_what_is_more_than_a_body_is_no_patch(was: str, now: str, function: str) -> None:
    assert patch(BASE, BASE.replace(was, now), function) is None


def test_patch_servers_suite_servers_and_fresh_workers_agree(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """On generated mutants, by tests that call one function at import, share a fixture and have
    parameters. Some functions are called by an import: those go the slow way in any case."""
    module = course.module("block_hash")
    base = Program(REFERENCE, reference_of(module))
    mutants = generated_mutants.programs(base, generated_mutants.load(module))
    folder = write(tmp_path / "tests", {"test_it.py": TESTS})
    alive = []
    for nested, patch_server in ((True, True), (True, False), (False, False)):
        with Trials(workers, course, module, learners(folder), nested=nested) as trials:
            clean = trials.run(base, calls=True)
            assert not any(r["failure"] for r in clean.results.values())
            if patch_server:
                trials.serve_patches(base, list(clean.tests))
            seconds = {c: r["seconds"] for c, r in clean.results.items()}
            some = mutants if nested else mutants[::6]
            search = KillSearch(trials, list(clean.tests), seconds)
            alive.append({m.id for m in search.survivors(base.text, some, clean.calls)})
    assert alive[0] == alive[1]
    assert alive[2] == alive[1] & {m.id for m in mutants[::6]}
    assert 0 < len(alive[0]) < len(mutants)


def test_a_test_calls_what_it_calls(course: Course, workers: WorkerPool, tmp_path: Path) -> None:
    module = course.module("block_hash")
    folder = write(tmp_path / "tests", {"test_it.py": TESTS})
    with Trials(workers, course, module, learners(folder)) as trials:
        calls = trials.run(Program(REFERENCE, reference_of(module)), calls=True).calls
    (file,) = (name for name in calls if name.endswith(".py"))
    assert "block_hash" in calls[file]
    assert "hash_chain" not in calls[file]
    assert "hash_chain" in calls["test_it.py::test_names"]
    assert "hash_chain" not in calls["test_it.py::test_parents[0]"]


def test_a_patch_server_that_cannot_be_made_is_done_without(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Tests that leave a thread behind at import cannot be forked; they are tried all the same."""
    module = course.module("block_hash")
    base = Program(REFERENCE, reference_of(module))
    folder = write(tmp_path / "tests", {"test_it.py": TESTS + (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")})
    with Trials(workers, course, module, learners(folder)) as trials:
        clean = trials.run(base)
        cases = [c for c, r in clean.results.items() if not r["failure"]]
        trials.serve_patches(base, cases)
        changed = base.text.replace("state = _checked(state", "state = -_checked(state")
        part = patch(base.text, changed, "fnv1a64")
        assert part is not None
        assert trials.run_patch(part, cases, {}) is None
        assert trials.patch_server is None


def test_a_worker_of_a_suite_server_knows_nothing_of_another(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Each has its own program, its own modules and a scratch folder of its own."""
    module = course.module("block_hash")
    folder = write(tmp_path / "tests", {"test_it.py": HEAD + (
        "import os, sys\nfrom tinyllm import errors\n"
        "def test_it():\n    assert os.listdir('.') == [] and not hasattr(errors, 'mark')\n"
        "    errors.mark = 1\n    open('mark', 'w').close()\n")})
    with Trials(workers, course, module, learners(folder)) as trials:
        for program in planted(module)[:4]:
            (result,) = trials.run(program).results.values()
            assert result["failure"] is None, result


def test_what_fails_on_some_sources(course: Course, workers: WorkerPool) -> None:
    module = course.module("block_hash")
    rows = mutants_of(module)[:6]
    found = failures(workers, course, module, {
        "right": reference_of(module), "broken": "def (", **{
            m.id: m.applied(reference_of(module)) for m in rows}})
    assert found["right"] == {}
    assert found["broken"].keys() == {t.name for t in module.tests}
    for row in rows:
        assert set(row.caught_by) <= found[row.id].keys()
        assert all(f["what"] for f in found[row.id].values())
