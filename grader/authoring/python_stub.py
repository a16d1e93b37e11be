"""The generator of stubs: a module of the reference without its bodies.

What the manifest lists under `fill` keeps its signature and docstring, gains what to do (TODO, an
approach, an example), and raises `NotImplementedError`. Public constants and data classes stay as
they are; whatever is private goes. The committed tree must equal what this makes, byte for byte.
"""

import ast
import doctest
import textwrap
from pathlib import Path

from grader import ROOT
from grader.authoring import c_stub
from grader.course.model import PACKAGE, Course, Fill, Module
from grader.course.todo_markers import todo_marker
from grader.errors import KitError

_WIDTH = 96


def generate(course: Course, root: Path = ROOT) -> dict[str, str]:
    """Return path below `stubs/` -> text, for every module of the course."""
    return {m.file_name: stub(m, root) for m in course}


def stub(module: Module, root: Path = ROOT) -> str:
    """Return the stub of one module, in its language."""
    source = (root / "reference" / module.file_name).read_text("utf-8")
    return (c_stub.stub_of if module.program else stub_of)(module, source)


def write(course: Course, root: Path = ROOT) -> list[Path]:
    """Bring `stubs/` up to date and return the files that changed."""
    changed = []
    for name, text in generate(course, root).items():
        path = root / "stubs" / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def stub_of(module: Module, source: str) -> str:
    """Return the stub of a module in Python, from the source of its reference."""
    tree = ast.parse(source)
    lines = source.splitlines()
    fills = {f.name: f for f in module.fills}
    body = [part for node in tree.body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)
            if (part := _top(module, node, lines, fills))]
    if fills:
        raise KitError(f"{module.folder / 'module.toml'} fills what the reference lacks: "
                       f"{', '.join(fills)}")
    text = "\n".join(part for _, part in body)
    shown = _names("".join(e.source for f in module.fills
                           for e in doctest.DocTestParser().get_examples(f.example)))
    imports = [kept for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
               if (kept := _kept(node, _names(text) | shown, shown))]
    head = f'"""{_indent(module.doc, 0)}\n"""'
    first = [] if body[0][0] else [""]  # a definition brings its own blank lines
    return "\n".join([head, "", _blocks(imports), *first,
                      *(gap + part for gap, part in body)]) + "\n"


def _top(module: Module, node: ast.stmt, lines: list[str],
         fills: dict[str, Fill]) -> tuple[str, str] | None:
    """Return (blank lines before, text) of a statement at the top of the module, if it stays."""
    match node:
        case ast.FunctionDef(name=name) if name in fills:
            return "\n\n", _function(module, node, lines, fills.pop(name), 0)
        case ast.ClassDef(name=name) if any(f.startswith(f"{name}.") for f in fills):
            return "\n\n", _class(module, node, lines, fills)
        case ast.ClassDef(name=name) if not name.startswith("_"):
            return "\n\n", _text(lines, node)
        case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_"):
            return "", _text(lines, node)
        case ast.Expr(value=ast.Constant(value=str())) if _documents_public(lines, node):
            return "", _text(lines, node)
    return None


def _documents_public(lines: list[str], node: ast.stmt) -> bool:
    """A string under a public constant documents it."""
    return not lines[node.lineno - 2].startswith(("_", " ", ")", "]"))


def _class(module: Module, node: ast.ClassDef, lines: list[str], fills: dict[str, Fill]) -> str:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    doc = node.body[0]
    parts = ["\n".join(lines[first - 1 : doc.end_lineno])]
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    parts += ["\n" + _function(module, method, lines, fill, 4) for method in methods
              if (fill := fills.pop(f"{node.name}.{method.name}", None))]
    return "\n".join(parts)


def _function(module: Module, node: ast.FunctionDef, lines: list[str], fill: Fill,
              indent: int) -> str:
    """Return signature, docstring with what to do, and a body that says what is missing."""
    doc = node.body[0]
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    signature = lines[first - 1 : doc.lineno - 1]
    text = (ast.get_docstring(node) or "").rstrip()
    todo = textwrap.fill(f"TODO (pass {fill.pass_}): {fill.todo}", _WIDTH - indent,
                         subsequent_indent="    ")
    steps = "\n".join(textwrap.fill(s, _WIDTH - indent - 4, initial_indent="  - ",
                                    subsequent_indent="    ") for s in fill.approach)
    parts = [text, todo, f"Approach:\n{steps}"]
    if fill.example:
        parts.append(f"Example:\n{textwrap.indent(fill.example, '    ')}")
    body = _indent('"""' + "\n\n".join(parts) + '\n"""', indent + 4)
    missing = f"raise NotImplementedError({todo_marker(module, fill)})"
    return "\n".join([*signature, body, " " * (indent + 4) + missing])


def _kept(node: ast.Import | ast.ImportFrom, used: set[str], shown: set[str]) -> str:
    """Return an import without what the stub's text does not use. What comes from the package
    itself stays whole, and gains what the examples have ``shown`` of the same module: they run."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
        names = {a.name for a in node.names} | (shown & _public(node.module or ""))
        node.names = [ast.alias(name) for name in sorted(names, key=_kind)]
    else:
        node.names = [a for a in node.names if (a.asname or a.name).split(".")[0] in used]
    text = ast.unparse(node) if node.names else ""
    if len(text) <= _WIDTH + 4:
        return text
    before, after = text.split(" import ")
    return f"{before} import (\n    " + ",\n    ".join(after.split(", ")) + ",\n)"


def _kind(name: str) -> tuple[bool, bool, str]:
    """Sort names as linters do: constants, classes, functions."""
    return not name.isupper(), not name[0].isupper(), name


def _public(name: str) -> set[str]:
    """Return the classes and functions that a module of the package has to offer."""
    source = (ROOT / "reference" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")
    return {node.name for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")}


def _blocks(imports: list[str]) -> str:
    """Keep the reference's grouping of imports: standard library, others, the package's own."""
    groups: dict[int, list[str]] = {}
    for text in imports:
        root = text.split()[1].split(".")[0]
        groups.setdefault(2 if root == PACKAGE else 1 if root == "numpy" else 0, []).append(text)
    return "\n\n".join("\n".join(groups[g]) for g in sorted(groups))


def _names(text: str) -> set[str]:
    """Return the names that a piece of source uses."""
    return {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}


def _text(lines: list[str], node: ast.stmt) -> str:
    first = node.lineno
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        first = min([first, *(d.lineno for d in node.decorator_list)])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _indent(text: str, by: int) -> str:
    return textwrap.indent(text.strip(), " " * by, lambda line: bool(line.strip()))
