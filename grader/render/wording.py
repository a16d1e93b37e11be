"""Texts that several forms share."""

import shlex

from grader.grading.report import Failure, ModuleResult, Report, TestResult, Verdict


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 test", "2 tests"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def again(module: ModuleResult, test: TestResult, report: Report) -> str:
    """Return the command line that runs this one test again, the same way."""
    # With --ref-deps, the other modules that were named are not the reference's.
    others = [n for n in report.asked if n != module.name] if report.reference_needs else []
    parts = ["ol", "check", module.name, *others, "-k", test.name]
    if report.binding != "work":
        parts += ["--bind", report.binding]
    if report.pool:
        parts += ["--pool", report.pool]
    if report.reference_needs:
        parts += ["--ref-deps"]
    if "property" in test.kinds or report.seed:
        parts += ["--seed", str(report.seed)]
    return shlex.join(parts)


def byte_rows(failure: Failure) -> list[str]:
    """Return the expected and the got bytes, a caret under the first wrong one."""
    place = failure.bytes
    if place is None:
        return []
    rows = []
    for name, text in (("expected", place.expected), ("got", place.got)):
        data = bytes.fromhex(text)
        rows.append(f"{name:<9} {place.start:>6}: " + (data.hex(" ") or "(nothing more)"))
    column = len(f"{'got':<9} {place.start:>6}: ") + 3 * (place.offset - place.start)
    rows.append(" " * column + f"^^ byte {place.offset}")
    return rows


def step_rows(failure: Failure) -> list[tuple[str, str]]:
    """Return the steps, each its number and its text, results after an arrow."""
    rows = []
    for at, step in enumerate(failure.steps):
        if at == 1 and failure.steps_left_out:
            rows.append(("…", f"({failure.steps_left_out} steps)"))
        number = at + 1 + (failure.steps_left_out if at else 0)
        if step.failed:
            outcome = f"  {step.outcome}"
        else:
            outcome = f" -> {step.outcome}" if step.outcome else ""
        often = f"   ({step.times} times)" if step.times > 1 else ""
        rows.append((str(number), f"{step.text}{outcome}{often}"))
    return rows


def unwritten(module: ModuleResult) -> dict[str, list[TestResult]]:
    """Return "X is not written yet" -> the tests that wait for it."""
    waiting: dict[str, list[TestResult]] = {}
    for test in module.tests:
        if test.verdict is Verdict.TODO and test.failure:
            waiting.setdefault(test.failure.what, []).append(test)
    return waiting
