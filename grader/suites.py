"""Which tests a run asks for, and how a worker imports what lies beside them."""

from difflib import get_close_matches
from pathlib import Path

from grader import ROOT
from grader.course import Module, Test
from grader.errors import CallError


def select(
    modules: tuple[Module, ...], name: str | None, named: bool = False
) -> dict[str, list[Test]]:
    """Return module -> tests to run, in catalogue order: all, or the one called ``name``, of
    which a part will do where no other test has it. Where modules were ``named``, each must have
    it."""
    if name is None:
        return {m.name: list(m.tests) for m in modules}
    name = name.removeprefix("test_")
    chosen = {m.name: [t for t in m.tests if t.name == name] for m in modules}
    chosen = {module: tests for module, tests in chosen.items() if tests}
    if not chosen:
        known = list(dict.fromkeys(t.name for m in modules for t in m.tests))
        if len(part := [full for full in known if name and name in full]) == 1:
            return select(modules, part[0], named)
        close = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = (f"it is a part of {_some(part)}" if part
                else f"did you mean {close[0]}?" if close else "`ol tests` lists them")
        raise CallError(f"there is no test {name} in {', '.join(m.name for m in modules)}: {hint}")
    if named and (lacking := [m.name for m in modules if m.name not in chosen]):
        raise CallError(f"{', '.join(lacking)} has no test {name}: name only modules that have it")
    return chosen


def _some(names: list[str]) -> str:
    """Return a few names, and how many there are beside them."""
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return ", ".join(names[:5] if more else names) + more


def dotted(file: Path) -> str:
    """Return the name by which a worker imports a file of the room `tests`."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)
