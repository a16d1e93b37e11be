"""Make the environment where it is missing or out of date, then run a program in it.

    bootstrap.py VERB…          the program `ol` with these words
    bootstrap.py --kit PROGRAM…  with the authors' tools too, `python PROGRAM…`

It uses nothing but the standard library. The environment lies in `.venv`; a stamp in it holds the
digest of what it was made from, so that a run with nothing to do costs a few milliseconds. Nothing
that runs in it depends on the folder that it is in: only the shell's `activate` names that, and is
written again where a checkout was moved or copied.
"""

import contextlib
import errno
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv"
OLD = ROOT / ".venv.old"
LOCKS = ROOT / "grader" / "setup" / "requirements"
PYTHON = VENV / "bin" / "python"

_OL = """#!/bin/sh -
# The front door of the checkout that this lies in, from wherever it is called, also by a link.
case $0 in
    /*) self=$0 ;;
    *) self=./$0 ;;
esac
while [ -h "$self" ]; do
    to=$(readlink "$self") || exit 2
    case $to in
        /*) self=$to ;;
        *) self=${self%/*}/$to ;;
    esac
done
bin=${self%/*}
case $bin in
    */.venv/bin) root=${bin%/.venv/bin} ;;
    *) root=$bin/../.. ;;
esac
if [ -f "$root/grader/run" ]; then exec sh "$root/grader/run" "$@"; fi
echo "ol: $self is in no checkout's .venv/bin: call the one that is, or make a link to it" >&2
exit 2
"""

# What begins a program of a package: its Python is beside it, whatever the folder is called.
_HEAD = b"""#!/bin/sh
'''exec' "$(dirname -- "$0")/python" "$0" "$@"
' '''
"""

_MOVED = "ol: this folder was moved: run make start in it, and activate it again"
_ACTIVATES = {  # what is said where the folder that a file of venv's names is no longer there
    "activate": f'[ -x "$VIRTUAL_ENV/bin/ol" ] || echo "{_MOVED}" >&2',
    "activate.fish": f'test -x "$VIRTUAL_ENV/bin/ol"; or echo "{_MOVED}" >&2',
    "activate.csh": f'if ( ! -x "$VIRTUAL_ENV/bin/ol" ) echo "{_MOVED}"',
}


def main(words: list[str]) -> None:
    if why := _impossible(str(ROOT)):
        fail(f"the path of this folder has {why}, and no environment of Python can be made below "
             f"such a name: move the checkout to another folder (it is {str(ROOT)!r})")
    kit = words[:1] == ["--kit"]
    with _alone():
        _recover()
        wanted = "kit" if kit or _stamp("kit").exists() else "learn"
        if not _current(wanted):
            _renew(wanted)
        elif not _is_settled():
            with contextlib.suppress(OSError, Failed):  # it serves where it may not be written to
                _settle()
    program = words[1:] if kit else ["-m", "grader", *words]
    os.execv(PYTHON, [str(PYTHON), "-P", *program])


def _impossible(path: str) -> str:
    """Return what of a checkout's path no environment can have, nothing where there is none."""
    if ":" in path:
        return "a colon"
    if "\n" in path or "\r" in path:
        return "a line break"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "a name that is not UTF-8"
    return ""


class Failed(Exception):
    """The environment cannot be made; the message says why and what to do."""


def _recover() -> None:
    """Finish what a run that was killed has left: the environment that served before is better than
    half of a new one."""
    if os.path.lexists(OLD):
        if not any(_stamp(name).exists() for name in ("learn", "kit")):
            _remove(VENV)
            OLD.rename(VENV)
        _remove(OLD)


def _renew(name: str) -> None:
    """Make the environment anew. Where that fails, the one that was there goes on serving."""
    say(f"making the environment in {VENV.name} (once)")
    grows = name == "kit" and _current("learn")  # an author's is a learner's and more
    if not grows and os.path.lexists(VENV):
        VENV.rename(OLD)
    try:
        if not grows:
            _venv()
        _fill(name)
    except BaseException as error:
        if not grows:
            _remove(VENV)
            if os.path.lexists(OLD):
                OLD.rename(VENV)
        if not isinstance(error, Failed):
            raise
        if not _serves():
            fail(str(error))
        say(f"{error}; going on with the environment as it was")
    _remove(OLD)


