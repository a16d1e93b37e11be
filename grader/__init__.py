"""The grader: it decides which file stands behind a module name, runs the suites, and reports."""

from pathlib import Path

VERSION = "0.1.0"
ROOT = Path(__file__).resolve().parent.parent
"""The project's folder: the rooms course, stubs, reference, tests and formats are beside us."""
