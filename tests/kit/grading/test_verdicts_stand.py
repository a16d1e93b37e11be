"""A verdict stands whatever else goes wrong: advice that fails, files that cannot be read, bytecode
that was planted; and it is of the files that were asked for."""

import importlib.util
import json
import marshal
import os
import shutil
import struct
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from grader import ROOT
from grader.course.model import Course
from grader.course.planted_bugs import mutants_of, reference_of
from grader.grading.check import CheckOptions, check
from grader.grading.report import Status, Verdict
from grader.sandbox import landlock
from grader.sandbox.api import WorkerPool
from tests.kit.support import copies
from tests.kit.support.judged import KIT, program, said

LEARNERS = KIT / "learners"


@pytest.fixture
def place(tmp_path: Path, course: Course) -> Path:
    """A copy whose learner has finished."""
    copy = copies.copy(tmp_path)
    copies.solve(copy, course, ROOT / "reference")
    return copy


# ---- advice --------------------------------------------------------------------------------------

TEST = "from tinyllm.block_hash import block_hash\ndef test_it():\n    assert block_hash(0, [1])\n"


@pytest.mark.parametrize("hidden", [".ipynb_checkpoints/test_x-checkpoint.py", ".git/test_x.py",
                                    "__pycache__/test_x.py", "..test_x.py", ".test_x.py"])
