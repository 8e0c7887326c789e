"""Promised jobs that fail in time on a real Slurm, and begin again within their promise."""

from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster
from testbed.waiting import eventually

CODES = "restart_exit_codes = [75]\n"
FAILS_ONCE = 'sleep 2; test -n "$SLURM_RESTART_COUNT" || exit 75; sleep 2'


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run two nodes; a job that is queued again waits for some seconds only."""
    settings = {"SchedulerParameters": "bf_interval=5,bf_continue,requeue_delay=3"}
    with live_cluster(SITE + CODES, fast=1, slow=1, settings=settings) as running:
        running.wait_usable(2)
        yield running


def test_a_job_begins_again_within_its_promise(live: Live) -> None:
    """It fails once with the exit code that the site names; its user reads so, and it is kept."""
    job = live.promise("-N1", "--time=1", in_minutes(15), script=FAILS_ONCE)
    told = "restarts, planned to start"
    eventually(lambda: told in live.cluster.job(job).get("Comment", ""), 60, "its user is told")
    assert live.state(job) == "firm"
    eventually(lambda: f"rtsched_{job}" in live.reservations(), 30, "its nodes are kept")
    live.wait_state(job, "kept", seconds=90)
    assert live.cluster.job(job)["Restarts"] == "1"


def test_it_begins_again_no_oftener_than_the_site_says(live: Live) -> None:
    """It fails again; the promise is closed, as that of any job that fails."""
    job = live.promise("-N1", "--time=1", in_minutes(15), script="sleep 2; exit 75")
    live.wait_state(job, "withdrawn", seconds=90)
    assert live.cluster.job(job)["Restarts"] == "1"


def test_a_job_that_must_not_begin_again(live: Live) -> None:
    """With --no-requeue it is left alone."""
    job = live.promise("-N1", "--time=1", "--no-requeue", in_minutes(15), script="exit 75")
    live.wait_state(job, "withdrawn", seconds=60)
    assert live.cluster.job(job)["Restarts"] == "0"
