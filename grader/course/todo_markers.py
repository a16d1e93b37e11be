"""What stands in a learner's file as long as a function of it is as the stub left it."""

from grader.course.model import Fill, Module


def todo_marker(module: Module, fill: Fill) -> str:
    """Return the text that tells a function to fill in from a filled one."""
    return in_c(fill) if module.program else f'"{module.name}: {fill.shown}"'


def in_c(fill: Fill) -> str:
    return f'TL_TODO("{fill.name}")'
