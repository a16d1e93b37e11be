"""The gates on a module's contract, and the page that shows it."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from grader.authoring import chapter_tables, contract_page
from grader.authoring.finding import told
from grader.authoring.suite_results import Trials
from grader.course import rules
from grader.course.model import Course, Module, Row
from grader.errors import KitError
from grader.sandbox.api import WorkerPool
from tests.kit.support.planted import BUG, Plant

CONTRACT = '''schema = 1
[[rule]]
id = "zero_becomes_one"
text = "A block hash is never 0: where it would be 0, it is 1."
[[rule]]
id = "empty_chain"
text = "The chain of no tokens is empty."
[[freedom]]
id = "error_texts"
text = "The text of an exception is unspecified."
probe = """
try:
    block_hash(-1, [])
except KvError as error:
    print(error)
"""
'''


@pytest.fixture
def contracted(plant: Plant) -> Callable[..., Module]:
    """Return what makes the module with another contract and two tests, which check these rules."""
    def made(text: str = CONTRACT, first: tuple[str, ...] = ("zero_becomes_one",),
             second: tuple[str, ...] = ("empty_chain",)) -> Module:
        module = plant(BUG)
        rules.file_of(module).write_text(text, encoding="utf-8")
        return replace(module, rows=(
            Row("a_hash_of_zero_becomes_one", ("unit",), 1, first),
            Row("block_tokens_must_be_one_or_more", ("unit",), 1, second)))

    return made


def test_a_contract_that_is_complete_has_no_finding(contracted: Callable[..., Module]) -> None:
    assert contract_page.written(contracted()) == []


def test_a_test_without_a_rule_and_a_rule_without_a_test_are_said(
    contracted: Callable[..., Module]
) -> None:
    assert told(contract_page.written(contracted(second=()))).splitlines() == [
        "block_hash: block_tokens_must_be_one_or_more names no rule that it checks. Add `rules` to "
        "its row in course/modules/block_hash/module.toml.",
        "block_hash: no test checks the rule empty_chain. Name it in the row of a test in "
        "course/modules/block_hash/module.toml, write such a test, or take it out."]
    assert told(contract_page.written(contracted(second=("empty_chain", "zero_becomes_on")))) == (
        "block_hash: block_tokens_must_be_one_or_more checks a rule zero_becomes_on, which "
        "rules.toml lacks. Write zero_becomes_one if that is meant.")


def test_a_rule_that_is_not_a_sentence_or_is_there_twice_is_said(
    contracted: Callable[..., Module]
) -> None:
    text = CONTRACT.replace('"error_texts"', '"empty_chain"').replace("is empty.", "is empty")
    assert told(contract_page.written(contracted(text))).splitlines() == [
        "block_hash: course/modules/block_hash/rules.toml has the id empty_chain 2 times. Give "
        "each its own.",
        "block_hash: the text of empty_chain is not a whole sentence. Complete it in "
        "course/modules/block_hash/rules.toml."]


@pytest.mark.parametrize(("old", "new", "sentence"), [
    ('text = "The chain of no tokens is empty."\n', "", "empty_chain lacks text"),
    ('text = "The chain', 'more = ""\ntext = "The chain', "empty_chain has a key more"),
    ('"The chain of no tokens is empty."', "7", "text of empty_chain must be a text"),
    ("schema = 1", "schema = 2", "schema must be 1"),
])
def test_a_contract_that_cannot_be_read_is_said(
    contracted: Callable[..., Module], old: str, new: str, sentence: str
) -> None:
    with pytest.raises(KitError, match=re.escape(sentence)):
        contract_page.written(contracted(CONTRACT.replace(old, new)))


def test_a_page_of_a_contract_names_the_tests_of_each_rule(
    contracted: Callable[..., Module]
) -> None:
    page = chapter_tables.contract_page(contracted())
    assert ("| The chain of no tokens is empty. | `empty_chain` | "
            "`block_tokens_must_be_one_or_more` |\n") in page
    assert page.endswith("- The text of an exception is unspecified.\n")


def test_a_freedom_that_no_program_takes_is_said(
    course: Course, workers: WorkerPool, contracted: Callable[..., Module]
) -> None:
    def held(old: str, new: str) -> str:
        module = contracted(CONTRACT.replace(old, new))
        return told(contract_page.freedoms(Trials(course, workers, module)))

    assert held("", "") == ""
    assert held("print(error)", "print(type(error).__name__)") == (
        "block_hash: every correct program does the same with the freedom error_texts. Let one in "
        "tests/implementations take it, or sharpen its probe; if no program can, it is a rule.")
    assert "the probe of error_texts prints nothing over the reference" in held(
        "print(error)", "pass")
    assert "the probe of error_texts failed over the reference: it raised NameError" in held(
        "print(error)", "nothing")
