"""`make fuzz`: random bytes as calls on the pool in C, under the sanitizers, for authors.

    python -m tests.kit.fuzz [SECONDS] [FOLDER]

With clang it is libFuzzer that looks for bytes which reach something new; without, bytes are drawn
from seeds. FOLDER is whose program, the reference's if absent. What it ever finds becomes a test.
"""

import subprocess
import sys
import time
from pathlib import Path

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.compiler import Compiler, Refused, Source, sources_in
from grader.course import manifest as courses

SECONDS = 60
_RUNS = 2_000  # of drawn bytes, at a time
_FUZZER = ("-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")


def _guides(found: Compiler) -> bool:
    """Say whether this compiler has libFuzzer."""
    nothing = b"int LLVMFuzzerTestOneInput(void);\nint LLVMFuzzerTestOneInput(void) { return 0; }\n"
    try:
        found.link([found.compile(Source("nothing.c", nothing), (), (), _FUZZER)], "nothing",
                   _FUZZER)
    except Refused:
        return False
    return True


def target(found: Compiler, source: Path) -> tuple[Path, bool]:
    """Build the program below ``source`` as a target; true where libFuzzer drives it."""
    module = courses.load().program("c")
    kit = sources_in(ROOT / "tests/kit/c/fuzz", "*.c")
    guided = _guides(found)
    flags = _FUZZER if guided else native_module.checked_flags(found)
    if guided:
        kit = [part for part in kit if part.name != "runs.c"]
    own = sources_in((source / module.file_name).parent, "*.[ch]", "src/")
    return found.link(native_module.objects(module, own, found, flags, kit), "fuzz", flags), guided


def main(words: list[str]) -> int:
    """Fuzz for so many seconds; 1 when something was found."""
    seconds = int(words[0]) if words else SECONDS
    source = Path(words[1]).resolve() if len(words) > 1 else ROOT / "reference"
    program, guided = target(compiler.find(), source)
    print("libFuzzer looks for what is new" if guided else
          "libFuzzer is absent (it comes with clang): bytes are drawn from seeds")
    if guided:
        return subprocess.run([program, f"-max_total_time={seconds}"], cwd=program.parent,
                              check=False).returncode
    return drawn(program, seconds)


def drawn(program: Path, seconds: float, runs: int = _RUNS) -> int:
    """Let the target draw its bytes, seed by seed, until the time is over or it finds something."""
    until, seed = time.monotonic() + seconds, 1
    while time.monotonic() < until:
        done = subprocess.run([program, str(runs), str(seed)], capture_output=True, text=True,
                              check=False, errors="replace")
        if done.returncode:
            print(done.stderr.replace("\r", "\n")[-4000:])
            return 1
        seed += runs
    print(f"{seed - 1} runs, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
