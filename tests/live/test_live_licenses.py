"""Licences of promised jobs that share nodes, on a real Slurm."""

import re
from collections.abc import Iterator

import pytest
from promising import SITE, Live, in_minutes, live_cluster, without_jobs
from testbed.waiting import eventually

MATLAB = 4
SHARED = SITE + "\n[slurm]\nshare_nodes = true\n"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """Run two nodes that jobs share, and licences."""
    with live_cluster(
        SHARED,
        fast=2,
        slow=0,
        hardware={"fast": "CPUs=8 RealMemory=8000"},
        settings={
            "Licenses": f"matlab:{MATLAB},fluent:2",
            "DefMemPerCPU": "100",
            "SchedulerParameters": "bf_interval=5,bf_continue,bf_licenses",
        },
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def clean(live: Live) -> Iterator[None]:
    """Each test begins without jobs, and with a daemon that knows it and may use both nodes."""
    live.polled()
    yield from without_jobs(live)
    eventually(lambda: not live.reservations(), 30, "nothing is reserved any more")


def flood(live: Live, count: int, *options: str, script: str = "sleep 12") -> list[int]:
    """Submit so many best-effort jobs of bob's."""
    return [live.cluster.sbatch([*options], user="bob", script=script) for _ in range(count)]


def reserved(live: Live, job: int) -> str:
    """Return the licences that are reserved for a job that waits in their reservation."""
    name = f"rtsched_{job}"
    kept = eventually(lambda: live.reservations().get(name), 20, "its licences are reserved")
    eventually(lambda: live.cluster.job(job).get("Reservation") == name, 20, "it is bound")
    return str(kept["Licenses"])


def started(live: Live, job: int) -> bool:
    """Return whether a job runs or has run."""
    return live.cluster.job(job)["JobState"] in {"RUNNING", "COMPLETED"}


def test_a_flood_takes_all_licences(live: Live) -> None:
    """They come free one by one, and are kept until there are enough."""
    others = flood(live, 30, "-n1", "--licenses=matlab", "--time=1")
    eventually(lambda: started(live, others[MATLAB - 1]), 60, "the flood has all licences")
    live.polled()
    asked = "-n1", "--licenses=matlab:3,fluent", "--time=1"
    job = live.promise(*asked, in_minutes(6), script="sleep 4")
    assert set(re.split("[,;]", reserved(live, job))) == {"matlab:3", "fluent:1"}
    live.wait_state(job, "kept", seconds=200)
    assert any(live.cluster.job(other)["JobState"] == "PENDING" for other in others)


def test_others_do_not_take_them_meanwhile(live: Live) -> None:
    """A job that waits for its node keeps licences that are free from a job that runs longer."""
    busy = live.cluster.sbatch(["-n8", "-w", "fast1", "--time=1"], user="bob", script="sleep 40")
    live.cluster.wait_job(busy, "RUNNING")
    live.polled()
    asked = "-n4", "-w", "fast1", "--licenses=matlab:3", "--time=1"
    job = live.promise(*asked, in_minutes(5), script="sleep 4")
    assert reserved(live, job) == "matlab:3"
    (longer,) = flood(live, 1, "-n1", "--licenses=matlab:2", "--time=10", script="sleep 500")
    (beside,) = flood(live, 1, "-n1", "--licenses=matlab:1", "--time=10", script="sleep 500")
    eventually(lambda: started(live, beside), 30, "the licence that is left is used")
    assert live.cluster.job(longer)["JobState"] == "PENDING"
    live.wait_state(job, "kept", seconds=200)


def test_licences_of_another_promise(live: Live) -> None:
    """What needs licences that are promised is offered a deadline after that job's end."""
    first = live.promise("-n1", "--licenses=matlab:4", "--time=2", in_minutes(4), script="sleep 20")
    reply = live.submit("-n1", "--licenses=matlab:2", "--time=2", in_minutes(3.5))
    assert not reply.job
    assert reply.offer
    second = live.promise("-n1", "--licenses=matlab:2", "--time=2", reply.offer, script="sleep 2")
    live.wait_state(first, "kept", seconds=100)
    live.wait_state(second, "kept", seconds=100)


def test_a_job_that_waits_for_another_one(live: Live) -> None:
    """It has nodes and licences reserved until it may start, and then licences as others have."""
    others = flood(live, 30, "-n1", "--licenses=matlab", "--time=1")
    eventually(lambda: started(live, others[MATLAB - 1]), 60, "the flood has all licences")
    live.polled()
    first = live.promise("-n1", "--time=2", in_minutes(15), script="sleep 20")
    asked = "-n1", "--licenses=matlab:3", "--time=1", f"--dependency=afterok:{first}"
    second = live.promise(*asked, in_minutes(15), script="sleep 2")
    assert reserved(live, second) == "matlab:3"
    assert live.reservations()[f"rtsched_{second}"]["NodeCnt"] == "1"
    for job in (first, second):
        live.wait_state(job, "kept", seconds=300)


def test_promises_that_take_the_same_licences_in_turn(live: Live) -> None:
    """Slurm adds up all that is reserved while a job runs: no more is than they take at one time.

    Best-effort jobs take what is left, and none of what they need.
    """
    busy = live.cluster.sbatch(["-n8", "-w", "fast1", "--time=2"], user="bob", script="sleep 40")
    live.cluster.wait_job(busy, "RUNNING")
    live.polled()
    words = ("-n8", "-w", "fast1", "--time=1")
    jobs = [
        live.promise(*words, f"--licenses=matlab:{count}", in_minutes(8), script="sleep 8")
        for count in (2, 3, 2)
    ]
    expected = {f"rtsched_{jobs[0]}": "matlab:2", "rtsched_0": "matlab:1"}

    def kept() -> dict[str, str]:
        return {name: row["Licenses"] for name, row in live.reservations().items()}

    eventually(lambda: kept() == expected, 20, "as many are reserved as the jobs take at one time")
    others = flood(live, 20, "-n1", "-w", "fast2", "--licenses=matlab", "--time=1")
    for job in jobs:
        live.wait_state(job, "kept", seconds=200)
    assert any(started(live, other) for other in others)


@pytest.mark.parametrize(
    ("licenses", "text"),
    [
        ("matlab:5", "requests 5 licences 'matlab'; there are 4 for jobs"),
        ("ansys:1", "Slurm has no licences 'ansys'; see scontrol show licenses"),
        ("matlab:1|fluent:1", "cannot plan with a choice of licences ('matlab:1|fluent:1')"),
    ],
)
def test_licences_that_cannot_be_planned(live: Live, licenses: str, text: str) -> None:
    """Each is one sentence at the prompt."""
    reply = live.submit("-n1", f"--licenses={licenses}", "--time=1", in_minutes(6))
    assert not reply.job
    assert text in reply.text


def test_an_array_is_refused(live: Live) -> None:
    """What its tasks need together depends on how many run."""
    reply = live.submit("-n1", "-a1-4", "--licenses=matlab", "--time=1", in_minutes(6))
    assert "no promise can be given to an array whose tasks need licences" in reply.text


def test_feasible_with_licences(live: Live) -> None:
    """The question takes them as sbatch does."""
    live.promise("-n1", "--licenses=matlab:4", "--time=3", in_minutes(5), script="sleep 30")
    without, with_them = (
        live.ask("feasible", "-t", "1", *options)["deadline"]
        for options in ((), ("--licenses", "matlab:1"))
    )
    assert with_them > without + 60
    reply = live.command("rtsched", "feasible", "-t", "1", "-L", "matlab:5")
    assert "requests 5 licences 'matlab'; there are 4 for jobs" in reply


def test_more_licences_than_promised(live: Live) -> None:
    """Its user may not ask for them, and the promise is void if an admin does."""
    busy = flood(live, 2, "-n8", "--time=2", script="sleep 100")
    eventually(lambda: all(started(live, other) for other in busy), 30)
    live.polled()
    job = live.promise("-n1", "--licenses=matlab:1", "--time=1", in_minutes(8), script="sleep 1")
    reserved(live, job)
    words = "scontrol", "update", f"JobId={job}", "Licenses=matlab:2"
    assert "its licences cannot be changed" in live.command(*words)
    live.cluster.run([*words], user="root")
    live.wait_state(job, "void", "broken", seconds=60)
    why = next(kept.why for kept in live.kept() if kept.id == job)
    assert "it requests more licences than were promised" in why
    eventually(lambda: not live.reservations(), 30, "nothing is reserved any more")


def test_licences_of_a_site_reservation(live: Live) -> None:
    """They are no promised job's."""
    words = "ReservationName=course", "StartTime=now", "Duration=10", "Licenses=matlab:3"
    create = "scontrol", "create", "reservation", *words, "Users=dave", "Flags=ANY_NODES"
    live.cluster.run([*create], user="root")
    try:
        live.polled()
        reply = live.submit("-n1", "--licenses=matlab:2", "--time=1", in_minutes(6))
        assert "requests 2 licences 'matlab'; there are 1 for jobs" in reply.text
        job = live.promise("-n1", "--licenses=matlab", "--time=1", in_minutes(6), script="sleep 1")
        live.wait_state(job, "kept", seconds=100)
    finally:
        live.cluster.run(["scontrol", "delete", "ReservationName=course"], user="root")
