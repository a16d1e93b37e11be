"""Inside a worker: bind the modules, import them, run the suite or a script, tell each test's end.

Events are JSON lines on a channel of their own; what learner code prints goes elsewhere. The first
event says how the imports went, then there are `begin` and `end` for each test, then `done`.
"""

import contextlib
import faulthandler
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from grader.binding.finder import ASSERTIONS, Binding, install, text_file
from grader.course.model import PACKAGE
from grader.sandbox import landlock, limits, processes
from grader.sandbox.channel import Events
from grader.sandbox.inside.call_tracer import CALLS


def warm_up() -> None:
    """Import what every worker needs, in the fork server."""
    import hypothesis.internal.conjecture.engine
    import hypothesis.stateful
    import hypothesis.strategies
    import numpy as np

    import grader.sandbox.inside.failure_evidence
    import grader.sandbox.inside.trial_plugin  # noqa: F401

    # Touch what loads lazily, so that no worker pays for it.
    hypothesis.strategies.lists(hypothesis.strategies.integers()).validate()
    np.zeros(1, dtype=np.float16).astype(np.float32).sum()


Suite = Callable[[dict[str, Any], Events, Any], None]


def run(job: dict[str, Any], events_fd: int, trace_fd: int, suite: Suite | None = None) -> int:
    """Carry out one job and return the exit status: 0 when it came to its end. ``suite`` runs the
    tests, where a suite server has prepared them."""
    events = Events(events_fd)
    sys.dont_write_bytecode = True
    streams()
    binding = Binding(job["files"], tuple(job["own"]), job["tests_room"], job.get("texts", {}))
    install(binding)
    if job.get("afresh"):
        _forget(PACKAGE)
    limits.apply(limits.Limits(**job["limits"]))
    # The kit's own tests ask what happens where the kernel does not keep signals in.
    landlock.confine([os.getcwd()], signals=job.get("signals", True))
    from grader.sandbox.inside.failure_evidence import Evidence

    evidence = Evidence(binding, job)
    tell_story = answer(events, evidence, trace_fd)
    # What a trial runs is the kit's own, or else no verdict on a learner depends on it.
    put_back = None if job.get("trial") else _keep("tests", ASSERTIONS)
    if not import_bound(job, events, evidence):
        return 0
    if put_back:
        put_back()
    if job.get("tell_steps"):
        evidence.story.tell = tell_story
    if suite is None:
        suite = _suite(job)
    suite(job, events, evidence)
    events.send("done")
    return 0


def _suite(job: dict[str, Any]) -> Suite:
    """Return what runs a job that nobody has prepared."""
    if "script" in job:
        from grader.sandbox.inside.script_main import run_script

        return run_script
    if job.get("trial"):
        from grader.sandbox.inside.trial_plugin import run_trial

        return run_trial
    settle_hypothesis(shorten=job.get("shorten", True))
    from grader.sandbox.inside.pytest_plugin import run_suite

    return run_suite


def answer(events: Events, evidence: Any, trace_fd: int) -> Callable[..., None]:
    """Let this process say where it is when it crashes, or when it is asked because it hangs."""

    def tell_story(*_: Any) -> None:
        with contextlib.suppress(BaseException):  # it may come in the middle of learner code
            events.send("story", **evidence.of_now())

    faulthandler.enable(file=trace_fd, all_threads=False)
    signal.signal(signal.SIGUSR1, tell_story)
    # Asked where it hangs, a worker writes its stack, even from inside C code, and then, if
    # Python code is what runs, the steps so far.
    faulthandler.register(signal.SIGUSR1, file=trace_fd, all_threads=False, chain=True)
    return tell_story


def import_bound(job: dict[str, Any], events: Events, evidence: Any) -> bool:
    """Import each bound module that is judged or needed, in order; tell the first that fails."""
    threads = processes.threads_of_this_process()
    for name in job["modules"]:
        events.send("import", module=name)
        if name == job.get("calls"):
            CALLS.begin(text_file(name))
        try:
            module = importlib.import_module(f"{PACKAGE}.{name}")
        except BaseException as error:
            failure = evidence.of_import(error)
            events.send("broken", module=name, failure=failure)
            return False
        if processes.threads_of_this_process() > threads:
            events.send("broken", module=name, failure=evidence.left_behind("thread"))
            return False
        evidence.watch(module, name)
    events.send("imported", calls=CALLS.take())
    return True


def _keep(*packages: str) -> Callable[[], None]:
    """Return what makes the modules of ``packages`` be as they are now, whatever learner code does
    to them at import: they are the judges."""
    kept = {name: (module, dict(vars(module))) for name, module in _modules_of(*packages).items()}

    def put_back() -> None:
        for name in _modules_of(*packages):
            del sys.modules[name]
        for name, (module, names) in kept.items():
            sys.modules[name] = module
            vars(module).update(names)

    return put_back


def _modules_of(*packages: str) -> dict[str, Any]:
    return {name: module for name, module in sys.modules.items()
            if f"{name}.".startswith(tuple(f"{package}." for package in packages))}


def import_judges() -> None:
    """Import what a failure is told with."""
    for name in ("steps", "wording", "comparisons"):
        importlib.import_module(f"{ASSERTIONS}.{name}")
    importlib.import_module("grader.sandbox.inside.failure_evidence")


def _forget(package: str) -> None:
    """Let the modules of ``package`` be imported again: others are bound now."""
    for name in _modules_of(package):
        del sys.modules[name]


def settle_hypothesis(trial: bool = False, *, shorten: bool = True) -> None:
    """Set how properties are tested, after learner code was imported: it may have set its own.

    In a ``trial`` no example is made shorter, and none is taken from the constants in the source of
    whatever modules happen to be imported: a property meets the same examples on every program.
    """
    import hypothesis.internal.conjecture.engine as engine
    import hypothesis.internal.conjecture.providers as providers
    from hypothesis import HealthCheck, Phase, Verbosity, settings

    settings.register_profile(
        "grader",
        database=None,
        deadline=None,
        derandomize=False,  # the seed is given on pytest's command line
        print_blob=False,
        verbosity=Verbosity.quiet,  # what is printed is the learner's
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate,
                *((Phase.shrink,) if shorten and not trial else ())),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("grader")
    # A shorter example is a courtesy; it must not cost the test its time limit.
    if hasattr(engine, "MAX_SHRINKING_SECONDS"):
        engine.MAX_SHRINKING_SECONDS = 1
    if trial and hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants


def streams() -> None:
    """Give print UTF-8 that never fails, and an input that is at its end."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), encoding="utf-8",
                                  errors="backslashreplace", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    with contextlib.suppress(OSError):
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
