"""Start estimates on a real Slurm: jobs of known run times start within their intervals."""

from collections.abc import Iterator
from typing import Any

import pytest
from alike import When, estimates
from promising import OFTEN, SITE, Live, in_minutes, live_cluster
from testbed.waiting import eventually

ONE_AT_A_TIME = (
    "add qos single set MaxJobsPU=1",
    "modify user where name=bob set qos=normal,single",
)
RUNS = 20
"""Seconds for which a known job runs."""

LIMIT = 10
"""Minutes that it asks for."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run four nodes with accounting, filter and daemon."""
    with live_cluster(
        SITE + OFTEN,
        accounting=ONE_AT_A_TIME,
        fast=0,
        slow=4,
        settings={
            "AccountingStorageEnforce": "associations,limits,qos",
            "SchedulerParameters": "bf_interval=2,bf_continue",
        },
    ) as running:
        yield running


def known(live: Live, *args: str, user: str = "bob") -> int:
    """Submit a job of which users' past says how long it runs."""
    words = ["-N1", "--exclusive", f"--time={LIMIT}", "--job-name=known", *args]
    return live.cluster.sbatch(words, user=user, script=f"sleep {RUNS}")


def estimate(live: Live, job: int) -> dict[str, Any]:
    """Return what root is shown of a job's start."""
    (found,) = live.ask("when", str(job), user="root")["jobs"]
    return dict(found)


class TestWhen(When):
    """Estimates of starts."""

    asked = ("-N", "2", "-t", "5")

    def known(self, live: Live, count: int) -> list[int]:
        """Submit jobs that run for far less than their limit."""
        return [known(live) for _ in range(count)]


def test_options_that_make_no_sense_are_refused(live: Live) -> None:
    """Those of a job that is not submitted; with others there is an answer in words."""
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
