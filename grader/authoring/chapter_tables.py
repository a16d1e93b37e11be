"""The tables that a chapter shows, printed from the manifests and the suites' docstrings."""

import re
from collections.abc import Sequence
from pathlib import Path

from grader.course.model import Course, Module
from grader.course.planted_bugs import mutants_of
from grader.course.rules import contract_of
from grader.errors import KitError


def write(course: Course) -> list[Path]:
    """Bring the tables of every chapter and every contract page up to date and return the files
    that changed."""
    changed = []
    for module in course:
        path, page = module.folder / "chapter.md", page_of(module)
        text = path.read_text(encoding="utf-8")
        for file, new in ((path, filled(module, text)), (page, contract_page(module))):
            if not file.exists() or file.read_text(encoding="utf-8") != new:
                file.write_text(new, encoding="utf-8", newline="\n")
                changed.append(file)
    return changed


def page_of(module: Module) -> Path:
    """Return the page that shows the module's contract."""
    return module.folder / "contract.md"


def contract_page(module: Module) -> str:
    """Return the page of a module's contract: each rule with the tests that check it, and what is
    unspecified."""
    contract = contract_of(module)
    rows = [("Rule", "Id", "Tests that check it")]
    rows += [(rule.text, f"`{rule.id}`",
              ", ".join(f"`{t.name}`" for t in module.tests if rule.id in t.rules))
             for rule in contract.rules]
    text = (f"# The contract of `{module.name}`\n\n"
            "Every correct program keeps these rules, and the tests check nothing else. "
            "[The chapter](chapter.md) explains them.\n\n" + _markdown(rows))
    if contract.freedoms:
        text += ("\n## Unspecified\n\nYour program may do any of these in its own way. "
                 "No test depends on them.\n\n")
        text += "".join(f"- {freedom.text}\n" for freedom in contract.freedoms)
    return text


def filled(module: Module, chapter: str) -> str:
    """Return the chapter with the tables between its markers as they must be."""
    for mark, table in (("tests", tests_table(module)), ("pitfalls", pitfalls_table(module)),
                        *((t.mark, _markdown([t.head, *t.rows()])) for t in module.tables)):
        found = re.findall(rf"<!-- {mark} -->\n.*?<!-- /{mark} -->", chapter, re.DOTALL)
        if len(found) != 1:
            raise KitError(f"{module.folder / 'chapter.md'} must have one pair of markers "
                           f"<!-- {mark} --> and <!-- /{mark} -->")
        chapter = chapter.replace(found[0], f"<!-- {mark} -->\n\n{table}\n<!-- /{mark} -->")
    return chapter


def tests_table(module: Module) -> str:
    rows = [("Test", "Kind", "Pass", "What it checks", "Why it matters downstream")]
    rows += [(f"`{t.name}`", ", ".join(t.kinds), str(t.pass_), t.sentence, t.why)
             for t in module.tests if t.file.is_relative_to(module.suite)]
    return _markdown(rows)


def pitfalls_table(module: Module) -> str:
    rows = [("Pitfall", "Symptom", "Caught by")]
    rows += [(m.pitfall, m.symptom, ", ".join(f"`{t}`" for t in m.caught_by)
              + f" ({m.id}; {m.source})") for m in mutants_of(module)]
    return _markdown(rows)


def _markdown(rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + " --- |" * len(rows[0]))
    return "\n".join(lines) + "\n"
