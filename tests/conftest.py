"""How all tests run hypothesis, and what pytest's summary says about waits.

A busy machine is no finding for hypothesis, and first calls compile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from testbed.waiting import NOTED, Wait, least_slack

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from _pytest.terminal import TerminalReporter

settings.register_profile(
    "rtsched",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("rtsched")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give each report the waits of its phase; as plain values they pass between processes."""
    report = yield
    report.user_properties += [
        ("wait", (wait.what, wait.waited, wait.allowed)) for wait in NOTED.take()
    ]
    return report


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Show the waits that came closest to failing."""
    waits = [
        (report.nodeid, Wait(*value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
        for name, value in report.user_properties
        if name == "wait"
    ]
    if waits:
        terminalreporter.section("waits with the least slack")
        for line in least_slack(waits):
            terminalreporter.line(line)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the local clock be that of Berlin: in 2026 set back on 25 October, forth on 29 March."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()
