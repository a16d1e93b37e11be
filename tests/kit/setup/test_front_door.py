"""The front door: the Makefile, the search for a Python, the making of the environment."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import ROOT
from tests.kit.support.copies import copy

HASH = "tinyllm/block_hash.py"


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
    assert done.stdout.split()[-2].endswith("grader/setup/bootstrap.py")


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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with an environment of its own, below a folder with every character in its name
    that a path of the kit may have."""
    name = "-[a] b'c \"d\" $HOME $(x) ${HOME} *?%#\\\tü;&|<x>~@!{z}=,^`x` [/b] .." + "x" * 120
    place = copy(tmp_path_factory.mktemp("below") / name)
    done = _run(place, "make", "start")
    assert done.returncode == 0, done.stderr
    return place


_OWN_TEST = """from tinyllm.block_hash import FNV_OFFSET, block_hash, hash_chain

def test_hash_chain_by_hand():
    assert hash_chain([1, 2, 3, 4], 2)[0] == block_hash(0, [1, 2])
"""


def test_every_command_works_below_a_folder_of_any_name(checkout: Path) -> None:
    shutil.copyfile(ROOT / "reference" / HASH, checkout / "work" / HASH)
    own = checkout / "work/tests/block_hash" / "test_[a] b::c.py"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(_OWN_TEST)
    said = {}
    for words in ("check M=block_hash", "mutation M=block_hash", "doctor", "reset M=block_hash",
                  "undo", "progress", "demo M=block_hash", "tests M=block_hash",
                  "tdd-green M=block_hash", "tdd-red M=block_hash"):
        done = _run(checkout, "make", *words.split())
        said[words.split()[0]] = " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in done.stderr, done
    assert "All that was asked passed: block_hash." in said["check"]
    assert "All is well." in said["doctor"]
    assert "Back to the stub" in said["reset"]
    assert "planted bugs caught" in said["mutation"], said
    assert not said["mutation"].startswith("0 of"), said
    assert "Green: 1 test." in said["tdd-green"]
    assert "Red, as it should be: 1 test." in said["tdd-red"]
    assert (checkout / "work" / HASH).read_text() == (ROOT / "reference" / HASH).read_text()
    done = _run(checkout, "sh", "-c", ". .venv/bin/activate; cd work; ol progress; pytest -V")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here")
def test_a_program_in_c_is_built_below_a_folder_of_any_name(checkout: Path) -> None:
    done = _run(checkout, "make", "start", "M=c_kv_pool")
    assert done.returncode == 0, done.stderr
    source = checkout / "work/c/src"
    shutil.copytree(ROOT / "reference/c/src", source, dirs_exist_ok=True)
    done = _run(checkout, "make", "check", "M=c_kv_pool")
    assert "All that was asked passed: c_kv_pool." in done.stdout, done
    pool = source / "kv_pool.c"
    pool.write_text(pool.read_text().replace("#include", "#error here\n#include", 1))
    done = _run(checkout, "make", "check", "M=c_kv_pool")
    assert re.search(r"kv_pool\.c:\d+: .*here", done.stdout), done


@pytest.mark.parametrize("name", ["a:b", "a::b", "new\nline", "end\n", "carriage\rreturn",
                                  os.fsdecode(b"latin-\xe9")])
def test_a_path_that_no_environment_can_have_is_refused_at_once(tmp_path: Path, name: str) -> None:
    try:
        (tmp_path / name).mkdir()
    except OSError:
        pytest.skip("this file system has no such names")
    place = copy(tmp_path / name)
    before = _files(place)
    for words in (["make", "start"], ["sh", "grader/run", "check"]):
        done = _run(place, *words)
        assert done.returncode == 2
        sentences = [x for x in done.stderr.splitlines() if not x.startswith("make: ")]
        assert len(sentences) == 1, done.stderr
        assert "no environment of Python can be made" in sentences[0]
        assert _files(place) == before


