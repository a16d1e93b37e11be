"""A script in a worker: a bench or a demo, run over the bound modules as if it were one test.

It defines ``main(tell)``, or ``main(tell, plan)`` where the grader asks for something, and tells
what it finds by ``tell(kind, **fields)``: plain data, which the grader hears at once and puts into
a form. Nothing of the learner's is recorded or wrapped here, so what is timed is what was written.
"""

import importlib
import time
from typing import Any

from grader.sandbox.channel import Events, end_of_output
from grader.sandbox.inside.failure_evidence import Evidence


def run_script(job: dict[str, Any], events: Events, evidence: Evidence) -> None:
    """Run the script of ``job``; it counts as done only when it returns."""
    (name,) = job["tests"]
    events.send("begin", test=name)
    started = time.perf_counter()
    failure = None
    try:
        importlib.import_module(job["script"]).main(
            lambda kind, **fields: events.send("figure", figure={"kind": kind, **fields}),
            *job.get("arguments", []))
    except BaseException as error:
        failure = evidence.of(error)
    end_of_output(job["mark"].encode())
    events.send("end", test=name, seconds=time.perf_counter() - started, failure=failure,
                left=None)
