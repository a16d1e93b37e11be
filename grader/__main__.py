"""``python -m grader`` is the program ``ol``."""

import sys
from importlib.util import find_spec

_NEEDED = ("click", "hypothesis", "numpy", "pytest", "rich")  # a worker finds out too late

if __name__ == "__main__":
    try:
        lacking = next((name for name in _NEEDED if find_spec(name) is None), None)
        if lacking is not None:
            raise ModuleNotFoundError(name=lacking)
        from grader.cli.main import main
    except KeyboardInterrupt:
        sys.exit(130)
    except ImportError as error:
        print(f"ol: the environment lacks {error.name}: `rm -r .venv && make start` makes it anew; "
              "your work is not in there.", file=sys.stderr)
        sys.exit(2)
    main()
