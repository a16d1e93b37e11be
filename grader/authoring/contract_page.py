"""The gates on a module's contract: its rules, the tests that check them, and its freedoms."""

from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain

from grader.authoring.finding import Finding
from grader.authoring.suite_results import PROBE_FAILED, Trials
from grader.course import rules
from grader.course.model import Module
from grader.course.rules import Freedom, Rule


def written(module: Module) -> list[Finding]:
    """Each test names the rules that it checks, and each rule has a test that checks it."""
    held = rules.contract_of(module)
    return [Finding(module.name, *fault) for fault in chain(
        _texts(module, [*held.rules, *held.freedoms]),
        _rows(module, [rule.id for rule in held.rules]))]


def _texts(module: Module, held: list[Rule | Freedom]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the rules and freedoms by themselves, and the remedy."""
    where = f"course/modules/{module.name}/rules.toml"
    for id_, times in Counter(x.id for x in held).items():
        if times > 1:
            yield f"{where} has the id {id_} {times} times", "Give each its own"
    for one in held:
        if not one.text.endswith((".", "?")):
            yield f"the text of {one.id} is not a whole sentence", f"Complete it in {where}"


def _rows(module: Module, ids: list[str]) -> Iterator[tuple[str, str]]:
    """Yield where the rules with these ids and the rows of the tests do not match, and the
    remedy."""
    rows = f"course/modules/{module.name}/module.toml"
    checked = set[str]()
    for test in filter(module.holds, module.tests):
        checked |= set(test.rules)
        if not test.rules:
            yield f"{test.name} names no rule that it checks", f"Add `rules` to its row in {rows}"
        for id_ in set(test.rules) - set(ids):
            close = get_close_matches(id_, ids, n=1)
            yield (f"{test.name} checks a rule {id_}, which rules.toml lacks",
                   f"Write {close[0]} if that is meant" if close else "Add the rule")
    for id_ in ids:
        if id_ not in checked:
            yield (f"no test checks the rule {id_}",
                   f"Name it in the row of a test in {rows}, write such a test, or take it out")


def freedoms(trials: Trials) -> list[Finding]:
    """Each freedom is taken: what its probe prints differs between two correct programs."""
    return [Finding(trials.module.name, *fault)
            for id_, printed in trials.freedoms.items() for fault in _taken(id_, printed)]


def _taken(id_: str, printed: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a freedom by what its probe printed over each correct program."""
    for who, text in printed.items():
        if text.startswith(PROBE_FAILED):
            yield f"the probe of {id_} failed over {who}: {text[len(PROBE_FAILED):]}", "Fix it"
        elif not text.strip():
            yield f"the probe of {id_} prints nothing over {who}", "Let it print what may differ"
    if len(set(printed.values())) == 1:
        yield (f"every correct program does the same with the freedom {id_}",
               "Let one in tests/implementations take it, or sharpen its probe; if no program can, "
               "it is a rule")
