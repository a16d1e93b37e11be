"""Generated mutants of a module: made by mutmut, kept as data in `course/<module>/generated.json`.

The file has a line a mutant: its id, mutmut's name for it, the lines that it changes, and, where no
test need tell it from the original, the reason why.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from grader import ROOT
from grader.course.model import Module
from grader.course.planted_bugs import reference_of
from grader.errors import KitError
from grader.grading.mutation import mutmut_adapter
from grader.grading.mutation.candidates import Program
from grader.sandbox.api import Run, WorkerPool
from grader.sandbox.limits import Limits

Mutant = dict[str, Any]
SCHEMA = 1


def make(workers: WorkerPool, text: str) -> list[Mutant]:
    """Return the mutants that mutmut makes of ``text``."""
    told: list[Mutant] = []
    outcome = Run(workers, {
        "root": str(ROOT), "files": {}, "own": [], "tests": ["mutate"], "suite": [],
        "script": mutmut_adapter.__name__, "arguments": [text], "modules": [], "watch": {},
        "view": None,
        "tests_room": str(ROOT / "tests"),
    }, Limits(seconds=60.0), figure=lambda figure: told.extend(figure["mutants"])).go()
    failure = outcome.results.get("mutate", {"failure": {"what": outcome.unjudged}})["failure"]
    if failure:
        raise KitError(f"mutmut could not make mutants: {failure['what']}")
    return told


def file_of(module: Module) -> Path:
    return module.folder / "generated.json"


def load(module: Module) -> list[Mutant]:
    """Return the module's mutants, those that are left out too, if they are of the reference as it
    is."""
    try:
        data = json.loads(file_of(module).read_text(encoding="utf-8"))
        mutants: list[Mutant] = data["mutants"]
    except (OSError, ValueError, KeyError) as error:
        raise KitError(f"{file_of(module)} cannot be read: {error}") from error
    if data["of"] != digest(reference_of(module)):
        raise KitError(f"{file_of(module)} is of another reference: `ol author mutants "
                       f"{module.name}` makes it anew")
    return mutants


def write(module: Module, made: list[Mutant]) -> tuple[int, int]:
    """Write the module's mutants and return how many are new and how many have gone. What was left
    out before stays so, with its reason."""
    known = {}
    if file_of(module).exists():
        known = {m["id"]: m for m in json.loads(file_of(module).read_text("utf-8"))["mutants"]}
    for mutant in made:
        if reason := known.get(mutant["id"], {}).get("left_out"):
            mutant["left_out"] = reason
    rows = ",\n".join(" " + json.dumps(m, ensure_ascii=False) for m in made)
    text = (f'{{"schema": {SCHEMA}, "module": "{module.name}", '
            f'"of": "{digest(reference_of(module))}", "mutants": [\n{rows}\n]}}\n')
    file_of(module).write_text(text, encoding="utf-8", newline="\n")
    ids = {m["id"] for m in made}
    return len(ids - set(known)), len(set(known) - ids)


def programs(base: Program, mutants: list[Mutant]) -> list[Program]:
    """Return the programs that the mutants make of ``base``, those that are not left out."""
    return [Program(m["id"], mutmut_adapter.applied(base.text, m), function_of(m), base.needs)
            for m in mutants if "left_out" not in m]


def function_of(mutant: Mutant) -> str:
    """Return the function that a mutant changes, as it is called inside its module."""
    return str(mutant["id"]).rpartition(".")[0]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
