"""Which tests a run asks for, and how a worker imports what lies beside them."""

from difflib import get_close_matches
from pathlib import Path

from grader import ROOT
from grader.course.model import Module, Test
from grader.errors import CallError


def select(
    modules: tuple[Module, ...], name: str | None, named: bool = False
) -> dict[str, list[Test]]:
    """Return module -> tests to run, in catalogue order: all, or the one called ``name``, or where
    there is none those with ``name`` in theirs. Where modules were ``named``, each must have one.
    """
    if name is None:
        return {m.name: list(m.tests) for m in modules}
    name = name.removeprefix("test_")
    known = {t.name for m in modules for t in m.tests}
    wanted = {name} & known or {full for full in known if name and name in full}
    chosen = {m.name: tests for m in modules if (tests := [t for t in m.tests if t.name in wanted])}
    if not chosen:
        close = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "`ol tests` lists them"
        raise CallError(f"there is no test {name} in {', '.join(m.name for m in modules)}: {hint}")
    if named and (lacking := [m.name for m in modules if m.name not in chosen]):
        raise CallError(f"{', '.join(lacking)} has no test {name}: name only modules that have it")
    return chosen


def dotted(file: Path) -> str:
    """Return the name by which a worker imports a file of the room `tests`."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)
