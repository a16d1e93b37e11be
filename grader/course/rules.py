"""The contract of a module as data: its rules, and what it leaves unspecified (`rules.toml`)."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.course.model import Module
from grader.errors import KitError

SCHEMA = 1


@dataclass(frozen=True)
class Rule:
    """One sentence that every correct program keeps. Tests name it by its ``id``."""

    id: str
    text: str


@dataclass(frozen=True)
class Freedom:
    """What the contract leaves unspecified, so that no test may depend on it.

    ``probe`` is a short Python program over the module's public names. What it prints differs
    between at least two correct programs, which shows that the freedom is taken.
    """

    id: str
    text: str
    probe: str


@dataclass(frozen=True)
class Contract:
    """The rules of one module and its freedoms, in the order of the file."""

    rules: tuple[Rule, ...]
    freedoms: tuple[Freedom, ...]


def file_of(module: Module) -> Path:
    return module.folder / "rules.toml"


def contract_of(module: Module) -> Contract:
    """Read the contract of ``module``. A file that cannot be read is a ``KitError``."""
    path = file_of(module)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema must be {SCHEMA}")
        return Contract(tuple(_rule(row) for row in data["rule"]),
                        tuple(_freedom(row) for row in data.get("freedom", ())))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise KitError(f"{path} cannot be read: {error}") from error


def _rule(row: dict[str, Any]) -> Rule:
    _only(row, "id", "text")
    return Rule(row["id"], " ".join(row["text"].split()))


def _freedom(row: dict[str, Any]) -> Freedom:
    _only(row, "id", "text", "probe")
    return Freedom(row["id"], " ".join(row["text"].split()), row["probe"].strip("\n") + "\n")


def _only(row: dict[str, Any], *keys: str) -> None:
    """Raise ``ValueError`` unless ``row`` has these keys and no others, with a text for each."""
    for key in {*keys} ^ {*row}:
        raise ValueError(f"{row.get('id', 'a row')} {'lacks' if key in keys else 'has a key'} "
                         f"{key}")
    for key in keys:
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{key} of {row['id']} must be a text")
