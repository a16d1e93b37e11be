"""The reference's CRC-32C in C, here and on an ARM processor that is emulated."""

import os
import shutil
import subprocess
from pathlib import Path

import google_crc32c
import pytest

from grader import ROOT
from tests.kit.support.compiled import CC, needs_compiler

SOURCES = [ROOT / "tests/kit/c/crc/crc.c", ROOT / "reference/c/src/crc32c.c"]
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic",
         f"-I{ROOT / 'reference/c/src'}"]
ARM = "aarch64-linux-gnu"
EMULATOR = "qemu-aarch64"
# Published: RFC 3720, B.4, and the check value of the catalogues.
KNOWN = {b"123456789": 0xE3069283, bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43,
         bytes(range(32)): 0x46DD794E, bytes(range(31, -1, -1)): 0x113FDB5C, b"": 0}
MESSAGES = [*KNOWN, *(bytes((7 * i + n) % 256 for i in range(n)) for n in (*range(1, 70), 4096))]


def judge(program: list[str], instruction: bool) -> None:
    """Judge the CRC of each message, by the instruction where there is one and in plain C."""
    done = subprocess.run(program, input="".join(f"{m.hex()}\n" for m in MESSAGES), text=True,
                          capture_output=True, check=True)
    for message, line in zip(MESSAGES, done.stdout.splitlines(), strict=True):
        right = f"{KNOWN.get(message, google_crc32c.value(message)):08x}"
        used, *both = line.split()
        assert both == [right, right], message.hex()
        assert used == "1" or not instruction


@needs_compiler
def test_the_crc_is_right_here(tmp_path: Path) -> None:
    assert CC is not None
    program = tmp_path / "crc"
    subprocess.run([CC.program, *FLAGS, *SOURCES, "-o", program], check=True)
    judge([str(program)], instruction=False)


@pytest.mark.parametrize("compiler", [f"{ARM}-gcc", "clang", "clang-14"])
def test_the_crc_is_right_on_arm(tmp_path: Path, compiler: str) -> None:
    """By the instruction of ARMv8, in a program that is built for that processor."""
    for tool in (compiler, f"{ARM}-gcc", EMULATOR):  # clang takes the C library of that gcc
        if not shutil.which(tool):
            pytest.skip(f"left out: {tool} is not here")
    program = tmp_path / "crc"
    target = [] if compiler.endswith("gcc") else [f"--target={ARM}"]
    subprocess.run([compiler, *target, *FLAGS, "-static", *SOURCES, "-o", program], check=True,
                   env={"PATH": os.environ["PATH"]})
    judge([EMULATOR, str(program)], instruction=True)