def test_a_copy_acts_on_itself(checkout: Path, tmp_path: Path) -> None:
    """Also where its own environment was never settled, and when the original has gone."""
    (checkout / "work" / HASH).write_text("# the original\n")
    for name in ("first", "second"):
        place = tmp_path / name
        shutil.copytree(checkout, place, symlinks=True)
        (place / "work" / HASH).write_text("# the copy\n")
        if name == "first":
            in_shell = _run(place, "sh", "-c", ". .venv/bin/activate; ol reset block_hash")
            assert in_shell.returncode == 2  # the shell found the original's
            assert in_shell.stderr.count("\n") == 1
            assert f"another checkout, {place}: call its own" in in_shell.stderr
            assert (place / "work" / HASH).read_text() == "# the copy\n"
        done = _run(place, str(place / ".venv/bin/ol"), "reset", "block_hash")
        assert done.returncode == 0, done.stderr
        assert (place / "work" / HASH).read_text() != "# the copy\n"
        assert (checkout / "work" / HASH).read_text() == "# the original\n"
        done = _run(place, "sh", "-c", ". .venv/bin/activate; ol undo")
        assert done.returncode == 0, done.stderr
        assert (place / "work" / HASH).read_text() == "# the copy\n"
        place.rename(tmp_path / "moved")
        done = _run(tmp_path / "moved", "sh", "-c", ". .venv/bin/activate; ol progress")
        assert "run make start in it" in done.stderr
        done = _run(tmp_path / "moved", "make", "progress")
        assert done.returncode == 0, done.stderr
        done = _run(tmp_path / "moved", "sh", "-c", ". .venv/bin/activate; ol progress")
        assert done.returncode == 0, done.stderr
        shutil.rmtree(tmp_path / "moved")


def test_ol_is_found_through_links(checkout: Path, tmp_path: Path) -> None:
    ol = checkout / ".venv/bin/ol"
    (tmp_path / "ol").symlink_to(ol)
    (tmp_path / "again").symlink_to("ol")
    (tmp_path / "folder").symlink_to(checkout)
    shutil.copyfile(ol, tmp_path / "copied")
    expected = _run(tmp_path, str(ol), "progress").stdout
    for words in (["./ol"], ["sh", "again"], [str(tmp_path / "again")],
                  ["folder/.venv/bin/ol"], ["env", f"PATH={tmp_path}:{os.environ['PATH']}", "ol"]):
        done = _run(tmp_path, *words, "progress")
        assert (done.returncode, done.stdout) == (0, expected), (words, done)
    done = _run(tmp_path, "sh", "copied", "progress")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    (tmp_path / "linked").mkdir()
    shutil.copytree(checkout, tmp_path / "linked/kit", ignore=shutil.ignore_patterns(".venv"))
    (tmp_path / "linked/kit/.venv").symlink_to(checkout / ".venv")
    (tmp_path / "linked/kit/work" / HASH).write_text("# here\n")
    place = (checkout / ".venv/ol-place").read_bytes()
    done = _run(tmp_path, "linked/kit/.venv/bin/ol", "reset", "block_hash")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "linked/kit/work" / HASH).read_text() != "# here\n"
    assert (checkout / ".venv/ol-place").read_bytes() == place


def test_an_environment_whose_python_has_gone_is_made_again(
    checkout: Path, tmp_path: Path
) -> None:
    place = tmp_path / "kit"
    shutil.copytree(checkout, place, symlinks=True)
    for link in (place / ".venv/bin").glob("python*"):
        link.unlink()
    (place / ".venv/bin/python").symlink_to("/nowhere/python")
    done = _run(place, str(place / ".venv/bin/ol"), "progress")
    assert done.returncode == 0, done.stderr
    assert "making the environment" in done.stderr


def test_packages_that_are_gone_or_damaged_are_said_in_a_sentence(
    checkout: Path, tmp_path: Path
) -> None:
    place = tmp_path / "kit"
    shutil.copytree(checkout, place, symlinks=True)
    numpy = next((place / ".venv/lib").glob("python*/site-packages/numpy"))
    (numpy / "__init__.py").write_text("raise ImportError('cut off')")
    done = _run(place, "make", "doctor")
    assert re.search(r"BAD  .*ImportError: cut off; `rm -r .venv && make start`", done.stdout)
    shutil.rmtree(numpy)
    done = _run(place, str(place / ".venv/bin/ol"), "check", "block_hash")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the environment lacks numpy: `rm -r .venv && make start`" in done.stderr


