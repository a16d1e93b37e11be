"""The golden values of `formats/kv-block.vectors.json`."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from grader.assertions import new_example

_FILE = Path(__file__).parents[1] / "formats" / "kv-block.vectors.json"


@cache
def _document() -> Any:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def cases(part: str) -> list[dict[str, Any]]:
    """Return the cases of one list of the file; `formats/kv-block.md` says what they mean."""
    return list(_document()[part])


def examples(part: str) -> Iterator[dict[str, Any]]:
    """Yield the cases, each one as a new example: a failure then shows the steps of its case."""
    for case in cases(part):
        new_example()
        yield case
