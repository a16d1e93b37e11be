"""The front door: the Makefile, the search for a Python, the making of the environment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import ROOT
from tests.kit.copies import copy


def _run(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "MAKE"))}
    return subprocess.run(words, cwd=place, env={**kept, **env}, capture_output=True, text=True,
                          check=False, timeout=300)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with the few programs that the search needs, and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_make_alone_lists_every_target() -> None:
    shown = _run(ROOT, "make").stdout
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 10
    for target in targets:
        assert f"make {target} " in shown


def test_each_target_is_one_line_that_calls_the_program() -> None:
    text = (ROOT / "Makefile").read_text()
    for recipe in re.findall(r"^[a-z-]+: *##.*\n((?:\t.*\n)+)", text, re.MULTILINE):
        assert recipe.count("\n") == 1, recipe
        assert recipe.startswith(("\t$(OL) ", "\t@awk")), recipe


def test_a_machine_without_python_is_told_how_to_get_it(tools: Path) -> None:
    done = _run(ROOT, "sh", "grader/run", "progress", PATH=str(tools), PYTHON="nothing")
    assert (ROOT / ".venv").exists() or done.returncode == 2
    place = tools.parent / "fresh"
    shutil.copytree(ROOT / "grader", place / "grader")
    done = _run(place, "sh", "grader/run", "progress", PATH=str(tools), PYTHON="nothing")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer is needed and was not found: " in done.stderr


def test_an_old_python_is_passed_over(tools: Path) -> None:
    place = tools.parent / "fresh"
    shutil.copytree(ROOT / "grader", place / "grader")
    _script(tools / "python3", "exit 1")
    _script(tools / "python3.12", 'echo "$@"')
    done = _run(place, "sh", "grader/run", "progress", PATH=str(tools), PYTHON="")
    assert done.stdout.split()[-1] == "progress"
    assert done.stdout.split()[-2].endswith("grader/bootstrap.py")


def test_a_python_without_venv_is_told_the_package(tmp_path: Path) -> None:
    place = copy(tmp_path)
    shadow = tmp_path / "shadow"
    (shadow / "venv").mkdir(parents=True)
    (shadow / "venv/__init__.py").write_text("")
    (shadow / "venv/__main__.py").write_text(
        "import sys\nsys.exit('not created because ensurepip is not available')")
    python = tmp_path / "python"
    _script(python, f'PYTHONPATH="{shadow}" exec {sys.executable} "$@"')
    done = _run(place, "sh", "grader/run", "progress", PYTHON=str(python))
    assert done.returncode == 2
    assert "has no venv module: " in done.stderr
    if shutil.which("apt"):
        assert re.search(r"sudo apt install python3\.\d+-venv", done.stderr)
    assert not (place / ".venv").exists()


def test_the_callers_python_path_leads_nowhere(tmp_path: Path) -> None:
    """What is set up for somebody's other programs is none of the kit's."""
    place, shadow = tmp_path / "kit", tmp_path / "shadow"
    shutil.copytree(ROOT / "grader", place / "grader")
    shadow.mkdir()
    (shadow / "hashlib.py").write_text("raise SystemExit('the wrong hashlib')")
    done = _run(place, "sh", "grader/run", "progress", PYTHONPATH=str(shadow), PYTHONHASHSEED="x",
                PIP_NO_INDEX="1", UV_OFFLINE="1", UV_NO_CACHE="1", PIP_CONFIG_FILE=os.devnull)
    assert "the wrong hashlib" not in done.stderr + done.stdout
    assert "PYTHONHASHSEED" not in done.stderr


def test_no_network_is_said_in_a_sentence(tmp_path: Path) -> None:
    place = copy(tmp_path)
    done = _run(place, "sh", "grader/run", "progress", PIP_NO_INDEX="1", UV_OFFLINE="1",
                UV_NO_CACHE="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 2, done.stdout
    assert "the packages cannot be installed (is there a network?): " in done.stderr
    assert "Traceback" not in done.stderr


def test_the_lock_files_name_hashes_and_no_addresses() -> None:
    for lock in (ROOT / "grader/requirements").glob("*.lock"):
        text = lock.read_text()
        assert "://" not in text
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("--hash=sha256:" in entry for entry in entries), lock


def test_authors_have_what_learners_have() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / f"grader/requirements/{name}.lock").read_text()
        return set(re.findall(r"^([\w-]+==\S+)", text, re.MULTILINE))

    assert pins("learn") <= pins("kit")


def test_start_says_what_the_readme_shows(tmp_path: Path) -> None:
    """And once there is an environment, a lock file that changed while one is offline does not end
    the work."""
    place = copy(tmp_path)
    done = _run(place, "make", "start")
    assert done.returncode == 0, done.stderr
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("$ make start\n")[1]

    def plain(text: str) -> str:
        return re.sub(r" +\d+\.\d s", " 0.0 s", text).strip()

    assert plain(shown.split("```")[0]) == plain(done.stderr + done.stdout)
    lock = place / "grader/requirements/learn.lock"
    lock.write_text(lock.read_text() + "# newer\n")
    done = _run(place, "sh", "grader/run", "progress", PIP_NO_INDEX="1", UV_OFFLINE="1",
                UV_NO_CACHE="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 0, done.stderr
    assert "going on with the environment as it was" in done.stderr
    assert not (place / ".venv.old").exists()
