"""A program in a box: limited, confined to one folder, then executed in place of this process.

    python -I -S exec_confined.py ROOT FOLDER SECONDS PROGRAM ARGUMENT…

Used for compilers, which the grader starts over a learner's source: that may ask for endless
time, memory and output, too.
"""

import os
import sys


def main() -> None:
    root, folder, seconds, program, *arguments = sys.argv[1:]
    sys.path.insert(0, root)
    from grader.sandbox import landlock, limits

    limits.apply(limits.Limits(memory=2048 * limits.MIB, file_size=64 * limits.MIB, processes=0,
                               cpu=int(seconds)))
    landlock.confine([folder])
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
