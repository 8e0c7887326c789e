"""Promised jobs take the disk that they request, of a slot that others share."""

from collections.abc import Iterator

import pytest
from promised_pool import EAGER, SITE, LivePool, live_pool, within
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

SLOT = "slot1@head.testbed"
SHARED = SITE.replace("start_delay_s = 6", "start_delay_s = 16") + "\nshare_nodes = true\n"
LONG = ("+RtRunTime = 300",)


@pytest.fixture(scope="module", params=["forky", "trixie"])
def live(request: pytest.FixtureRequest) -> Iterator[LivePool]:
    """Run one machine of 12 CPUs that jobs share, with library and daemon."""
    with live_pool(SHARED, suite=request.param, partitionable=(12, 1), settings=EAGER) as up:
        yield up


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins without jobs, and the daemon knows that."""
    yield
    live.cancel_all()
    live.polled()


@pytest.fixture(scope="module")
def disk(live: LivePool) -> int:
    """Return how many kilobytes the slot has, as HTCondor measured them."""
    words = ["condor_status", "-af", "TotalSlotDisk", "-constraint", "PartitionableSlot"]
    return int(float(live.pool.run(words).stdout))


def part(disk: int, percent: int) -> str:
    """Return the line that asks for a part of the slot's disk."""
    return f"request_disk = {disk * percent // 100}KB"


def test_a_job_waits_for_its_disk_and_others_leave_it(live: LivePool, disk: int) -> None:
    """It is planned at the end of those that have it, and starts then; nobody takes it before."""
    hog = live.submit("+RtRunTime = 25", part(disk, 60), user="bob", seconds=20).job
    live.wait_status(hog, "running", seconds=40)
    live.polled()
    job = live.promise(part(disk, 70), *within(120, 20), seconds=8)
    kept = eventually(lambda: live.kept_slots().get(SLOT), 10)
    start, *amounts = map(int, kept.split(",")[-1].split(":"))
    assert amounts[::2] == [1, 0]
    assert amounts[3] == -(-(disk * 70 // 100) // 1024) * 1024
    eventually(lambda: live.ad(job).get("RtNodeSet") == SLOT, 20)
    greedy = live.submit(*LONG, part(disk, 31), user="carol", seconds=200).job
    modest = live.submit(*LONG, part(disk, 5), user="dave", seconds=200).job
    plain = live.submit(*LONG, user="dave", seconds=200).job  # what HTCondor itself requests
    live.wait_status(modest, "running", seconds=40)
    live.wait_status(plain, "running", seconds=40)
    ad = live.wait_status(job, "completed", seconds=110)
    assert ad["CompletionDate"] <= ad["RtPromise"] == ad["RtDeadline"]
    assert live.past(f"ClusterId == {hog >> 20}")[hog]["CompletionDate"] <= ad["JobStartDate"]
    assert live.wait_state(job, "kept") == "kept"
    assert start <= ad["JobStartDate"]
    assert live.status(modest) == live.status(plain) == "running"
    last = live.wait_status(greedy, "running", seconds=60)
    assert last["JobStartDate"] >= ad["CompletionDate"]


def test_who_requests_far_more_later_loses_the_promise(live: LivePool, disk: int) -> None:
    """A little more may follow from a job's files, and is no change."""
    live.wait_status(live.submit(*LONG, part(disk, 60), seconds=200).job, "running", seconds=40)
    live.polled()
    jobs = [live.promise(part(disk, share), *within(900, 20)) for share in (45, 45)]
    for job, more in zip(jobs, (2 << 20, 1 << 19), strict=True):
        request = f"{disk * 45 // 100 + more}"
        live.pool.run(["condor_qedit", name_of(job), "RequestDisk", request], user="alice")
    live.wait_state(jobs[0], "void")
    assert live.state(jobs[1]) == "firm"


def test_jobs_follow_one_another_where_both_do_not_fit(live: LivePool, disk: int) -> None:
    """The second is planned after the first, and rejected where neither could be the second."""
    first = live.promise(part(disk, 60), *within(100, 60), seconds=10)
    reply = live.submit(part(disk, 60), *within(110, 60), seconds=10)
    assert reply.job == 0
    assert "Feasible:" in reply.text
    second = live.promise(part(disk, 60), *within(240, 60), seconds=10)
    ends = [live.wait_status(job, "completed", seconds=140) for job in (first, second)]
    assert ends[0]["CompletionDate"] <= ends[1]["JobStartDate"]
    assert all(ad["CompletionDate"] <= ad["RtPromise"] for ad in ends)


def test_a_cluster_is_as_wide_as_its_disk_allows(live: LivePool, disk: int) -> None:
    """Three of its procs fit at a time; all end in time."""
    job = live.promise(part(disk, 30), *within(240, 9), "queue 6", seconds=2)
    live.wait_state(job, "kept", seconds=240)
    ads = live.past(f"ClusterId == {job >> 20}").values()
    assert len(ads) == 6
    assert {ad["RtPerSlot"] for ad in ads} == {3}
    assert max(ad["CompletionDate"] for ad in ads) <= next(iter(ads))["RtDeadline"]


def test_what_cannot_be_had_is_refused(live: LivePool, disk: int) -> None:
    """The user reads what is missing; procs that state other sizes than the first are not alike."""
    reply = live.submit(part(disk, 120), *within(300, 20))
    assert reply.job == 0
    assert "no slot has 1 CPUs" in reply.text
    assert "MB of disk" in reply.text
    sizes = ("request_disk = $(size)", *within(300, 20), "queue size in (2048, 4096)")
    reply = live.submit(*sizes)
    assert reply.job == 0
    assert "they differ in RequestDisk" in reply.text
