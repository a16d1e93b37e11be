"""The manifests: from `course/course.toml` and each module's `module.toml` to the `Course`.

`formats/manifest.schema.json` describes them.
"""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.course.model import (
    PACKAGE,
    Bench,
    Course,
    Fill,
    Lesson,
    Module,
    Mutation,
    Parity,
    Program,
    Row,
    Script,
    Table,
    View,
)
from grader.errors import KitError

_SCRIPT_SECONDS = 60.0


def load(root: Path = ROOT) -> Course:
    """Read the whole course below ``root``. A manifest that does not hold is a ``KitError``."""
    top = _toml(root / "course" / "course.toml")
    try:
        title = top["title"]
        lessons = tuple(Lesson(x["id"], x["title"], tuple(x["modules"]), tuple(x["passes"]))
                        for x in top["lesson"])
    except (KeyError, TypeError) as error:
        raise KitError(f"course/course.toml is incomplete: {error}") from error
    modules = _sharing(tuple(_module(root, name, x.id) for x in lessons for name in x.modules))
    names = {m.name for m in modules}
    given = sorted(p.stem for p in (root / "reference" / PACKAGE).glob("*.py"))
    return Course(title, lessons, modules, tuple(n for n in given if n not in names))


def _module(root: Path, name: str, lesson: str) -> Module:
    folder = root / "course" / "modules" / name
    data = _toml(folder / "module.toml")
    try:
        if data["schema"] != 1 or data["id"] != name:
            raise KitError(f"{folder / 'module.toml'}: schema must be 1 and id {name!r}")
        view, suite = data.get("view"), root / "tests" / name
        return Module(
            name=name,
            title=data["title"],
            lesson=lesson,
            hours=data["hours"],
            needs=tuple(data["needs"]),
            doc=data["doc"].strip(),
            fills=tuple(_fill(x) for x in data["fill"]),
            view=_view(root, name, view) if view else None,
            bench=_bench(suite, data["bench"]) if "bench" in data else None,
            demo=_script(suite, data["demo"]) if "demo" in data else None,
            mutation=_mutation(data.get("mutation", {})),
            parity=_parity(suite, data["parity"]) if "parity" in data else None,
            study=_script(suite, data["study"]) if "study" in data else None,
            tables=tuple(Table(x["mark"], root / x["file"], x["name"], tuple(x["head"]))
                         for x in data.get("table", ())),
            seconds=data.get("limits", {}).get("seconds", 5.0),
            folder=folder,
            rows=tuple(Row(t["name"], tuple(t["kinds"]), t["pass"], tuple(t.get("rules", ())),
                           t.get("machine", False)) for t in data["test"]),
            root=root,
            optional=data.get("optional", False),
            program=_program(data["program"]) if "program" in data else None,
        )
    except (KeyError, TypeError) as error:
        raise KitError(f"{folder / 'module.toml'} is incomplete: {error}") from error


def _sharing(modules: tuple[Module, ...]) -> tuple[Module, ...]:
    """Give each program the modules that it stands for."""
    return tuple(replace(m, shared=tuple(x for x in modules if x.name in m.program.stands_for))
                 if m.program else m for m in modules)


def _program(data: dict[str, Any]) -> Program:
    return Program(data["language"], data["source"], tuple(data["stands_for"]), data["driver"],
                   data.get("begin", ""), tuple(data.get("leaves_out", ())))


def _fill(data: dict[str, Any]) -> Fill:
    return Fill(data["name"], data["pass"], data["todo"], tuple(data["approach"]),
                data.get("example", "").strip("\n"), data.get("query", False),
                tuple(data.get("stands_for", ())))


def _view(root: Path, name: str, data: dict[str, Any]) -> View:
    return View(data["class"], root / data.get("file", f"tests/{name}/view.py"))


def _bench(suite: Path, data: dict[str, Any]) -> Bench:
    return Bench(suite / data["file"], data.get("seconds", _SCRIPT_SECONDS), data["name"],
                 data["title"], data["budget"], data["base"], data["over"], data["control"],
                 beside=tuple(data.get("beside", ())), share=data.get("share", "bookkeeping"))


def _script(suite: Path, data: dict[str, Any]) -> Script:
    return Script(suite / data["file"], data.get("seconds", _SCRIPT_SECONDS),
                  beside=tuple(data.get("beside", ())), offer=data.get("offer", ""))


def _mutation(data: dict[str, Any]) -> Mutation:
    return Mutation(data.get("threshold", Mutation.threshold), tuple(data.get("required", ())),
                    tuple(data.get("names", ())), data.get("weights", {}))


def _parity(suite: Path, data: dict[str, Any]) -> Parity:
    return Parity(suite / data["file"], data.get("seconds", 10 * _SCRIPT_SECONDS), data["name"],
                  data["title"])


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise KitError(f"{path} is missing; the checkout is incomplete") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KitError(f"{path} cannot be read: {error}") from error
