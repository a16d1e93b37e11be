"""The golden values, under the name they had before `tests/vectors.py`."""

from tests.vectors import cases as cases
