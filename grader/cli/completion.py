"""The words of a command line that name modules and tests, and what a shell may offer for them."""

from typing import Any

import click


def modules(_: Any, __: Any, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words with each file of work/ replaced by its module."""
    from grader.learner.workspace import module_named

    return tuple(map(module_named, words))


def complete_modules(_: Any, __: Any, incomplete: str) -> list[str]:
    """Return the modules whose names begin with ``incomplete``."""
    from grader.course.manifest import load

    return [m.name for m in load() if m.name.startswith(incomplete)]


def complete_tests(context: click.Context, _: Any, incomplete: str) -> list[str]:
    """Return the tests, of the modules named so far, that have ``incomplete`` in their names."""
    from grader.course.manifest import load

    named = context.params.get("modules") or ()
    return [t.name for m in load() if not named or m.name in named
            for t in m.tests if incomplete in t.name]
