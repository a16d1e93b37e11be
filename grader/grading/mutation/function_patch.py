"""A mutant as one function's new code, for `grader.sandbox.inside.patch_server`."""

import ast
import textwrap
from dataclasses import asdict, dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Python 3.11 loses its count when two threads make trees at once.
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class Patch:
    """The function ``function`` (or "Class.method") of a module as source, which begins in
    ``line`` of its file."""

    function: str
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def patch(base: str, mutant: str, function: str) -> Patch | None:
    """Return what a mutant of ``base`` changes in the body of ``function``; None where it changes
    anything else, such as a default, which is worked out when the function is made."""
    if (node := _functions(base).get(function)) is None:
        return None
    lines, theirs = mutant.splitlines(keepends=True), base.splitlines(keepends=True)
    end = (node.end_lineno or node.lineno) + len(lines) - len(theirs)
    if lines[: node.lineno - 1] != theirs[: node.lineno - 1] or lines[end:] != theirs[
            node.end_lineno :]:
        return None
    text = "".join(lines[node.lineno - 1 : end])
    changed = _parsed(textwrap.dedent(text)).body[0]
    if not isinstance(changed, Function) or _signature(changed) != _signature(node):
        return None
    return Patch(function, node.lineno, text)


@lru_cache(maxsize=4)
def _functions(text: str) -> dict[str, Function]:
    """Return the functions and methods of a program, by name; none that is there twice."""
    found: list[tuple[str, Function]] = []
    for node in _parsed(text).body:
        if isinstance(node, Function):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [(f"{node.name}.{n.name}", n) for n in node.body if isinstance(n, Function)]
    names = [name for name, _ in found]
    return {name: node for name, node in found if names.count(name) == 1}


def _parsed(text: str) -> ast.Module:
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def _signature(node: Function) -> str:
    return ast.dump(node.args) + "".join(ast.dump(x) for x in [node.returns] if x)
