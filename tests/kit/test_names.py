"""The words of the code: names use those of the field, as `names.toml` has them."""

import io
import re
import tokenize
import tomllib
from pathlib import Path

from grader import ROOT
from tests.kit.support.judged import KIT

WORDS = tomllib.loads((KIT / "names.toml").read_text(encoding="utf-8"))["name"]
CODE = [file for folder in ("grader", "tests/kit") for file in sorted((ROOT / folder).rglob("*.py"))
        if "learners" not in file.parts]


def words_of(text: str) -> dict[str, int]:
    """Return the words that the names in a program's text are made of, with a line of each."""
    found: dict[str, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", token.string):
                found.setdefault(word.lower(), token.start[0])
    return found


def test_a_name_is_split_into_words() -> None:
    assert words_of("class ForkServer:\n    _MOST_HANGS = kill_it(2)\n") == {
        "class": 1, "fork": 1, "server": 1, "most": 2, "hangs": 2, "kill": 2, "it": 2}


def test_names_use_the_words_of_the_field() -> None:
    retired = {word: row["use"] for row in WORDS for word in row["not"]}
    assert not retired.keys() & {part for row in WORDS for part in row["use"].split("_")}
    for file in CODE:
        words = words_of(file.read_text(encoding="utf-8"))
        for word, use in retired.items():
            for form in (word, word + "s"):
                assert form not in words, f"{file}:{words[form]}: {form}: say {use}"


def test_no_file_is_called_by_a_retired_word() -> None:
    retired = {word for row in WORDS for word in row["not"]}
    for file in CODE:
        parts = set(re.split(r"[_/.]", str(Path(file).relative_to(ROOT))))
        assert not parts & retired, file
