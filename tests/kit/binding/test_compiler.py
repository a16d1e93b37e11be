"""The compiler: found or not, asked once, boxed, and its complaints in a learner's terms."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.compiler import Compiler, Complaint, NoCompiler, Refused, Source, complaints_of
from grader.course.model import Course
from grader.errors import CallError
from grader.grading.check import CheckOptions, check
from grader.grading.report import Status
from grader.grading.target import NativeOptions
from grader.sandbox.api import WorkerPool
from tests.kit import fuzz
from tests.kit.support.compiled import CC, needs_compiler
from tests.kit.support.copies import copy, ol
from tests.kit.support.judged import implementation

GOOD = Source("one.c", b"int one(void);\nint one(void) {\n    return 1;\n}\n")


@pytest.fixture
def found(tmp_path: Path) -> Compiler:
    """The compiler, with a cache of its own."""
    assert CC is not None
    return Compiler(CC.program, tmp_path / "cache")


def test_a_compiler_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallError, match="--cc nosuch: there is no such program"):
        compiler.find("nosuch")
    monkeypatch.setenv("CC", "nosuch")
    with pytest.raises(CallError, match="CC nosuch: there is no such program"):
        compiler.find()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(NoCompiler, match="apt install gcc"):
        compiler.find()


@needs_compiler
def test_words_may_follow_a_compilers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CC is not None
    monkeypatch.setenv("CC", f" '{CC.program}' -O3  -g ")
    assert (compiler.find().program, compiler.find().words) == (CC.program, ("-O3", "-g"))
    assert compiler.find().identity != compiler.find(str(CC.program)).identity
    with pytest.raises(CallError, match="--cc nosuch gcc: there is no such program as nosuch"):
        compiler.find("nosuch gcc")
    with pytest.raises(CallError, match="--cc 'gcc: No closing quotation"):
        compiler.find("'gcc")


@pytest.mark.parametrize("asked", [
    "true", "false", pytest.param("{} -nosuch", marks=needs_compiler)])
def test_a_compiler_that_builds_nothing_is_said(asked: str) -> None:
    """It is no fault of a learner's file."""
    asked = asked.format(CC and CC.program)
    with pytest.raises(CallError, match=f"--cc {asked}: it builds no program in C11"):
        compiler.find(asked)


def test_without_a_compiler_all_else_works(tmp_path: Path) -> None:
    place = copy(tmp_path)

    def without(*words: str) -> subprocess.CompletedProcess[str]:
        return ol(place, *words, PATH=str(tmp_path), CC="")

    done = without("check", "c_kv_pool", "--bind", "reference")
    assert done.returncode == 1
    assert "c_kv_pool        · needs a C compiler: `sudo apt install gcc libc6-dev`" in done.stdout
    done = without("check", "block_hash", "--pool", "c", "--bind", "reference")
    assert (done.returncode, "needs a C compiler" in done.stdout) == (1, True)
    assert without("check", "block_hash", "--bind", "reference").returncode == 0
    done = without("check", "--bind", "reference", "-k", "every_bit_flip_is_eformat")
    assert (done.returncode, "c_kv_pool        · needs a C compiler" in done.stdout) == (0, True)
    done = without("doctor")
    assert done.returncode == 0
    assert "ok   the optional programs need a C compiler" in done.stdout


@needs_compiler
def test_what_was_built_is_kept(found: Compiler) -> None:
    first = found.compile(GOOD, (), (), ())
    held = sorted(found.cache.iterdir())
    stamp = first.stat().st_mtime_ns
    assert found.compile(GOOD, (), (), ()) == first
    again = Compiler(found.program, found.cache)
    assert again.compile(GOOD, (), (), ()) == first
    assert (sorted(found.cache.iterdir()), first.stat().st_mtime_ns) == (held, stamp)
    assert found.compile(GOOD, (), (), ("-O1",)) != first
    other = Source(GOOD.name, GOOD.data + b"\n")
    assert found.compile(other, (), (), ()) != first


