"""Start estimates on a real Slurm: jobs of known run times start within their intervals."""

from collections.abc import Iterator
from typing import Any

import pytest
from promising import BOUND, OFTEN, QUICK, SITE, SUBMIT_CONF, Live, in_minutes
from testbed import Cluster, SlurmOptions
from testbed.waiting import eventually

ONE_AT_A_TIME = (
    "add qos single set MaxJobsPU=1",
    "modify user where name=bob set qos=normal,single",
)
RUNS = 20
"""Seconds for which a known job runs."""

LIMIT = 10
"""Minutes that it asks for."""

SLACK = 15.0
"""Seconds by which Slurm starts jobs after it could: its loop, epilogs, a busy machine."""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes with accounting, filter and daemon."""
    options = SlurmOptions(
        fast=0,
        slow=4,
        job_submit=("rtsched",),
        settings={
            "AccountingStorageEnforce": "associations,limits,qos",
            "SchedulerParameters": "bf_interval=2,bf_continue",
        },
    )
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        for line in ONE_AT_A_TIME:
            cluster.run(["sacctmgr", "--immediate", *line.split()])
        cluster.start_daemon(SITE + OFTEN)
        yield Live(cluster)


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs."""
    live.wait_usable(4)
    yield
    live.cancel_all()


def known(live: Live, *args: str, user: str = "bob") -> int:
    """Submit a job of which users' past says how long it runs."""
    words = ["-N1", "--exclusive", f"--time={LIMIT}", "--job-name=known", *args]
    return live.cluster.sbatch(words, user=user, script=f"sleep {RUNS}")


def estimate(live: Live, job: int) -> dict[str, Any]:
    """Return what root is shown of a job's start."""
    (found,) = live.ask("when", str(job), user="root")["jobs"]
    return dict(found)


def estimated_at(live: Live) -> float:
    """Return of which state the latest estimates are, seconds since the epoch."""
    return float(live.ask("when", user="root")["estimated"] or 0.0)


def estimates(live: Live, jobs: list[int]) -> dict[int, dict[str, Any]]:
    """Wait until all jobs are estimated; return how, all of one time."""
    since = live.daemon_time()

    def found() -> dict[int, dict[str, Any]]:
        report = live.ask("when", user="root")
        if (report["estimated"] or 0.0) < since:
            return {}
        rows = {int(each["job"]): each for each in report["jobs"]}
        known = {job: rows.get(job, {"basis": "running"}) for job in jobs}
        return {} if any(each["basis"] == "none" for each in known.values()) else known

    return dict(eventually(found, 120, "all jobs are estimated"))


def with_a_past(live: Live) -> None:
    """Have known jobs run to their ends, and the process have read of them."""
    for job in [known(live) for _ in range(8)]:
        live.cluster.wait_job(job, timeout=120)
    live.cluster.stop_daemon()  # its process of estimates reads the past when it starts
    live.cluster.start_daemon()
    eventually(lambda: live.ask("when", user="root")["past"] >= 8, 60, "the past is read")
    live.wait_usable(4)


def test_starts_lie_within_their_intervals(live: Live) -> None:
    """Twelve jobs wait behind four; what was estimated of each at first comes true."""
    with_a_past(live)
    jobs = [known(live) for _ in range(16)]
    for job in jobs[:4]:
        live.cluster.wait_job(job, "RUNNING")
    live.polled()
    waiting = jobs[4:]
    reply = estimates(live, waiting)
    outside = []
    for job in waiting:
        start, _ = live.ran(job)
        seen = reply[job]
        if seen["basis"] == "running":
            continue
        low, high = seen["start_low_95"], seen["start_high_95"]
        if start < low - SLACK or (high is not None and start > high + SLACK):
            outside.append((job, start - low, None if high is None else high - low))
    assert len(outside) <= 1, outside  # one in twenty may
    assert sum(each["basis"] == "estimate" for each in reply.values()) >= 8


