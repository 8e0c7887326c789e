"""Likely promises on the board and over REST: their odds, and how reliable they were."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from board_pages import closed_likely
from rest_client import BOB, JOB, app_for, call, in_thread, local, seen_in_queue
from running import ANN, NOW, Running, answer_of

from rtsched.daemon.estimating import Estimating, LatestEstimates
from rtsched.estimates import Estimates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs


class Sure:
    """Gives every job odds of 97 %."""

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64]:
        """Return 99 ends, of which all but three are at once; the others never come."""
        del timeout_s
        return np.tile(np.repeat([0.0, np.inf], [97, 2]), (len(jobs), 1))


@pytest.fixture(params=[True, False], ids=["past", "new"])
def likely(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Running, bool]]:
    """Give a daemon with a likely promise to ann's job, and with or without some of the past."""

    async def course(running: Running) -> None:
        running.daemon.odds = Sure()
        await running.start()
        await asyncio.to_thread(answer_of, running.asked(extra="rtsched:odds=95"))
        (record,) = running.daemon.site.likely.promises.values()
        row = running.daemon.site.likely.requested.replace(id=np.array([JOB]))
        await seen_in_queue(running, row, [record.token])
        if request.param:
            running.store.commit(list(closed_likely()), None, 0)

    with in_thread(Running(tmp_path), course) as running:
        yield running, request.param


def page(running: Running, uid: int, target: str) -> tuple[int, Any]:
    """Return what a user of this host gets."""
    return asyncio.run(call(local(app_for(running), uid), "GET", target))[:2]


def test_the_odds_are_shown(likely: tuple[Running, bool]) -> None:
    """To whom the promise is, in the table, and when asked why the job waits."""
    running, past = likely
    text = page(running, ANN, "/board/now")[1]
    assert "promised, likely 95 %" in text
    assert ("Of 400 promises, stated" in text, 'id="likely"' in text) == (past, past)
    why = page(running, ANN, f"/board/why?job={JOB}")[1]
    assert "Nothing is planned for it" in why
    assert "promised, likely 95 %" not in page(running, BOB, "/board/now")[1]
    status, report = page(running, ANN, f"/v1/promises/{JOB}")
    assert (status, report["promise"]["odds"] if "promise" in report else report["odds"]) == (
        200,
        0.95,
    )


def test_odds_that_have_fallen_are_shown(likely: tuple[Running, bool]) -> None:
    """Beside those stated, where an estimate knows them."""
    running, _ = likely
    estimating = Estimating(running.live, running.daemon.metrics)
    estimating.latest = LatestEstimates(Estimates.build(1, job=[JOB], odds=[0.384]), NOW)
    running.daemon.estimating = estimating
    assert "promised, likely 95 %, now 38.4 %" in page(running, ANN, "/board/now")[1]
    promise = page(running, ANN, f"/v1/promises/{JOB}")[1]
    assert (promise["odds"], promise["odds_now"], promise["unlikely"]) == (0.95, 0.384, True)


def test_the_record_is_for_all(likely: tuple[Running, bool]) -> None:
    """It says nothing of users: stated odds, how many, how many kept."""
    running, past = likely
    status, report = page(running, BOB, "/v1/reliability")
    assert status == 200
    assert sum(row["promises"] for row in report["stated"]) == (400 if past else 0)
    assert all(row["kept"] <= row["promises"] for row in report["stated"])
    assert {*report} == {"now", "stated"}