def test_a_killed_renewal_gives_back_the_environment_that_served(
    checkout: Path, tmp_path: Path
) -> None:
    place = tmp_path / "kit"
    shutil.copytree(checkout, place, symlinks=True)
    (place / ".venv").rename(place / ".venv.old")
    (place / ".venv/bin").mkdir(parents=True)  # half of one
    done = _run(place, "make", "progress", PIP_NO_INDEX="1", UV_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert not (place / ".venv.old").exists()


@pytest.mark.parametrize("said", ["No space left on device", "anything"])
def test_a_full_disk_is_called_one(tmp_path: Path, said: str) -> None:
    """Not a Python without venv, whatever the last line of the program says that had no room."""
    place, shadow = copy(tmp_path), tmp_path / "shadow"
    (shadow / "venv").mkdir(parents=True)
    (shadow / "venv/__init__.py").write_text("")
    (shadow / "venv/__main__.py").write_text(
        f"import sys\nsys.exit('{said}\\nCommand [ensurepip, --upgrade] returned 1')")
    if said == "anything":
        (shadow / "sitecustomize.py").write_text(
            "import shutil\nfrom collections import namedtuple\n"
            "shutil.disk_usage = lambda _: namedtuple('U', 'total used free')(9, 9, 0)")
    python = tmp_path / "python"
    _script(python, f'PYTHONPATH="{shadow}" exec {sys.executable} "$@"')
    done = _run(place, "sh", "grader/run", "progress", PYTHON=str(python))
    assert done.returncode == 2
    assert "cannot be made: No space left on device" in done.stderr
    assert not (place / ".venv").exists()


def test_windows_line_ends_are_said_in_a_sentence(tmp_path: Path) -> None:
    run = tmp_path / "grader/run"
    run.parent.mkdir()
    run.write_bytes((ROOT / "grader/run").read_bytes().replace(b"\n", b"\r\n"))
    done = _run(tmp_path, "sh", "grader/run", "progress")
    assert done.returncode == 2
    assert "has the line ends of Windows" in done.stderr


def test_closed_and_full_outputs_cost_no_verdict(checkout: Path, tmp_path: Path) -> None:
    check = '"$OL" check block_hash --bind reference'

    def run(shell: str) -> subprocess.CompletedProcess[str]:
        return _run(tmp_path, "bash", "-c", shell, OL=str(checkout / ".venv/bin/ol"))

    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        done = run(f"{check} --json report {closed}")
        assert done.returncode == 0, done
        assert "Traceback" not in done.stderr
        assert "passed" in (tmp_path / "report").read_text()
        (tmp_path / "report").unlink()
    done = run(f"set -o pipefail; {check} --json report -v | true")
    assert done.returncode == 0, done
    assert "passed" in (tmp_path / "report").read_text()
    if Path("/dev/full").exists():
        done = run(f"{check} >/dev/full")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_a_folder_that_is_gone_is_said_in_a_sentence(checkout: Path, tmp_path: Path) -> None:
    ol = checkout / ".venv/bin/ol"
    done = _run(tmp_path, "sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$1" progress',
                "sh", str(ol))
    assert done.returncode == 2
    assert "the current folder no longer exists" in done.stderr.splitlines()[-1]


def _files(place: Path) -> list[str]:
    return sorted(str(p.relative_to(place)) for p in place.rglob("*")
                  if "__pycache__" not in p.parts)


def test_the_lock_files_name_hashes_and_no_addresses() -> None:
    for lock in (ROOT / "grader/setup/requirements").glob("*.lock"):
        text = lock.read_text()
        assert "://" not in text
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("--hash=sha256:" in entry for entry in entries), lock


def test_authors_have_what_learners_have() -> None:
    def pins(name: str) -> set[str]:
        text = (ROOT / f"grader/setup/requirements/{name}.lock").read_text()
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
    lock = place / "grader/setup/requirements/learn.lock"
    lock.write_text(lock.read_text() + "# newer\n")
    done = _run(place, "sh", "grader/run", "progress", PIP_NO_INDEX="1", UV_OFFLINE="1",
                UV_NO_CACHE="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 0, done.stderr
    assert "going on with the environment as it was" in done.stderr
    assert not (place / ".venv.old").exists()
