"""How all tests run hypothesis and compile kernels, and what pytest's summary says about waits.

A busy machine is no finding for hypothesis, and first calls compile.
"""

import fcntl
import os
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, settings
from testbed.waiting import NOTED, Wait, least_slack

from rtsched.kernels.compiling import COMPILING

os.environ.setdefault("RTSCHED_COMPILE", "1")  # commands wait until kernels are compiled

settings.register_profile(
    "rtsched",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("rtsched")


LIVE = Path(__file__).parent / "live"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no test in vain: the live ones, and no others, are in a directory of their own."""
    is_live = LIVE in (collection_path, *collection_path.parents)
    chosen = config.option.markexpr
    if (is_live and chosen == "not live") or (
        not is_live and chosen == "live" and collection_path not in LIVE.parents
    ):
        return True
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Let one process of a run compile kernels at a time; the others take them from the disk."""
    if COMPILING and hasattr(config, "workerinput"):
        from numba.core.dispatcher import Dispatcher

        turn = _one_at_a_time(config.rootpath / ".pytest_cache" / "compiling.lock")
        compile_kernel = Dispatcher.compile

        @wraps(compile_kernel)
        def compile_in_turn(kernel: Dispatcher, signature: Any) -> Any:
            with turn():
                return compile_kernel(kernel, signature)

        Dispatcher.compile = compile_in_turn


def _one_at_a_time(file: Path) -> Any:
    """Return what gives a block that only one process is in at a time; it may be in it twice."""
    file.parent.mkdir(exist_ok=True)
    lock, depth = file.open("w"), 0

    @contextmanager
    def turn() -> Iterator[None]:
        nonlocal depth
        if not depth:
            fcntl.flock(lock, fcntl.LOCK_EX)
        depth += 1
        try:
            yield
        finally:
            depth -= 1
            if not depth:
                fcntl.flock(lock, fcntl.LOCK_UN)

    return turn


@pytest.fixture(autouse=True)
def no_server_by_dns() -> Iterator[None]:
    """No test asks the name servers of the machine that it runs on for a server of rtsched.

    Not by the fixture `monkeypatch`: that would then end after the fixtures of tests that use it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rtsched.rest.client.servers", lambda: "")
        yield


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
