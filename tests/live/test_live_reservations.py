"""Promises beside a site's own reservations, on a real Slurm, on whole nodes and on shared ones."""

import time
from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster, without_jobs
from testbed.waiting import eventually

NODES = 2
NAME = "maintenance"


@pytest.fixture(scope="module", params=["whole", "shared"])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """Run two nodes of which jobs get all, or what they ask for."""
    shared = request.param == "shared"
    site = SITE + ("\n[slurm]\nshare_nodes = true\n" if shared else "")
    with live_cluster(
        site,
        fast=NODES,
        slow=0,
        hardware={"fast": "CPUs=4 RealMemory=4000"},
        settings={"DefMemPerCPU": "100", "SchedulerParameters": "bf_interval=5,bf_continue"},
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs and reservations, and with a daemon that may use all nodes."""
    yield from without_jobs(live)
    if NAME in live.reservations():
        live.cluster.run(["scontrol", "delete", f"ReservationName={NAME}"])
    eventually(lambda: not live.reservations(), 30, "nothing is reserved any more")


def reserve(live: Live, nodes: str, begin: int, end: int) -> None:
    """Have the site reserve nodes; times in seconds since the epoch."""
    words = [f"StartTime=uts{begin}", f"EndTime=uts{end}", "Users=root"]
    words += ["Flags=MAINT,IGNORE_JOBS", f"Nodes={nodes}", f"ReservationName={NAME}"]
    live.cluster.run(["scontrol", "create", "reservation", *words])
    live.polled()


def ran(live: Live, job: int) -> tuple[int, str]:
    """Return when a job started, when accounting knows it, seconds since the epoch, and where."""
    words = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "Start,NodeList"]

    def found() -> list[str]:
        shown = live.cluster.run(words, env={"SLURM_TIME_FORMAT": "%s"}).stdout.strip()
        cells = shown.split("|")
        return cells if cells[0].isdigit() else []

    start, nodes = eventually(found, 30, f"accounting knows job {job}")
    return int(start), nodes


def start_of(live: Live, job: int) -> float:
    """Return the planned start of a job that waits, seconds since the epoch."""
    return float(live.ask("explain", str(job))["promise"]["start"])


def test_promises_before_during_and_after_a_maintenance(live: Live) -> None:
    """What does not end before it is planned behind it, also when it is asked for meanwhile."""
    begin = int(time.time()) + 110
    end = begin + 60
    reserve(live, "ALL", begin, end)
    after = live.promise(f"-N{NODES}", "--exclusive", "--time=3", in_minutes(15), script="sleep 3")
    assert start_of(live, after) >= end
    reply = live.submit(f"-N{NODES}", "--exclusive", "--time=3", in_minutes(4), script="sleep 3")
    assert not reply.job
    before = live.promise(f"-N{NODES}", "--exclusive", "--time=1", in_minutes(15), script="sleep 3")
    live.wait_state(before, "kept", seconds=60)
    assert ran(live, before)[0] < begin

    def in_maintenance() -> bool:
        shown = live.cluster.run(["scontrol", "-o", "show", "node"]).stdout
        return shown.count("MAINT") >= NODES

    eventually(in_maintenance, 120, "the maintenance has begun")
    live.polled()
    meanwhile = live.promise("-N1", "--time=1", in_minutes(15), script="sleep 3")
    assert start_of(live, meanwhile) >= end
    for job in (after, meanwhile):
        live.wait_state(job, "kept", seconds=300)
        assert ran(live, job)[0] >= end


def test_a_promise_gives_way_to_a_new_reservation(live: Live) -> None:
    """It is planned on a node; the site reserves this one, and it runs on the other in time."""
    words = [f"-N{NODES}", "--exclusive", "--time=1"]
    runs = live.cluster.sbatch(words, user="bob", script="sleep 50")
    live.cluster.wait_job(runs, "RUNNING")
    live.polled()
    job = live.promise("-N1", "--exclusive", "--time=2", in_minutes(8), script="sleep 3")
    (planned,) = live.ask("explain", str(job))["promise"]["nodes"]
    now = int(time.time())
    reserve(live, planned, now + 90, now + 3600)
    (other,) = {"fast1", "fast2"} - {planned}
    live.wait_state(job, "kept", seconds=200)
    assert ran(live, job)[1] == other
