"""`ol diff`: a learner's file beside the reference's, once it has passed."""

import difflib
import re

import click
from rich.text import Text

from grader import ROOT
from grader.cli.options import MODULES
from grader.course import manifest as courses
from grader.course.model import Module
from grader.errors import CallError
from grader.grading import progress
from grader.learner import workspace
from grader.render.console import console


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


@click.command("diff")
@MODULES
@click.option("--spoil", is_flag=True, help="Before you pass, too: this gives the solution away.")
def command(modules: tuple[str, ...], spoil: bool) -> None:
    """Show your code beside the reference, once you have passed."""
    diff(modules, spoil)
