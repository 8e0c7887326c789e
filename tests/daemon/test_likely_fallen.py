"""Likely promises whose odds fall: shown, counted, and their users notified once."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from estimating_site import waiting, with_estimates
from running import ANN, NOW, Running, answer_of
from test_likely import Told

from rtsched.adapters.live import Marks
from rtsched.adapters.slurm.observation import token_of
from rtsched.adapters.wire import Tag
from rtsched.daemon.estimating import LatestEstimates, with_likely_deadlines
from rtsched.daemon.likely import fallen, has_fallen, present_odds
from rtsched.daemon.promises import Promise
from rtsched.daemon.questions import Explain, PromiseStatus, Status
from rtsched.daemon.settings import LikelySettings
from rtsched.daemon.site import LikelyPromises
from rtsched.estimates.calibration import LikelyLevel
from rtsched.estimates.tables import Estimates
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.units import HOUR
from rtsched.notices import NoticesSettings, load, once


def promises(level: LikelyLevel | None = None, **odds: float) -> LikelyPromises:
    """Return likely promises by the odds stated, of jobs 7, 8, ..."""
    found = LikelyPromises(level=level or LikelyLevel())
    for job, (name, stated) in enumerate(odds.items(), 7):
        record = Promise(name, job, ANN, "ann", NOW + job, NOW, "firm", NOW, "", b"", odds=stated)
        found = found.with_new(record, Jobs.build(1))
    return found


def latest(**odds: float) -> LatestEstimates:
    """Return what was estimated of jobs 6, 7, ..."""
    table = Estimates.build(len(odds), job=np.arange(6, 6 + len(odds)), odds=list(odds.values()))
    return LatestEstimates(table, NOW)


@pytest.mark.parametrize(
    ("present", "share", "expected"),
    [
        (0.474, 0.5, True),
        (0.475, 0.5, False),
        (0.0, 0.0, False),
        (0.94, 1.0, True),
        (None, 1.0, False),
    ],
)
def test_they_have_fallen_below_a_share_of_those_stated(present, share, expected):
    """Strictly; with a share of 0 they never have, and odds that are not known have not."""
    assert has_fallen(0.95, present, share) is expected
    assert not has_fallen(None, present, share)


def test_odds_now_are_those_of_the_latest_estimate():
    """Of the promises that it knows, by the same scale as those stated."""
    sold = promises(a=0.95, b=0.95, c=0.8, d=0.9)
    seen = latest(other=0.1, a=0.9, b=0.3, c=np.nan)
    assert present_odds(sold, seen) == {7: 0.9, 8: 0.3}
    assert fallen(sold, seen, 0.5) == 1
    assert fallen(sold, LatestEstimates(), 0.5) == 0
    kept = LikelyLevel().learnt([(0.95, True)] * 150)
    shifted = present_odds(promises(kept, a=0.95), seen)
    assert shifted == {7: kept.calibrated(0.9, 0.95)}
    assert shifted[7] > 0.95


def test_likely_deadlines_alone_are_handed_over():
    """A guaranteed promise is planned, and a deadline of the batch system is no promise."""
    jobs = Jobs.build(3, id=[9, 8, 7], deadline=[NOW, NOW, np.inf])
    found = with_likely_deadlines(jobs, promises(a=0.95, b=0.95))
    assert found.deadline.tolist() == [np.inf, NOW + 8, NOW + 7]
    assert np.isinf(with_likely_deadlines(jobs, LikelyPromises()).deadline).all()


@asynccontextmanager
async def estimated(running: Running) -> AsyncIterator[None]:
    """Run a daemon with the known estimator."""
    estimating = with_estimates(running)
    running.queries._own = os.getuid()  # the daemon's own user sees everything
    estimating.start()
    try:
        await running.start()
        yield
    finally:
        await estimating.close()


async def passes(running: Running, now: float) -> None:
    """Let time pass until what is estimated and counted is of that time."""
    running.now = now
    running.show(time=now)
    estimating = running.daemon.estimating
    assert estimating is not None
    async with asyncio.timeout(120.0):
        while estimating.latest.at != now:
            await running.daemon.cycle()
    await running.daemon.cycle()


def seen_waiting(running: Running, token: str) -> None:
    """Have the next poll show the job as 7, waiting."""
    shown: dict[str, Any] = waiting("model")
    queued = shown["queued"].replace(id=[7])
    marks = Marks.build(1, job=[7], uid=[ANN], token=[token])
    running.show(queued=queued, marks=marks, edges=Edges.build(0))


async def promised(running: Running) -> str:
    """Have a job promised to end in two hours with odds of 95 %; return its token."""
    running.daemon.odds = Told(median=NOW)
    line = running.asked(extra="rtsched:odds=95", hours=2.0)
    fields = (await asyncio.to_thread(answer_of, line))[1]
    token = token_of(str(fields[Tag.ADMIN_COMMENT]))
    seen_waiting(running, token)
    await running.daemon.cycle()
    return token


async def shown(running: Running) -> PromiseStatus:
    """Return the promise as its user sees it, the same in status and explain."""
    reader = await asyncio.to_thread(running.queries.reader, ANN)
    (promise,) = reader.report(Status()).promises
    assert reader.report(Explain("7")).promise == promise
    return promise


def counted(running: Running) -> str:
    """Return how many have fallen, as a metric."""
    lines = running.daemon.metrics.text().splitlines()
    return next(line for line in lines if line.startswith("rtsched_likely_fallen ")).split()[1]


async def test_a_daemon_shows_and_counts_them(running: Running) -> None:
    """As they fall, and as they recover; half of the stated ones are the limit, or as set."""
    async with estimated(running):
        await promised(running)
        await passes(running, NOW + 0.25 * HOUR)
        promise = await shown(running)
        assert promise.odds == 0.95
        assert promise.odds_now == pytest.approx(0.875)
        assert (promise.unlikely, counted(running)) == (False, "0.0")
        await passes(running, NOW + 1.25 * HOUR)
        promise = await shown(running)
        assert promise.odds_now == pytest.approx(0.375)
        assert (promise.unlikely, counted(running)) == (True, "1.0")
        live = running.daemon.policy.live
        rare = msgspec.structs.replace(live, likely=LikelySettings(warn_below=0.3))
        running.daemon.policy = replace(running.daemon.policy, live=rare)
        await running.daemon.cycle()
        assert not (await shown(running)).unlikely
        assert counted(running) == "0.0"
        await running.daemon.cancel(running.daemon.site.likely.promises[7], "its user")
    (closed,) = running.store.closed_since(0.0)
    past = running.queries.reader(ANN)._past(closed)
    assert (past.odds, past.odds_now, past.unlikely) == (0.95, None, False)


def test_its_user_is_notified_once(tmp_path: Path) -> None:
    """It falls, falls further, daemon and notices begin anew, and it has fallen still."""
    out, program = tmp_path / "told", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ncat >> {out}\n")
    program.chmod(0o755)
    settings = NoticesSettings(
        mail=[],
        command=[str(program)],
        digest=0.0,
        query_socket=str(tmp_path / "query.sock"),
        state=str(tmp_path / "state.json"),
        choices="",
    )

    async def look(running: Running) -> None:
        state = load(tmp_path / "state.json")
        await asyncio.to_thread(once, state, settings, running.now)

    async def first(running: Running) -> str:
        async with estimated(running):
            await look(running)
            token = await promised(running)
            await look(running)
            await passes(running, NOW + 0.5 * HOUR)
            await look(running)
            assert not out.exists()
            for hours in (1.25, 1.3):
                await passes(running, NOW + hours * HOUR)
                await look(running)
        return token

    async def second(running: Running, token: str) -> None:
        running.now = NOW + 1.3 * HOUR
        seen_waiting(running, token)
        async with estimated(running):
            await look(running)
            await passes(running, NOW + 1.5 * HOUR)
            assert (await shown(running)).unlikely
            await look(running)

    running = Running(tmp_path)
    token = asyncio.run(first(running))
    running.close()
    again = Running(tmp_path)
    asyncio.run(second(again, token))
    again.close()
    letter = msgspec.json.decode(out.read_bytes())  # one, and no other
    (told,) = letter["notices"]
    assert (letter["user"], told["event"], told["job"]) == ("ann", "at-risk", "7")
    assert "was likely to end by" in told["text"]
    assert told["text"].endswith("with odds of 95 %; they are 37.5 % now")
