"""Jobs that require GPUs of a kind are promised slots that have it, and start there."""

from collections.abc import Iterator
from typing import Any

import pytest
from promised_pool import EAGER, SITE, LivePool, live_pool, within

OLD, NEW = "slot1@slow1.testbed", "slot1@fast1.testbed"
DISCOVERY = "$(LIBEXEC)/condor_gpu_discovery -properties -extra -simulate:$(GPU_KIND),2"
SHARED = SITE.replace("start_delay_s = 6", "start_delay_s = 16") + "\nshare_nodes = true\n"


def hardware(kind: int) -> dict[str, str]:
    """Return the settings of a machine with two GPUs of a simulated kind."""
    return {"NUM_CPUS": "4", "MEMORY": "2048", "GPU_KIND": f"{kind}"}


pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module", params=["forky", "trixie"])
def live(request: pytest.FixtureRequest) -> Iterator[LivePool]:
    """Run a machine with GeForce GT 330 and one with A100, two each, with library and daemon."""
    machines = {"slow": hardware(0), "fast": hardware(4)}
    with live_pool(
        SHARED,
        suite=request.param,
        fast=1,
        slow=1,
        startds=True,
        hardware=machines,
        settings=EAGER | {"MACHINE_RESOURCE_INVENTORY_GPUs": DISCOVERY},
    ) as up:
        yield up


def ended(live: LivePool, job: int) -> dict[str, Any]:
    """Return the ad of a job whose promise was kept."""
    live.wait_state(job, "kept", seconds=150)
    return live.ad(job)


def test_jobs_wait_for_the_gpus_that_suit_them(live: LivePool) -> None:
    """However many others are free; each form of condor_submit is understood."""
    forms = [
        ("require_gpus = Capability >= 8.0",),
        ("gpus_minimum_capability = 8.0", "gpus_minimum_memory = 4GB"),
        ('require_gpus = DeviceName =!= "GeForce GT 330"',),
    ]
    jobs = [live.promise("request_gpus = 2", *form, *within(200, 10), seconds=6) for form in forms]
    old = live.promise(
        "request_gpus = 1", "require_gpus = Capability < 2", *within(60, 10), seconds=6
    )
    assert ended(live, old)["RtNodeSet"] == OLD
    ads = [ended(live, job) for job in jobs]
    assert [ad["RtNodeSet"] for ad in ads] == [NEW] * 3
    assert all(ad["LastRemoteHost"].endswith("@fast1.testbed") for ad in ads)
    assert all(ad["CompletionDate"] <= ad["RtPromise"] for ad in ads)


def test_a_cluster_runs_where_its_gpus_suit(live: LivePool) -> None:
    """All of its procs, in rounds."""
    lines = ("request_gpus = 1", "require_gpus = Capability >= 8.0", *within(240, 9))
    job = live.promise(*lines, "queue 4", seconds=2)
    live.wait_state(job, "kept", seconds=240)
    ads = live.past(f"ClusterId == {job >> 20}").values()
    assert len(ads) == 4
    assert all(ad["LastRemoteHost"].endswith("@fast1.testbed") for ad in ads)


def test_what_no_slot_has_is_refused(live: LivePool) -> None:
    """The user reads what."""
    reply = live.submit("request_gpus = 1", "require_gpus = Capability >= 9.0", *within(300, 20))
    assert reply.job == 0
    assert "no slot has only GPUs that suit its require_gpus (Capability >= 9.0)" in reply.text
    reply = live.submit("request_gpus = 1", 'require_gpus = regexp("A", DeviceName)', *within(300))
    assert "cannot plan with the function regexp" in reply.text
