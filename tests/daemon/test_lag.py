"""The loop's lag: measured, counted, said in the log and in status."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from running import Running
from structlog.testing import capture_logs

from rtsched.daemon import lag
from rtsched.daemon.ask import ask
from rtsched.daemon.lag import LoopLag
from rtsched.daemon.reports import Status
from rtsched.daemon.site_reader import SiteReader

if TYPE_CHECKING:
    from pathlib import Path


def blocked(seconds: float) -> tuple[list[float], LoopLag, list[str]]:
    """Return what is measured of a loop that is blocked once, the meter, and what is logged."""
    seen: list[float] = []
    meter = LoopLag(seen.append, 0.001)

    async def course() -> None:
        meter.start()
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        time.sleep(seconds)
        count = len(seen)
        while len(seen) < count + 3:
            await asyncio.sleep(0.001)
        meter.stop()

    with capture_logs() as logged:
        asyncio.run(course())
    return seen, meter, [line["event"] for line in logged]


def test_a_blocked_loop_is_seen() -> None:
    """Some milliseconds are measured; so much that a filter gives up is said in the log."""
    seen, meter, logged = blocked(lag.LONG + 0.01)
    assert max(seen) >= lag.LONG
    assert meter.longest() == max(seen)
    assert logged[0] == "loop_blocked"


def test_the_longest_delay_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status is about the last minute or two."""
    _, meter, _ = blocked(0.02)
    assert meter.longest() >= 0.015
    monkeypatch.setattr(lag, "WINDOW", 0.0)

    async def course() -> None:
        meter.start()
        while meter.longest() >= 0.015:
            await asyncio.sleep(0.001)
        meter.stop()

    asyncio.run(asyncio.wait_for(course(), 120.0))


def test_status_and_metrics_tell(tmp_path: Path) -> None:
    """The meter of a daemon feeds its metrics and its status."""
    running = Running(tmp_path)

    async def course() -> None:
        await running.start()
        running.daemon.lag.start()
        await asyncio.sleep(3 * lag.EVERY)
        report = await asyncio.to_thread(ask, Status(metrics=True), str(running.users.path))
        running.daemon.lag.stop()
        assert report.lag_s == pytest.approx(running.daemon.lag.longest(), abs=1.0)
        assert 'rtsched_loop_lag_seconds_bucket{le="0.01"}' in report.metrics
        answer = SiteReader(running.daemon, 1001, everyone=False).report(Status())
        assert answer.lag_s is None  # it says nothing to others than admins

    asyncio.run(course())
    running.close()
