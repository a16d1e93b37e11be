"""What commands leave to each other in the folder of the snapshots."""

import subprocess
from pathlib import Path

from tests.kit.support import copies


def test_only_what_a_killed_command_left_is_removed(tmp_path: Path) -> None:
    """A draft of a process that lives is another command's, which is about to put it in place."""
    place = copies.copy(tmp_path)
    assert copies.ol(place, "start", "kv_pool").returncode == 0
    (place / "work/tinyllm/kv_pool.py").write_text("# mine\n")
    with subprocess.Popen(["sleep", "1000"]) as living, subprocess.Popen(["true"]) as ended:
        ended.wait()
        memory = place / "work/.history"
        memory.mkdir(exist_ok=True)
        kept = memory / f".ol-{living.pid}-a1b2.tmp"
        left = [memory / name for name in (f".ol-{ended.pid}-a1b2.tmp", ".ol-a1b2c3d4e5f6.tmp",
                                           ".ol-0-a.tmp", ".ol-.tmp", f".ol-{2 ** 80}-a.tmp")]
        for file in (kept, *left):
            file.write_text("half")
        assert copies.ol(place, "reset", "kv_pool").returncode == 0
        living.kill()
    assert kept.exists()
    assert not any(file.exists() for file in left)
