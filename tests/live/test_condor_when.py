"""Start estimates on a real HTCondor pool: jobs of known run times start within their intervals."""

from collections.abc import Iterator

import pytest
from alike import When, estimates
from promised_pool import SITE, LivePool, live_pool
from promising import OFTEN

RUNS = 15
"""Seconds for which a known job runs."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run four slots with library and daemon."""
    with live_pool(SITE + OFTEN, fast=0, slow=4) as running:
        yield running


class TestWhen(When):
    """Estimates of starts."""

    slack = 30.0

    def known(self, live: LivePool, count: int) -> list[int]:
        """Submit jobs that state far more than they need."""
        first = live.submit("+RtRunTime = 600", f"queue {count}", user="bob", seconds=RUNS).job
        return [first + proc for proc in range(count)]

    def test_users_are_served_by_turns(self, live: LivePool) -> None:
        """Who has no slot is not estimated to start after one who has all, and does not.

        Those for whom a slot is freed by one negotiation start at one time.
        """
        jobs = self.known(live, 12)
        self.running(live, jobs)
        late = live.submit("+RtRunTime = 600", "queue", user="alice", seconds=RUNS).job
        live.polled()
        seen = estimates(live, [late, jobs[-1]])
        assert seen[late]["basis"] != "estimate" or seen[late]["start"] <= seen[jobs[-1]]["start"]
        started = [live.wait_status(job, "completed", seconds=180) for job in (late, jobs[-1])]
        assert started[0]["JobStartDate"] <= started[1]["JobStartDate"]
