"""The gates on what is written down: nothing runs."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from runpy import run_path
from typing import Any

from grader import ROOT
from grader.authoring import chapter_tables, contract_page, python_stub
from grader.authoring.finding import Finding
from grader.course.model import Course, Module
from grader.course.planted_bugs import KINDS, Mutant, mutants_of, reference_of
from grader.errors import KitError

_SHORT = 20  # characters that say too little about a test
_FILES = {"chapter.md", "module.toml", "mutants.toml", "rules.toml", "contract.md"}
_MADE = {"generated.json": "mutants", "kills.json": "kills"}  # by which verb
_OF_PYTHON = "generated.json"


def of_module(course: Course, module: Module) -> list[Finding]:
    """Return what is wrong with the files of one module."""
    return [*catalogue(course, module), *contract_page.written(module), *rows(module),
            *edits(module), *generated(module), *strays(module)]


def catalogue(course: Course, module: Module) -> list[Finding]:
    """The manifest names each test of the suite once, and each says what it checks."""
    found = [Finding(module.name, f"the suite has a test {name} that the manifest does not name",
                     f"Add a [[test]] row to course/modules/{module.name}/module.toml, or take it "
                     "out")
             for name in module.uncatalogued]
    for name, times in Counter(t.name for t in module.tests).items():
        if times > 1:
            found.append(Finding(module.name, f"the manifest names {name} {times} times",
                                 "Keep one row"))
    passes = len(course.lesson(module).passes)
    for test in module.tests:
        if len(test.sentence) <= _SHORT or not test.sentence.endswith((".", "?")):
            found.append(Finding(module.name, f"{test.name} does not say what it checks",
                                 "Make the first paragraph of its docstring a whole sentence"))
        if not 1 <= test.pass_ <= passes:
            found.append(Finding(
                module.name, f"{test.name} is in pass {test.pass_}, but its lesson has {passes}",
                f"Mend its row in course/modules/{module.name}/module.toml"))
    return found


def rows(module: Module) -> list[Finding]:
    """Each planted bug has an id of its own, says what it is, and names tests that there are."""
    mutants = mutants_of(module)
    where = f"course/modules/{module.name}/mutants.toml"
    names = {t.name: t.random for t in module.tests}
    ids = Counter(m.id for m in mutants)
    found = [Finding(module.name, f"{n} bugs have the id {id_}", f"Give each its own in {where}")
             for id_, n in ids.items() if n > 1]
    for mutant in mutants:
        found += [Finding(module.name, *fault) for fault in _faults(mutant, names, set(ids))]
    return found


def _faults(mutant: Mutant, tests: dict[str, bool], ids: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one row, and the remedy. ``tests`` says of each whether it is
    random."""
    if not (mutant.pitfall.strip() and mutant.symptom.strip() and mutant.source.strip()):
        yield f"{mutant.id} has an empty text", "Fill in its pitfall, symptom and source"
    if not mutant.caught_by:
        yield f"{mutant.id} names no test that catches it", "Name at least one in caught_by"
    elif all(tests.get(test, False) for test in mutant.caught_by):
        yield (f"{mutant.id} is caught by random tests alone",
               "Name one in caught_by that makes the same calls in each run, or write it")
    if mutant.kind not in KINDS:
        yield (f"{mutant.id} is of a kind {mutant.kind}",
               f"Write {', '.join(filter(None, KINDS))}, or leave `kind` out")
    for test in (t for t in mutant.caught_by if t not in tests):
        close = get_close_matches(test, list(tests), n=1)
        yield (f"{mutant.id} is to be caught by {test}, which the suite lacks",
               f"Write {close[0]} if that is meant" if close else "`ol tests` lists what there is")
    for other in mutant.alike:
        if other not in ids - {mutant.id}:
            yield (f"{mutant.id} is called alike to {other}, which is no other bug of the module",
                   "Mend `alike` in its row")


def edits(module: Module) -> list[Finding]:
    """Each edit applies once, what it makes is Python, and no two bugs are the same text."""
    reference = reference_of(module, module.root)
    found, sources = list[Finding](), dict[str, str]()
    for mutant in mutants_of(module):
        source, fault = _applied(module, mutant, reference)
        found += [fault] if fault else []
        if source in sources:
            found.append(Finding(module.name, f"{mutant.id} and {sources[source]} make the same "
                                 "edit", "Take one of them out"))
        elif source is not None:
            sources[source] = mutant.id
    return found


