"""Jobs are promised slots that meet their Requirements, and start there."""

from collections.abc import Iterator
from typing import Any

import pytest
from promised_pool import EAGER, SITE, LivePool, live_pool, within

from rtsched.adapters.condor.ids import name_of
from rtsched.logs.classads import json_value

MATLAB = "requirements = (HasMatlab =?= True)"
SLOT = "slot1@fast1.testbed"
ATTRIBUTES = {"STARTD_ATTRS": "$(STARTD_ATTRS) HasMatlab", "fast1.HasMatlab": "True"}
PARTITIONABLE = {kind: {"NUM_CPUS": "1", "MEMORY": "1024"} for kind in ("fast", "slow")}
PATIENT = SITE.replace("start_delay_s = 6", "start_delay_s = 16")
POOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "static": (SITE, {}),
    "units": (PATIENT, {"hardware": PARTITIONABLE}),
    "shared": (f"{PATIENT}\nshare_nodes = true\n", {"hardware": PARTITIONABLE}),
}


@pytest.fixture(
    scope="module",
    params=[("forky", "static"), ("trixie", "units"), ("forky", "shared"), ("trixie", "static")],
    ids="-".join,
)
def live(request: pytest.FixtureRequest) -> Iterator[LivePool]:
    """Run three machines with a slot each, of which one has Matlab, with library and daemon."""
    suite, kind = request.param
    site, options = POOLS[kind]
    with live_pool(
        site, suite=suite, fast=1, slow=2, startds=True, settings=EAGER | ATTRIBUTES, **options
    ) as up:
        yield up


@pytest.fixture(autouse=True)
def clean(live: LivePool) -> Iterator[None]:
    """Each test begins without jobs, and the daemon knows that."""
    yield
    live.cancel_all()
    live.polled()


def ended(live: LivePool, job: int) -> dict[str, Any]:
    """Return the ad of a job whose promise was kept."""
    live.wait_state(job, "kept", seconds=200)
    return live.ad(job)


def test_jobs_wait_for_the_machine_that_matches(live: LivePool) -> None:
    """Though others are free; it is busy at first, and then each waits for the one before."""
    busy = live.submit("+RtRunTime = 25", MATLAB, user="bob", seconds=15).job
    live.wait_status(busy, "running")
    live.polled()
    jobs = [live.promise(MATLAB, *within(240, 12), seconds=5) for _ in range(2)]
    ads = [ended(live, job) for job in jobs]
    assert [ad["RtNodeSet"] for ad in ads] == [SLOT] * 2
    assert all(ad["LastRemoteHost"].endswith("@fast1.testbed") for ad in ads)
    assert all(ad["CompletionDate"] <= ad["RtPromise"] for ad in ads)
    assert live.ad(busy)["CompletionDate"] <= min(ad["JobStartDate"] for ad in ads)
    first, second = sorted(ads, key=lambda ad: int(ad["JobStartDate"]))
    assert first["CompletionDate"] <= second["JobStartDate"]


def test_what_it_is_compared_with_may_be_of_the_job(live: LivePool) -> None:
    """Attributes of its own are filled in; conditions on the load of a machine are left out."""
    job = live.promise(
        "+Wanted = True",
        "requirements = TARGET.HasMatlab =?= MY.Wanted && LoadAvg < 1000",
        *within(120, 12),
        seconds=3,
    )
    assert ended(live, job)["RtNodeSet"] == SLOT
    other = live.promise("requirements = HasMatlab =!= True", *within(120, 12), seconds=3)
    assert ended(live, other)["RtNodeSet"] != SLOT


def test_a_cluster_runs_where_its_requirements_match(live: LivePool) -> None:
    """All of its procs, in rounds; procs that differ in them are rejected."""
    job = live.promise(MATLAB, *within(240, 9), "queue 3", seconds=2)
    live.wait_state(job, "kept", seconds=240)
    ads = live.past(f"ClusterId == {job >> 20}").values()
    assert len(ads) == 3
    assert all(ad["LastRemoteHost"].endswith("@fast1.testbed") for ad in ads)
    differ = "requirements = (HasMatlab =?= $(truth))"
    reply = live.submit(differ, *within(240, 9), "queue truth in (True, undefined)")
    assert reply.job == 0
    assert "they differ in Requirements" in reply.text
    site = "requirements = (HasMatlab =?= MY.Wanted)"
    reply = live.submit(site, "+Wanted = $(truth)", *within(240, 9), "queue truth in (True, False)")
    assert reply.job == 0
    assert "they differ in Wanted" in reply.text


@pytest.mark.parametrize(
    ("requirements", "problem"),
    [
        ("(HasOctave =?= True)", "no slot meets its requirement HasOctave =?= true"),
        ("HasMatlab && Memory > 100000", "no slot meets its requirement Memory > 100000"),
        (
            'HasMatlab && Machine == "slow1.testbed"',
            "no slot meets all of its requirements (HasMatlab && ",
        ),
        ("userHome(Owner) == 1", "cannot plan with the function userHome in its requirements"),
    ],
)
def test_what_no_slot_meets_is_rejected(live: LivePool, requirements: str, problem: str) -> None:
    """The user reads which condition."""
    reply = live.submit(f"requirements = {requirements}", *within(300, 20))
    assert reply.job == 0
    assert problem in " ".join(reply.text.split())


def test_who_requires_something_else_loses_the_promise(live: LivePool) -> None:
    """A condition that is not planned with is no change."""
    busy = live.submit("+RtRunTime = 120", MATLAB, user="bob", seconds=100).job
    live.wait_status(busy, "running")
    live.polled()
    jobs = [live.promise(MATLAB, *within(900, 20)) for _ in range(2)]
    for job, condition in zip(jobs, ("LoadAvg < 1000", "HasMatlab is undefined"), strict=True):
        written = f"({json_value(live.ad(job)['Requirements'])}) && ({condition})"
        live.pool.run(["condor_qedit", name_of(job), "Requirements", written], user="alice")
    live.wait_state(jobs[1], "void")
    assert live.state(jobs[0]) == "firm"
