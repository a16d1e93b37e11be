"""A worker's plugin that tries tests on a program: a learner's, of which nothing is believed, or a
module's own suite."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.reports import CollectReport
from hypothesis import is_hypothesis_test, settings

from grader.sandbox import processes
from grader.sandbox.channel import Events
from grader.sandbox.inside.call_tracer import CALLS
from grader.sandbox.inside.failure_evidence import Evidence
from grader.sandbox.inside.pytest_plugin import At, Plugin, collectors, start
from grader.sandbox.inside.test_importer import Tests
from grader.sandbox.inside.worker_main import settle_hypothesis
from grader.sandbox.test_names import file_of, within


def run_trial(job: dict[str, Any], events: Events, evidence: Evidence) -> None:
    """Run a trial for which no suite server is prepared."""
    settle_hypothesis(trial=True)
    trial = Trial(job)

    def go(session: pytest.Session) -> None:
        trial.prepare(session)
        trial.run(job, events, evidence)

    start(job, [trial, At(go)])


class Trial(Plugin):
    """Collects what is in the files, and runs what it is asked for, or all.

    The order of all is the files', but properties come last: they take the longest.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.suite: list[str] = job["suite"]
        self.tests = Tests(job["rooms"], job["folder"], job["closed"])
        self.files: dict[str, pytest.Collector] = {}
        # What was found at the top of each file, and is no test yet.
        self.within: dict[pytest.Collector, dict[str, object]] = {}
        self.making = ""
        self.found: dict[str, pytest.Item] = {}

    def prepare(self, session: pytest.Session) -> None:
        """Do all that can be done without running a line of the tests."""
        self.config: Any = session.config
        self.tests.compile(session.config)
        self.files = {str(f.path): f for f in collectors(session, self.suite)}

    def run(self, job: dict[str, Any], events: Events, evidence: Evidence) -> None:
        """Import the tests and run those of ``job``, in the session that was prepared."""
        self.take(job, events, evidence)
        self._settle_in()
        if self.names:
            self._asked(job)
        else:
            self._all()

    def gather(self, job: dict[str, Any]) -> None:
        """Import the tests of ``job`` and make them, for processes forked from this one."""
        self._settle_in()
        for name in self.names:
            self._find(name, job)

    def run_gathered(self) -> None:
        """Run the tests that are asked for, of those that were gathered."""
        self._settle_in()
        self.threads = processes.threads_of_this_process()
        for name, following in zip(self.names, [*self.names[1:], None], strict=True):
            if name in self.found:
                _run(self.found[name], self.found.get(following or ""))

    def _settle_in(self) -> None:
        if not self.trusted:
            # pytest's own choice of a folder asks for an owner that a worker of root's is not.
            self.config._tmp_path_factory._basetemp = Path.cwd()
            self.tests.close()

    def take(self, job: dict[str, Any], events: Events, evidence: Evidence) -> None:
        super().take(job, events, evidence)
        self.trusted = job["folder"] is None
        self.without = set(job["without"])

    def _all(self) -> None:
        """Run all tests of all files."""
        items = sorted((item for file in self.files.values() for name in self._import(file)
                        for item in self._items(file, name)), key=_is_property)
        self.events.send("collected", tests=[
            {"name": self.name(item), "property": _is_property(item)} for item in items])
        for item, following in zip(items, [*items[1:], None], strict=True):
            _run(item, following)

    def _asked(self, job: dict[str, Any]) -> None:
        """Run the tests that were asked for, in that order. A file is imported with the first of
        its tests, so that one kill is all that a bug may cost."""
        for name, following in zip(self.names, [*self.names[1:], None], strict=True):
            # What fixtures of a file have set up stays as long as its tests follow each other.
            stays = following and self._path(following, job) == self._path(name, job)
            if item := self._find(name, job):
                _run(item, self._find(following, job) if following and stays else None)

    def _find(self, name: str, job: dict[str, Any]) -> pytest.Item | None:
        """Return a test, made from its file if need be; None where there is none of this name."""
        if (file := self.files.get(self._path(name, job))) is None:
            return None
        if file not in self.within:
            self._import(file)
        if name not in self.found and (function := self._function(name)) in self.within[file]:
            self.found |= {self.name(item): item for item in self._items(file, function)}
        return self.found.get(name)

    @staticmethod
    def _path(name: str, job: dict[str, Any]) -> str:
        """Return the file that a test is in."""
        return job["where"].get(name) or os.path.join(job["root"], file_of(name))

    def _function(self, name: str) -> str:
        """Return what a test is called at the top of its file: a function, or a class."""
        return f"test_{name}" if self.trusted else within(name)[0]

    def _import(self, file: pytest.Collector) -> list[str]:
        """Import a file of tests; return what in it may hold some, by name."""
        self.within[file] = {}
        if str(file.path) in self.without:
            return []
        for _ in file.session.genitems(file):
            pass  # there are no items yet: see `pytest_pycollect_makeitem`
        settle_hypothesis(trial=True)  # a file may have loaded a profile of its own
        self.threads = processes.threads_of_this_process()
        return list(self.within[file])

    def _items(self, file: pytest.Collector, name: str) -> list[pytest.Item]:
        """Make the tests of one function or class."""
        thing, self.making = self.within[file].pop(name), name
        made = file.ihook.pytest_pycollect_makeitem(collector=file, name=name, obj=thing)
        self.making = ""  # the next file may have one of this name
        items = [item for part in (made if isinstance(made, list) else [made] if made else [])
                 for item in file.session.genitems(part)]
        for item in items:
            _settle(item)
        return items

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str,
                                  obj: object) -> list[pytest.Item] | None:
        """Put off what makes tests of the things in a file, until they are asked for: it costs more
        than most tests."""
        if (waiting := self.within.get(collector)) is None or name == self.making:
            return None
        waiting[name] = obj
        return []

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> CollectReport | None:
        """Import a file of tests; whatever that raises costs this file alone."""
        if not isinstance(collector, pytest.Module):
            return None
        found: list[Any] = []
        self.events.send("collect", file=str(collector.path))
        if not self.trusted:
            collector._getobj = partial(self.tests.load, collector.path)  # type: ignore[method-assign]
        try:
            found = list(collector.collect())
        except BaseException as error:
            wrapped = isinstance(error, pytest.Collector.CollectError) and error.__cause__
            failure = self._refusal() or self.evidence.of_import(wrapped or error)
            self.events.send("uncollected", file=str(collector.path), failure=failure)
        self.events.send("calls", of=str(collector.path), calls=CALLS.take())
        return CollectReport(collector.nodeid, "passed", None, found)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Pass over what of a file cannot be collected, such as a class with a constructor."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        self.tests.enter(item.path)
        return super().pytest_runtest_protocol(item, nextitem)

    def name(self, item: pytest.Item) -> str:
        return super().name(item) if self.trusted else item.nodeid

    def ended(self, name: str, seconds: float, failure: dict[str, Any] | None,
              left: str | None) -> None:
        if calls := CALLS.take():
            self.events.send("calls", of=name, calls=calls)
        super().ended(name, seconds, self._refusal() or failure, left)

    def _refusal(self) -> dict[str, Any] | None:
        """Return the account of what a test reached for, and forget it."""
        what, self.tests.refused = self.tests.refused, None
        return {"cause": "refused", "what": what} if what else None


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _is_property(item: pytest.Item) -> bool:
    return bool(is_hypothesis_test(getattr(item, "obj", None)))


def _settle(item: pytest.Item) -> None:
    """Take back what a property's own settings say of time, memory of failures and phases."""
    if _is_property(item):
        test: Any = item.obj  # type: ignore[attr-defined]
        function, default = getattr(test, "__func__", test), settings.default
        assert default is not None
        function._hypothesis_internal_use_settings = settings(
            function._hypothesis_internal_use_settings, database=None, deadline=None,
            phases=default.phases, verbosity=default.verbosity, print_blob=False,
            suppress_health_check=default.suppress_health_check)
