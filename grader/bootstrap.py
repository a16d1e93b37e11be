"""Make the environment where it is missing or out of date, then run a program in it.

    bootstrap.py VERB…          the program `ol` with these words
    bootstrap.py --kit PROGRAM…  with the authors' tools too, `python PROGRAM…`

It uses nothing but the standard library. The environment lies in `.venv`; a stamp in it holds the
digest of what it was made from, so that a run with nothing to do costs a few milliseconds.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = ROOT / "grader" / "requirements"
PYTHON = VENV / "bin" / "python"

_OL = """#!/bin/sh
exec "$(dirname "$0")/python" -P -m grader "$@"
"""


def main(words: list[str]) -> None:
    kit = words[:1] == ["--kit"]
    with _alone():
        wanted = "kit" if kit or _stamp("kit").exists() else "learn"
        if not _current(wanted):
            _make(wanted)
    program = words[1:] if kit else ["-m", "grader", *words]
    os.execv(PYTHON, [str(PYTHON), "-P", *program])


def _make(name: str) -> None:
    """Build the environment from the lock file ``name``."""
    say(f"making the environment in {VENV.name} (once)")
    if not (name == "kit" and _current("learn")):  # what is out of date is made anew, whole
        shutil.rmtree(VENV, ignore_errors=True)
        _venv()
    _install(LOCKS / f"{name}.lock")
    site = next((VENV / "lib").glob("python3.*/site-packages"))
    (site / "ol.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    command = VENV / "bin" / "ol"
    command.write_text(_OL, encoding="utf-8")
    command.chmod(0o755)
    _stamp(name).write_text(_digest(name), encoding="utf-8")


def _venv() -> None:
    # Not the environment's own Python, which may be the one that runs this: it is gone by now.
    python = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run([python, "-m", "venv", str(VENV)], capture_output=True, text=True,
                          check=False, cwd=ROOT)
    if done.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        if "ensurepip" in done.stdout + done.stderr or "No module named venv" in done.stderr:
            fail(f"this Python has no venv module: sudo apt install python{version}-venv")
        fail(f"the environment cannot be made: {_last_line(done.stdout + done.stderr)}")


def _install(lock: Path) -> None:
    """Install exactly what the lock names, wheels only: no compiler is ever needed."""
    common = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    uv = shutil.which("uv")
    # A learner's environment that becomes an author's keeps nothing that the lock lacks.
    command = ([uv, "pip", "install", "--quiet", "--python", str(PYTHON), *common] if uv else
               [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                *common])
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False, cwd=ROOT)
    if done.returncode:
        errors = [x for x in done.stderr.splitlines() if "error" in x.lower()]
        fail("the packages cannot be installed (is there a network?): "
             + (errors[0].strip() if errors else _last_line(done.stderr)))


def _current(name: str) -> bool:
    """True when the environment is what the lock file says, for this folder and this Python."""
    with contextlib.suppress(OSError):
        return PYTHON.exists() and _stamp(name).read_text(encoding="utf-8") == _digest(name)
    return False


def _digest(name: str) -> str:
    """Return what the environment depends on: the lock file, and the folder it was made for."""
    lock = (LOCKS / f"{name}.lock").read_bytes()
    return hashlib.sha256(lock + str(ROOT).encode() + _OL.encode()).hexdigest()


def _stamp(name: str) -> Path:
    return VENV / f"ol-{name}.stamp"


@contextlib.contextmanager
def _alone():  # type: ignore[no-untyped-def]
    """Let one process at a time make the environment."""
    import fcntl

    with open(LOCKS / "learn.in", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def say(sentence: str) -> None:
    print(f"ol: {sentence}", file=sys.stderr, flush=True)


def fail(sentence: str) -> None:
    say(sentence)
    sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
