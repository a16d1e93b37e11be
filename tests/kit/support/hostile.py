"""Tests that do what tests must not do. Each costs itself, or its file, and no others."""

HEAD = "from tinyllm.block_hash import block_hash, hash_chain\n"

FILES = {
    "test_good.py": HEAD + (
        "def test_hash_chain_by_hand():\n"
        "    names = [0xA91AB0C1027B9366, 0x03DF829571605C60]\n"
        "    assert hash_chain([1, 2, 3, 4, 5], 2) == names\n"),
    "test_broken.py": "def test_x(:\n",
    "test_lacks.py": "from tinyllm.block_hash import nothing\ndef test_y():\n    pass\n",
    "test_stops.py": "import sys\nsys.exit(0)\n",
    "test_dies.py": "import os\nos._exit(0)\n",
    "test_skipped.py": "import pytest\npytest.skip('not today', allow_module_level=True)\n",
    "test_none.py": "VALUE = 1\n",
    "test_spoils.py": "import reference.tinyllm.block_hash\n",
    "test_acts.py": HEAD + """
import os, sys, time, pathlib, ctypes, subprocess, inspect
import pytest
def test_hangs():
    while True: pass
def test_floods():
    while True: print("x" * 100000)
def test_ends_pytest():
    pytest.exit("bye", returncode=0)
def test_ends_python():
    sys.exit(0)
def test_ends_the_process():
    os._exit(0)
def test_skips():
    pytest.skip("no")
def test_fails_as_expected():
    pytest.xfail("no")
@pytest.mark.xfail
def test_marked():
    assert block_hash(0, [1]) == 0
def test_writes_elsewhere():
    pathlib.Path(__file__).write_text("gone")
def test_removes_everything():
    import shutil
    try:
        shutil.rmtree(pathlib.Path(__file__).parent)
    except PermissionError as error:  # which file is the first depends on the version of Python
        raise PermissionError(error.strerror) from None
def test_sets_the_clock():
    time.clock_settime(time.CLOCK_REALTIME, 0)
def test_patches_the_clock(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 1 / 0)
    monkeypatch.setattr(time, "monotonic", lambda: 1 / 0)
    assert block_hash(0, [1]) == block_hash(0, [1])
def test_imports_the_reference():
    from reference.tinyllm import block_hash
def test_imports_the_grader():
    import grader.course.planted_bugs
def test_imports_a_suite():
    from tests.block_hash import test_fnv
def test_reads_the_bugs():
    for folder in pathlib.Path(pytest.__file__).parents:
        for file in folder.glob("course/modules/*/mutants.toml"):
            file.read_text()
def test_reads_the_source():
    assert inspect.getsource(block_hash)
def test_kills_its_parent():
    os.kill(os.getppid(), 9)
def test_kills_itself():
    os.kill(os.getpid(), 9)
def test_leaves_a_child():
    subprocess.Popen(["sleep", "1000"])
def test_asks():
    input("number? ")
async def test_is_async():
    pass
class TestInAClass:
    def test_method(self, tmp_path):
        (tmp_path / "x").write_text("1")
        assert block_hash(0, [1]) != block_hash(0, [2])
@pytest.mark.parametrize("n", [1, 2])
def test_cases(n):
    assert block_hash(0, [n]) != 0
import unittest
class Old(unittest.TestCase):
    def test_old(self):
        self.assertNotEqual(block_hash(1, [1]), block_hash(2, [1]))
    def test_wrong(self):
        self.assertEqual(block_hash(1, [1]), 0)
""",
}