def test_hidden_files_are_no_tests_of_the_learners(place: Path, hidden: str) -> None:
    file = place / "work/tests/block_hash" / hidden
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEST)
    done = copies.ol(place, "check", "block_hash", "--json", str(place / "r.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All that was asked passed" in done.stdout
    assert done.stderr == ""
    assert json.loads((place / "r.json").read_text())["verdict"] == "passed"


def no_memory(place: Path) -> None:
    """Leave no place for what the last checks said."""
    shutil.rmtree(place / "work/.history", ignore_errors=True)
    (place / "work/.history").write_text("")


def no_bugs(place: Path) -> None:
    (place / "course/modules/block_hash/mutants.toml").write_text("[[mutant]\n")


def no_other_programs(place: Path) -> None:
    for file in (place / "tests/implementations").rglob("block_hash.py"):
        file.write_bytes(b"\xff\xfe")


def deep_memory(place: Path) -> None:
    (place / "work/.history").mkdir(exist_ok=True)
    for name in ("own-tests", "progress"):
        (place / f"work/.history/{name}.json").write_text("[" * 200_000)


@pytest.mark.parametrize("damage", [no_memory, no_bugs, no_other_programs, deep_memory])
def test_advice_that_fails_costs_a_line(place: Path, damage: Callable[[Path], None]) -> None:
    """The report is printed and written before it, and the exit status is the verdict's."""
    (place / "work/tests/block_hash").mkdir(parents=True)
    (place / "work/tests/block_hash/test_it.py").write_text(TEST)
    damage(place)
    done = copies.ol(place, "check", "block_hash", "--json", str(place / "r.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All that was asked passed" in done.stdout
    assert all(line.startswith("ol: ") for line in done.stderr.splitlines())
    assert len(done.stderr.splitlines()) <= 2
    assert json.loads((place / "r.json").read_text())["verdict"] == "passed"


@pytest.mark.parametrize("file", ["mutants.toml", "kills.json"])
@pytest.mark.parametrize("text", ["[[mutant]\n", "{}", "[1]", "\xff"])
def test_a_failure_is_told_without_the_planted_bugs(place: Path, file: str, text: str) -> None:
    """What a failure looks like is advice: where it cannot be said, the report stands."""
    module = place / "work/tinyllm/kv_pool.py"
    module.write_text(module.read_text().replace("self._fills[block] = n\n", "pass\n", 1))
    (place / "course/modules/kv_pool" / file).write_bytes(text.encode("latin-1"))
    done = copies.ol(place, "check", "kv_pool", "--json", str(place / "r.json"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Looks like" not in done.stdout
    said = "ol: the failures of kv_pool were not compared with the planted bugs: "
    assert done.stderr == "" or done.stderr.startswith(said)
    assert done.stderr.count("\n") == (file == "mutants.toml")
    assert json.loads((place / "r.json").read_text())["verdict"] == "failed"


def test_a_report_on_standard_output_does_not_wait_for_own_tests(place: Path) -> None:
    shutil.copytree(LEARNERS / "thin", place / "work" / "tests")
    done = copies.ol(place, "check", "block_hash", "--json", "-")
    report = json.loads(done.stdout)
    assert (report["verdict"], report["modules"][0]["own_tests"]) == ("passed", None)
    assert "Your own tests of block_hash catch" in done.stderr


# ---- files that cannot be read -------------------------------------------------------------------


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    path.write_bytes(b"#" * (5 << 20))


def latin(path: Path) -> None:
    path.write_bytes(b"x = '\xff\xfe'\n")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [folder, pipe, large, latin, loop, device])
def test_a_file_that_cannot_be_read_costs_its_module(
    place: Path, make: Callable[[Path], None]
) -> None:
    """It is any module's: other modules get their verdicts, and commands that only look go on."""
    file = place / "work/tinyllm/simulator.py"
    file.unlink()
    make(file)
    done = copies.ol(place, "check", "block_hash")
    assert done.returncode == 0, done.stdout + done.stderr
    done = copies.ol(place, "check", "simulator", "block_hash", "--json", str(place / "r.json"))
    assert done.returncode == 1, done.stdout + done.stderr
    status = {m["name"]: m["status"] for m in json.loads(
        (place / "r.json").read_text())["modules"]}
    assert status == {"block_hash": "passed", "simulator": "broken"}
    assert "Traceback" not in done.stdout + done.stderr
    done = copies.ol(place, "progress")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    done = copies.ol(place, "doctor")
    unread = "simulator.py: its file cannot be read" in done.stdout
    assert done.returncode == (2 if unread else 0), done.stdout + done.stderr


def test_what_needs_a_file_that_cannot_be_read_says_so(place: Path) -> None:
    folder_of_that_name = place / "work/tinyllm/kv_pool.py"
    folder_of_that_name.unlink()
    folder_of_that_name.mkdir()
    done = copies.ol(place, "check", "kv_export")
    assert (done.returncode, "needs kv_pool" in done.stdout) == (1, True), done.stdout
    assert copies.ol(place, "check", "kv_export", "--ref-deps").returncode == 0


# ---- whose modules are judged --------------------------------------------------------------------


def broken(folder: Path, module: str, course: Course) -> Path:
    for part in course:
        if not part.program:
            program(folder, part, reference_of(part))
    return program(folder, course.module(module), "raise RuntimeError('mine')\n")


def statuses(course: Course, workers: WorkerPool, folder: Path, *names: str,
             only: str | None = None) -> dict[str, Status]:
    options = CheckOptions(names, str(folder), reference_needs=True, only=only)
    report = check(course, options, workers)
    return {m.name: m.status for m in report.modules}


def test_named_modules_are_judged_over_each_other(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """`--ref-deps` is about the modules that were not named."""
    mine = broken(tmp_path, "radix_cache", course)
    assert statuses(course, workers, mine, "radix_cache", "block_manager") == {
        "radix_cache": Status.BROKEN, "block_manager": Status.NEEDS}
    assert statuses(course, workers, mine, "block_manager") == {"block_manager": Status.PASSED}


def test_a_module_that_was_not_named_is_the_references(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    mine = broken(tmp_path, "kv_pool", course)
    assert statuses(course, workers, mine, "block_hash", "kv_export") == {
        "block_hash": Status.PASSED, "kv_export": Status.PASSED}
    assert statuses(course, workers, mine, "rt.04")["kv_export"] is Status.NEEDS


def test_one_test_over_modules_that_are_named_beside_its_own(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    """So a failure can be run again the same way; naming says whose a module is."""
    mine = broken(tmp_path, "radix_cache", course)
    name = course.module("block_manager").tests[0].name
    assert statuses(course, workers, mine, "radix_cache", "block_manager", only=name) == {
        "block_manager": Status.NEEDS}
    assert statuses(course, workers, mine, "kv_pool", "block_manager", only=name) == {
        "block_manager": Status.PASSED}


def test_a_named_need_that_is_not_begun_is_told(
    course: Course, workers: WorkerPool, tmp_path: Path
) -> None:
    mine = broken(tmp_path, "radix_cache", course)
    (mine / "tinyllm/radix_cache.py").unlink()
    (manager,) = (m for m in check(course, CheckOptions(
        ("radix_cache", "block_manager"), str(mine), reference_needs=True), workers).modules
        if m.name == "block_manager")
    assert manager.status is Status.NEEDS
    assert "do not name it beside --ref-deps" in manager.sentence


# ---- planted bytecode ----------------------------------------------------------------------------


def poison(place: Path) -> int:
    """Write bytecode beside the suites in which no test does anything; return how many files."""
    count = 0
    for file in [*(place / "tests/block_hash").rglob("*.py"), place / "tests/__init__.py",
                 *(place / "grader/assertions").rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        for name in ("test_", "same", "raises", "refused"):
            text = text.replace(f"\ndef {name}", f"\n@(lambda f: lambda *a, **k: None)\ndef {name}")
        code = compile(text, str(file), "exec", dont_inherit=True)
        look = file.stat()
        data = importlib.util.MAGIC_NUMBER + struct.pack(
            "<III", 0, int(look.st_mtime) & 0xFFFFFFFF, look.st_size & 0xFFFFFFFF
            ) + marshal.dumps(code)
        cached = Path(importlib.util.cache_from_source(str(file)))
        cached.parent.mkdir(exist_ok=True)
        for path in (cached, cached.with_name(cached.name.replace(
                ".pyc", f"-pytest-{pytest.__version__}.pyc"))):
            path.write_bytes(data)
            count += 1
    return count


def test_bytecode_beside_the_suites_is_not_read(place: Path, course: Course) -> None:
    """One submission once wrote it, and then the stub passed for everyone on that checkout."""
    assert poison(place) > 10
    module = course.module("block_hash")
    bug = mutants_of(module)[0]
    file = place / "work" / module.file_name
    for text, expected in ((bug.applied(reference_of(module)), "failed"),
                           (reference_of(module), "passed")):
        file.write_text(text, encoding="utf-8")
        copies.ol(place, "check", "block_hash", "--json", str(place / "r.json"))
        report = json.loads((place / "r.json").read_text())
        assert report["verdict"] == expected
    done = copies.ol(place, "check", "block_hash", "--all", "--bind", "stubs")
    assert (done.returncode, " 0 of " in done.stdout) == (1, True), done.stdout


ATTACK = """
import glob, os, sys
ROOT = {root!r}
done = []
for pattern in ("tests/**/*", "tests/**/__pycache__/*", "grader/**/*", "reference/**/*",
                "course/**/*", "stubs/**/*", "formats/*", ".cache/**/*", "work/**/*",
                "work/.history/*", ".venv/lib/**/site-packages/pytest/*"):
    for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        for act in (lambda: open(path, "ab").close(), lambda: os.remove(path),
                    lambda: open(os.path.join(folder, "new.pyc"), "w").close(),
                    lambda: os.mkdir(os.path.join(folder, "__pycache__x")),
                    lambda: os.rename(path, path + "x"), lambda: os.symlink(path, path + "y"),
                    lambda: os.truncate(path, 0)):
            try:
                act()
                done.append(path)
            except OSError:
                pass
print("CHANGED", len(done), done[:3])
"""


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
def test_a_submission_can_change_nothing_that_the_grader_loads(
    place: Path, course: Course
) -> None:
    module = course.module("block_hash")
    file = place / "work" / module.file_name
    copies.ol(place, "check", "block_hash")  # so that there is what a check leaves behind
    file.write_text(ATTACK.format(root=str(place)) + reference_of(module), encoding="utf-8")
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()
              and "work" not in p.parts and "__pycache__" not in p.parts}
    done = copies.ol(place, "check", "block_hash", "-v")
    assert done.returncode == 0, done.stdout
    assert "CHANGED 0 []" in done.stdout, done.stdout
    assert {p: p.read_bytes() for p in before} == before


def test_a_check_writes_no_bytecode_beside_the_suites(place: Path) -> None:
    assert copies.ol(place, "check", "block_hash").returncode == 0
    assert not list((place / "tests").rglob("*.pyc"))


# ---- the stub ------------------------------------------------------------------------------------

EASY = "def test_a():\n    pass\n"


def as_it_is(text: str) -> str:
    return text


def with_a_comment(text: str) -> str:
    return f"# mine\n{text}\n# mine, too\n"


def with_other_words(text: str) -> str:
    return text.replace('"""', '"""Mine. ', 1)


@pytest.mark.parametrize("change", [as_it_is, with_a_comment, with_other_words])
@pytest.mark.parametrize("name", ["block_hash", "c_kv_pool"])
def test_a_stub_passes_nothing_whatever_is_told_of_its_tests(
    course: Course, workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, change: Callable[[str], str]
) -> None:
    """Here every test is told to have passed, as forged events would tell it."""
    module = course.module(name)
    if module.program and not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    text = change((ROOT / "stubs" / module.file_name).read_text(encoding="utf-8"))
    if module.program:
        text = text.replace("# mine, too", "/* mine */").replace("# mine", "// mine")
        shutil.copytree((ROOT / "stubs" / module.file_name).parent,
                        (tmp_path / module.file_name).parent)
        (tmp_path / "tinyllm").mkdir()
    program(tmp_path, module, text)
    monkeypatch.setattr("grader.sandbox.run.Run._result", lambda self, worker, failure, seconds: (
        forge(self)))
    report = check(course, CheckOptions((name,), str(tmp_path), reference_needs=True), workers)
    (result,) = report.modules
    assert not report.passed
    assert result.tests
    assert result.status is not Status.PASSED
    assert {t.verdict for t in result.tests} == {Verdict.TODO}, said([result])


def forge(run: object) -> None:
    run.outcome.results[run.current] = {  # type: ignore[attr-defined]
        "failure": None, "seconds": 0.0, "printed": ""}
    run.pending.remove(run.current)  # type: ignore[attr-defined]
    run.current = None  # type: ignore[attr-defined]


def test_python_alone_would_read_planted_bytecode(tmp_path: Path) -> None:
    """What the tests above plant is bytecode that an ordinary import takes."""
    copy = tmp_path / "tests"
    shutil.copytree(ROOT / "grader/assertions", copy / "judging",
                    ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "block_hash").mkdir()
    (copy / "__init__.py").write_text("ONE = 1\ndef same():\n    return ONE\n")
    poison(tmp_path)
    loader = SourceFileLoader("planted", str(copy / "__init__.py"))
    spec = importlib.util.spec_from_loader("planted", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert module.same() is None
