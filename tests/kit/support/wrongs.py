"""Wrong programs, told as a change of a right one: what learners write (`wrong/`), and planted
bugs' pitfalls implemented in other ways (`held_out/`)."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from tests.kit.support.judged import KIT, implementation


@dataclass(frozen=True)
class Wrong:
    """A learner's mistake: what they did, in which module, and which tests must fail by it.

    ``expect`` is ``("*",)`` where the module cannot be judged at all. ``pitfalls`` are the planted
    bugs, by their ids, whose pitfall it is: several where they are one fault.
    """

    name: str
    story: str
    base: str
    module: str
    file: str
    expect: tuple[str, ...]
    source: bytes
    dangerous: bool
    pitfalls: tuple[str, ...]

    def write(self, folder: Path) -> Path:
        """Write the whole program below ``folder``: the base's modules, this one changed."""
        for room in {"tinyllm", str(Path(self.file).parent)}:
            (folder / room).mkdir(parents=True, exist_ok=True)
            for file in (_folder(self.base) / room).glob("*.*"):
                (folder / room / file.name).write_bytes(file.read_bytes())
        (folder / self.file).write_bytes(self.source)
        return folder


def load() -> list[Wrong]:
    """Return what learners write, by name."""
    return [_read(path) for path in sorted((KIT / "wrong").glob("*.toml"))]


def held_out() -> list[Wrong]:
    """Return the programs that the diagnosis is measured with, by module and name."""
    return [_read(path) for path in sorted((KIT / "held_out").glob("*/*.toml"))]


def _folder(base: str) -> Path:
    return ROOT / "reference" if base == "reference" else implementation(base)


def _read(path: Path) -> Wrong:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    name = data.get("file", f"tinyllm/{data['module']}.py")
    if "source_hex" in data:
        source = bytes.fromhex(data["source_hex"])
    elif "source" in data:
        source = data["source"].encode()
    else:
        text = (_folder(data["base"]) / name).read_text(encoding="utf-8")
        for edit in data["edit"]:
            assert text.count(edit["find"]) == 1, f"{path.name}: an edit must apply exactly once"
            text = text.replace(edit["find"], edit["replace"])
        source = text.encode()
    return Wrong(path.stem, data["story"], data["base"], data["module"], name,
                 tuple(data.get("expect", ())), source, data.get("dangerous", False),
                 tuple(data.get("pitfalls", ())))
