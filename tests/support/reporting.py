"""What a run says at its end: what this machine could not run, and deadlocks in any server log.

In a full run (``./dev test --all``) a skip is a failure, so that nothing is ever left out in silence.
"""

import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.counts import full
from tests.support.logs import deadlocks
from tests.support.requirements import TOOLS, missing
from tests.support.servers import TestRun

_RUN = pytest.StashKey[TestRun]()
_NOT_RUN = "not_run"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="also run the soaks, which take hours")


def pytest_configure(config: pytest.Config) -> None:
    if not _is_worker(config):
        config.stash[_RUN] = TestRun.create()
        _hide_the_developer(config.stash[_RUN].place)


def _hide_the_developer(place: Path) -> None:
    """No test, and no process a test starts, sees the settings or the data of the person who runs it."""
    for name in list(os.environ):
        ours = name.startswith("SLUICEGATE_") and not name.startswith("SLUICEGATE_TEST_")
        libpq = re.fullmatch("PG[A-Z]+", name) is not None
        if ours or libpq:
            del os.environ[name]
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(place / name.lower())


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("soak"):
        return
    soaks = [item for item in items if item.get_closest_marker("soak")]
    if soaks:
        config.hook.pytest_deselected(items=soaks)
        items[:] = [item for item in items if item not in soaks]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("requires"):
        for name in mark.args:
            if tool := missing(name):
                item.user_properties.append((_NOT_RUN, name))
                pytest.skip(f"this machine lacks {name}; to run it: {tool.remedy}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if full() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which a full run does not allow: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if full() and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped, which a full run does not allow: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    what = report.longrepr
    return str(what[2] if isinstance(what, tuple) else what).removeprefix("Skipped: ")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    # The directory of a passed test is gone after its teardown, and with it the logs of servers it started itself.
    places = [getattr(item, "funcargs", {}).get(name) for name in ("tmp_path", "scratch")]
    found = [line for place in places if isinstance(place, Path) for line in deadlocks(place)]
    yield
    assert not found, "\n".join(["a server that this test started had a deadlock:", *found])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(_RUN, None)
    if run is None:
        return
    run.stop()
    found = deadlocks(run.place)
    if found:
        _fail(session, "deadlocks in the logs of the test servers", "\n".join(found))
    if not session.testsfailed and not found:
        run.remove()


def _fail(session: pytest.Session, what: str, text: str) -> None:
    """Add a failure that belongs to no test to the counts and to the report of errors."""
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, TerminalReporter):
        report = pytest.TestReport(what, ("", None, what), {}, "failed", text, "teardown")
        reporter.stats.setdefault("error", []).append(report)


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    logs = [] if run is None else sorted(run.place.rglob("*.log"))
    if logs:
        terminalreporter.section("Server logs")
    for log in logs:
        terminalreporter.write_line(str(log))
    _report_not_run(terminalreporter)


def _report_not_run(reporter: TerminalReporter) -> None:
    reports = [*reporter.stats.get("skipped", []), *reporter.stats.get("failed", [])]
    lacking: Counter[str] = Counter()
    others = []
    for report in reports:
        names = [str(value) for key, value in getattr(report, "user_properties", []) if key == _NOT_RUN]
        lacking.update(names)
        if not names and report.skipped:
            others.append(f"{report.nodeid}: {_reason(report)}")
    if not lacking and not others:
        return
    reporter.section("Not run here, and what would allow it")
    for tool in TOOLS:
        if count := lacking[tool.name]:
            reporter.write_line(f"{tool.name}: {count} test{'s' if count > 1 else ''}. To run them: {tool.remedy}")
    for line in sorted(set(others)):
        reporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    # Only if the run ended before its session did, for instance on a wrong option.
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.stop()
        if not any(run.place.rglob("*.log")):
            run.remove()
