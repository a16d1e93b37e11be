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
unset PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONINSPECT
exec "$(dirname "$0")/python" -P -m grader "$@"
"""


def main(words: list[str]) -> None:
    kit = words[:1] == ["--kit"]
    with _alone():
        wanted = "kit" if kit or _stamp("kit").exists() else "learn"
        if not _current(wanted):
            _renew(wanted)
    program = words[1:] if kit else ["-m", "grader", *words]
    os.execv(PYTHON, [str(PYTHON), "-P", *program])


class Failed(Exception):
    """The environment cannot be made; the message says why and what to do."""


def _renew(name: str) -> None:
    """Make the environment anew. Where that fails, the one that was there goes on serving."""
    say(f"making the environment in {VENV.name} (once)")
    grows = name == "kit" and _current("learn")  # an author's is a learner's and more
    old = VENV.with_name(VENV.name + ".old")
    if not grows:
        shutil.rmtree(old, ignore_errors=True)
        if VENV.exists():
            VENV.rename(old)
    try:
        if not grows:
            _venv()
        _fill(name)
    except BaseException as error:
        if not grows:
            shutil.rmtree(VENV, ignore_errors=True)
            if old.exists():
                old.rename(VENV)
        if not isinstance(error, Failed):
            raise
        if not _serves():
            fail(str(error))
        say(f"{error}; going on with the environment as it was")
    shutil.rmtree(old, ignore_errors=True)


def _fill(name: str) -> None:
    """Put the packages of the lock file ``name`` and the command `ol` into the environment."""
    _install(LOCKS / f"{name}.lock")
    if not _runs():
        raise Failed("the packages were installed, but not into .venv: do PIP_ variables in the "
                     "environment send them elsewhere?")
    (_site() / "ol.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    command = VENV / "bin" / "ol"
    command.write_text(_OL, encoding="utf-8")
    command.chmod(0o755)
    _stamp(name).write_text(_digest(name), encoding="utf-8")


def _serves() -> bool:
    """True when the environment, though out of date, was made for this folder and runs."""
    with contextlib.suppress(OSError, StopIteration):
        return (_site() / "ol.pth").read_text(encoding="utf-8").strip() == str(ROOT) and _runs()
    return False


def _runs() -> bool:
    """True when the environment has what the program imports."""
    wanted = "import click, hypothesis, numpy, pytest, rich"
    return subprocess.run([PYTHON, "-I", "-c", wanted], check=False,
                          capture_output=True).returncode == 0


def _site() -> Path:
    return next((VENV / "lib").glob("python3.*/site-packages"))


def _venv() -> None:
    # Not the environment's own Python, which may be the one that runs this: it is gone by now.
    python = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run([python, "-m", "venv", str(VENV)], capture_output=True, text=True,
                          check=False, cwd=ROOT)
    if done.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        if "ensurepip" in done.stdout + done.stderr or "No module named venv" in done.stderr:
            raise Failed("this Python has no venv module: " + _how(f"python{version}-venv"))
        raise Failed(f"the environment cannot be made: {_last_line(done.stdout + done.stderr)}")


def _install(lock: Path) -> None:
    """Install exactly what the lock names, wheels only: no compiler is ever needed."""
    common = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    uv = shutil.which("uv")
    command = ([uv, "pip", "install", "--quiet", "--python", str(PYTHON), *common] if uv else
               [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                *common])
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          check=False, cwd=ROOT)
    if done.returncode:
        errors = [x for x in done.stderr.splitlines() if "error" in x.lower()]
        raise Failed("the packages cannot be installed (is there a network?): "
                     + (errors[0].strip() if errors else _last_line(done.stderr)))


def _current(name: str) -> bool:
    """True when the environment is what the lock file says, for this folder and this Python."""
    with contextlib.suppress(OSError):
        return PYTHON.exists() and _stamp(name).read_text(encoding="utf-8") == _digest(name)
    return False


def _digest(name: str) -> str:
    """Return what the environment depends on: the lock file, the folder it was made for, and the
    Python that runs this, which is the environment's own where there is one."""
    lock = (LOCKS / f"{name}.lock").read_bytes()
    rest = f"{ROOT} {sys.version_info[:2]} {sys.platform} {_OL}"
    return hashlib.sha256(lock + rest.encode()).hexdigest()


def _stamp(name: str) -> Path:
    return VENV / f"ol-{name}.stamp"


@contextlib.contextmanager
def _alone():  # type: ignore[no-untyped-def]
    """Let one process at a time make the environment."""
    import fcntl

    with open(LOCKS / "learn.in", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _how(package: str) -> str:
    """Return the command that installs a Debian package's like, as far as it is known here."""
    if shutil.which("apt"):
        return f"sudo apt install {package}"
    return "install your system's package for it, or a Python from python.org"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def say(sentence: str) -> None:
    print(f"ol: {sentence}", file=sys.stderr, flush=True)


def fail(sentence: str) -> None:
    say(sentence)
    sys.exit(2)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
    except OSError as broken:
        fail(f"{broken.filename}: {broken.strerror}")
