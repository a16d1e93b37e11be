"""Verbs that only show: the catalogue, the diff, the progress."""

import difflib
import re

from rich.console import Console
from rich.text import Text

from grader import ROOT
from grader.course import manifest as courses
from grader.course.manifest import Course, Module
from grader.errors import CallError
from grader.grading import progress
from grader.learner import workspace
from grader.learner.snapshots import said_of
from grader.learner.workspace import State
from grader.render.terminal import console, paragraph


def tests(words: tuple[str, ...]) -> None:
    """Print the catalogue of these modules, of all without any."""
    course = courses.load()
    out = console()
    for module in course.named(words) if words else tuple(course):
        out.print(Text(f"\n{module.name}: {module.title}", "bold"))
        lesson = course.lesson(module)
        for number in sorted({t.pass_ for t in module.tests}):
            out.print(Text(f"\n  pass {number}, {lesson.passes[number - 1]}\n"))
            for test in (t for t in module.tests if t.pass_ == number):
                _catalogue_row(out, test.name, ", ".join(test.kinds), test.sentence, test.why)
    out.print()


def _catalogue_row(out: Console, name: str, kinds: str, sentence: str, why: str) -> None:
    head = Text(f"  {name}", "bold")
    head.append(f"   {kinds}", "dim")
    out.print(head)
    paragraph(out, sentence, by=6)
    if why:
        paragraph(out, f"Why it matters: {why}", "dim", by=6)


def diff(words: tuple[str, ...], spoil: bool) -> None:
    """Print a unified diff from the learner's file to the reference's."""
    course = courses.load()
    modules = course.named(words)
    if not modules:
        raise CallError(f"say which module: `ol diff {course.modules[0].name}`")
    known = progress.standings(course)
    for module in modules:
        passed = module.name in known and known[module.name].green and known[module.name].current
        if not spoil and not passed:
            raise CallError(f"{module.name} has not passed as it is now: run `ol check "
                            f"{module.name}` first; `ol diff {module.name} --spoil` gives the "
                            "solution away all the same")
    for module in modules:
        mine = workspace.read(workspace.work() / module.file_name)
        if mine is None:
            raise CallError(f"there is no work/{module.file_name} to compare: `ol start` lays "
                            "one out")
        theirs = (ROOT / "reference" / module.file_name).read_text(encoding="utf-8")
        _print_diff(module, _without_todos(mine.decode("utf-8", "replace")), theirs)


def _without_todos(text: str) -> str:
    """Return a learner's file without what its stub's docstrings said to do: no code of theirs."""
    text = re.sub(r'\n\n[ \t]*TODO \(pass \d+\):.*?(?=\n[ \t]*""")', "", text, flags=re.DOTALL)
    return re.sub(r"^/\* TODO \(pass \d+\):.*?\*/\n", "", text, flags=re.DOTALL | re.MULTILINE)


def _print_diff(module: Module, mine: str, theirs: str) -> None:
    styles = {"+": "green", "-": "red", "@": "cyan"}
    lines = list(difflib.unified_diff(
        mine.splitlines(), theirs.splitlines(), f"work/{module.file_name} (yours)",
        f"reference/{module.file_name} (reference)", lineterm="", n=3))
    out = console()
    for line in lines:
        out.print(Text(line, styles.get(line[:1], "")), soft_wrap=True)
    if not lines:
        out.print(f"{module.name}: yours and the reference's are the same.")
    if beside := _beside(module):
        out.print(f"Beside it the reference has {', '.join(beside)}.", soft_wrap=True)


def _beside(module: Module) -> list[str]:
    """Return the files of its own that the reference of a program has beside the module's."""
    file = ROOT / "reference" / module.file_name
    return [str(p.relative_to(ROOT)) for p in sorted(file.parent.iterdir())
            if module.program and p != file]


def progress_rows(course: Course) -> list[tuple[str, str, str]]:
    """Return (module, title, what the last check said) for every module."""
    rows = []
    standings = progress.standings(course)
    for module in course:
        state = workspace.state_of(module, workspace.work())
        known = standings.get(module.name)
        if state is not State.BEGUN and module.optional:
            said = f"optional: {said_of(module, state)}"
        elif state is not State.BEGUN:
            said = f"not begun: {said_of(module, state)}"
        elif known is None:
            said = "begun, not checked yet"
        elif known.broken:
            said = f"could not be judged: {known.broken}"
        else:
            said = ("✓ " if known.green else "") + f"{known.passed} of {known.total} tests passed"
            said += "" if known.current else ", before your last change"
        rows.append((module.name, module.title, said))
    return rows


def show_progress() -> None:
    """Print where the learner is."""
    out = console()
    rows = progress_rows(courses.load())
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, title, said in rows:
        out.print(Text(f"{name:<{widths[0]}}   {title:<{widths[1]}}   {said}"), soft_wrap=True)

