"""A patch server: a worker that has imported a program and the tests, and forks one for each mutant
of a function in it.

A mutant's worker puts the changed code into the function that is there, runs the tests, and has
imported nothing. That comes to the same as importing everything afresh exactly where the function
was not called by any import, and where nothing but its code differs; so it is for the grader to
ask only then, and whatever does not fit is said to be `UNFIT` and tried the slow way.
"""

import os
import sys
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from grader.binding.finder import Binding, install, text_file
from grader.course.model import PACKAGE
from grader.sandbox import landlock, limits, processes
from grader.sandbox.channel import Events
from grader.sandbox.inside import worker_main
from grader.sandbox.inside.failure_evidence import Evidence
from grader.sandbox.inside.server_role import Serve, ServerRole
from grader.sandbox.inside.trial_plugin import Trial

UNFIT = "unfit"


def run(job: dict[str, Any], serve: Serve, trial: Trial) -> None:
    """Import what ``job`` binds and its tests, and fork workers for as long as ``serve`` does. A
    patch server that cannot be made as it should ends, and nobody is told why: the slow way
    tells."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(silence, fd)
    worker_main.streams()
    binding = Binding(job["files"], (), job["tests_room"], job["texts"])
    install(binding)
    limits.apply(limits.Limits(**job["limits"]))
    landlock.confine([os.getcwd()])
    evidence = Evidence(binding, job)
    threads = processes.threads_of_this_process()
    if not worker_main.import_bound(job, Events(silence), evidence):
        return
    trial.take(job, Events(silence), evidence)
    trial.gather(job)
    if processes.threads_of_this_process() > threads:
        return  # a fork would lose them
    serve(ServerRole(PatchServer(trial, evidence).work, _compile))


class PatchServer:
    """The work of a mutant's worker."""

    def __init__(self, trial: Trial, evidence: Evidence) -> None:
        self.trial = trial
        self.evidence = evidence

    def work(self, job: dict[str, Any], events_fd: int, trace_fd: int) -> int:
        """Change the function and run the tests."""
        limits.die_with_parent()
        events = Events(events_fd)
        worker_main.answer(events, self.evidence, trace_fd)
        name = job["module"]
        events.send("import", module=name)
        if not _patch(name, **job["graft"]):
            events.send("broken", module=name, failure={"cause": UNFIT, "what": "it is no mutant"})
            return 0
        events.send("imported", calls=[])
        self.evidence.job = job
        self.trial.take(job, events, self.evidence)
        self.trial.run_gathered()
        events.send("done")
        return 0


def _compile(job: dict[str, Any]) -> None:
    """Compile a mutant's function before the fork: a worker's memory is not warm."""
    _code(job["module"], **job["graft"])


@lru_cache(maxsize=4)
def _code(module: str, function: str, line: int, text: str) -> CodeType | None:
    """Return the code of a function of a module, given as its lines in the module's file."""
    *owner, name = function.split(".")
    head = [f"class {cls}:\n" for cls in owner]
    source = "\n" * (line - 1 - len(head)) + "".join(head) + text
    code: CodeType | None = compile(source, text_file(module), "exec", dont_inherit=True)
    for part in (*owner, name):
        code = next((c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part),
                    None) if code else None
    return code


def _patch(module: str, function: str, line: int, text: str) -> bool:
    """Put a function's new code into the one that this process has; False where it has none of
    that make."""
    code = _code(module, function, line, text)
    thing: Any = sys.modules[f"{PACKAGE}.{module}"]
    for part in function.split("."):
        thing = vars(thing).get(part)
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if (not isinstance(thing, FunctionType) or code is None
            or code.co_freevars != thing.__code__.co_freevars):
        return False
    thing.__code__ = code
    return True
