"""Planted bugs: the rows of a module's `mutants.toml`, and their edits of the reference."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.course.model import Module
from grader.errors import KitError

KINDS = ("", "argument", "format", "cost")


@dataclass(frozen=True)
class Edit:
    """Text of the reference's that stands there exactly once, and what the bug has instead."""

    find: str
    replace: str


@dataclass(frozen=True)
class Mutant:
    """A planted bug: the pitfall, what a user would see, the tests that catch it at least.

    ``kind`` says what the bug is about where that is not the module's subject: the type of an
    ``argument``, a byte ``format``, or ``cost``; random calls need not find those. ``alike`` are
    other mistakes that the suite cannot tell from this one. ``unsteady`` is one that reads what
    nobody wrote, so that how it fails differs from run to run. ``unseen`` says why no test in
    Python can tell a program with this bug from a right one, where that is so.
    """

    id: str
    pitfall: str
    symptom: str
    caught_by: tuple[str, ...]
    source: str
    edits: tuple[Edit, ...]
    alike: tuple[str, ...] = ()
    unsteady: bool = False
    unseen: str = ""
    kind: str = ""

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
        return tuple(_mutant(number, row) for number, row in enumerate(rows, 1))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise KitError(f"{path} cannot be read: {error}") from error


def gradable(module: Module) -> tuple[Mutant, ...]:
    """Return the planted bugs that a test of a learner's can see."""
    return tuple(m for m in mutants_of(module) if not m.unseen)


def _mutant(number: int, row: dict[str, Any]) -> Mutant:
    wanted = ("id", "pitfall", "symptom", "caught_by", "source", "edit")
    if lacking := [key for key in wanted if key not in row]:
        raise ValueError(f"bug {row.get('id', f'number {number}')} lacks {', '.join(lacking)}")
    edits = row["edit"]
    if not edits or any({"find", "replace"} - set(edit) for edit in edits):
        raise ValueError(f"an edit of bug {row['id']} lacks find or replace")
    return Mutant(row["id"], row["pitfall"], row["symptom"], tuple(row["caught_by"]),
                  row["source"], tuple(Edit(e["find"], e["replace"]) for e in edits),
                  tuple(row.get("alike", ())), row.get("unsteady", False),
                  row.get("unseen", ""), row.get("kind", ""))


def reference_of(module: Module, root: Path = ROOT) -> str:
    return (root / "reference" / module.file_name).read_text(encoding="utf-8")
