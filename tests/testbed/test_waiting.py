"""How long tests wait on a machine that may be busy, and what is said about it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from testbed import TestbedError, waiting
from testbed.waiting import NOTED, PROCESSORS, QuietClock, Wait, eventually, least_slack, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Keep the waits of these tests out of the summary."""
    yield
    NOTED.take()


@pytest.fixture
def busy() -> Iterator[None]:
    """Keep all processors busy, each with four processes."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(4 * PROCESSORS)]
    yield
    for process in processes:
        process.kill()
        process.wait()


def test_what_a_claim_returns() -> None:
    """The first true value comes back, and the wait is noted with what was awaited."""
    values = iter([0, "", "here"])
    assert wait_for("a word", lambda: next(values), 5) == "here"
    (wait,) = NOTED.take()
    assert (wait.what, wait.allowed) == ("a word", 15.0)
    assert 0 < wait.slack < 1


def test_what_never_comes() -> None:
    """It fails with what was awaited, and has no slack left."""
    with pytest.raises(TestbedError, match=r"not within 0\.3 s of a quiet machine: it is 7"):
        eventually(lambda: False, 0.1, lambda: "it is 7")
    (wait,) = NOTED.take()
    assert wait.slack <= 0


def test_a_wait_without_a_name() -> None:
    """It is called by the line that waits."""
    assert eventually(lambda: True)
    assert "test_waiting.py" in (what := NOTED.take()[0].what)
    assert "eventually(lambda: True)" in what


def test_a_busy_machine_has_more_time(busy: None) -> None:
    """Where four times as many processes want to run, a second counts about a quarter."""
    begun, clock = time.monotonic(), QuietClock()
    while time.monotonic() - begun < 1.0:
        time.sleep(0.02)
        clock.now()
    assert clock.now() < 0.5


def test_a_stuck_test_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the clock goes on."""
    monkeypatch.setattr(waiting, "PROCESSORS", 1e-9)
    assert waiting.slowdown() == waiting.SLOWEST


def test_the_least_slack_first() -> None:
    """Lines begin with the wait that came closest to failing."""
    spent = {"a": 1.0, "b": 9.0, "c": 5.0}
    waits = [(test, Wait("x", seconds, 10.0)) for test, seconds in spent.items()]
    assert least_slack(waits, 2) == [
        " 10% left: 9.0 s of 10 s  b  x",
        " 50% left: 5.0 s of 10 s  c  x",
    ]


def test_the_summary(pytester: pytest.Pytester, request: pytest.FixtureRequest) -> None:
    """Pytest ends with the waits that had the least slack, of other processes too."""
    pytester.makeconftest((request.config.rootpath / "tests" / "conftest.py").read_text())
    pytester.makepyfile(
        """
        from testbed.waiting import wait_for

        def test_that_waits():
            wait_for("the end", lambda: True, 10)
        """
    )
    path = f"pythonpath={request.config.rootpath / 'tests'}"
    for more in ([], ["-n", "1"]):
        result = pytester.runpytest_subprocess("-o", path, "-p", "no:randomly", *more)
        result.stdout.fnmatch_lines(
            ["*waits with the least slack*", "*left: 0.0 s of 30 s  *::test_that_waits  the end"]
        )
