"""What a learner's own tests are worth, for a person at a terminal."""

from collections import Counter

from rich.console import Console
from rich.text import Text

from grader.course.model import Module
from grader.grading.mutation.report import Bug, Generated, MutationReport, Standing, TestJudged
from grader.grading.mutation.tdd import Rehearsal, Stage
from grader.learner.atomic_files import display_path
from grader.render.console import paragraph
from grader.render.failure import printed, told
from grader.render.wording import count
from grader.sandbox.test_names import shown

_FEW = 8  # surviving bugs shown
_MANY = 40  # tests that count that are shown
_LINES = 2  # surviving mutants of a function whose lines are shown


def show(report: MutationReport, out: Console, everything: bool = False) -> None:
    """Print the whole report."""
    out.print()
    out.print(Text(f"{report.module}: your tests in {display_path(report.folder)}", "bold"),
              soft_wrap=True)
    out.print()
    _tests(report, out, everything)
    for trouble in report.files:
        _said(out, f"✗ {trouble.file} cannot be read as tests", trouble.sentence)
    if report.matrix:
        _matrix(report, out)
    if everything:
        _caught(report, out)
    _survivors(report, out, everything)
    _unseen(report, out)
    for generated in report.generated:
        _generated(generated, out, everything)
    for line in sentences(report):
        out.print(Text(line), soft_wrap=True)


def sentences(report: MutationReport) -> list[str]:
    """Return the verdict, and what to do next."""
    caught, all_ = len(report.caught), len(report.bugs)
    missed = [b.id for b in report.survivors if b.required]
    said = []
    if report.missing:
        said.append(f"The lesson asks for tests of these names, too: {', '.join(report.missing)}.")
    if not report.valid:
        said.append("No test counts, so nothing was caught.")
    weighed = "" if all(b.weight == 1 for b in report.bugs) else ", by weight"
    said.append(f"{caught} of {all_} planted bugs caught: {report.score:.0%}{weighed}; "
                f"{report.threshold:.0%} is asked for.")
    if missed:
        said.append(f"{', '.join(missed)} must be caught, whatever the share.")
    said.append("Your tests are good enough." if report.passed else "Not yet.")
    return said


def show_rehearsal(rehearsal: Rehearsal, module: Module, out: Console) -> None:
    """Print what the tests were on the stub, or on the learner's code."""
    red = rehearsal.stage is Stage.RED
    out.print()
    out.print(Text(f"{rehearsal.module}: your tests, {'on the stub' if red else 'on your code'}",
                   "bold"))
    out.print()
    if rehearsal.broken:
        told(rehearsal.broken, out)
    for test in rehearsal.tests:
        mark, style = ("✓", "green") if test.right else ("✗", "red")
        out.print(Text(f"  {mark} ", style).append(_short(test.name), "default"), soft_wrap=True)
        if test.sentence and (red or not test.right):
            paragraph(out, test.sentence, "dim", by=6)
        if test.failure:
            told(test.failure, out)
            printed(test.printed, out)
    for trouble in rehearsal.files:
        _said(out, f"✗ {trouble.file} cannot be read as tests", trouble.sentence)
    out.print()
    for line in _next(rehearsal, module):
        out.print(Text(line), soft_wrap=True)


def _next(rehearsal: Rehearsal, module: Module) -> list[str]:
    many = f"{len(rehearsal.tests)} tests" if len(rehearsal.tests) != 1 else "1 test"
    if not rehearsal.passed:
        wrong = sum(not t.right for t in rehearsal.tests)
        if rehearsal.broken:
            return ["Not yet: the module itself cannot be run."]
        if not rehearsal.tests:
            return ["Not yet: there is no test in these files; functions test_…() are tests."]
        return [f"Not yet: {wrong} of {many} {'is' if wrong == 1 else 'are'} not "
                f"{'red for a good reason' if rehearsal.stage is Stage.RED else 'green'}."
                if wrong else "Not yet: not every file could be read."]
    if rehearsal.stage is Stage.RED:
        return [f"Red, as it should be: {many}.",
                f"Next: write work/{module.file_name}, then `ol tdd green {module.name}`."]
    return [f"Green: {many}.", f"Next: `ol mutation {module.name}` says what they can catch."]


