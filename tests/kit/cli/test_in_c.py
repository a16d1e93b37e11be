"""A learner who writes in C: where the kit sends them, and what it says of their compiler."""

from pathlib import Path

import pytest

from grader import ROOT
from tests.kit.support import copies
from tests.kit.support.compiled import needs_compiler

pytestmark = needs_compiler
FILE = "c/src/kv_pool.c"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the project where somebody has begun the pool in C, and nothing else."""
    place = copies.copy(tmp_path)
    done = copies.ol(place, "start", "c_kv_pool")
    assert done.returncode == 0, done.stderr
    assert "`ol check c_kv_pool -k create_rules_and_alloc_failure`" in done.stdout
    return place


def solve(place: Path) -> None:
    for file in (ROOT / "reference/c/src").glob("*.[ch]"):
        (place / "work/c/src" / file.name).write_bytes(file.read_bytes())


def test_off_the_path_the_next_step_is_there(place: Path) -> None:
    """Whoever has begun with C is sent on in C, until all of it is green."""
    def last(*words: str) -> str:
        return " ".join(copies.ol(place, "check", *words).stdout.split("Next: ")[1].split())

    there = f"work/{FILE}, with course/modules/c_kv_pool/chapter.md; then `ol check c_kv_pool`."
    said = last("c_kv_pool")
    assert said.startswith("pass 1 of 3, blocks and reference counts. To write: tl_kv_pool_create,")
    assert said.endswith(there)
    solve(place)
    file = place / "work" / FILE
    whole = file.read_text(encoding="utf-8")
    text = whole.replace("    size_t bytes;\n",
                         '    return TL_TODO("tl_kv_export");\n    size_t bytes;\n')
    assert text.count("TL_TODO") == 1
    file.write_text(text, encoding="utf-8")
    assert last() == f"pass 3 of 3, export and import. To write: tl_kv_export. {there}"
    file.write_text(whole, encoding="utf-8")
    assert "work/tinyllm/" in last("c_kv_pool")


def test_a_compiler_for_nothing_is_refused(place: Path) -> None:
    for words in (("check", "kv_pool"), ("demo", "kv_pool"), ("bench", "kv_export")):
        done = copies.ol(place, *words, "--cc", "gcc", "--bind", "reference")
        assert (done.returncode, done.stderr) == (
            2, "ol: --cc is for a program, and none is asked for: add --pool c.\n"), words


def test_a_name_in_capitals_stays_so(place: Path) -> None:
    done = copies.ol(place, "check", "c_kv_pool", CC="nosuch")
    assert (done.returncode, done.stderr) == (2, "ol: CC nosuch: there is no such program.\n")


def test_parity_begins_with_the_learners_program(place: Path) -> None:
    """Where it cannot be built nobody waits for the others, and who took no part is said."""
    (place / "work" / FILE).write_text("int x\n", encoding="utf-8")
    done = copies.ol(place, "parity", "kv.wire.v1")
    assert done.returncode == 1
    assert "  ✗ yours in c\n" in done.stdout
    assert "  · yours                took no part: kv_pool, kv_export not begun\n" in done.stdout
    assert "kv_pool.c:1: expected" in done.stdout
    assert done.stdout.endswith("Nothing else was compared: mend that first.\n")
