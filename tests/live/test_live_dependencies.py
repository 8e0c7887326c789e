"""Promises to jobs that depend on others, on a real Slurm whose planner is mcdf."""

from collections.abc import Iterator

import pytest
from promising import Live, in_minutes, live_cluster

NODES = 3

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run three nodes."""
    with live_cluster(
        fast=0, slow=NODES, settings={"SchedulerParameters": "bf_interval=5,bf_continue"}
    ) as running:
        yield running


def test_a_chain_is_planned_in_order_and_starts_when_the_one_before_has_ended(live: Live) -> None:
    """The second job is planned behind the limit of the first, and starts at its early end."""
    first = live.promise("-N2", "--time=3", in_minutes(20), script="sleep 15")
    second = live.promise(
        "-N1", "--time=1", f"--dependency=afterok:{first}", in_minutes(20), script="sleep 1"
    )
    live.polled()
    promise = live.ask("explain", str(second))["promise"]
    begin = live.ask("explain", str(first))["promise"]["start"] or live.ran(first)[0]
    assert promise["start"] >= begin + 180
    for job in (first, second):
        live.wait_state(job, "kept", seconds=120)
    over, started = live.ran(first)[1], live.ran(second)[0]
    assert over <= started < begin + 170


def test_a_dependency_that_is_never_satisfied_ends_the_promise(live: Live) -> None:
    """Slurm keeps the second job in the queue; its promise does not stay open."""
    first = live.promise("-N1", "--time=1", in_minutes(20), script="sleep 5; exit 3")
    second = live.promise("-N1", "--time=1", f"--dependency=afterok:{first}", in_minutes(20))
    live.wait_state(second, "void", seconds=60)
    (record,) = [each for each in live.kept() if each.id == second]
    assert record.why == "a job that it waits for did not end as its dependency asks"


def test_behind_a_job_that_does_not_exist(live: Live) -> None:
    """Where Slurm itself refuses the job its user reads why; else there is nothing to wait for."""
    words = ("-N1", "--time=1", in_minutes(20))
    for kind in ("afterok", "afternotok"):
        reply = live.submit(*words, f"--dependency={kind}:99999")
        assert not reply.job
        assert f"--dependency={kind} names job 99999, which Slurm does not know" in reply.text
        plain = live.submit("-N1", "--time=1", f"--dependency={kind}:99999")
        assert "Job dependency problem" in plain.text  # Slurm's own words
    job = live.promise(*words, "--dependency=afterany:99999", script="sleep 1")
    before = live.cluster.sbatch(["-N1", "--time=1", "-H"], user="alice", script="true")
    reply = live.submit(*words, f"--dependency=afterok:{before}")  # it exists: no poll has shown it
    assert "does not know" not in reply.text
    live.wait_state(job, "kept", seconds=120)


def test_behind_jobs_without_a_promise(live: Live) -> None:
    """One that runs ends by its time limit; of one that waits no end is known."""
    words = [f"-N{NODES}", "--exclusive", "--time=2"]
    runs = live.cluster.sbatch(words, user="bob", script="sleep 20")
    live.cluster.wait_job(runs, "RUNNING")
    waits = live.cluster.sbatch(words, user="bob", script="sleep 1")
    live.polled()
    reply = live.submit("-N1", "--time=1", f"--dependency=afterany:{waits}", in_minutes(20))
    assert not reply.job
    assert f"waits for job {waits}, whose end cannot be predicted" in reply.text
    job = live.promise(
        "-N1", "--time=1", f"--dependency=afterany:{runs}", in_minutes(20), script="sleep 1"
    )
    live.wait_state(job, "kept", seconds=120)
    assert live.ran(job)[0] >= live.ran(runs)[1]


def test_behind_whichever_of_two_jobs_satisfies_it(live: Live) -> None:
    """It is planned after both; when one has failed and the other ended as it asks, it starts."""
    words = ("-N1", "--time=2", in_minutes(20))
    fails = live.promise(*words, script="sleep 5; exit 3")
    ends = live.promise(*words, script="sleep 20")
    either = f"--dependency=afterok:{fails}?afterok:{ends}"
    job = live.promise("-N1", "--time=1", either, in_minutes(20), script="sleep 1")
    live.polled()
    planned = live.ask("explain", str(job))["promise"]["start"]
    assert planned >= live.ran(ends)[0] + 120
    live.wait_state(job, "kept", seconds=120)
    assert live.ran(ends)[1] <= live.ran(job)[0] < planned


def test_jobs_of_one_name_run_one_at_a_time(live: Live) -> None:
    """Each singleton is promised a start behind the limits of those of its name before it."""
    name = ["--job-name=night", "-N1"]
    first = live.cluster.sbatch([*name, "--time=2"], user="alice", script="sleep 40")
    live.cluster.sbatch([*name, "--time=2"], user="bob", script="sleep 90")
    live.cluster.wait_job(first, "RUNNING")  # until then nobody knows its end
    jobs = []
    for _ in range(2):  # at once: no poll has shown the jobs before
        reply = live.submit(
            *name, "--time=1", "--dependency=singleton", in_minutes(20), script="sleep 3"
        )
        assert "held until it has been evaluated with the other jobs of its name" in reply.text
        jobs.append(reply.job)
    for job in jobs:
        live.wait_state(job, "firm", seconds=40)
    planned = [live.ask("explain", str(job))["promise"]["start"] for job in jobs]
    assert planned[0] >= live.ran(first)[0] + 120
    assert planned[1] >= planned[0] + 60
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)
    assert live.ran(first)[1] <= live.ran(jobs[0])[0] < planned[0]
    assert live.ran(jobs[0])[1] <= live.ran(jobs[1])[0] < planned[1]


def test_a_job_of_its_name_that_waits_for_anything(live: Live) -> None:
    """Of a job without a promise that waits nobody knows the end; the user learns which it is."""
    words = [f"-N{NODES}", "--exclusive", "--time=5"]
    full = live.cluster.sbatch(words, user="bob", script="sleep 200")
    live.cluster.wait_job(full, "RUNNING")
    first = live.cluster.sbatch(["--job-name=night", "-N1", "--time=1"], user="alice")
    single = ("--dependency=singleton", "--job-name=night")
    job = live.submit(*single, "-N1", "--time=1", in_minutes(20)).job
    live.cluster.wait_job(job, "CANCELLED")
    assert (
        f"waits for job {first}, whose end cannot be predicted" in live.cluster.job(job)["Comment"]
    )
