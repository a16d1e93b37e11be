"""The golden values of `formats/kv-block.vectors.json`."""

import json
from functools import cache
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[2] / "formats" / "kv-block.vectors.json"


@cache
def _document() -> Any:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def cases(part: str) -> list[dict[str, Any]]:
    """Return the cases of one list of the file; `formats/kv-block.md` says what they mean."""
    return list(_document()[part])
