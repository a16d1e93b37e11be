"""The verdicts are right: on the reference, on other right programs, on stubs, on planted bugs."""

from collections.abc import Callable

import pytest

from grader.author import tried
from grader.author.findings import told
from grader.author.trials import Trials
from grader.implementations import implementations
from tests.kit.compiled import modules

MODULES = modules()
Of = Callable[[str], Trials]


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_fails_every_test_by_name(trials: Of, name: str) -> None:
    assert not (found := tried.stub(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_there_are_several_right_programs(trials: Of, name: str) -> None:
    tried = set(trials(name).right)
    assert "the reference" in tried
    least = 1 if trials(name).module.program else 2
    assert len(tried & set(implementations())) >= least


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_and_right_programs_of_other_designs_pass(trials: Of, name: str) -> None:
    """With only the modules that this one needs: their own, and the reference's."""
    assert not (found := tried.right(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_planted_bugs_are_caught_by_the_tests_of_their_rows(trials: Of, name: str) -> None:
    assert not (found := tried.caught(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_each_test_fails_on_some_planted_bug(trials: Of, name: str) -> None:
    assert not (found := tried.idle(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_bugs_that_no_test_in_python_sees_are_called_so(trials: Of, name: str) -> None:
    assert not (found := tried.unseen(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_planted_bugs_have_effects_of_their_own(trials: Of, name: str) -> None:
    assert not (found := tried.alike(trials(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_known_of_the_planted_bugs_is_current(trials: Of, name: str) -> None:
    assert not (found := tried.known(trials(name))), told(found)
