"""`ol doctor`: look at the machine and the checkout; say what is right and what is wrong."""

import importlib.metadata
import locale
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from packaging.markers import Marker

from grader import ROOT, VERSION
from grader.course import manifest as courses
from grader.errors import CallError, KitError
from grader.learner import snapshots, workspace
from grader.learner.workspace import State
from grader.sandbox import landlock

Finding = tuple[bool, str]

_LINE_END = b"\r\n"
_IMPORTS = "import hypothesis, numpy, pytest, rich; numpy.zeros(1) + 1"


def doctor() -> int:
    """Print one line a finding; 0 when all is well, 2 when something must be mended."""
    well = True
    for look in (_python, _packages, _line_ends, _course, _stubs, _worker, _limits, _confined,
                 _compiler, _files, _disk, _text):
        for good, sentence in _looked(look):
            click.echo(("ok   " if good else "BAD  ") + sentence)
            well = well and good
    click.echo("All is well." if well else "Mend the lines marked BAD, then run `ol doctor` again.")
    return 0 if well else 2


def _looked(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except (KitError, CallError, OSError) as error:
        yield False, str(error)


def _python() -> Iterator[Finding]:
    version = ".".join(str(n) for n in sys.version_info[:3])
    yield sys.version_info >= (3, 11), f"Python {version}, kit {VERSION}, in {ROOT}"


def _packages() -> Iterator[Finding]:
    lock = (ROOT / "grader" / "setup" / "requirements" / "learn.lock").read_text(encoding="utf-8")
    wrong = []
    pinned = re.findall(r"^([\w-]+)==(\S+?)(?: ; (.*?))? \\$", lock, re.MULTILINE)
    wanted: dict[str, set[str]] = {}
    for name, version, marker in pinned:
        if not marker or Marker(marker).evaluate():
            wanted.setdefault(name, set()).add(version)
    for name, versions in wanted.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "absent"
        if installed not in versions:
            wrong.append(f"{name} {installed} instead of {' or '.join(sorted(versions))}")
    done = subprocess.run([sys.executable, "-I", "-c", _IMPORTS], capture_output=True, text=True,
                          errors="replace", check=False)
    if done.returncode:
        wrong.append((done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1])
    yield not wrong, f"{len(wanted)} packages as locked" if not wrong else (
        f"packages differ from the lock file: {', '.join(wrong)}; `rm -r .venv && make start` "
        "makes them anew (your work is not in there)")


def _line_ends() -> Iterator[Finding]:
    """Find text with the line ends of Windows: no shell reads `grader/run` then."""
    rooms = ("course", "formats", "grader", "reference", "stubs", "tests")
    files = [ROOT / "Makefile", *(p for room in rooms for p in sorted((ROOT / room).rglob("*"))
                                  if p.is_file() and "__pycache__" not in p.parts)]
    found = [str(p.relative_to(ROOT)) for p in files if _LINE_END in p.read_bytes()]
    places = " ".join(sorted({name.split("/")[0] for name in found}))
    yield not found, "the kit's text has the line ends of Unix" if not found else (
        f"{', '.join(found[:3])}{f' and {len(found) - 3} more' if found[3:] else ''}: line ends of "
        f"Windows (CR LF); turn core.autocrlf off, then `git checkout -- {places}`")


def _course() -> Iterator[Finding]:
    course = courses.load()
    tests = sum(len(m.tests) for m in course)
    yield True, f"the course: {len(course.modules)} modules, {tests} tests"


def _stubs() -> Iterator[Finding]:
    from grader.authoring import python_stub

    stale = [name for name, text in python_stub.generate(courses.load()).items()
             if (ROOT / "stubs" / name).read_text(encoding="utf-8") != text]
    yield not stale, "the stubs are as the reference makes them" if not stale else (
        f"changed by hand: {', '.join('stubs/' + s for s in stale)}; `ol author write` makes "
        "them anew")


def _worker() -> Iterator[Finding]:
    """Judge the first test of the course on the reference: the whole way, once."""
    from grader.grading.check import CheckOptions, check
    from grader.sandbox.api import WorkerPool

    course = courses.load()
    module = course.modules[0]
    options = CheckOptions((module.name,), bind="reference", only=module.tests[0].name)
    with WorkerPool() as workers:
        report = check(course, options, workers)
    yield report.passed, "a worker starts, judges and ends" if report.passed else (
        f"the reference does not pass {module.tests[0].name}: the checkout is damaged")


def _limits() -> Iterator[Finding]:
    if any(Path("/proc/self/task").glob("*/children")):
        yield True, "limits: time, memory, output, file size, processes, strays"
    else:
        yield True, ("limits: time, output, file size; memory and processes are watched from "
                     "outside, and a process that leaves its group is not found on this system")


def _confined() -> Iterator[Finding]:
    yield True, ("a worker may change nothing outside its scratch folder" if landlock.version() else
                 "this system cannot keep a worker from changing files (Linux 5.13 with Landlock "
                 "can): a mistake in your code can reach yours")


def _compiler() -> Iterator[Finding]:
    from grader.binding import compiler, native_module

    try:
        found = compiler.find()
    except compiler.NoCompiler as missing_tool:
        yield True, f"the optional programs need {missing_tool}"
        return
    sanitized = native_module.sanitizers(found)
    yield True, f"C compiler {found.program}, " + (
        "with sanitizers" if sanitized else "without sanitizers: what only they see is not judged")


def _files() -> Iterator[Finding]:
    course = courses.load()
    if not workspace.work().is_dir():
        yield True, "work/ is not laid out yet: `make start`"
        return
    if said := workspace.used_instead(course, workspace.work()):
        yield True, said
    if lacking := workspace.lacking_given(course):
        yield True, (f"not in work/tinyllm: {', '.join(lacking)}, provided by the kit, whose own "
                     "is used; `ol start` lays out a copy")
    for module in course:
        state = workspace.state_of(module, workspace.work())
        if module.optional and state is State.MISSING and not snapshots.way_back(module):
            continue
        said = snapshots.said_of(module, state) or "begun"
        yield state is not State.UNREADABLE, f"work/{module.file_name}: {said}"


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(ROOT).free >> 20
    yield free > 100, f"{free} MiB free on this disk" + (
        "" if free > 100 else ": too few to write results safely")


def _text() -> Iterator[Finding]:
    encoding = locale.getpreferredencoding(False)
    yield True, f"the locale's encoding is {encoding}; the kit reads and writes UTF-8 anyway"


@click.command("doctor")
def command() -> None:
    """Look at this machine and this checkout, and say what is wrong."""
    sys.exit(doctor())
