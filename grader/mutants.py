"""Planted bugs: the rows of a module's `mutants.toml`, and their edits of the reference."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from grader.course import Module
from grader.errors import KitError


@dataclass(frozen=True)
class Edit:
    """Text of the reference's that stands there exactly once, and what the bug has instead."""

    find: str
    replace: str


@dataclass(frozen=True)
class Mutant:
    """A planted bug: the pitfall, what a user would see, the tests that catch it at least."""

    id: str
    pitfall: str
    symptom: str
    caught_by: tuple[str, ...]
    source: str
    edits: tuple[Edit, ...]

    def applied(self, text: str) -> str:
        """Return the reference's ``text`` with this bug in it."""
        for edit in self.edits:
            if (times := text.count(edit.find)) != 1:
                raise KitError(f"{self.id}: an edit applies {times} times, not once: {edit.find!r}")
            text = text.replace(edit.find, edit.replace)
        return text


def mutants_of(module: Module) -> tuple[Mutant, ...]:
    """Return the module's planted bugs, in the order of their file."""
    path = module.folder / "mutants.toml"
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
        return tuple(
            Mutant(r["id"], r["pitfall"], r["symptom"], tuple(r["caught_by"]), r["source"],
                   tuple(Edit(e["find"], e["replace"]) for e in r["edit"]))
            for r in rows
        )
    except (OSError, KeyError, ValueError) as error:
        raise KitError(f"{path} cannot be read: {error}") from error


def reference_of(module: Module, root: Path = ROOT) -> str:
    return (root / "reference" / module.file_name).read_text(encoding="utf-8")
