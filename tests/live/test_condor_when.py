"""Start estimates on a real HTCondor pool: jobs of known run times start within their intervals."""

from collections.abc import Iterator
from typing import Any

import pytest
from promised_pool import SITE, LivePool, live_pool, within
from promising import BOUND, OFTEN
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

RUNS = 15
"""Seconds for which a known job runs."""

SLACK = 30.0
"""Seconds by which jobs start after they could: negotiation, claims, a busy machine."""


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run four slots with library and daemon."""
    with live_pool(SITE + OFTEN, fast=0, slow=4) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins without jobs."""
    live.replies.clear()
    yield
    live.cancel_all()


def known(live: LivePool, count: int) -> list[int]:
    """Submit jobs of which users' past says how long they run, though they state far more."""
    first = live.submit("+RtRunTime = 600", f"queue {count}", user="bob", seconds=RUNS).job
    return [first + proc for proc in range(count)]


def estimated_at(live: LivePool) -> float:
    """Return of which state the latest estimates are, seconds since the epoch."""
    return float(live.ask("when", user="root")["estimated"] or 0.0)


def estimates(live: LivePool, jobs: list[int]) -> dict[int, dict[str, Any]]:
    """Wait until all jobs are estimated; return how, all of one time."""
    since = live.daemon_time()

    def found() -> dict[int, dict[str, Any]]:
        report = live.ask("when", user="root")
        if (report["estimated"] or 0.0) < since:
            return {}
        rows = {each["job"]: each for each in report["jobs"]}
        known = {job: rows.get(name_of(job), {"basis": "running"}) for job in jobs}
        return {} if any(each["basis"] == "none" for each in known.values()) else known

    return dict(eventually(found, 120, "all jobs are estimated"))


def test_starts_lie_within_their_intervals(live: LivePool) -> None:
    """Eight jobs wait behind four; what was estimated of each at first comes true."""
    for job in known(live, 8):
        live.wait_status(job, "completed", seconds=120)
    live.pool.stop_daemon()  # its process of estimates reads the past when it starts
    live.pool.start_daemon()
    eventually(lambda: live.ask("when", user="root")["past"] >= 8, 60, "the past is read")
    jobs = known(live, 12)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 4, 60, "four jobs run")
    live.polled()
    reply = estimates(live, jobs)
    outside, judged = [], 0
    for job in jobs:
        ad = live.wait_status(job, "completed", seconds=180)
        start, seen = ad["JobStartDate"], reply[job]
        if seen["basis"] != "estimate":
            continue
        judged += 1
        low, high = seen["start_low_95"], seen["start_high_95"]
        if start < low - SLACK or (high is not None and start > high + SLACK):
            outside.append((name_of(job), start - low, None if high is None else high - low))
    assert len(outside) <= 1, outside  # one in twenty may
    assert judged >= 6


def test_users_are_served_by_turns(live: LivePool) -> None:
    """Who has no slot is not estimated to start after one who has all, and does not.

    Those for whom a slot is freed by one negotiation start at one time.
    """
    jobs = known(live, 12)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 4, 60, "four jobs run")
    late = live.submit("+RtRunTime = 600", "queue", user="alice", seconds=RUNS).job
    live.polled()
    seen = estimates(live, [late, jobs[-1]])
    assert seen[late]["basis"] != "estimate" or seen[late]["start"] <= seen[jobs[-1]]["start"]
    started = [live.wait_status(job, "completed", seconds=180) for job in (late, jobs[-1])]
    assert started[0]["JobStartDate"] <= started[1]["JobStartDate"]


def test_a_job_that_is_not_submitted(live: LivePool) -> None:
    """It is answered; others' jobs are not shown."""
    jobs = known(live, 10)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 4, 60, "four jobs run")
    waiting = [job for job in jobs if live.status(job) == "idle"]
    estimates(live, waiting)

    def answered() -> dict[str, Any]:
        (found,) = live.ask("when", "-t", "5")["jobs"]
        return dict(found) if found["basis"] == "estimate" else {}

    found = eventually(answered, 60, "a job that is not submitted is estimated")
    assert found["state"] == "unsubmitted"
    job = name_of(waiting[-1])
    assert live.command("rtsched", "when", job).startswith("2 ")  # it is bob's
    assert live.command("rtsched", "when", job, user="bob").startswith(f"0 job {job} starts")


def test_a_killed_process_comes_back(live: LivePool) -> None:
    """Submissions are not held up; estimates go on, and the log has a sentence."""
    jobs = known(live, 8)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 4, 60, "four jobs run")
    estimates(live, jobs)
    killed = eventually(lambda: live.child(estimates=True))
    live.pool.run(["kill", "-KILL", str(killed)])
    reply = live.submit(*within(3600))
    assert reply.promised, reply.text

    since = live.daemon_time()
    eventually(lambda: estimated_at(live) > since, 90, "starts are estimated again")
    assert live.child(estimates=True) not in {0, killed}
    assert "not_estimated" in live.pool.services.log_tail("rtsched", 2000)
    assert live.slowest() < BOUND