@needs_compiler
def test_a_checkout_that_may_not_be_written_to_is_no_hindrance(
    found: Compiler, tmp_path: Path
) -> None:
    """A file in a folder's place stops root, too."""
    (tmp_path / "file").write_text("")
    compiler = Compiler(found.program, tmp_path / "file/cache")
    assert compiler.can(())
    assert compiler.cache.is_dir()


def test_a_changed_header_is_another_build(found: Compiler, tmp_path: Path) -> None:
    header = tmp_path / "include" / "number.h"
    header.parent.mkdir()
    source = Source("two.c", b'#include "number.h"\nint two(void);\nint two(void) {\n'
                             b"    return NUMBER;\n}\n")
    made = []
    for number in (1, 2):
        header.write_text(f"#define NUMBER {number}\n")
        made.append(found.compile(source, (), [header.parent], ()))
        made.append(found.compile(source, [Source("number.h", header.read_bytes())], (), ()))
    assert len(set(made)) == 4


@needs_compiler
def test_what_is_refused_leaves_nothing(found: Compiler) -> None:
    with pytest.raises(Refused) as caught:
        found.compile(Source("bad.c", b"int bad(void) {\n    return x;\n}\n"), (), (), ())
    assert [(c.file, c.line) for c in caught.value.complaints][:1] == [("bad.c", 2)]
    assert list(found.cache.iterdir()) == []


