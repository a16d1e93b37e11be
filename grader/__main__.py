"""``python -m grader`` is the program ``ol``."""

from grader.cli import main

if __name__ == "__main__":
    main()
