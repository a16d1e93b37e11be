"""The project's own text: ruff and mypy are clean, files end their lines as they should."""

import os
import subprocess
import sys

import pytest

from grader import ROOT
from tests.kit.support.judged import IMPLEMENTATIONS, implementation


def _run(*words: str, **more: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True,
                          check=False, env={**os.environ, **more})
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_is_clean() -> None:
    _run("ruff", "check", "--no-cache", ".")


def test_mypy_is_clean() -> None:
    _run("mypy", "grader", "reference/tinyllm", "tests/block_hash",
         "tests/kv_pool", "tests/kv_export", "tests/radix_cache",
         "tests/paged_attention", "tests/block_manager", "tests/simulator", "tests/kv_tier",
         "tests/c_kv_pool", "tests/kit")


def test_mypy_is_clean_on_the_adapters() -> None:
    """They have the names of modules in Python, so they are looked at by themselves."""
    room = ROOT / "reference/c/adapter"
    _run("mypy", *sorted(str(p) for p in (room / "tinyllm").glob("*.py")),
         MYPYPATH=f"{room}{os.pathsep}{ROOT / 'reference'}")


@pytest.mark.parametrize("who", IMPLEMENTATIONS)
def test_mypy_is_clean_on_a_right_program(who: str) -> None:
    files = sorted(str(p) for p in (implementation(who) / "tinyllm").glob("*.py"))
    _run("mypy", "--config-file=", "--strict", "--explicit-package-bases", *files,
         MYPYPATH=f"{implementation(who)}{os.pathsep}{ROOT / 'reference'}")


def test_text_is_utf8_with_plain_line_ends() -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False).stdout.splitlines()
    files = listed or [str(p.relative_to(ROOT)) for p in ROOT.glob("*.*")]
    for name in files:
        path = ROOT / name
        if name.startswith("work/") or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8")
        assert "\r" not in text, name
        assert not text or text.endswith("\n"), name
