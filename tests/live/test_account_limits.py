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
    "modify user where name=alice set qos=normal,short",
    "modify account where name=science set GrpTRES=cpu=8 MaxTRESPerNode=mem=900",
)
"""`short` allows a minute; the account may have the processors of two nodes."""


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
    said = live.submit("-N3", "--exclusive", "--time=1", in_minutes(20))
    assert said.job == 0
    assert (
        "requests 12 processors in all; GrpTRES=cpu=8 of account science allows 8 pro" in said.text
    )
    said = live.submit("-N1", "--mem=950", "--time=1", in_minutes(20))
    assert "MaxTRESPerNode=mem=900M of user alice of account science allows 900 MiB" in said.text
    job = live.promise("-N1", "--qos=short", "--time=1", in_minutes(20), script="true")
    live.wait_standing(job, "kept", seconds=60)


def test_jobs_of_an_account_are_planned_within_its_limit(live: Live) -> None:
    """Three jobs of 4 processors: the account may have 8, so one is planned behind the others.

    Four nodes of 4 processors are free for them. Slurm keeps to the limit; they all end in time.
    """
    options = ("-N1", "-n4", "--mem=200", "--exclusive", "--time=1", in_minutes(20))
    jobs = [live.promise(*options, script="sleep 15") for _ in range(3)]
    told = [said.text for said in live.said if said.job in jobs]
    assert ["planned to start now" in text for text in told] == [True, True, False], told
    for job in jobs:
        live.wait_standing(job, "kept", seconds=120)
