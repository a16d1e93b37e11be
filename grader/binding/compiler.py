"""A C compiler: found, run in a box, and asked no more than once for the same.

What it makes is kept in `.cache/` beside the rooms, under the digest of all that went into it: the
compiler, the flags, the sources and the headers. A folder there appears whole or not at all.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import ROOT
from grader.errors import CallError, KitError
from grader.learner.plain_text import plain

HOW = ("a C compiler: `sudo apt install gcc libc6-dev` on Debian and Ubuntu, `xcode-select "
       "--install` on macOS, or name yours with --cc")
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow",
          "-Wstrict-prototypes", "-Wvla", "-pthread")
_CPU_SECONDS = 30  # of processor time, for one program that a compiler starts
_SECONDS = 300.0  # in all, on a machine that is busy with other things
_LARGE = 4 << 20  # bytes of a source
_KEPT = 600  # things made
_SHOWN = 2000  # characters of what a compiler said that nobody understood
_ERROR = re.compile(r"^(?:\./)?(\S+?):(\d+)(?::\d+)?: (?:fatal )?error: (.*?)(?: \[-W\S+\])?$",
                    re.M)
_MISSING = re.compile(r"undefined reference to [`'](\w+)'|^ *\"_(\w+)\", referenced from", re.M)
_FAR = "its parts lie too far from each other: is there a very large array?"
_STOPPED = {
    "File too large": "what the compiler makes of it is larger than 64 MiB: is there a very large "
                      "array with a first value?",
    "relocation truncated to fit": _FAR, "relink with --no-relax": _FAR,
    "signal terminated program": f"the compiler was not done after {_CPU_SECONDS} seconds of "
                                 "processor time",
}
_TWICE = re.compile(r"multiple definition of [`'](\w+)'|duplicate symbol '_(\w+)'")


_LOCK = threading.Lock()
_LOCKS: dict[Path, threading.Lock] = {}


@dataclass(frozen=True)
class Complaint:
    """What a compiler has against a source. Of what only the linker missed, ``line`` is 0."""

    file: str
    line: int
    message: str


class Refused(Exception):
    """The sources cannot be built; ``complaints`` say why, in their terms."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__("; ".join(c.message for c in complaints))
        self.complaints = complaints


class NoCompiler(Exception):
    """There is no C compiler on this machine; the message says how to get one."""


@dataclass(frozen=True)
class Source:
    """A file to compile: its bytes, and the name by which complaints call it."""

    name: str
    data: bytes


