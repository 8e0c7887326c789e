"""Promised jobs and the limits of accounts and QOS that a real Slurm keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from promising import QUICK, SITE, SUBMIT_CONF, Live, in_minutes, without_jobs
from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = "\n[slurm]\nshare_nodes = true\n"
ACCOUNTING = (
    "add qos short set MaxWall=1",
    "add qos few set GrpTRESRunMins=cpu=21",
    "add qos large set MinTRES=cpu=12",
    "modify user where name=alice set qos=normal,short,few,large",
    "modify account where name=science set GrpTRES=cpu=8 MaxTRESPerNode=mem=900",
)
"""`short` allows a minute, `few` has processors for 21 minutes, `large` is for three nodes and
more; the account has two nodes'."""


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "shared"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run four nodes of four processors; jobs have whole nodes, or share them."""
    options = SlurmOptions(
        fast=2,
        slow=2,
        job_submit=("rtsched",),
        settings={
            "AccountingStorageEnforce": "associations,limits,qos",
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "DefMemPerCPU": "100",
        },
    )
    with Cluster("forky", options, files={SUBMIT_CONF: QUICK}) as cluster:
        for line in ACCOUNTING:
            cluster.run(["sacctmgr", "--immediate", *line.split()])
        cluster.start_daemon(SITE + SHARED * request.param)
        yield Live(cluster)


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs, and with a daemon that may use all nodes."""
    yield from without_jobs(live, 4)


def test_a_job_beyond_a_limit_is_told_so(live: Live) -> None:
    """Who submits reads the limit, whose it is and what would be accepted; Slurm is not asked."""
    said = live.submit("-N1", "--qos=short", "--time=2", in_minutes(20))
    assert said.job == 0
    assert said.text.splitlines()[0] == (
        "sbatch: error: rtsched: its time limit of 2 min exceeds MaxWall=00:01:00 of QOS short; "
        "use --time=1 or less"
    )
    said = live.submit("-N1", "--exclusive", "--qos=few", "--time=6", in_minutes(20))
    assert said.job == 0
    assert (
        "its 4 processors for 6 min exceed GrpTRESRunMins=cpu=21 of QOS few; use --time=5 or less"
        in " ".join(said.text.split())
    )
    said = live.submit("-N2", "--exclusive", "--qos=large", "--time=1", in_minutes(20))
    assert said.job == 0
    assert "requests 8 processors in all; MinTRES=cpu=12 of QOS large asks for 12" in said.text
    said = live.submit("-N3", "--exclusive", "--time=1", in_minutes(20))
    assert said.job == 0
    assert (
        "requests 12 processors in all; GrpTRES=cpu=8 of account science allows 8 pro" in said.text
    )
    said = live.submit("-N1", "--mem=950", "--time=1", in_minutes(20))
    assert "MaxTRESPerNode=mem=900M of user alice of account science allows 900 MiB" in said.text
    job = live.promise("-N1", "--qos=short", "--time=1", in_minutes(20), script="true")
    live.wait_standing(job, "kept", seconds=60)


OPTIONS = ("-N1", "-n4", "--mem=200", "--exclusive", "--time=1")
"""Of a job that takes all 4 processors of a node: two of them take what the account may have."""


@pytest.mark.parametrize("live", [True], ids=["shared"], indirect=True)
def test_jobs_of_an_account_are_planned_within_its_limit(live: Live) -> None:
    """Four nodes are free for three jobs, but one of them is planned behind the others.

    Slurm keeps to the limit; they all end in time.
    """
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="sleep 15") for _ in range(3)]
    told = [said.text for said in live.said if said.job in jobs]
    assert ["planned to start now" in text for text in told] == [True, True, False], told
    for job in jobs:
        live.wait_standing(job, "kept", seconds=120)


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_who_asks_for_more_than_the_limit_leaves_is_told_when_it_has_room(live: Live) -> None:
    """A third job is promised nothing while two others take what the account may have."""
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="sleep 5") for _ in range(2)]
    third = live.submit(*OPTIONS, in_minutes(20))
    assert third.job == 0
    assert "leave no room for it in GrpTRES=cpu=8 of account science; submit it" in third.text
    for job in jobs:
        live.wait_standing(job, "kept", seconds=120)
    live.polled()
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="true")]
    live.wait_standing(jobs[0], "kept", seconds=120)


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_a_limit_that_nobody_plans_with_breaks_the_promise(live: Live) -> None:
    """GrpTRESRunMins lets no second job run beside one of a minute: it misses two planned starts.

    Its user reads which limit it waits for, long before its deadline.
    """
    first = live.cluster.sbatch([*OPTIONS[:-1], "--time=5", "--qos=few"], script="sleep 300")
    live.cluster.wait_job(first, "RUNNING")
    job = live.promise(*OPTIONS, "--qos=few", in_minutes(60))
    assert live.wait_standing(job, "broken", "kept", seconds=300) == "broken"
    why = next(kept.why for kept in live.kept() if kept.id == job)
    assert why.startswith("the job did not start at 2 planned starts, since it waits for a limit")
    comment = live.command("squeue", "-h", "-j", str(job), "-o", "%k")
    assert "the promise is given up" in comment
