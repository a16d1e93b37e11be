"""Mutants of any module's source, made by mutmut: what each changes, as lines.

It runs in a worker, as a script does: mutmut reads the settings of the folder that it is in, and
the source may be anybody's.
"""

import ast
import hashlib
import textwrap
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path
from typing import Any

MESSAGE = "only the words of a message"


def main(tell: Callable[..., None], text: str) -> None:
    """Tell the mutants of ``text``, in the order of mutmut, as plain data."""
    Path("pyproject.toml").write_text('[tool.mutmut]\nsource_paths = ["."]\n', encoding="utf-8")
    tell("mutants", mutants=mutants(text))


def mutants(text: str) -> list[dict[str, Any]]:
    """Return the mutants of ``text`` that differ from it and from each other by more than layout.

    ``id`` is made of the function and of what changes, ``name`` is mutmut's own. Line ``line`` and
    those after it are ``was``, and become ``now``. Where ``left_out`` is there it says why no test
    need tell the mutant from the original.
    """
    import libcst as cst
    from libcst.metadata import (
        MetadataWrapper,
        ParentNodeProvider,
        PositionProvider,
        WhitespaceInclusivePositionProvider,
    )
    from mutmut.mutation.file_mutation import create_mutations
    from mutmut.mutation.trampoline_templates import mangle_function_name

    module, mutations, *_ = create_mutations("module.py", text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    places = wrapper.resolve(WhitespaceInclusivePositionProvider)
    spans, parents = wrapper.resolve(PositionProvider), wrapper.resolve(ParentNodeProvider)
    lines = text.splitlines(keepends=True)
    numbers: dict[str, Any] = {}
    seen: dict[str, Any] = {}  # the same line may be there twice
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for mutation in mutations:
        function = mutation.contained_by_top_level_function
        if not isinstance(function, cst.FunctionDef):
            continue
        owner = parents[parents[function]] if parents.get(function) is not module else None
        cls = owner.name.value if isinstance(owner, cst.ClassDef) else None
        name = function.name.value
        mangled = mangle_function_name(name=name, class_name=cls) + "__mutmut"
        number = next(numbers.setdefault(mangled, count(1)))
        changed = _spliced(lines, places[mutation.original_node], module,
                           mutation.original_node, mutation.mutated_node)
        first, last = spans[function].start.line, spans[function].end.line
        grown = len(changed) - len(lines)
        was = _normal(lines[first - 1 : last])
        now = _normal(changed[first - 1 : last + grown])
        shown = f"{cls}.{name}" if cls else name
        if now is None or now == was or (shown, now) in found:
            continue
        edit = _edit(shown, f"{mangled}_{number}", lines, changed)
        if again := next(seen.setdefault(edit["id"], count())):
            edit["id"] += f"-{again}"
        found[shown, now] = edit
        if _only_words(cst, parents, mutation.original_node, mutation.mutated_node):
            found[shown, now]["left_out"] = MESSAGE
    return list(found.values())


def applied(text: str, mutant: dict[str, Any]) -> str:
    """Return ``text`` with a mutant's change; a `ValueError` says that it is another text."""
    lines = text.splitlines(keepends=True)
    at, was = mutant["line"] - 1, [line + "\n" for line in mutant["was"]]
    if lines[at : at + len(was)] != was:
        raise ValueError(f"{mutant['id']}: line {mutant['line']} is not what it was")
    return "".join([*lines[:at], *(line + "\n" for line in mutant["now"]), *lines[at + len(was) :]])


def _spliced(lines: list[str], place: Any, module: Any, old: Any, new: Any) -> list[str]:
    """Return the lines with the text of a node replaced."""
    start, end = place.start, place.end
    text, put = "".join(lines), str(module.code_for_node(new))
    begin = sum(map(len, lines[: start.line - 1])) + start.column
    stop = sum(map(len, lines[: end.line - 1])) + end.column
    if text[begin:stop] == module.code_for_node(old):
        return (text[:begin] + put + text[stop:]).splitlines(keepends=True)
    replaced: str = module.deep_replace(old, new).code
    return replaced.splitlines(keepends=True)


def _normal(lines: list[str]) -> str | None:
    """Return a function without its layout; None where it is none any more."""
    try:
        return ast.dump(ast.parse(textwrap.dedent("".join(lines))))
    except SyntaxError:
        return None


def _edit(shown: str, name: str, lines: list[str], changed: list[str]) -> dict[str, Any]:
    """Return the lines that differ."""
    same = sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(lines, changed, strict=False)))
    room = min(len(lines), len(changed)) - same
    tail = sum(1 for _ in takewhile(lambda p: p[0] == p[1], zip(
        reversed(lines[len(lines) - room :]), reversed(changed[len(changed) - room :]),
        strict=False)))
    was = [line.rstrip("\n") for line in lines[same : len(lines) - tail]]
    now = [line.rstrip("\n") for line in changed[same : len(changed) - tail]]
    digest = hashlib.sha256("\n".join([*was, "->", *now]).encode()).hexdigest()[:6]
    return {"id": f"{shown}.{digest}", "name": name, "line": same + 1, "was": was, "now": now}


def _only_words(cst: Any, parents: Any, old: Any, new: Any) -> bool:
    """True where nothing changes but the text of an error that is raised."""
    above = [old]
    while above[-1] in parents and not isinstance(above[-1], cst.Raise):
        above.append(parents[above[-1]])
    if not isinstance(above[-1], cst.Raise):
        return False
    if any(isinstance(node, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString)
           for node in above):
        return True
    call = above[-1].exc
    return old is call and bool(call.args) and [a.value for a in call.args[1:]] in (
        [a.value for a in new.args[1:]], [a.value for a in new.args])