def _writable(cache: Path) -> Path:
    """Return the cache, or in its place, where it may not be written to, a folder that goes with
    this process."""
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if cache.is_dir() and os.access(cache, os.W_OK):
        return cache
    folder = tempfile.mkdtemp(prefix="ol-c-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chmod(folder, 0o755)  # a worker of root's reads as a user that nobody is
    return Path(folder)


class Compiler:
    """One compiler, what it is always told, and the cache of what it made."""

    def __init__(self, program: Path, cache: Path = ROOT / ".cache" / "c",
                 words: Sequence[str] = ()) -> None:
        self.program, self.words = program, tuple(words)
        self.cache = _writable(cache)
        looks = program.stat()
        self.identity = " ".join([str(program), *words, str(looks.st_size), str(looks.st_mtime_ns),
                                  sys.platform])

    def compile(self, source: Source, beside: Iterable[Source], headers: Iterable[Path],
                flags: tuple[str, ...]) -> Path:
        """Return the object file of ``source``. ``beside`` are the files next to it that it may
        include, ``headers`` the folders of the others."""
        beside, headers = list(beside), list(headers)
        arguments = [*STRICT, *flags, *(f"-I{folder}" for folder in headers)]
        parts = [source.name.encode(), source.data,
                 *(part for other in beside for part in (other.name.encode(), other.data)),
                 *(p.read_bytes() for folder in headers for p in sorted(folder.rglob("*.h")))]

        def make(folder: Path) -> None:
            for file in (*beside, source):
                path = folder / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.data)
            self._run(folder, [*arguments, f"-ffile-prefix-map={folder}=.", "-c", source.name,
                               "-o", "object.o"])

        return self._made([*arguments, *map(digest, parts)], "object.o", make)

    def link(self, objects: Iterable[Path], name: str, flags: tuple[str, ...]) -> Path:
        """Return the program or library of these object files."""
        files = [str(path) for path in objects]
        # An object lies under its digest, so its path tells what is in it.
        return self._made([*flags, name, *files], name, lambda folder: self._run(
            folder, [*files, *flags, "-o", name]))

    def can(self, flags: tuple[str, ...]) -> bool:
        """Say whether a program can be built with these flags here."""
        nothing = Source("nothing.c", b"int main(void) {\n    return 0;\n}\n")
        with contextlib.suppress(Refused):
            self.link([self.compile(nothing, (), (), flags)], "nothing", flags)
            return True
        return False

    def _made(self, parts: list[str], name: str, make: Callable[[Path], None]) -> Path:
        key = digest("\0".join([self.identity, *parts]).encode())
        place = self.cache / key / name
        with _lock_of(place):
            if not place.exists():
                self._make(place, make)
            with contextlib.suppress(OSError):
                os.utime(place.parent)  # used just now: the last to go
        return place

    def _make(self, place: Path, make: Callable[[Path], None]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="new-", dir=self.cache))
        try:
            make(folder)
            os.chmod(folder, 0o755)  # a worker of root's reads as a user that nobody is
            with contextlib.suppress(OSError):  # another grader was quicker
                os.rename(folder, place.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._prune()

    def _prune(self) -> None:
        """Let the things go that were used longest ago, beyond as many as are kept. Others may be
        at work in here."""
        held = []
        for folder in self.cache.iterdir():
            with contextlib.suppress(OSError):
                held.append((folder.stat().st_mtime, folder))
        for _, folder in sorted(held)[: max(len(held) - _KEPT, 0)]:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, folder: Path, arguments: list[str]) -> None:
        """Run the compiler in ``folder``, where alone it may write."""
        box = str(ROOT / "grader" / "sandbox" / "inside" / "exec_confined.py")
        words = [sys.executable, "-I", "-S", box, str(ROOT), str(folder), str(_CPU_SECONDS),
                 str(self.program), *self.words]
        env = {"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(folder), "LC_ALL": "C",
               "CCACHE_DISABLE": "1"}  # its cache lies outside the box
        with open(folder / "said.txt", "w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen([*words, *arguments], cwd=folder, env=env, stdout=said,
                                       stderr=said, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
            try:
                status = process.wait(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                raise Refused([Complaint("", 0, f"the compiler was not done after {_SECONDS:g} "
                                                "seconds")]) from None
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            said.seek(0)
            if status:
                raise Refused(complaints_of(said.read(1 << 20)))
            if not (folder / arguments[-1]).exists():
                raise Refused([Complaint("", 0, "the compiler made nothing")])


def _lock_of(place: Path) -> threading.Lock:
    """Return the lock of what is made in one place, whichever compiler object makes it: each thread
    that judges has its own."""
    with _LOCK:
        return _LOCKS.setdefault(place, threading.Lock())


def find(wanted: str | None = None) -> Compiler:
    """Return the compiler that is ``wanted``, else that of the variable CC, else what there is.
    Words may follow its name, as in CC="ccache gcc".

    Raises ``CallError`` where the one wanted is not there, or builds nothing; ``NoCompiler`` where
    there is none that does.
    """
    who, asked = ("--cc", wanted) if wanted else ("CC", os.environ.get("CC", "").strip())
    for name in [asked] if asked else ["cc", "gcc", "clang"]:
        name, *words = _split(name, f"{who} {asked}")
        if found := shutil.which(name):
            compiler = Compiler(Path(found), words=words)
            if compiler.can(()):
                return compiler
            if asked:
                raise CallError(f"{who} {asked}: it builds no program in C11, not the smallest one")
        elif asked:
            raise CallError(f"{who} {asked}: there is no such program" + (
                "" if name == asked else f" as {name}"))
    raise NoCompiler(HOW)


def _split(text: str, what: str) -> list[str]:
    """Return the words of a command as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CallError(f"{what}: {error}") from error


def complaints_of(said: str) -> list[Complaint]:
    """Read what a compiler or a linker said: file, line and message, and nothing else. It may
    repeat the source, as of an #error, so it is made plain."""
    said = plain(said)
    found = [Complaint(file, int(line), message) for file, line, message in _ERROR.findall(said)]
    for pattern, message in ((_MISSING, "{} is needed, and no file defines it"),
                             (_TWICE, "{} is defined twice")):
        names = dict.fromkeys(one or other for one, other in pattern.findall(said))
        found += [Complaint("", 0, message.format(name)) for name in names]
    found = found or [Complaint("", 0, why) for sign, why in _STOPPED.items() if sign in said]
    return found or [Complaint("", 0, said.strip()[-_SHOWN:] or "the compiler said nothing")]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sources_in(folder: Path, pattern: str, prefix: str = "") -> list[Source]:
    """Return the files of a folder that match, by name."""
    try:
        files = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
        for path in files:
            if path.stat().st_size > _LARGE:
                raise KitError(f"{path} is larger than any source: {path.stat().st_size} bytes")
        return [Source(prefix + path.name, path.read_bytes()) for path in files]
    except OSError as error:
        raise KitError(f"{folder} cannot be read: {error.strerror}") from error
