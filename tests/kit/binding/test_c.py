"""The programs in C: what is asked of them beyond the gates of every module. Where there is no
compiler all of it is left out, and says so."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import ROOT
from grader.binding import native_module
from grader.binding.compiler import sources_in
from grader.course.model import Course
from grader.course.planted_bugs import reference_of
from grader.grading.report import Status, Verdict
from grader.sandbox.api import WorkerPool
from tests.kit.support.compiled import CC, needs_compiler
from tests.kit.support.copies import copy, ol
from tests.kit.support.judged import implementation, judge, program, said

pytestmark = needs_compiler
PROGRAM = "c_kv_pool"


def test_a_right_program_may_print_and_read(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """Neither finds the way on which the driver is asked and answers."""
    module = course.module(PROGRAM)
    text = (implementation("arrays") / module.file_name).read_text(encoding="utf-8")
    for find, replace in (
        ("#include <string.h>\n", "#include <stdio.h>\n#include <string.h>\n"),
        ("    tl_kv_stats stats;\n", "    tl_kv_stats stats;\n    printf(\"alloc %u\\n\", n);\n"
         "    fprintf(stderr, \"it is %d\", getchar());\n")):
        assert text.count(find) == 1
        text = text.replace(find, replace)
    (tmp_path / "tinyllm").mkdir()
    result = judge(course, workers, module, program(tmp_path, module, text))
    assert result.status is Status.PASSED, said([result])
    printed = {test.name: test.printed for test in result.tests}
    assert printed["pools_live_and_end_apart"].startswith("alloc 1\nit is -1alloc 2\n")


def test_the_reference_has_no_warning_that_one_could_ask_for(course: Course) -> None:
    assert CC is not None
    module = course.module(PROGRAM)
    rooms = [native_module.given(module) / room for room in ("src", "support", "adapter")]
    rooms += [module.suite / "driver", *(ROOT / "tests/kit/c").iterdir()]
    headers = [native_module.given(module) / "include", native_module.given(module) / "src"]
    for room in rooms:
        for source in sources_in(room, "*.c"):
            CC.compile(source, sources_in(room, "*.h"), headers, (
                "-O2", "-Wcast-align", "-Wmissing-prototypes", "-Wwrite-strings", "-Wundef"))
    for source in sources_in(rooms[0], "*.c"):
        CC.compile(source, sources_in(rooms[0], "*.h"), headers, ("-Wconversion",))


def test_a_line_of_c_is_no_longer_than_one_of_python() -> None:
    files = [p for room in ("reference", "stubs", "tests") for p in (ROOT / room).rglob("*.[ch]")]
    assert len(files) > 20
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            assert len(line) <= 100 and "\t" not in line, f"{file}: {line}"


def test_what_is_given_is_laid_out_and_told_of(course: Course, tmp_path: Path) -> None:
    """A learner's folder holds each header that its files include, and the chapter names it."""
    module, place = course.module(PROGRAM), copy(tmp_path)
    assert ol(place, "start", PROGRAM).returncode in (0, 1)
    room = place / "work" / "c"
    given = {p.name for p in (native_module.given(module) / "include").rglob("*.h")}
    assert {p.name for p in (room / "include" / "tinyllm").iterdir()} == given
    chapter = (module.folder / "chapter.md").read_text(encoding="utf-8")
    assert given <= set(re.findall(r"^\| `(\w+\.h)` \|", chapter, re.MULTILINE))
    for file in room.rglob("*.[ch]"):
        for name in re.findall(r'^#include "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE):
            assert (room / "include" / name).exists(), f"{file} includes {name}"


def test_a_view_keeps_its_pool_and_threads_take_turns() -> None:
    """In a process of its own, which the adapters are bound in."""
    done = subprocess.run([sys.executable, "-P", "-m", "tests.kit.support.in_c"], cwd=ROOT,
                          check=False, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


@pytest.mark.parametrize("pass_", [1, 2])
def test_a_pass_is_green_before_the_next_is_begun(
    course: Course, workers: WorkerPool, tmp_path: Path, pass_: int
) -> None:
    """No test needs a function of a later pass than its own."""
    module = course.module(PROGRAM)
    stub = (ROOT / "stubs" / module.file_name).read_text(encoding="utf-8")
    later = [fill.name for fill in module.fills if fill.pass_ > pass_]
    includes, rest = reference_of(module).rsplit("\n#include", 1)
    file, rest = rest.split("\n", 1)
    text = "\n".join([
        f"{includes}\n#include{file}", *(f"#define {name} unseen_{name}" for name in later), rest,
        *(f"#undef {name}\n{definition(stub, name)}" for name in later)])
    (tmp_path / "tinyllm").mkdir()
    shutil.copytree(native_module.given(module) / "src", (tmp_path / module.file_name).parent)
    result = judge(course, workers, module, program(tmp_path, module, text))
    verdicts = {t.name: t.verdict for t in result.tests if t.pass_ <= pass_}
    assert set(verdicts.values()) == {Verdict.PASSED}, (
        said([result]), result.failure)


def definition(text: str, name: str) -> str:
    """Return a function of a source file."""
    found = re.search(rf"^[^\n/ ][^\n]*\b{name}\([^;{{]*\) \{{\n.*?^\}}\n", text,
                      re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[0]
