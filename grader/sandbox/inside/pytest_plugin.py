"""A worker's pytest plugin: run the tests asked for, in order, and tell how each ended."""

import os
from collections.abc import Callable, Generator, Iterator
from gc import collect
from os import WNOHANG, _exit, waitpid  # bound here, before learner code may change them
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest
from _pytest.reports import TestReport
from _pytest.runner import CallInfo, runtestprotocol

from grader.sandbox import processes
from grader.sandbox.channel import Events, end_of_output
from grader.sandbox.exit_reasons import kills
from grader.sandbox.inside.failure_evidence import Evidence
from grader.sandbox.inside.test_importer import Tests

_INI = str(Path(__file__).with_name("pytest.ini"))


def start(job: dict[str, Any], plugins: list[object]) -> None:
    """Call pytest. None of its parsers meets a path that may hold anything: it takes its arguments
    apart at `[` and `::`, and puts the environment's values into the root that it is told. So the
    tests' files are collected by `collectors`, and the root comes to it as such a value."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["OL_ROOT"] = job["root"]
    pytest.main(["-c", _INI, "--rootdir", "$OL_ROOT", "--noconftest", "--import-mode=importlib",
                 "--capture=no", "-p", "no:cacheprovider", "-p", "no:faulthandler",
                 "-p", "no:unraisableexception", "-p", "no:threadexception",
                 "-p", "_hypothesis_pytestplugin", f"--hypothesis-seed={job['seed']}",
                 *job.get("arguments", [])], plugins=plugins)


def collectors(session: pytest.Session, files: list[str]) -> list[pytest.Module]:
    """Return what collects the tests of each of these files."""
    return [pytest.Module.from_parent(session, path=Path(file)) for file in files]


def run_suite(job: dict[str, Any], events: Events, evidence: Evidence) -> None:
    """Run the tests of ``job`` through pytest. Every result leaves as an event."""
    plugin = Plugin()
    plugin.take(job, events, evidence)

    def collect(session: pytest.Session) -> None:
        # In front of pytest's own way of compiling tests, which may read bytecode.
        rooms = sorted({str(Path(file).parent) for file in job["suite"]})
        Tests(rooms, None, ()).compile(session.config)
        session.items = plugin.choose([
            item for file in collectors(session, job["suite"]) for item in session.genitems(file)])

    start(job, [plugin, At(collect)])


class At:
    """Does something at the point where pytest would collect, instead of that."""

    def __init__(self, do: Callable[[pytest.Session], object]) -> None:
        self.do = do

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []
        self.do(session)
        return True


class Plugin:
    """Keeps pytest to the catalogue, and reports by events instead of a terminal."""

    def take(self, job: dict[str, Any], events: Events, evidence: Evidence) -> None:
        """Take on a job."""
        self.names: list[str] = job["tests"]
        self.where: dict[str, str] = job["where"]
        self.first: bool = job.get("first", False)
        self.mark = job["mark"].encode()
        self.events = events
        self.evidence = evidence
        self.failure: dict[str, Any] | None = None
        self.threads = 0

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep what pytest prints out of what the learner's code prints."""
        if reporter := config.pluginmanager.get_plugin("terminalreporter"):
            config.pluginmanager.unregister(reporter)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.events.send("uncollected", text=str(report.longrepr)[-2000:])

    def choose(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Return those of the tests that are asked for, in that order."""
        # A program's suite may have a test of the same name as one that it takes the place of.
        found = {self.name(item): item for item in items
                 if str(item.path) == self.where.get(self.name(item), str(item.path))}
        self.threads = processes.threads_of_this_process()
        return [found[name] for name in self.names if name in found]

    def name(self, item: pytest.Item) -> str:
        """Return what the grader calls a test."""
        return item.name.removeprefix("test_")

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        name = self.name(item)
        self.failure = None
        self.evidence.story.clear()
        self.events.send("begin", test=name)
        started = perf_counter()
        runtestprotocol(item, log=False, nextitem=nextitem)
        seconds = perf_counter() - started
        failure = self.failure
        if (left := self._left_behind()) and failure is None:
            failure = self.evidence.left_behind(left)
        self.evidence.story.let_go()  # what the end of an object does is this test's affair
        end_of_output(self.mark)
        self.ended(name, seconds, failure, left)
        self.evidence.story.clear()
        return True

    def ended(self, name: str, seconds: float, failure: dict[str, Any] | None,
              left: str | None) -> None:
        """Tell how a test ended."""
        left_out = self.evidence.story.left_out
        self.events.send("end", test=name, seconds=seconds, failure=failure, left=left,
                         left_out=left_out)
        left_out.clear()
        if left or (self.first and failure and kills(failure)):
            _exit(0)  # a fresh worker takes the tests that are left, if any are wanted

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Generator[None, object, object]:
        """Take in whatever a test raises: some of it would end pytest itself, and all of it may be
        an object of the learner's, which pytest had better not ask for anything."""
        try:
            return (yield)
        except BaseException as error:
            self.failure = self.evidence.of(error)
        raise AssertionError

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: CallInfo[None]) -> TestReport:
        """Judge one phase by its exception alone; pytest's own text of it is never made."""
        error = call.excinfo.value if call.excinfo else next(self._errors(item), None)
        if error is not None and self.failure is None:
            self.failure = self.evidence.of(error)
        return TestReport(item.nodeid, item.location, {}, "failed" if error else "passed",
                          None, call.when)  # type: ignore[arg-type]  # a test is never "collect"

    @staticmethod
    def _errors(item: pytest.Item) -> Iterator[BaseException]:
        """Yield what a test of unittest's raised, which pytest keeps beside the call."""
        for excinfo in getattr(item, "_excinfo", None) or ():
            yield excinfo.value

    def _left_behind(self) -> str | None:
        """Return what a test left running, once it had a moment to go."""
        for _ in range(10):
            left = "thread" if processes.threads_of_this_process() > self.threads else None
            try:
                while (found := waitpid(-1, WNOHANG)) != (0, 0):
                    pass  # a child that has ended is no stray
                left = "child" if found == (0, 0) else left
            except ChildProcessError:
                pass
            if left is None:
                return None
            collect(0)
            sleep(0.005)
        return left
