"""``python -m grader`` is the program ``ol``."""

import sys

if __name__ == "__main__":
    try:
        from grader.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    except ImportError as error:
        print(f"ol: the environment lacks {error.name}: `rm -r .venv && make start` makes it anew; "
              "your work is not in there.", file=sys.stderr)
        sys.exit(2)
    main()
