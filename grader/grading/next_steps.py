"""What a learner should look at now, and do next. Advice only: it never touches a verdict."""

import os
from collections.abc import Iterator

from grader.course.model import Course
from grader.grading.learning_path import learning_path, next_milestone
from grader.grading.progress import standings
from grader.grading.report import ModuleResult, OwnTests, Report, Status, TestResult, Verdict
from grader.learner.atomic_files import display_path

Stage = tuple[int, int]  # (lesson, pass): which of the report's lessons, and its pass from 1 on


def failures(report: Report, everything: bool) -> Iterator[tuple[ModuleResult, TestResult]]:
    """Yield the failing tests, those of the pass in hand first; the others only on demand.

    A pass is green before the next begins, so what a later pass still gets wrong can wait, unless
    nothing fails in the pass in hand.
    """
    failing = [(m, t) for m in report.modules if m.name in report.asked
               for t in m.tests if t.verdict is Verdict.FAILED]
    failing.sort(key=lambda pair: (_stage(report, *pair), _distance(pair[1])))
    current = stage_in_hand(report)
    mine = [pair for pair in failing if _stage(report, *pair) == current]
    yield from failing if everything or not mine else mine


def stage_in_hand(report: Report) -> Stage | None:
    """Return the first pass that is not green, None when all are."""
    open_ = [_stage(report, m, t) for m in report.modules if m.name in report.asked
             for t in m.tests if t.verdict is not Verdict.PASSED]
    return min(open_, default=None)


def _distance(test: TestResult) -> tuple[bool, bool, bool, int]:
    """Return how far a failure is from its fault: an answer that is wrong after a few calls tells
    more than an error that follows from it, or a long story, and a line more than the function that
    was called."""
    failure = test.failure
    assert failure is not None
    steps = len(failure.steps) + failure.steps_left_out
    line = any(not line.function or line.function not in line.text for line in failure.code)
    return failure.cause != "wrong", "property" in test.kinds, not line, steps


def _stage(report: Report, module: ModuleResult, test: TestResult) -> Stage:
    return [x.id for x in report.lessons].index(module.lesson), test.pass_


def looks_like(module: ModuleResult) -> str:
    """Return what stands above the classic bugs that a module's failures look like."""
    many = len(module.suspects) > 1
    which = "one of these classic bugs, the likeliest first" if many else "this classic bug"
    return f"{module.name} looks like {which} (a guess, from what fails and how):"


def next_steps(report: Report, course: Course) -> list[str]:
    """Return what to do next, in a few lines."""
    if report.only:
        if not report.passed:
            return ["Not yet."]
        tests = sum(len(m.tests) for m in report.modules if m.name in report.asked)
        return ["That test passes." if tests == 1 else f"Those {tests} tests pass."]
    if report.passed:
        lines = [f"All that was asked passed: {', '.join(report.asked)}."]
    elif report.asked:
        lines = []
    else:
        lines = ["Nothing was judged: no module is begun. `ol check --all` judges the stubs too."]
    if report.binding != "work" or report.pool:
        open_ = [m.name for m in report.modules if m.name in report.asked
                 and m.status is not Status.PASSED]
        return lines or [f"Not passed: {', '.join(open_)}."]
    return lines + _offers(report, course) + (_mend(report) or _go_on(report, course))


def own_tests(module: str, own: OwnTests) -> list[str]:
    """Say what the learner's own tests of a module are worth."""
    asked = "enough" if own.passed else f"{own.threshold:.0%} is asked for" + (
        f", and {', '.join(own.missed)} must be among them" if own.missed else "")
    return [f"Your own tests of {module} catch {own.caught} of {own.bugs} planted bugs "
            f"({own.score:.0%}; {asked}). `ol mutation {module}` says more."]


def _offers(report: Report, course: Course) -> list[str]:
    """Say what the modules that passed are good for, where they have a tool."""
    studies = [course.module(m.name).study for m in report.modules
               if m.name in report.asked and m.status is Status.PASSED]
    return [study.offer for study in studies if study and study.offer]


def _mend(report: Report) -> list[str]:
    """Say which file cannot be judged as it is, if there is one."""
    for module in report.modules:
        if module.name in report.asked and module.status is Status.BROKEN:
            if not os.path.lexists(module.file):
                return [f"Next: `ol start` lays out {display_path(module.file)}."]
            return [f"Next: mend {display_path(module.file)}, so that it can be judged."]
    return []


def _go_on(report: Report, course: Course) -> list[str]:
    """Say where the road goes on: at what fails, else at the first stop that is not green. Off the
    road, in an optional module, it goes on there."""
    failing = next(failures(report, False), None)
    known = standings(course, report)
    open_ = [course.module(m.name) for m in report.modules
             if m.name in report.asked and m.status is not Status.PASSED]
    off_path = bool(open_) and all(module.optional for module in open_)
    stop = next_milestone(course, open_ if off_path else course, known)
    if failing is not None:
        name, number = failing[0].name, failing[1].pass_
        stop = next((s for s in learning_path(course)
                     if s.module.name == name and s.pass_ == number), stop)
    if stop is None and not all(k.current for k in known.values()):
        return ["Every module was green before your last change; `ol check` judges them again."]
    if stop is None:
        return ["Every module of the course is green. `ol diff MODULE` shows your code beside "
                "the reference."]
    todo = stop.unwritten()
    return [f"Next: {stop.title}." + (f" To write: {', '.join(todo)}." if todo else ""),
            f"      work/{stop.module.file_name}, with "
            f"course/modules/{stop.module.name}/chapter.md; then `ol check {stop.module.name}`."]
