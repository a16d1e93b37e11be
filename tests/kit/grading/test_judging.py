"""The verdicts are right: on the reference, on other right programs, on stubs, on planted bugs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.authoring import contract_page, dynamic_gates
from grader.authoring.finding import told
from grader.authoring.suite_results import Trials
from grader.course.model import Course
from grader.course.reference_designs import implementations
from grader.grading.report import Status
from grader.sandbox.api import WorkerPool
from tests.kit.support.compiled import modules, needs_compiler
from tests.kit.support.judged import implementation, judge, program, said

MODULES = modules()
Of = Callable[[str], Trials]


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_fails_every_test_by_name(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.stub(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_there_are_several_right_programs(trials: Of, name: str) -> None:
    tried = set(trials(name).right)
    assert "the reference" in tried
    least = 1 if trials(name).module.program else 2
    assert len(tried & set(implementations())) >= least


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_and_right_programs_of_other_designs_pass(trials: Of, name: str) -> None:
    """With only the modules that this one needs: their own, and the reference's."""
    assert not (found := dynamic_gates.right(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_planted_bugs_are_caught_by_the_tests_of_their_rows(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.caught(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_each_test_fails_on_some_planted_bug(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.idle(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_bugs_that_no_test_in_python_sees_are_called_so(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.unseen(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_planted_bugs_have_effects_of_their_own(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.alike(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_known_of_the_planted_bugs_is_current(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.known(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_the_machines_catch_most_planted_bugs_alone(trials: Of, name: str) -> None:
    assert not (found := dynamic_gates.machines(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_each_freedom_is_taken_by_a_correct_program(trials: Of, name: str) -> None:
    assert not (found := contract_page.freedoms(trials(name))), told(found)


ROOM_FIRST = [
    pytest.param("kv_export", "fifo", """
    records = _unpack(config, _bytes(data))
""", """
    view = _bytes(data)
    if len(view) >= 32:
        n, stats = int.from_bytes(view[8:12], "little"), pool.stats()
        if n > stats.free + stats.cached:
            from tinyllm.errors import PoolFullError
            raise PoolFullError(f"{n} blocks asked for")
    records = _unpack(config, _bytes(data))
""", id="python"),
    pytest.param("c_kv_pool", "arrays", """
    uint32_t n = (uint32_t)get(from + 8, 4);
    tl_kv_cfg c""", """
    uint32_t n = (uint32_t)get(from + 8, 4);
    tl_kv_stats stats;
    tl_kv_stats_get(p, &stats);
    if (n > stats.free + stats.cached) return tl_fail(TL_EFULL, "there are not %u blocks", n);
    tl_kv_cfg c""", id="c", marks=needs_compiler),
]


@pytest.mark.parametrize(("name", "who", "find", "replace"), ROOM_FIRST)
def test_an_import_may_look_for_room_first(
    course: Course, workers: WorkerPool, tmp_path: Path, name: str, who: str, find: str,
    replace: str
) -> None:
    """An envelope with several faults may be refused for any of them: rule 9 of the reader."""
    module = course.module(name)
    text = (implementation(who) / module.file_name).read_text(encoding="utf-8")
    assert text.count(find) == 1
    (tmp_path / "tinyllm").mkdir()
    result = judge(course, workers, module, program(tmp_path, module, text.replace(find, replace)))
    assert result.status is Status.PASSED, said([result])