def _tests(report: MutationReport, out: Console, everything: bool) -> None:
    """Print a line a test: those that count with what they catch, the others with why not."""
    shown = report.valid if everything else report.valid[:_MANY]
    for test in shown:
        out.print(Text("  ✓ ", "green").append(f"{_short(test.name)}   ", "default")
                  .append(_worth(test), "dim" if test.useful else "yellow"), soft_wrap=True)
    if more := len(report.valid) - len(shown):
        out.print(Text(f"  and {more} more that count; -v shows them", "dim"))
    for test in report.tests:
        if test.standing is not Standing.VALID:
            _said(out, f"✗ {_short(test.name)} does not count: {test.standing.value}",
                  test.sentence)
    out.print()


def _worth(test: TestJudged) -> str:
    if test.catches is not None:
        many = len(test.catches)
        return f"catches {many}, {test.first} of them first" if many else "catches nothing"
    if test.first:
        return f"catches {test.first}" if test.first > 1 else "catches 1"
    return "catches only what a test before it catches" if test.useful else "catches nothing"


def _said(out: Console, head: str, sentence: str) -> None:
    out.print(Text(f"  {head}", "red"), soft_wrap=True)
    paragraph(out, sentence, by=6)


def _matrix(report: MutationReport, out: Console) -> None:
    """Print a row a bug and a column a test."""
    tests = report.valid
    for number, test in enumerate(tests, 1):
        out.print(Text(f"  {number:>3}  {_short(test.name)}"), soft_wrap=True)
    out.print()
    wide = max((len(b.id) for b in report.bugs), default=0)
    out.print(Text(f"  {'':<{wide}} " + "".join(f"{n:>3}" for n in range(1, len(tests) + 1))))
    for bug in report.bugs:
        marks = "".join("  ×" if bug.id in (t.catches or []) else "  ·" for t in tests)
        out.print(Text(f"  {bug.id:<{wide}} {marks}", "" if bug.caught else "yellow"),
                  soft_wrap=True)
    out.print()


def _caught(report: MutationReport, out: Console) -> None:
    if report.caught:
        out.print(Text("Caught, and by which test first:", "bold"))
    for bug in report.caught:
        out.print(Text(f"  {bug.id:<5} {bug.pitfall}   ").append(
            f"{_short(bug.caught_by or '')}", "dim"), soft_wrap=True)
    if report.caught:
        out.print()


def _survivors(report: MutationReport, out: Console, everything: bool) -> None:
    """Print what a user would see of the bugs that got away, those first that must be caught."""
    if not report.survivors:
        return
    order = sorted(report.survivors, key=lambda bug: not bug.required)
    shown: list[Bug] = order if everything else order[:_FEW]
    out.print(Text("No test of yours noticed these programs. What a user of each would see:",
                   "bold"))
    for bug in shown:
        must = "   (must be caught)" if bug.required else ""
        paragraph(out, f"{bug.id:<5} {bug.symptom}{must}")
    if len(order) > len(shown):
        out.print(Text(f"  and {len(order) - len(shown)} more; -v shows them", "dim"))
    out.print()


def _unseen(report: MutationReport, out: Console) -> None:
    """Print which planted bugs are left out, and why."""
    if not report.unseen:
        return
    many = sum(len(group.bugs) for group in report.unseen)
    are, them = ("is", "it") if many == 1 else ("are", "them")
    out.print(Text(f"{count(many, 'more bug')} {are} left out: no test in Python can see {them}.",
                   "bold"), soft_wrap=True)
    for group in report.unseen:
        paragraph(out, f"{', '.join(group.bugs)}: {group.why}", "dim")
    out.print()


def _generated(generated: Generated, out: Console, everything: bool) -> None:
    """Print what became of generated mutants: by function, and of some survivors, or all, the
    lines that may be told."""
    of = "your code" if generated.whose == "yours" else "the reference"
    out.print(Text(f"Generated mutants of {of}: {generated.caught} of {generated.tried} caught.",
                   "bold"), soft_wrap=True)
    if generated.failing:
        names = ", ".join(_short(name) for name in generated.failing)
        paragraph(out, f"These tests fail on the code as it is, and were left aside: {names}.")
    for function, many in Counter(s.function for s in generated.survivors).items():
        out.print(Text(f"  {function}: {many} not caught"), soft_wrap=True)
        told = [s for s in generated.survivors if s.function == function and s.line is not None]
        for one in told if everything else told[:_LINES]:
            out.print(Text(f"    line {one.line}", "dim"))
            for sign, lines in (("-", one.was), ("+", one.now)):
                for line in lines:
                    out.print(Text(f"      {sign} {line.strip()}"), soft_wrap=True)
    out.print()


def _short(name: str) -> str:
    """Return a test's name as its author wrote it, with the class it is in."""
    return shown(name) or name