@needs_compiler
def test_a_source_cannot_use_up_the_machine(found: Compiler,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_SECONDS", 5.0)
    with pytest.raises(Refused):
        found.compile(Source("endless.c", b'#include "/dev/zero"\n'), (), (), ())


@needs_compiler
def test_the_cache_does_not_grow_for_ever(found: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_KEPT", 3)
    made = [found.compile(Source("one.c", GOOD.data + b"\n" * number), (), (), ())
            for number in (0, 1, 0, 2, 0, 3, 0, 4)]
    assert len(list(found.cache.iterdir())) == 3
    assert made[0].exists()  # it was used all the time
    assert not made[1].exists()


@needs_compiler
def test_two_graders_may_build_at_once(found: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_KEPT", 20)
    others = [Compiler(found.program, found.cache) for _ in range(4)]

    def build(number: int) -> bool:
        source = Source("one.c", GOOD.data + b"\n" * (number % 6))
        return others[number % 4].compile(source, (), (), ()).exists()

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert all(pool.map(build, range(24)))


@needs_compiler
def test_one_source_is_compiled_once_for_all_threads(
    found: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread that judges has a compiler object of its own."""
    started = []
    whole = Compiler._run

    def run(self: Compiler, folder: Path, arguments: list[str]) -> None:
        started.append(folder)
        whole(self, folder, arguments)

    monkeypatch.setattr(Compiler, "_run", run)
    with ThreadPoolExecutor(max_workers=8) as pool:
        made = set(pool.map(lambda _: Compiler(found.program, found.cache).compile(
            GOOD, (), (), ()), range(8)))
    assert (len(made), len(started)) == (1, 1)


@needs_compiler
def test_a_giant_array_is_told(found: Compiler) -> None:
    with pytest.raises(Refused, match="is there a very large array"):
        found.compile(Source("large.c", b"char large[1UL << 40] = {1};\n"), (), (), ())


@needs_compiler
@pytest.mark.parametrize("size", ["1UL << 36", "1600UL << 20"])
def test_a_giant_array_without_a_first_value_is_told(
    course: Course, workers: WorkerPool, tmp_path: Path, size: str
) -> None:
    """It cannot be linked, or makes a small library that cannot be loaded."""
    module = course.module("c_kv_pool")
    source = tmp_path / "c" / "src"
    shutil.copytree(native_module.given(module) / "src", source)
    (tmp_path / "tinyllm").mkdir()
    (source / "large.c").write_text(f"char large[{size}];\n")
    report = check(course, CheckOptions(
        ("kv_pool",), str(tmp_path), pool=NativeOptions("c"),
        only=course.module("kv_pool").tests[0].name), workers)
    failure = report.modules[0].failure
    assert failure is not None
    assert "is there a very large array?" in failure.what


@needs_compiler
def test_what_a_source_says_reaches_no_terminal(found: Compiler) -> None:
    with pytest.raises(Refused) as caught:
        found.compile(Source("loud.c", b'#error \x1b[2J\x1b]0;mine\x07\n'), (), (), ())
    assert all("\x1b" not in c.message + c.file for c in caught.value.complaints)
    assert "\\x1b[2J" in caught.value.complaints[0].message


@needs_compiler
@pytest.mark.parametrize("name", ["large.c", "kv_pool.c"])
def test_a_source_that_cannot_be_read_costs_its_program(
    course: Course, workers: WorkerPool, tmp_path: Path, name: str
) -> None:
    module = course.module("c_kv_pool")
    source = tmp_path / "c" / "src"
    shutil.copytree(native_module.given(module) / "src", source)
    (tmp_path / "tinyllm").mkdir()
    (source / name).write_bytes(b"/*" + b" " * (5 << 20) + b"*/\n")
    shutil.copyfile(ROOT / "reference/tinyllm/block_hash.py", tmp_path / "tinyllm/block_hash.py")
    report = check(course, CheckOptions(("block_hash", "c_kv_pool"), str(tmp_path)), workers)
    status = {m.name: m.status for m in report.modules}
    assert status == {"block_hash": Status.PASSED, "c_kv_pool": Status.BROKEN}


@pytest.mark.parametrize(("said", "complaints"), [
    ("src/a.c: In function 'f':\nsrc/a.c:7:5: error: 'x' undeclared (first use in this function)\n"
     "    7 |     x = 1;\nsrc/a.c:7:5: note: each undeclared identifier is reported only once\n",
     [Complaint("src/a.c", 7, "'x' undeclared (first use in this function)")]),
    ("src/a.c:3:9: error: unused variable 'y' [-Werror=unused-variable]\n",
     [Complaint("src/a.c", 3, "unused variable 'y'")]),
    ("./src/a.c:2:10: fatal error: none.h: No such file or directory\ncompilation terminated.\n",
     [Complaint("src/a.c", 2, "none.h: No such file or directory")]),
    ("/usr/bin/ld: b.o: in function `main':\nb.c:(.text+0x5): undefined reference to `f'\n",
     [Complaint("", 0, "f is needed, and no file defines it")]),
    ('Undefined symbols for architecture arm64:\n  "_f", referenced from:\n      _main in b.o\n',
     [Complaint("", 0, "f is needed, and no file defines it")]),
    ("ld: a.o: in function `f':\na.c:1: multiple definition of `f'; b.o:b.c:1: first defined\n",
     [Complaint("", 0, "f is defined twice")]),
    ("cc: something else\n", [Complaint("", 0, "cc: something else")]),
    ("", [Complaint("", 0, "the compiler said nothing")]),
])
def test_complaints_are_read(said: str, complaints: list[Complaint]) -> None:
    assert complaints_of(said) == complaints


@needs_compiler
def test_helper_files_of_the_learner_are_built_too(course: Course, tmp_path: Path) -> None:
    """The reference has some; a header beside them is found."""
    assert CC is not None
    source = tmp_path / "c" / "src"
    shutil.copytree(native_module.given(course.module("c_kv_pool")) / "src", source)
    (source / "unused.c").write_text('#include "unused.h"\nint unused(void) {\n    return 0;\n}\n')
    (source / "unused.h").write_text("int unused(void);\n")
    built = native_module.build(course.module("c_kv_pool"), tmp_path, CC, driver=False)
    assert Path(built.files["c_kv_pool"]).exists()


@needs_compiler
def test_every_function_that_is_written_is_found(course: Course) -> None:
    module = course.module("c_kv_pool")
    for file in (native_module.given(module) / "src/kv_pool.c",
                 implementation("arrays") / "c/src/kv_pool.c"):
        places = native_module.places(module, file)
        lines = file.read_text(encoding="utf-8").splitlines()
        assert set(places) == {fill.name for fill in module.fills}
        for name, (_, line, _) in places.items():
            assert f"{name}(" in lines[line - 1]


@needs_compiler
def test_random_bytes_as_calls_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert CC is not None
    program, guided = fuzz.target(CC, ROOT / "reference")
    assert guided or fuzz.drawn(program, seconds=0.1, runs=1000) == 0, capsys.readouterr().out
