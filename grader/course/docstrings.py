"""What a suite says of its tests, read from its source; nothing is run."""

import ast
from pathlib import Path


def tests_in(folder: Path) -> dict[str, tuple[Path, str, str]]:
    """Return name -> (file, sentence, why) of every test function in a suite.

    The first paragraph of a test's docstring is its sentence; the one that begins with "Why:" says
    what it matters for.
    """
    found = {}
    for file in sorted(folder.glob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                paragraphs = [" ".join(p.split()) for p in
                              (ast.get_docstring(node) or "").split("\n\n")]
                why = next((p.removeprefix("Why:").strip() for p in paragraphs
                            if p.startswith("Why:")), "")
                found[node.name.removeprefix("test_")] = (file, paragraphs[0], why)
    return found
