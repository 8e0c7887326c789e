"""Clusters of several procs with one promise, on a real HTCondor."""

from collections.abc import Iterator

import pytest
from promised_pool import LivePool, live_pool, within
from promising import QUICK, SUBMIT_CONF
from testbed.waiting import eventually

from rtsched.adapters.condor.ids import cluster_of, name_of

SLOTS = 6


@pytest.fixture(scope="module")
def live() -> Iterator[LivePool]:
    """Run six static slots."""
    with live_pool() as up:
        yield up


@pytest.fixture(scope="module")
def partitionable() -> Iterator[LivePool]:
    """Run one machine of six CPUs, each of which is a node."""
    with live_pool(partitionable=(6, 1)) as up:
        yield up


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test begins without jobs."""
    yield
    for name in ("live", "partitionable"):
        if name in request.fixturenames:
            request.getfixturevalue(name).cancel_all()


def procs_of(live: LivePool, job: int) -> dict[int, dict]:
    """Return the procs of a cluster that ended, by number."""
    return live.past(f"ClusterId == {cluster_of(job)}")


def kept_in_time(live: LivePool, job: int, count: int) -> list[dict]:
    """Wait for the promise; return the ads of its procs, all of which ended in time."""
    deadline = live.ad(job)["RtDeadline"]
    live.wait_state(job, "kept", seconds=300)
    ads = list(procs_of(live, job).values())
    assert len(ads) == count
    assert {ad["RtDeadline"] for ad in ads} == {deadline}
    assert max(ad["EnteredCurrentStatus"] for ad in ads) <= deadline
    return ads


def started(live: LivePool, job: int) -> int:
    """Return how many procs of an array were started, by what its user is told."""
    promises = live.ask("status", user="alice")["promises"]
    (found,) = [each for each in promises if each["job"] == name_of(job)]
    return found["tasks"] - found["waiting"]


def flood(live: LivePool) -> None:
    """Submit best-effort jobs that would fill the pool for long."""
    live.fill(80, seconds=6)
    eventually(lambda: len(live.ads("JobStatus == 2")) >= SLOTS - 1, 60, "best-effort jobs run")
    live.polled()


def at_most_together(ads: list[dict]) -> int:
    """Return how many ran at a time, at the most."""
    spans = [(ad["JobCurrentStartDate"], ad["EnteredCurrentStatus"]) for ad in ads]
    return max(sum(start < begin + 1 <= end for start, end in spans) for begin, _ in spans)


def test_one_promise_for_all_procs(live: LivePool) -> None:
    """They run in rounds beside a flood, and all have ended in time; a deadline may be `time()`."""
    flood(live)
    reply = live.submit("+RtDeadline = time() + 240", "+RtRunTime = 5", "queue 40", seconds=2)
    assert reply.promised, reply.text
    assert len([each for each in live.kept() if each.state in {"firm", "provisional"}]) == 1
    shown = eventually(lambda: started(live, reply.job), 60, "status tells how many were started")
    assert 0 < shown <= 40
    ads = kept_in_time(live, reply.job, 40)
    assert {ad["ExitCode"] for ad in ads} == {0}
    assert len({ad["RtToken"] for ad in ads}) == 1
    given = set(ads[-1]["RtSlots"].split(","))
    assert {ad["LastRemoteHost"] for ad in ads} <= given
    others = live.past('Owner == "bob" && JobStatus == 4')
    assert others, "best-effort jobs ran meanwhile"


def test_too_many_procs(live: LivePool) -> None:
    """The cluster is rejected with the earliest deadline, and with how many would make it."""
    reply = live.submit(*within(100, 20), "queue 50")
    assert not reply.job
    assert "of its 50 tasks would be accepted with the same deadline" in reply.text
    assert "reserved" in reply.text
    told = live.command("rtsched", "feasible", "-t", "1", "--array", "1-50", user="alice")
    assert "the earliest deadline now" in told


def test_procs_that_fail_or_are_removed(live: LivePool) -> None:
    """The promise was to run them in time: it is kept."""
    lines = ("executable = /bin/sh", "arguments = \"-c 'sleep 2; test $(Process) -ne 3'\"")
    job = live.promise(*lines, *within(200, 5), "queue 12")
    live.polled()
    live.pool.run(["condor_rm", name_of(job + 11), name_of(job)], user="alice", check=False)
    live.wait_state(job, "kept", seconds=200)
    ads = procs_of(live, job)
    assert ads[job + 11]["JobStatus"] == 3
    assert ads[job + 3]["ExitCode"] == 1
    assert "(kept, given" in live.command("rtsched", "explain", name_of(job))


def test_procs_that_differ_are_turned_away(live: LivePool) -> None:
    """The user reads in what they differ."""
    reply = live.submit(
        *within(300, 10), "request_memory = $(mb)", "queue mb from (\n16\n16\n32\n)", seconds=1
    )
    assert not reply.job
    assert "procs of a cluster with a deadline must be alike" in reply.text
    assert "RequestMemory" in reply.text


def test_late_materialization_is_refused(live: LivePool) -> None:
    """The schedd shows its procs bit by bit: the user reads what to leave out."""
    reply = live.submit(*within(300), "max_materialize = 2", "queue 5")
    assert not reply.job
    assert "clusters with max_materialize or max_idle get no promise" in reply.text


def test_a_daemon_that_is_started_anew(live: LivePool) -> None:
    """The array goes on, on its slots, and the promise is kept."""
    job = live.promise(*within(200, 5), "queue 18", seconds=2)
    eventually(lambda: live.past(f"ClusterId == {cluster_of(job)}"), 60, "a proc has ended")
    live.pool.kill_daemon()
    live.pool.restart_daemon()
    kept_in_time(live, job, 18)


def test_a_cluster_that_nobody_could_evaluate(live: LivePool) -> None:
    """Parked while the daemon was away, it gets one promise in the queue."""
    live.pool.path(SUBMIT_CONF).write_text(QUICK + "on_failure = hold\n")
    live.pool.stop_daemon()
    try:
        eventually(lambda: "until it has been evaluated" in live.submit(*within(60)).text, 60)
        reply = live.submit("+RtDeadline = time() + 200", "+RtRunTime = 5", "queue 8", seconds=2)
        ads = live.ads(f"ClusterId == {cluster_of(reply.job)}")
        assert {ad["RtAdmission"] for ad in ads.values()} == {"parked"}
    finally:
        live.pool.path(SUBMIT_CONF).write_text(QUICK)
        live.pool.start_daemon()
    live.wait_state(reply.job, "firm", "kept", seconds=60)
    assert [each.id for each in live.kept() if cluster_of(each.id) == cluster_of(reply.job)] == [
        reply.job
    ]
    kept_in_time(live, reply.job, 8)


def test_the_older_release() -> None:
    """So it is with 23.9."""
    with live_pool(suite="trixie") as live:
        kept_in_time(live, live.promise(*within(200, 5), "queue 15", seconds=2), 15)


def test_a_slot_that_others_share(partitionable: LivePool) -> None:
    """No more of its procs run at a time than it has CPUs of the slot; others run beside them."""
    live = partitionable
    live.submit("+RtRunTime = 120", "queue 4", user="bob", seconds=100)
    eventually(lambda: len(live.ads("JobStatus == 2")) == 4, 60, "best-effort jobs run")
    live.polled()
    job = live.promise(*within(300, 5), "queue 10", seconds=2)
    ads = kept_in_time(live, job, 10)
    assert at_most_together(ads) <= 2
