"""The course holds together: manifests, catalogues, chapters, the seeds' tables, the stubs."""

import ast
import doctest
import json
import re
import sys
import tomllib
from typing import Any

import jsonschema
import pytest

from grader import ROOT, VERSION
from grader.authoring import contract_page, python_stub, static_gates
from grader.authoring.finding import told
from grader.course import manifest as courses
from grader.course.model import Course
from grader.course.planted_bugs import mutants_of
from tests.kit.support import seeds

_NAMED_TUPLE = {"_fields", "_asdict", "_replace"}  # public, in spite of their names
MODULES = [m.name for m in courses.load()]
PYTHON = [m.name for m in courses.load() if not m.program]


@pytest.mark.parametrize("name", MODULES)
def test_a_manifest_keeps_to_its_schema(name: str) -> None:
    schema = json.loads((ROOT / "formats" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    file = ROOT / "course" / "modules" / name / "module.toml"
    manifest = tomllib.loads(file.read_text(encoding="utf-8"))
    jsonschema.validate(manifest, schema)


@pytest.mark.parametrize("name", MODULES)
def test_the_catalogue_is_the_suite(course: Course, name: str) -> None:
    assert not (found := static_gates.catalogue(course, course.module(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_tests_and_rules_name_each_other(course: Course, name: str) -> None:
    assert not (found := contract_page.written(course.module(name))), told(found)


@pytest.mark.parametrize("name", MODULES)
def test_each_test_is_one_plain_function(course: Course, name: str) -> None:
    """A parametrized test would be several results under one name of the catalogue."""
    for file in course.module(name).suite.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "parametrize" not in text, file
        assert "fixture" not in text, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                dunder = node.attr.startswith("__") or node.attr in _NAMED_TUPLE
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                assert dunder or own, f"{file}:{node.lineno} touches a private name, {node.attr}"


def test_the_rows_of_the_lessons_tables_are_all_there(course: Course) -> None:
    assert not (found := static_gates.of_course(course, course.modules)), told(found)


def test_the_seeds_tables_were_read_to_their_ends() -> None:
    assert {k: len(rows) for k, rows in seeds.TESTS.items()} == {
        "rt.04": 20, "L10.4": 10, "rt.04.c": 20}
    assert {k: len(rows) for k, rows in seeds.MUTANTS.items()} == {
        "rt.04": 32, "L10.4": 8, "rt.04.c": 32}


@pytest.mark.parametrize("name", MODULES)
def test_planted_bugs_are_rows_that_hold(course: Course, name: str) -> None:
    module = course.module(name)
    assert not (found := static_gates.rows(module) + static_gates.edits(module)), told(found)


def test_the_lessons_planted_bugs_are_32(course: Course) -> None:
    assert len({x.id for m in course for x in mutants_of(m) if x.id[0] in "sm"}) == 32


@pytest.mark.parametrize("name", MODULES)
def test_stub_and_chapter_are_as_they_are_generated(course: Course, name: str) -> None:
    assert not (found := static_gates.generated(course.module(name))), told(found)


def test_there_are_no_other_stubs(course: Course) -> None:
    held = {p.relative_to(ROOT / "stubs").as_posix() for p in (ROOT / "stubs").rglob("*")
            if p.is_file() and "__pycache__" not in p.parts}
    assert held == set(python_stub.generate(course))


@pytest.mark.parametrize("name", PYTHON)
def test_a_stub_shows_nothing_private(course: Course, name: str) -> None:
    tree = ast.parse((ROOT / "stubs" / course.module(name).file_name).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert not node.name.startswith("_") or node.name.endswith("__")
    fills = {f.name.split(".")[-1] for f in course.module(name).fills}
    raising = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
               and isinstance(n.body[-1], ast.Raise)}
    assert raising == fills


@pytest.mark.parametrize("name", PYTHON)
def test_the_examples_of_a_stub_are_true(course: Course, name: str) -> None:
    """Each `fill`'s example runs as a doctest on the reference, with the names of the stub."""
    module = course.module(name)
    stub = ast.parse((ROOT / "stubs" / module.file_name).read_text(encoding="utf-8"))
    names = {alias.asname or alias.name for node in stub.body
             if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    names |= {node.name for node in stub.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    names |= {target.id for node in stub.body if isinstance(node, ast.Assign)
              for target in node.targets if isinstance(target, ast.Name)}
    for fill in module.fills:
        assert fill.example, f"{fill.name} has no example"
        _doctest(f"{name}.{fill.name}", fill.example, module.name, names)


@pytest.mark.parametrize("name", PYTHON)
def test_a_chapters_snippets_are_true(course: Course, name: str) -> None:
    text = (course.module(name).folder / "chapter.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```pycon\n(.*?)```", text, re.DOTALL)
    assert snippets, "a chapter shows something that runs"
    _doctest(f"{name}/chapter.md", "\n".join(snippets), name)


def test_the_documents_links_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("course/**/*.md"), *ROOT.glob("formats/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text("utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document}: {target}"


def test_the_grader_knows_no_module() -> None:
    """What belongs to one module is its manifest's; the grader must serve any course."""
    for file in (ROOT / "grader").rglob("*.py"):
        words = set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
        assert not words & {*MODULES, "KvPool", "block_manager"}, file


def _doctest(name: str, text: str, module: str, only: set[str] | None = None) -> None:
    """Run ``text`` as a doctest with the package's public names at hand, or ``only`` some."""
    sys.path.insert(0, str(ROOT / "reference"))
    try:
        names: dict[str, Any] = {}
        for known in ("errors", *PYTHON):
            exec(f"from tinyllm.{known} import *", names)
        if only is not None:
            names = {known: thing for known, thing in names.items() if known in only}
        test = doctest.DocTestParser().get_doctest(text, names, name, module, 0)
        out: list[str] = []
        doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=out.append)
    finally:
        sys.path.remove(str(ROOT / "reference"))
    assert not out, "".join(out)


def test_no_file_is_a_stray(course: Course) -> None:
    """The top level is the one that a newcomer is told about."""
    rooms = {"course", "stubs", "reference", "tests", "grader", "formats"}
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    assert folders - {"work"} == rooms
    assert {p.name for p in (ROOT / "course/modules").iterdir()} == set(MODULES)
    for module in course:
        assert not (found := static_gates.strays(module)), told(found)


def test_a_file_is_one_room(course: Course) -> None:
    """A file of more than 400 lines is usually two. A module that a learner builds is always one,
    because a binding is a file for a name; then 600 are much."""
    modules = {module.file_name for module in course}
    for room in ("grader", "reference", "tests"):
        for file in (ROOT / room).rglob("*.py"):
            lines = len(file.read_text(encoding="utf-8").splitlines())
            whole = "/".join(file.parts[-2:]) in modules
            assert lines <= (600 if whole else 400), file


LAYERS = ["errors", "assertions", "course", "learner", "binding", "sandbox", "grading", "authoring",
          "render", "cli", "__main__"]
MOST_ARROWS = 40  # imports between the entries of the grader's root: a newcomer can hold these


def imported_by_each() -> dict[str, set[str]]:
    """Return entry of the grader's root -> the other entries that it imports from."""
    arrows: dict[str, set[str]] = {}
    for file in (ROOT / "grader").rglob("*.py"):
        part = file.relative_to(ROOT / "grader").parts[0].removesuffix(".py")
        if part in ("__init__", "setup"):  # setup runs before there is anything to import
            continue
        text = file.read_text(encoding="utf-8")
        for package, names in re.findall(
                r"^ *from grader(?:\.(\w+))?[\w.]* import ([\w, ]+)", text, re.M):
            found = {package} if package else {n.strip().split(" as ")[0]
                                               for n in names.split(",")}
            arrows.setdefault(part, set()).update(found & set(LAYERS) - {part})
    return arrows


def test_imports_run_one_way() -> None:
    """Nothing imports what stands after it in the list, and there are few arrows."""
    arrows = imported_by_each()
    assert set(arrows) <= set(LAYERS)
    for part, parts in arrows.items():
        for other in parts:
            assert LAYERS.index(other) < LAYERS.index(part), f"{part} imports {other}"
    assert sum(map(len, arrows.values())) <= MOST_ARROWS, arrows


def test_the_readme_shows_what_is_really_printed() -> None:
    """The transcript of a failing check is the golden text of the program it tells of."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    golden = (ROOT / "tests/kit/golden/revived_block_stays_evictable.txt").read_text("utf-8")
    shown = readme.split("K=a_revived_block_is_never_evicted\n")[1].split("```")[0]

    def plain(text: str) -> str:
        text = re.sub(r"(DIR|work)/tinyllm/", "", re.sub(r" +\d+\.\d s", " 0.0 s", text))
        return text.replace(" --bind DIR", "").strip()

    assert plain(shown) == plain("\n".join(golden.splitlines()[1:]))


def test_the_version_is_the_same_everywhere() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert pyproject["project"]["version"] == VERSION
