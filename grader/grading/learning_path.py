"""The road through the course: pass by pass, and in each pass module by module."""

from collections.abc import Iterable
from dataclasses import dataclass

from grader.course.model import Course, Lesson, Module
from grader.course.todo_markers import todo_marker
from grader.errors import CallError
from grader.grading.progress import Standing
from grader.learner import workspace


@dataclass(frozen=True)
class Milestone:
    """A pass of a module: what is written and made green before the next stop."""

    lesson: Lesson
    module: Module
    pass_: int

    @property
    def title(self) -> str:
        """Return "pass 2 of 3, names, lookup and the cache"."""
        passes = self.lesson.passes
        return f"pass {self.pass_} of {len(passes)}, {passes[self.pass_ - 1]}"

    def unwritten(self) -> list[str]:
        """Return what the learner's file still has as the stub left it."""
        try:
            data = workspace.read(workspace.work() / self.module.file_name) or b""
        except CallError:
            return []
        return [f.name for f in self.module.fills if f.pass_ == self.pass_
                and todo_marker(self.module, f).encode() in data]


def learning_path(course: Course) -> list[Milestone]:
    """Return all stops, in order; those of optional modules come last."""
    stops = []
    for lesson in course.lessons:
        modules = [m for m in course if m.lesson == lesson.id]
        for number in range(1, len(lesson.passes) + 1):
            stops += [Milestone(lesson, m, number) for m in modules
                      if any(f.pass_ == number for f in m.fills)]
    return sorted(stops, key=lambda stop: stop.module.optional)


def next_milestone(course: Course, modules: Iterable[Module],
              known: dict[str, Standing]) -> Milestone | None:
    """Return the first stop of these modules that the last checks did not find green."""
    among = {m.name for m in modules}
    return next((stop for stop in learning_path(course) if stop.module.name in among and not (
        stop.module.name in known and known[stop.module.name].is_green(stop.pass_))), None)
