"""The script that runs the probe of a freedom over whatever program is bound."""

import importlib
from collections.abc import Callable
from typing import Any


def main(tell: Callable[..., None], plan: dict[str, Any]) -> None:
    """Run ``plan["probe"]`` with the public names of the modules in ``plan["modules"]``."""
    names: dict[str, Any] = {}
    for module in plan["modules"]:
        names |= {name: value for name, value in vars(importlib.import_module(module)).items()
                  if not name.startswith("_")}
    exec(compile(plan["probe"], "probe", "exec", dont_inherit=True), names)
