"""`ol tests`: the catalogue of tests, with what each checks and why it matters."""

import click
from rich.console import Console
from rich.text import Text

from grader.cli.options import MODULES
from grader.course import manifest as courses
from grader.render.console import console, paragraph


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


@click.command("tests")
@MODULES
def command(modules: tuple[str, ...]) -> None:
    """Print the catalogue: each test, its kind, what it checks, why it matters."""
    tests(modules)
