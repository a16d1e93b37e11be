"""What a learner should look at now, and do next. Advice only: it never touches a verdict."""

from collections.abc import Iterator

from grader.course import Course, Module
from grader.files import near
from grader.report import ModuleResult, Report, Status, TestResult, Verdict

Stage = tuple[int, int]  # (lesson, pass): which of the report's lessons, and its pass from 1 on


def failures(report: Report, everything: bool) -> Iterator[tuple[ModuleResult, TestResult]]:
    """Yield the failing tests, those of the pass in hand first; the others only on demand.

    A pass is green before the next begins, so what a later pass still gets wrong can wait, unless
    nothing fails in the pass in hand.
    """
    failing = [(m, t) for m in report.modules if m.name in report.asked
               for t in m.tests if t.verdict is Verdict.FAILED]
    failing.sort(key=lambda pair: _stage(report, *pair))
    current = stage_in_hand(report)
    mine = [pair for pair in failing if _stage(report, *pair) == current]
    yield from failing if everything or not mine else mine


def stage_in_hand(report: Report) -> Stage | None:
    """Return the first pass that is not green, None when all are."""
    open_ = [_stage(report, m, t) for m in report.modules if m.name in report.asked
             for t in m.tests if t.verdict is not Verdict.PASSED]
    return min(open_, default=None)


def order(course: Course, module: Module) -> Stage:
    """Return the stage at which a learner meets the module: its place on the road."""
    lessons = [x.id for x in course.lessons]
    return lessons.index(module.lesson), min(f.pass_ for f in module.fills)


def _stage(report: Report, module: ModuleResult, test: TestResult) -> Stage:
    return [x.id for x in report.lessons].index(module.lesson), test.pass_


def next_steps(report: Report, course: Course) -> list[str]:
    """Return what to do next, in a few lines."""
    if not report.asked:
        return ["Nothing was judged: no module is begun. " + _begin(course)]
    if report.only:
        return ["That test passes." if report.passed else "Not yet."]
    if report.passed:
        return _after_green(report, course)
    stage = stage_in_hand(report)
    module = _first_open(report, stage)
    if module is not None and module.status is Status.BROKEN:
        return [f"Next: mend {near(module.file)}, so that it can be judged."]
    lines = []
    if stage is not None:
        lesson, number = report.lessons[stage[0]], stage[1]
        todo = _fills(report, course, stage)
        lines.append(f"Next: pass {number} of {len(lesson.passes)}, {lesson.passes[number - 1]}."
                     + (f" To write: {', '.join(todo)}." if todo else ""))
    if module is not None and module.status is not Status.NEEDS:
        lines.append(f"      {near(module.file)}, with course/{module.name}/chapter.md; "
                     f"then `ol check {module.name}`.")
    return lines or ["Not yet."]


def first_module(course: Course) -> Module:
    """Return where a newcomer begins."""
    return min(course, key=lambda m: order(course, m))


def _begin(course: Course) -> str:
    module = first_module(course)
    return (f"Read course/{module.name}/chapter.md, edit work/{module.file_name}, "
            f"then `ol check {module.name}`; `ol check --all` judges the stubs too.")


def _after_green(report: Report, course: Course) -> list[str]:
    begun = set(report.asked)
    rest = [m for m in course if m.name not in begun]
    done = f"All that was asked passed: {', '.join(report.asked)}."
    if report.binding != "work":
        return [done]
    if rest:
        first = min(rest, key=lambda m: order(course, m))
        return [done, f"Next: {first.title}: course/{first.name}/chapter.md and "
                f"work/{first.file_name}."]
    return [done, "`ol diff MODULE` shows your code beside the reference."]


def _fills(report: Report, course: Course, stage: Stage) -> list[str]:
    """Return the functions of this pass that tests still wait for."""
    waiting = {t.failure.what for m in report.modules for t in m.tests
               if t.verdict is Verdict.TODO and t.failure}
    lesson, number = report.lessons[stage[0]].id, stage[1]
    return [f.name for m in course for f in m.fills if m.lesson == lesson and f.pass_ == number
            and any(w.startswith(f.name.removesuffix(".__init__") + " ") for w in waiting)]


def _first_open(report: Report, stage: Stage | None) -> ModuleResult | None:
    judged = [m for m in report.modules if m.name in report.asked]
    for module in judged:
        if any(_stage(report, module, t) == stage and t.verdict is not Verdict.PASSED
               for t in module.tests):
            return module
    return next((m for m in judged if m.status is not Status.PASSED), None)