def _applied(module: Module, mutant: Mutant,
             reference: str) -> tuple[str | None, Finding | None]:
    """Return the reference with a bug in it, or why there is none."""
    try:
        source = mutant.applied(reference)
        if not module.program:
            compile(source, module.file_name, "exec", dont_inherit=True)
    except KitError as error:
        return None, Finding(module.name, str(error), "Make each `find` a text that stands exactly "
                             f"once in reference/{module.file_name}, once the edits before it are "
                             "made")
    except SyntaxError as error:
        return None, Finding(module.name, f"{mutant.id} is no Python, in line {error.lineno} of "
                             f"what it makes: {error.msg}", "Mend its `replace`; mind the "
                             "indentation")
    if source == reference:
        return None, Finding(module.name, f"{mutant.id} changes nothing", "Mend its `replace`")
    return source, None


def generated(module: Module) -> list[Finding]:
    """The stub and the chapter's tables are what the reference and the manifests make of them."""
    found = []
    stub = module.root / "stubs" / module.file_name
    if not stub.exists() or stub.read_text("utf-8") != python_stub.stub(module, module.root):
        found.append(Finding(module.name, f"stubs/{module.file_name} is out of date",
                             "`ol author write` brings it up to date"))
    chapter = (module.folder / "chapter.md").read_text("utf-8")
    if chapter_tables.filled(module, chapter) != chapter:
        found.append(Finding(module.name, "the tables of its chapter are out of date",
                             "`ol author write` brings them up to date"))
    page = chapter_tables.page_of(module)
    if not page.exists() or page.read_text("utf-8") != chapter_tables.contract_page(module):
        found.append(Finding(module.name,
                             f"course/modules/{module.name}/contract.md is out of date",
                             "`ol author write` brings it up to date"))
    return found


def strays(module: Module) -> list[Finding]:
    """A module's folder in `course/` holds what belongs there, and nothing else."""
    held = {p.name for p in module.folder.iterdir()}
    chapter = (module.folder / "chapter.md").read_text(encoding="utf-8")
    pictures = set(re.findall(r"!\[[^]]*\]\(([\w.-]+\.svg)\)", chapter))
    files = (_FILES | pictures | set(_MADE)) - ({_OF_PYTHON} if module.program else set())
    return [Finding(module.name, f"course/modules/{module.name}/{name} is "
                    + ("a stray" if name in held else "missing"),
                    f"`ol author {_MADE[name]}` writes it" if name in _MADE else
                    "CONTRIBUTING.md tells what a chapter is made of")
            for name in sorted(held ^ files)]


def required() -> dict[str, Any]:
    """Return the rows that the lessons' own tables have: TESTS, MUTANTS and BENCHES."""
    path = ROOT / "tests" / "kit" / "support" / "seeds.py"
    if not path.is_file():
        raise KitError(f"{path} is missing; authors need the whole checkout")
    return run_path(str(path))


def of_course(course: Course, modules: tuple[Module, ...]) -> list[Finding]:
    """The rows of the lessons' tables are all there, as far as these modules are whole lessons."""
    table = required()
    asked = {m.name for m in modules}
    found = []
    for lesson in course.lessons:
        if not set(lesson.modules) <= asked:
            continue
        found += _tests(course, lesson.id, table["TESTS"].get(lesson.id, {}))
        found += _bugs(course, lesson.id, table["MUTANTS"].get(lesson.id, {}))
    if asked == {m.name for m in course}:
        benches = {m.bench.name: m.bench.budget for m in course if m.bench}
        if not benches.items() >= table["BENCHES"].items():
            found.append(Finding("the course", f"its benches are {benches}, and must have "
                                 f"{table['BENCHES']}", "Mend the [bench] of the manifests"))
    return found


def _tests(course: Course, lesson: str, rows: dict[str, set[str]]) -> list[Finding]:
    tests = {t.name: t for m in course.named([lesson]) for t in m.tests}
    found = []
    for name, kinds in rows.items():
        test = tests.get(name)
        if test is None or set(test.kinds) != kinds:
            found.append(Finding(lesson, f"its table has a test {name} of kind "
                                 f"{', '.join(sorted(kinds))}, and the course "
                                 + ("has not" if test is None else "has it of another"),
                                 "Put the row back into its manifest"))
        elif not test.why:
            found.append(Finding(lesson, f"{name} does not say why it matters",
                                 "Give its docstring a paragraph that begins with Why:"))
    return found


def _bugs(course: Course, lesson: str, rows: dict[str, set[str]]) -> list[Finding]:
    planted = [(x.id, set(x.caught_by)) for m in course.named([lesson]) for x in mutants_of(m)]
    return [Finding(lesson, f"its table has a bug {id_}, caught by {', '.join(sorted(tests))}, and "
                    "the course has not", "Put the row back into mutants.toml")
            for id_, tests in rows.items()
            if not any(id_ == x and tests <= caught for x, caught in planted)]
