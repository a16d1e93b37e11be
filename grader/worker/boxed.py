"""A program in a box: limited, confined to one folder, then executed in place of this process.

    python -I -S boxed.py ROOT FOLDER PROGRAM ARGUMENT…

Used for compilers, which the grader starts over a learner's source: that may ask for endless
time, memory and output, too.
"""

import os
import sys


def main() -> None:
    root, folder, program, *arguments = sys.argv[1:]
    sys.path.insert(0, root)
    from grader.worker import confine, limits

    limits.apply(limits.Limits(memory=2048 * limits.MIB, file_size=64 * limits.MIB, processes=0,
                               cpu=limits.COMPILER_SECONDS))
    confine.confine([folder])
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
