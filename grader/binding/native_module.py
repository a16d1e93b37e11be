"""Modules in another language: built, and put in the place of the modules that they stand for.

Two files come of one: a library, which the reference's adapters open, and the driver of the
module's own suite, built with sanitizers where the compiler has them. In a worker they are
modules, too: `<name>` is the library, `<name>_driver` the driver.
"""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from grader.binding.compiler import Compiler, Complaint, Refused, Source, sources_in
from grader.binding.finder import Binding, stand_in
from grader.course.model import PACKAGE, Module, Program
from grader.errors import KitError

_SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
              "-fno-sanitize-recover=all")
_PLAIN_DRIVER = ("-O1", "-g")
_LIBRARY = ("-O2", "-fPIC")
_SHARED = ("-shared", "-pthread", "-Wl,--no-undefined" if sys.platform == "linux" else "-lc")
_MOST = 5  # complaints shown
_OWN = "src/"  # what the learner's files are called by, wherever they are built

Place = tuple[str, int, str]
"""File, line and name of a function that the learner wrote."""


@dataclass(frozen=True)
class Built:
    """What was built of one program. ``places`` says where each function is defined."""

    module: Module
    files: dict[str, str]
    places: dict[str, Place]
    sanitized: bool

    def behind(self, name: str) -> dict[str, Place]:
        """Return, for the functions of the Python module ``name``, those of the program that do
        their work."""
        return {what.removeprefix(f"{name}."): self.places[fill.name]
                for fill in self.module.fills if fill.name in self.places
                for what in fill.stands_for if what.startswith(f"{name}.")}

    def bind(self, binding: Binding) -> Binding:
        """Return the binding with this program behind the modules that it stands for."""
        return stand_in(binding, given(self.module) / "adapter" / PACKAGE, self.files)


def build(module: Module, source: Path, compiler: Compiler, *, driver: bool,
          text: str | None = None) -> Built:
    """Build the program whose source is below ``source``, with its driver if that is wanted.
    ``text``, where it is given, is built in the place of the learner's file: so mutants are made.

    Raises ``Refused`` when the learner's files cannot be built.
    """
    own = _own(module, source, text)
    kinds = [(_library, module.name)] + ([(_driver, f"{module.name}_driver")] if driver else [])
    with ThreadPoolExecutor(max_workers=len(kinds)) as pool:
        made = [(name, pool.submit(make, module, own, compiler)) for make, name in kinds]
        files = {name: str(path.result()) for name, path in made}
    return Built(module, files, places(module, source / program_of(module).source),
                 not driver or sanitizers(compiler))


def program_of(module: Module) -> Program:
    assert module.program is not None
    return module.program


def given(module: Module) -> Path:
    """Return the reference's folder of the program's language."""
    return ROOT / "reference" / program_of(module).room


def checked_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return how drivers are built: with sanitizers, where the compiler has them."""
    return _SANITIZED if sanitizers(compiler) else _PLAIN_DRIVER


def sanitizers(compiler: Compiler) -> bool:
    """Say whether drivers are built with sanitizers here."""
    return compiler.can(_SANITIZED)


def explained(refused: Refused, module: Module, source: Path) -> tuple[str, list[Place]]:
    """Return what is wrong with a program that cannot be built, in the learner's terms, and the
    lines where it is."""
    folder = (source / program_of(module).source).parent
    complaints = refused.complaints
    texts = [f"{Path(c.file).name}:{c.line}: {c.message}" if c.line else c.message
             for c in complaints[:_MOST]]
    if (more := len(complaints) - _MOST) > 0:
        texts.append(f"and {more} more")
    lines = [(str(folder / Path(c.file).name), c.line, "") for c in complaints[:_MOST] if c.line]
    return "\n".join(texts), lines


def reshaped(text: str) -> str:
    """Return C that does the same as ``text``, and of which another library is made."""
    return f"{text}\nint otherwise(void);\nint otherwise(void) {{\n    return 0;\n}}\n"


def places(module: Module, file: Path) -> dict[str, Place]:
    """Return where the functions that the learner writes are defined."""
    text = file.read_text(encoding="utf-8", errors="replace")
    found = {}
    for fill in module.fills:
        for match in re.finditer(rf"^(?:[^\s#/].*)?\b{fill.name}\s*\(", text, re.MULTILINE):
            if re.match(r"[^;{]*\)\s*\{", text[match.end() :]):
                line = text.count("\n", 0, match.end()) + 1
                found[fill.name] = (str(file), line, fill.name)
    return found


def _own(module: Module, source: Path, text: str | None) -> list[Source]:
    """Return the learner's folder, headers included; a file that cannot be read is refused."""
    file = source / program_of(module).source
    try:
        found = sources_in(file.parent, "*.[ch]", _OWN)
    except KitError as error:
        raise Refused([Complaint("", 0, str(error))]) from error
    return found if text is None else [
        Source(s.name, text.encode()) if s.name == _OWN + file.name else s for s in found]


def _library(module: Module, own: list[Source], compiler: Compiler) -> Path:
    bridge = sources_in(given(module) / "adapter", "*.[ch]")
    parts = objects(module, own, compiler, _LIBRARY, bridge)
    return compiler.link(parts, f"{module.name}.so", _SHARED)


def _driver(module: Module, own: list[Source], compiler: Compiler) -> Path:
    flags = checked_flags(compiler)
    kit = sources_in(module.suite / program_of(module).driver, "*.[ch]")
    parts = objects(module, own, compiler, flags, kit)
    return compiler.link(parts, "driver", (*flags, "-pthread"))


def objects(module: Module, own: list[Source], compiler: Compiler, flags: tuple[str, ...],
             kit: list[Source]) -> list[Path]:
    """Compile the learner's files, what is given, and the kit's own part of this build."""
    headers = [given(module) / "include"]
    support = sources_in(given(module) / "support", "*.c")
    parts = [(source, [s for s in room if s.name.endswith(".h")])
             for room in (own, support, kit) for source in room if source.name.endswith(".c")]
    with ThreadPoolExecutor(max_workers=4) as pool:
        made = [pool.submit(compiler.compile, part, beside, headers, flags)
                for part, beside in parts]
        refused = [error for done in made if isinstance(error := done.exception(), Refused)]
    if refused:
        raise Refused(list(dict.fromkeys(c for error in refused for c in error.complaints)))
    return [done.result() for done in made]
