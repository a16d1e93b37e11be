"""Work in a process that is started anew: it shares no memory with this one, and no hash seed."""

import json
import marshal
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tests
from grader.assertions import Wrong, note

_PACKAGE = "tinyllm"
_ROOT = str(Path(tests.__file__).resolve().parent.parent)

# Binds the modules under test, whatever they came from, to the code that they have here.
_START = f"""
import importlib, json, marshal, sys
from importlib.util import spec_from_loader

class Codes(dict):
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self, is_package=not self[name]) if name in self else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        if self[module.__name__]:
            exec(self[module.__name__], vars(module))

codes, root, module, work, arguments = marshal.load(sys.stdin.buffer)
sys.meta_path.insert(0, Codes(codes | {{"{_PACKAGE}": None}}))
sys.path.insert(0, root)
answer = getattr(importlib.import_module(module), work)(*arguments)
print(json.dumps(answer), flush=True)
if answer == "waiting":
    sys.stdin.read()
"""


class Elsewhere:
    """A function of a suite's module that runs in a process of its own. Use it as a context: the
    process is killed at its end."""

    def __init__(self, work: Callable[..., Any], *arguments: str) -> None:
        note(f"in another process: {work.__name__.strip('_').replace('_', ' ')}")
        seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": "1"})
        job = _codes(), _ROOT, work.__module__, work.__name__, arguments
        assert self._process.stdin is not None
        self._process.stdin.write(marshal.dumps(job))
        self._process.stdin.flush()

    def __enter__(self) -> "Elsewhere":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def answer(self, what: str) -> Any:
        """Wait for what the function returns; judge that it returns something."""
        assert self._process.stdout is not None and self._process.stderr is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        last = self._process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        raise Wrong(what, "an answer", *(last or ["none"]))

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def _codes() -> dict[str, Any]:
    """Return the code of each module under test."""
    modules = {name: module for name, module in sys.modules.items()
               if name.startswith(f"{_PACKAGE}.")}
    return {name: _code(name, module.__spec__.loader) for name, module in modules.items()
            if module.__spec__ is not None}


def _code(name: str, loader: Any) -> Any:
    return loader.get_code(name) if hasattr(loader, "get_code") else loader.code