def test_a_job_that_is_not_submitted(live: Live) -> None:
    """Behind a full machine it starts later than now; options that make no sense are refused."""
    jobs = [known(live) for _ in range(12)]
    estimates(live, jobs[4:])

    def answered() -> dict[str, Any]:
        (found,) = live.ask("when", "-N", "2", "-t", "5")["jobs"]
        return dict(found) if found["basis"] == "estimate" else {}

    found = eventually(answered, 60, "a job that is not submitted is estimated")
    assert found["state"] == "unsubmitted"
    assert found["start"] is None or found["start"] > live.daemon_time() - 5
    text = live.command("rtsched", "when", "-N", "2", "-t", "5")
    assert "such a job starts about" in text or "no estimate" in text
    assert live.command("rtsched", "when", "-N", "9999").startswith("2 ")


def test_what_each_user_sees(live: Live) -> None:
    """Their own jobs; why there is no estimate of a held one; the plan of a promised one."""
    runs = [known(live) for _ in range(4)]
    for job in runs:
        live.cluster.wait_job(job, "RUNNING")
    held, after = known(live, "--hold"), known(live, f"--dependency=afterany:{runs[0]}")
    promised = live.promise("-N1", "--time=1", in_minutes(30), user="bob", script="sleep 5")
    live.polled()
    reply = estimates(live, [after])
    assert "wait.dependency" in [each["code"] for each in estimate(live, after)["waits"]]
    assert reply[after]["user"] == "bob"
    found = estimate(live, held)
    assert (found["basis"], found["start"]) == ("none", None)
    assert "held" in found["why"]
    assert estimate(live, promised)["basis"] == "plan"
    assert live.command("rtsched", "when", str(after)).startswith("2 ")  # it is bob's
    assert str(after) in live.command("rtsched", "when", user="bob")
    assert str(after) not in live.command("rtsched", "when", user="dave")
    assert "estimate" in live.command("rtsched", "explain", "--live", str(after), user="bob")
    seen = estimate(live, runs[0])
    assert (seen["state"], seen["latest"] is not None) == ("running", True)


def test_a_job_waits_for_the_limit_of_its_user(live: Live) -> None:
    """Three nodes are free, but the first job of QOS `single` has to end: it may last long.

    The second is estimated to start then, and does; another job of the same user starts at once.
    """
    long = "-N1", "--exclusive", f"--time={LIMIT}", "--job-name=long"
    first = live.cluster.sbatch([*long, "--qos=single"], user="bob", script="sleep 600")
    live.cluster.wait_job(first, "RUNNING")
    second = live.cluster.sbatch([*long, "--qos=single"], user="bob", script="true")
    free = live.cluster.sbatch([*long], user="bob", script="true")
    assert live.cluster.wait_job(free) == "COMPLETED"
    live.polled()

    def late() -> bool:
        report = live.ask("when", str(second), user="root")
        (seen,) = report["jobs"]
        return seen["basis"] == "estimate" and (
            seen["start"] is None or seen["start"] > report["estimated"] + 60
        )

    eventually(late, 120, "the second job is estimated to wait for the first one")
    assert live.cluster.run(["squeue", "-hj", str(second), "-o%r"]).stdout.startswith("QOSMaxJobs")
    live.command("scancel", str(first), user="bob")
    live.cluster.wait_job(second, timeout=120)
    assert live.ran(second)[0] >= live.ran(first)[1]


def test_a_killed_process_comes_back(live: Live) -> None:
    """Submissions are not held up; estimates go on, and the log has a sentence."""
    jobs = [known(live) for _ in range(8)]
    estimates(live, jobs[4:])
    killed = eventually(lambda: live.child(estimates=True))
    live.cluster.run(["kill", "-KILL", str(killed)])
    reply = live.submit("-N1", "--time=1", in_minutes(60), script="true")
    assert reply.promised, reply.text

    since = live.daemon_time()
    eventually(lambda: estimated_at(live) > since, 90, "starts are estimated again")
    assert live.child(estimates=True) not in {0, killed}
    assert "not_estimated" in live.cluster.services.log_tail("rtsched", 2000)
    assert live.slowest() < BOUND
