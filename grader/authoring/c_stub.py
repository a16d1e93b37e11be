"""The stub of a C program: the reference's file without what it does.

Of the reference's file it has the includes of the given headers and the functions that the manifest
lists under `fill`, with a comment on what to do, and a body that says what is missing. All else of
it is the reference's own.
"""

import re
import textwrap

from grader.course import todo_markers
from grader.course.model import Fill, Module
from grader.errors import KitError

_WIDTH = 96
_FUNCTION = r"^(?P<type>[a-z][\w ]*[ *]+){name}(?P<parameters>\([^;{{]*?\)) \{{$"


def stub_of(module: Module, source: str) -> str:
    """Return the stub of one program, from the source of its reference."""
    assert module.program is not None
    includes = re.findall(r'^#include (?:<.*>|".*/.*")$', source, re.MULTILINE)
    own = [line for line in includes if '"' in line]
    system = [line for line in includes if '"' not in line]
    head = "\n".join([_comment(module.doc), *own[:1], "", *system, "", *own[1:]])
    parts = [head, module.program.begin.strip(), *(_function(f, source) for f in module.fills)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _function(fill: Fill, source: str) -> str:
    found = re.search(_FUNCTION.format(name=fill.name), source, re.MULTILINE)
    if found is None:
        raise KitError(f"the manifest fills {fill.name}, which the reference does not define")
    steps = "\n".join(textwrap.fill(step, _WIDTH - 3, initial_indent="  - ",
                                    subsequent_indent="    ") for step in fill.approach)
    todo = textwrap.fill(f"TODO (pass {fill.pass_}): {fill.todo}", _WIDTH - 3)
    unused = [f"    (void){name};" for name in _names(found["parameters"])]
    return "\n".join([_comment(f"{todo}\n{steps}"), found[0], *unused, *_end(found["type"], fill),
                      "}"])


def _names(parameters: str) -> list[str]:
    """Return the names of the parameters, each the last word of its declaration."""
    return [name for part in parameters.strip("()").split(",")
            if (name := re.findall(r"\w+", part)[-1]) != "void"]


def _end(type_: str, fill: Fill) -> list[str]:
    missing, type_ = todo_markers.in_c(fill), type_.strip()
    if type_ == "tl_status":
        return [f"    return {missing};"]
    nothing = "NULL" if type_.endswith("*") else "0"
    return [f"    {missing};", *([] if type_ == "void" else [f"    return {nothing};"])]


def _comment(text: str) -> str:
    first, *rest = text.strip().splitlines()
    return "\n".join([f"/* {first}", *(f"   {line}".rstrip() for line in rest)]) + " */"
