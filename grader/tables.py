"""The tables that a chapter shows, printed from the manifests and the suites' docstrings."""

import re
from collections.abc import Sequence
from pathlib import Path

from grader.course import Course, Module
from grader.errors import KitError
from grader.mutants import mutants_of


def write(course: Course) -> list[Path]:
    """Bring the tables of every chapter up to date and return the chapters that changed."""
    changed = []
    for module in course:
        path = module.folder / "chapter.md"
        text = path.read_text(encoding="utf-8")
        if (new := filled(module, text)) != text:
            path.write_text(new, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


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
