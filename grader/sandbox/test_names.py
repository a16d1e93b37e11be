"""The names of a learner's tests: the file below the folder of the tests, `::`, and what pytest
calls the test in there. A file's own name may hold `::` and `[` as well, so it ends at `.py::`."""

_END = ".py::"


def file_of(case: str) -> str:
    """Return the file that a test is in."""
    return case.partition(_END)[0] + ".py"


def test_of(case: str) -> str:
    """Return the test that a case, which has parameters, is of."""
    file, end, test = case.partition(_END)
    return file + end + test.partition("[")[0] if end else case.partition("[")[0]


def within(case: str) -> list[str]:
    """Return what leads to a test in its file: classes, if it is in any, and the test, without
    what stands behind it in brackets for its parameters."""
    *classes, test = case.partition(_END)[2].partition("[")[0].split("::")
    return [*classes, test]


def shown(case: str) -> str:
    """Return the test as a learner reads it, with its parameters but not its file."""
    name, bracket, parameters = case.partition(_END)[2].partition("[")
    return name.replace("::", ".") + bracket + parameters
