"""Promised jobs and the limits of accounts and QOS that a real Slurm keeps to."""

from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster
from testbed.waiting import eventually

SHARED = "\n[slurm]\nshare_nodes = true\n"
ACCOUNTING = (
    "add qos short set MaxWall=1",
    "add qos few set GrpTRESRunMins=cpu=21",
    "add qos large set MinTRES=cpu=12",
    "add qos budget set GrpTRESMins=cpu=12",
    "add qos walls set GrpWall=3",
    "add qos lean set GrpTRES=mem=300",
    "add qos billed set GrpTRESMins=billing=6",
    "add qos units set GrpTRES=billing=3",
    "modify user where name=alice set qos=normal,short,few,large,budget,walls,lean,billed,units",
    "modify account where name=science set GrpTRES=cpu=8 MaxTRESPerNode=mem=900",
)
"""`short` allows a minute, the running jobs of `few` have processors for 21 minutes, `large` is for
three nodes and more, the jobs of `budget` have processors for 12 minutes and those of `walls` 3
minutes of time in all, and `lean` has memory for one job; the account has two nodes'. A processor
is billed for half a unit: `billed` has units for as much as `budget`, and `units` for one job."""

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "shared"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run four nodes of four processors; jobs have whole nodes, or share them.

    Where they share them, none starts for whose time limit too little is left of used time.
    """
    with live_cluster(
        SITE + SHARED * request.param,
        accounting=ACCOUNTING,
        fast=2,
        slow=2,
        settings={
            "AccountingStorageEnforce": "associations,limits,qos" + ",safe" * request.param,
            "SchedulerParameters": "bf_interval=5,bf_continue",
            "DefMemPerCPU": "100",
            "PriorityCalcPeriod": "1",
        },
        partitions=(
            "PartitionName=all Nodes=ALL Default=YES State=UP TRESBillingWeights=CPU=0.5,Node=0"
        ),
    ) as running:
        yield running


def test_a_job_beyond_a_limit_is_told_so(live: Live) -> None:
    """Who submits reads the limit, whose it is and what would be accepted; Slurm is not asked."""
    reply = live.submit("-N1", "--qos=short", "--time=2", in_minutes(20))
    assert reply.job == 0
    assert reply.text.splitlines()[0] == (
        "sbatch: error: rtsched: its time limit of 2 min exceeds MaxWall=00:01:00 of QOS short; "
        "use --time=1 or less"
    )
    reply = live.submit("-N1", "--exclusive", "--qos=few", "--time=6", in_minutes(20))
    assert reply.job == 0
    assert (
        "its 4 processors for 6 min exceed GrpTRESRunMins=cpu=21 of QOS few; use --time=5 or less"
        in " ".join(reply.text.split())
    )
    reply = live.submit("-N2", "--exclusive", "--qos=large", "--time=1", in_minutes(20))
    assert reply.job == 0
    assert "requests 8 processors in all; MinTRES=cpu=12 of QOS large asks for 12" in reply.text
    reply = live.submit("-N3", "--exclusive", "--time=1", in_minutes(20))
    assert reply.job == 0
    assert (
        "requests 12 processors in all; GrpTRES=cpu=8 of account science allows 8 pro" in reply.text
    )
    reply = live.submit("-N1", "--mem=950", "--time=1", in_minutes(20))
    assert "MaxTRESPerNode=mem=900M of user alice of account science allows 900 MiB" in reply.text
    job = live.promise("-N1", "--qos=short", "--time=1", in_minutes(20), script="true")
    live.wait_state(job, "kept", seconds=60)


OPTIONS = ("-N1", "-n4", "--mem=200", "--exclusive", "--time=1")
"""Of a job that takes all 4 processors of a node: two of them take what the account may have."""


@pytest.mark.parametrize("live", [True], ids=["shared"], indirect=True)
def test_jobs_of_an_account_are_planned_within_its_limit(live: Live) -> None:
    """Four nodes are free for three jobs, but one of them is planned behind the others.

    Slurm keeps to the limit; they all end in time.
    """
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="sleep 15") for _ in range(3)]
    told = [reply.text for reply in live.replies if reply.job in jobs]
    assert ["planned to start now" in text for text in told] == [True, True, False], told
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_who_asks_for_more_than_the_limit_leaves_is_told_when_it_has_room(live: Live) -> None:
    """A third job is promised nothing while two others take what the account may have."""
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="sleep 5") for _ in range(2)]
    third = live.submit(*OPTIONS, in_minutes(20))
    assert third.job == 0
    assert "leave no room for it in GrpTRES=cpu=8 of account science; submit it" in third.text
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)
    live.polled()
    jobs = [live.promise(*OPTIONS, in_minutes(20), script="true")]
    live.wait_state(jobs[0], "kept", seconds=120)


ONE = OPTIONS[:-1]
"""The same without its time limit."""


@pytest.mark.parametrize("live", [True], ids=["shared"], indirect=True)
def test_jobs_are_planned_within_what_running_ones_may_use(live: Live) -> None:
    """GrpTRESRunMins=cpu=21 has room for one job of 4 processors for 3 min: the second waits."""
    jobs = [live.promise(*ONE, "--time=3", "--qos=few", in_minutes(20), script="sleep 5")]
    jobs.append(live.promise(*ONE, "--time=3", "--qos=few", in_minutes(20), script="true"))
    told = ["planned to start now" in reply.text for reply in live.replies if reply.job in jobs]
    assert told == [True, False]
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)
    late = live.submit(*ONE, "--time=5", "--qos=few", in_minutes(4))
    assert late.job == 0


def test_jobs_are_planned_within_billing_units(live: Live) -> None:
    """A job of four processors takes two of the three units: another one waits, or is rejected."""
    options = (*OPTIONS, "--qos=units", in_minutes(20))
    jobs = [live.promise(*options, script="sleep 5")]
    second = live.submit(*options, script="true")
    if "share_nodes" in live.cluster.path("/etc/rtsched/site.toml").read_text():
        assert second.promised
        assert "planned to start now" not in second.text
        jobs.append(second.job)
    else:
        assert second.job == 0
        assert "no room for it in GrpTRES=billing=3 of QOS units; submit it again" in second.text
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_what_running_ones_may_use_is_told(live: Live) -> None:
    """The second is told when the first has ended, which may use 12 of 21 processor-minutes."""
    job = live.promise(*ONE, "--time=3", "--qos=few", in_minutes(20), script="sleep 5")
    second = live.submit(*ONE, "--time=3", "--qos=few", in_minutes(20))
    assert second.job == 0
    assert "no room for it in GrpTRESRunMins=cpu=21 of QOS few; submit it again" in second.text
    live.wait_state(job, "kept", seconds=120)


@pytest.mark.parametrize(
    ("qos", "text"),
    [
        ("budget", "use 4 processor-minutes, and 0 are left of GrpTRESMins=cpu=12 of QOS budget"),
        ("billed", "use 2 billing-minutes, and 0 are left of GrpTRESMins=billing=6 of QOS billed"),
        ("walls", "use 1 minute, and 0 are left of GrpWall=00:03:00 of QOS walls"),
    ],
)
def test_no_more_is_promised_than_is_left_of_used_time(live: Live, qos: str, text: str) -> None:
    """Jobs of one and two minutes may use all of it; a third one has room when they have ended.

    They used less than they might: it is promised its deadline, and meets it.
    """
    options = (*ONE, f"--qos={qos}", in_minutes(20))
    jobs = [live.promise(*options, f"--time={time}", script="sleep 5") for time in (1, 2)]
    third = live.submit(*options, "--time=1")
    assert third.job == 0
    assert text in " ".join(third.text.split())
    for job in jobs:
        live.wait_state(job, "kept", seconds=120)
    eventually(
        lambda: live.submit(*options, "--time=1", script="true").promised,
        120,
        "a third one is promised its deadline",
    )
    live.wait_state(live.replies[-1].job, "kept", seconds=120)


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_who_waits_for_a_limit_is_moved_to_when_it_has_room(live: Live) -> None:
    """Memory is not planned with on whole nodes, and has no room beside a job of a minute.

    The promised job misses two planned starts, is planned for when that one has ended, and meets
    its deadline. Its user reads why.
    """
    first = live.cluster.sbatch([*OPTIONS, "--qos=lean"], script="sleep 300")
    live.cluster.wait_job(first, "RUNNING")
    job = live.promise(*OPTIONS, "--qos=lean", in_minutes(20), script="true")

    def why() -> str:
        return next((kept.why for kept in live.kept() if kept.id == job), "")

    eventually(why, 120, "the job is moved")
    assert why().startswith("the job did not start at 2 planned starts, since it waits for a limit")
    eventually(
        lambda: "it is now planned to start at" in live.command("squeue", "-hj", str(job), "-o%k"),
        20,
        "its user is told",
    )
    assert live.wait_state(job, "broken", "kept", seconds=240) == "kept"


@pytest.mark.parametrize("live", [False], ids=["whole"], indirect=True)
def test_who_has_no_time_to_wait_for_a_limit_loses_the_promise(live: Live) -> None:
    """The job that has the memory may run for longer than the deadline leaves time.

    The user of the promised one reads which limit it waits for before its deadline.
    """
    first = live.cluster.sbatch([*ONE, "--time=10", "--qos=lean"], script="sleep 600")
    live.cluster.wait_job(first, "RUNNING")
    job = live.promise(*OPTIONS, "--qos=lean", in_minutes(8))
    assert live.wait_state(job, "broken", "kept", seconds=300) == "broken"
    why = next(kept.why for kept in live.kept() if kept.id == job)
    assert why.startswith("the job did not start at 2 planned starts, since it waits for a limit")
    eventually(
        lambda: "the promise is given up" in live.command("squeue", "-hj", str(job), "-o%k"),
        20,
        "its user is told",
    )
