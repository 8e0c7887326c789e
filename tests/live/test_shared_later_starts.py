"""Promised jobs that may not start yet, on nodes that others share, on a real Slurm."""

import time
from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster
from testbed.waiting import eventually

NODES = 3
SHARED = SITE + "\n[slurm]\nshare_nodes = true\n"

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run three nodes of eight cores."""
    with live_cluster(
        SHARED,
        fast=0,
        slow=NODES,
        hardware={"slow": "CPUs=8 RealMemory=8000"},
        settings={
            "DefMemPerCPU": "500",
            "SchedulerParameters": "bf_interval=5,bf_continue,requeue_delay=3",
            "ReturnToService": "1",
        },
    ) as running:
        yield running


def flood(live: Live) -> None:
    """Fill the nodes with best-effort jobs of bob's of two minutes."""
    words = ["-n2", "--time=2"]
    jobs = [live.cluster.sbatch(words, user="bob", script="sleep 25") for _ in range(60)]
    eventually(lambda: live.cluster.job(jobs[9])["JobState"] == "RUNNING", 60, "the nodes are full")
    live.polled()


def kept(live: Live) -> list[str]:
    """Return the reservations of ours."""
    return [name for name in live.reservations() if name.startswith("rtsched_")]


def test_a_chain_of_three_beside_a_flood(live: Live) -> None:
    """Each is promised at once, has nodes reserved until it may start, and starts soon then."""
    flood(live)
    words = "-n2", "--time=1"
    jobs = [live.promise(*words, in_minutes(15), script="sleep 10")]
    for _ in range(2):
        after = f"--dependency=afterok:{jobs[-1]}"
        jobs.append(live.promise(*words, after, in_minutes(15), script="sleep 10"))
    live.polled()
    planned = [live.ask("explain", str(job))["promise"] for job in jobs]
    starts = [each["start"] or live.ran(job)[0] for each, job in zip(planned, jobs, strict=True)]
    assert starts[1] >= starts[0] + 60
    assert starts[2] >= starts[1] + 60
    eventually(lambda: f"rtsched_{jobs[1]}" in live.reservations(), 60, "its nodes are reserved")
    for job in jobs:
        live.wait_state(job, "kept", seconds=420)
    times = [live.ran(job) for job in jobs]
    for (_, over), (start, _), plan in zip(times, times[1:], starts[1:], strict=False):
        assert over <= start < plan, "it starts before its planned start, as the one before did end"
    eventually(lambda: not kept(live), 30, "no reservation is left")


def test_a_begin_time_beside_a_flood(live: Live) -> None:
    """It is promised ahead of its begin time, and starts then, though nodes are full till then."""
    flood(live)
    begin = int(time.time()) + 150
    job = live.promise(
        "-n12", "-N2", "--time=1", f"--begin=uts{begin}", in_minutes(8), script="sleep 5"
    )
    live.polled()
    assert live.ask("explain", str(job))["promise"]["start"] >= begin
    row = eventually(lambda: live.reservations().get(f"rtsched_{job}"), 60, "nodes are reserved")
    assert len(live.names_in(row["Nodes"])) == 2
    live.wait_state(job, "kept", seconds=420)
    assert begin <= live.ran(job)[0] <= live.deadline_of(job) - 60


def test_a_begin_time_that_an_admin_changes(live: Live) -> None:
    """Brought forward it starts at once on its own nodes; postponed its promise is void."""
    words = "-n1", "--time=1", "--begin=now+8minutes", in_minutes(20)
    sooner, later = (live.promise(*words, script="sleep 1") for _ in range(2))
    live.polled()
    eventually(lambda: len(kept(live)) == 2, 60, "nodes are reserved")
    for job, begin in ((sooner, "now"), (later, "now+15minutes")):
        words = ("scontrol", "update", f"JobId={job}", f"StartTime={begin}")
        live.cluster.run(list(words), user="root")
    live.wait_state(sooner, "kept", seconds=60)
    live.wait_state(later, "void", seconds=30)
    (record,) = [each for each in live.kept() if each.id == later]
    assert record.why == "its start was postponed"
    eventually(lambda: not kept(live), 30, "no reservation is left")


def test_a_job_before_that_fails_ends_the_promise(live: Live) -> None:
    """Nothing is kept for a job whose dependency is never satisfied."""
    first = live.promise("-n1", "--time=1", in_minutes(20), script="sleep 15; exit 3")
    after = f"--dependency=afterok:{first}"
    second = live.promise("-n1", "--time=1", after, in_minutes(20))
    eventually(lambda: f"rtsched_{second}" in live.reservations(), 60, "its nodes are reserved")
    live.wait_state(second, "void", seconds=90)
    eventually(lambda: not kept(live), 30, "no reservation is left")


def test_a_job_before_that_is_queued_again_beside_a_daemon_that_is_started_anew(
    live: Live,
) -> None:
    """The second job stays behind the second run of the first; nobody loses a promise."""
    first = live.promise("-n2", "--time=2", in_minutes(20), script="sleep 20")
    after = f"--dependency=afterok:{first}"
    second = live.promise("-n2", "--time=1", after, in_minutes(20), script="sleep 1")
    live.cluster.wait_job(first, "RUNNING")
    eventually(lambda: f"rtsched_{second}" in live.reservations(), 60, "its nodes are reserved")
    live.cluster.run(["scontrol", "requeue", str(first)], user="root")
    live.cluster.restart_daemon()
    live.polled()
    for job in (first, second):
        live.wait_state(job, "kept", seconds=240)
    assert live.cluster.job(first)["Restarts"] == "1"
    assert live.ran(first)[1] <= live.ran(second)[0]


def test_a_singleton_beside_a_flood(live: Live) -> None:
    """It has nodes reserved until the jobs of its name have ended, and shares nodes then."""
    flood(live)
    words = "--job-name=night", "-n2", "--time=1", in_minutes(15)
    first = live.promise(*words, script="sleep 10")
    second = live.submit(*words, "--dependency=singleton", script="sleep 10").job
    live.wait_state(second, "firm", seconds=40)
    live.polled()
    begun = live.ask("explain", str(first))["promise"]["start"] or live.ran(first)[0]
    planned = live.ask("explain", str(second))["promise"]["start"]
    assert planned >= begun + 60
    eventually(lambda: f"rtsched_{second}" in live.reservations(), 60, "its nodes are reserved")
    for job in (first, second):
        live.wait_state(job, "kept", seconds=420)
    assert live.ran(first)[1] <= live.ran(second)[0] < planned
    assert live.cluster.job(second)["NumCPUs"] == "2", "it left the other six to others"
    eventually(lambda: not kept(live), 30, "no reservation is left")


def test_whichever_of_two_jobs_ends_as_it_asks(live: Live) -> None:
    """It has nodes reserved from the later of their planned ends on, and starts before."""
    words = "-n1", "--time=2", in_minutes(20)
    fails, ends = (live.promise(*words, script=each) for each in ("sleep 5; exit 3", "sleep 30"))
    either = f"--dependency=afterok:{fails}?afterok:{ends}"
    job = live.promise("-n1", "--time=1", either, in_minutes(20), script="sleep 1")
    eventually(lambda: f"rtsched_{job}" in live.reservations(), 60, "its nodes are reserved")
    live.wait_state(job, "kept", seconds=120)
    assert live.ran(ends)[1] <= live.ran(job)[0] < live.ran(ends)[0] + 120
