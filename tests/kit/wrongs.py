"""The wrong programs of `wrong/`: what learners write, told as a change of a right program."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.kit.judged import KIT, implementation


@dataclass(frozen=True)
class Wrong:
    """A learner's mistake: what they did, in which module, and which tests must fail by it.

    ``expect`` is ``("*",)`` where the module cannot be judged at all.
    """

    name: str
    story: str
    base: str
    module: str
    expect: tuple[str, ...]
    source: bytes
    dangerous: bool

    def write(self, folder: Path) -> Path:
        """Write the whole program below ``folder``: the base's modules, this one changed."""
        package = folder / "tinyllm"
        package.mkdir(parents=True, exist_ok=True)
        for file in (implementation(self.base) / "tinyllm").glob("*.py"):
            (package / file.name).write_bytes(file.read_bytes())
        (package / f"{self.module}.py").write_bytes(self.source)
        return folder


def load() -> list[Wrong]:
    """Return all wrong programs, by name."""
    return [_read(path) for path in sorted((KIT / "wrong").glob("*.toml"))]


def _read(path: Path) -> Wrong:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    if "source_hex" in data:
        source = bytes.fromhex(data["source_hex"])
    elif "source" in data:
        source = data["source"].encode()
    else:
        file = implementation(data["base"]) / "tinyllm" / f"{data['module']}.py"
        text = file.read_text(encoding="utf-8")
        for edit in data["edit"]:
            assert text.count(edit["find"]) == 1, f"{path.name}: an edit must apply exactly once"
            text = text.replace(edit["find"], edit["replace"])
        source = text.encode()
    return Wrong(path.stem, data["story"], data["base"], data["module"], tuple(data["expect"]),
                 source, data.get("dangerous", False))