def _fill(name: str) -> None:
    """Put the packages of the lock file ``name`` and the command `ol` into the environment."""
    _install(LOCKS / f"{name}.lock")
    if not _runs():
        raise Failed("the packages were installed, but not into .venv: do PIP_ variables in the "
                     "environment send them elsewhere?")
    for script in (VENV / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            _unmoor(script)
    _write(_site() / "ol.pth", f"{os.path.relpath(ROOT, _site())}\n".encode())
    command = VENV / "bin" / "ol"
    _write(command, _OL.encode())
    command.chmod(0o755)
    _place()
    _write(_stamp(name), _digest(name).encode())


def _unmoor(script: Path) -> None:
    """Let a program of a package find its Python beside it, instead of by the whole path."""
    data = script.read_bytes()
    head, _, body = data.partition(b"\n")
    if head == b"#!/bin/sh" and body.startswith(b"'''exec' "):  # as for a path with a blank
        body = body.partition(b"\n' '''\n")[2]
    elif not head.startswith(b"#!" + os.fsencode(VENV)):
        return
    script.write_bytes(_HEAD + body)


def _settle() -> None:
    """Let the environment of a checkout that was moved or copied belong to the folder it is in."""
    _venv("--without-pip")
    _place()


def _place() -> None:
    """Write down the folder that the environment is in, and let the shell's files name it."""
    for name, line in _ACTIVATES.items():
        file = VENV / "bin" / name
        if file.exists():
            text = file.read_text(encoding="utf-8")
            # Some versions of venv put any path between two quotes as it is.
            text = text.replace(f'"{VENV}"', shlex.quote(str(VENV)))
            _write(file, f"{text.rstrip()}\n\n{line}\n".encode())
    _write(VENV / "ol-place", os.fsencode(ROOT))


def _is_settled() -> bool:
    """True when the environment belongs to the folder that it is in, or to another checkout that
    this one has a link to: nothing is written there."""
    if VENV.is_symlink():
        return True
    with contextlib.suppress(OSError):
        return (VENV / "ol-place").read_bytes() == os.fsencode(ROOT)
    return False


def _write(path: Path, data: bytes) -> None:
    """Write a file of the environment, never into one that another checkout has a link to."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _serves() -> bool:
    """True when the environment, though out of date, finds this checkout and runs."""
    with contextlib.suppress(OSError, StopIteration):
        found = _site() / (_site() / "ol.pth").read_text(encoding="utf-8").strip()
        return found.resolve() == ROOT and _runs()
    return False


def _runs() -> bool:
    """True when the environment has what the program imports."""
    wanted = "import click, hypothesis, numpy, pytest, rich"
    with contextlib.suppress(OSError):
        return subprocess.run([PYTHON, "-I", "-c", wanted], check=False,
                              capture_output=True).returncode == 0
    return False


def _site() -> Path:
    return next((VENV / "lib").glob("python3.*/site-packages"))


def _venv(*options: str) -> None:
    # Not the environment's own Python, which may be the one that runs this: it is gone by now.
    python = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run([python, "-m", "venv", *options, VENV.name], capture_output=True,
                          text=True, errors="replace", check=False, cwd=ROOT)
    if done.returncode:
        said = done.stdout + done.stderr
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        if "ensurepip is not available" in said or "No module named" in said:
            raise Failed("this Python has no venv module: " + _how(f"python{version}-venv"))
        raise Failed(f"the environment cannot be made: {_reason(said)}")


def _install(lock: Path) -> None:
    """Install exactly what the lock names, wheels only: no compiler is ever needed."""
    common = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock.relative_to(ROOT))]
    python = str(PYTHON.relative_to(ROOT))
    uv = shutil.which("uv")
    command = ([uv, "pip", "install", "--quiet", "--python", python, *common] if uv else
               [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *common])
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace", check=False, cwd=ROOT)
    if done.returncode:
        if _is_full(done.stderr):
            raise Failed(f"the packages cannot be installed: {_reason(done.stderr)}")
        errors = [x for x in done.stderr.splitlines() if "error" in x.lower()]
        raise Failed("the packages cannot be installed (is there a network?): "
                     + (errors[0].strip() if errors else _last_line(done.stderr)))


def _is_full(said: str) -> bool:
    """True where a program that failed had no room: it may not have had any to say so, either."""
    named = any(os.strerror(e) in said for e in (errno.ENOSPC, errno.EDQUOT))
    return named or shutil.disk_usage(ROOT).free < 1 << 20


def _reason(said: str) -> str:
    if _is_full(said):
        return f"{os.strerror(errno.ENOSPC)} (it needs about 250 MB)"
    return _last_line(said)


def _current(name: str) -> bool:
    """True when the environment is what the lock file says, for this Python."""
    with contextlib.suppress(OSError):
        return PYTHON.exists() and _stamp(name).read_text(encoding="utf-8") == _digest(name)
    return False


def _digest(name: str) -> str:
    """Return what the environment depends on: the lock file, what is put into it beside that, and
    the Python that runs this, which is the environment's own where there is one."""
    lock = (LOCKS / f"{name}.lock").read_bytes()
    rest = f"{sys.version_info[:2]} {sys.platform} {_OL} {_HEAD!r} {_ACTIVATES}"
    return hashlib.sha256(lock + rest.encode()).hexdigest()


def _stamp(name: str) -> Path:
    return VENV / f"ol-{name}.stamp"


@contextlib.contextmanager
def _alone():  # type: ignore[no-untyped-def]
    """Let one process at a time make the environment."""
    import fcntl

    with open(LOCKS / "learn.in", "rb") as file:
        with contextlib.suppress(OSError):  # a file system may have no locks
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
        fail(f"{broken.filename or VENV}: {broken.strerror}")
