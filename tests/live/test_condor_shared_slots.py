"""Promised jobs take the CPUs, memory and GPUs that they ask for, of a slot that others share."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from promised_pool import EAGER, SITE, LivePool, live_pool, within
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import name_of

SLOT = "slot1@head.testbed"
CPUS, MEMORY, GPUS = 12, 8192, 2
START_DELAY_S = 16.0
"""Two negotiation intervals and 10 s, as by default."""
SHARED = (
    SITE.replace("start_delay_s = 6", f"start_delay_s = {START_DELAY_S:g}")
    + """
share_nodes = true
"""
)
FLOODS = {
    "one core": ("request_cpus = 1", "request_memory = 128", "queue 120"),
    "memory": ("request_cpus = 1", "request_memory = 2500", "queue 25"),
    "GPU": ("request_cpus = 1", "request_memory = 128", "request_gpus = 1", "queue 25"),
}
WISHES = {
    "cores": ("request_cpus = 6", "request_memory = 128"),
    "memory": ("request_cpus = 1", "request_memory = 6000"),
    "GPUs": ("request_cpus = 1", "request_memory = 128", "request_gpus = 2"),
}

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=["mcdf", "portfolio"])
def live(request: pytest.FixtureRequest) -> Iterator[LivePool]:
    """Run one machine of 12 CPUs, 8 GB and 2 GPUs that jobs share, with library and daemon."""
    site = SHARED.replace('"mcdf"', f'"{request.param}"')
    machine = {"MEMORY": str(MEMORY), "MACHINE_RESOURCE_GPUs": str(GPUS)}
    settings = EAGER | machine
    with live_pool(site, partitionable=(CPUS, 1), settings=settings) as up:
        yield up


def flood(live: LivePool, seconds: int = 12) -> None:
    """Submit best-effort jobs of three kinds, each of which would fill the machine for long."""
    for user, lines in zip(("bob", "carol", "dave"), FLOODS.values(), strict=True):
        live.submit(f"+RtRunTime = {seconds + 3}", *lines, user=user, seconds=seconds)

    def all_kinds_run() -> bool:
        running = live.ads('JobStatus == 2 && Owner != "alice"').values()
        return {ad["Owner"] for ad in running} == {"bob", "carol", "dave"}

    eventually(all_kinds_run, 60, "best-effort jobs of all kinds run")
    live.polled()


def entry(live: LivePool, job: int) -> dict[str, Any]:
    """Return what is planned for a job; {} if it is not planned any more."""
    entries = live.ask("plan", user="root")["entries"]
    return next((each for each in entries if each["job"] == name_of(job)), {})


def test_promises_are_kept_beside_a_flood(live: LivePool) -> None:
    """Each starts as planned and ends in time, on the one machine; best-effort work goes on."""
    flood(live)
    jobs = {
        kind: live.promise(*lines, *within(150, 15), seconds=10) for kind, lines in WISHES.items()
    }
    planned = {job: entry(live, job).get("start", time.time()) for job in jobs.values()}
    beside: dict[str, int] = dict.fromkeys(jobs, 0)
    ended: set[str] = set()
    until = time.monotonic() + 170
    while len(ended) < len(jobs) and time.monotonic() < until:
        ads = live.ads("JobStatus == 2").values()
        others = [ad for ad in ads if ad["Owner"] != "alice"]
        for kind, job in jobs.items():
            if any(ad["ClusterId"] == job >> 20 for ad in ads):
                beside[kind] = max(beside[kind], len(others))
            elif live.status(job) == "completed":
                ended.add(kind)
        time.sleep(1)
    for kind, job in jobs.items():
        ad = live.wait_status(job, "completed", seconds=5)
        assert ad["RtNodeSet"] == SLOT, kind
        assert ad["CompletionDate"] <= ad["RtPromise"] == ad["RtDeadline"], kind
        assert ad["JobStartDate"] <= planned[job] + START_DELAY_S + 1, kind
        assert live.wait_state(job, "kept") == "kept", kind
        assert beside[kind], kind
    done = live.past('JobStatus == 4 && Owner != "alice"').values()
    assert {ad["Owner"] for ad in done} == {"bob", "carol", "dave"}


def test_what_is_kept_names_all_that_a_job_takes(live: LivePool) -> None:
    """Jobs that leave it alone start meanwhile, and others wait."""
    hold = ("request_cpus = 1", "request_gpus = 1", "+RtRunTime = 25")
    live.submit(*hold, "queue 2", user="bob", seconds=20)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 2, 40)
    live.polled()
    job = live.promise("request_cpus = 2", "request_gpus = 2", *within(120, 20), seconds=8)
    kept = eventually(lambda: live.kept_slots().get(SLOT), 10)
    start, *amounts = kept.split(",")[-1].split(":")
    assert [int(each) for each in amounts[:3]] == [2, live.ad(job)["RequestMemory"], 2]
    assert int(start) <= entry(live, job)["start"]
    greedy = live.submit("+RtRunTime = 300", "request_gpus = 1", user="carol", seconds=200).job
    modest = live.submit("+RtRunTime = 300", "request_cpus = 3", user="dave", seconds=200).job
    live.wait_status(modest, "running", seconds=40)
    assert live.status(greedy) == "idle"
    ad = live.wait_status(job, "completed", seconds=110)
    assert ad["CompletionDate"] <= ad["RtPromise"]
    assert live.status(modest) == "running"
    live.wait_status(greedy, "running", seconds=60)


def test_an_array_beside_a_flood(live: LivePool) -> None:
    """It takes what its procs ask for, a part of the machine; all of them end in time."""
    flood(live, seconds=8)
    job = live.promise(
        "request_cpus = 2", "request_memory = 256", *within(240, 9), "queue 4", seconds=2
    )
    live.wait_state(job, "kept", seconds=240)
    wide = live.promise(
        "request_cpus = 1", "request_memory = 128", *within(240, 9), "queue 30", seconds=2
    )
    live.wait_state(wide, "kept", seconds=240)
    for first, count, each in ((job, 4, 4), (wide, 30, 12)):
        ads = live.past(f"ClusterId == {first >> 20}").values()
        assert len(ads) == count
        assert {ad["RtPerSlot"] for ad in ads} == {each}
        assert max(ad["CompletionDate"] for ad in ads) <= next(iter(ads))["RtDeadline"]


def test_what_no_machine_has_is_refused(live: LivePool) -> None:
    """The user reads what is missing."""
    reply = live.submit("request_gpus = 3", *within(300, 20))
    assert reply.job == 0
    assert "no slot has 1 CPUs" in reply.text
    assert "3 GPUs" in reply.text
    wide = ("universe = parallel", "machine_count = 2")
    reply = live.submit(*wide, *within(300, 20))
    assert "a parallel job gets no promise where jobs share slots" in reply.text
