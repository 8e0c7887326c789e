"""What the adapter does to a real pool, as the unprivileged user `rtsched`, without a daemon.

Nobody answers the library, so jobs that want something are deferred: they start only when the test
has them released.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from remote import Remote
from testbed import Pool, PoolOptions, fragments
from testbed.pool import STATES
from testbed.waiting import wait_for

from rtsched.adapters.condor.commands import CLOSED_S
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.live import FIRST_OWN_ID, Done
from rtsched.errors import AdapterError
from rtsched.model.actions import (
    Action,
    Admit,
    Cancel,
    Hold,
    Move,
    Notify,
    Place,
    Release,
    Requeue,
    Reserve,
    SetNodeWeight,
    SetPriority,
)
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement

PARKING = {"/etc/rtsched/submit.conf": "on_failure = hold\n"}
SETTINGS = CondorSettings(start_delay_s=8.0, completing_s=2.0, overrun_s=2.0)
SLOTS = [f"slot{number}@head.testbed" for number in range(1, 7)]
FAR = 86400.0
UNREADY = ["+Ready = false", "requirements = MY.Ready"]
"""Of a job that starts nowhere until its user says so."""


@pytest.fixture(scope="module")
def pool(testbed: None) -> Iterator[Pool]:
    """Run two fast and four slow slots, for parallel jobs too."""
    settings = {"UNUSED_CLAIM_TIMEOUT": "1"}
    options = PoolOptions(2, 4, parallel=True, settings=settings, config=fragments(), library=True)
    with Pool("forky", options, files=PARKING) as running:
        yield running


@pytest.fixture
def remote(pool: Pool) -> Iterator[Remote]:
    """Let the adapter act; afterwards nothing waits, runs or is kept."""
    with Remote(pool, SETTINGS) as system:
        yield system
        pool.remove_all()
        system.apply(reserve())
        wait_for("all slots are free", lambda: unclaimed(pool), 40)


def unclaimed(pool: Pool) -> bool:
    """Return whether nobody has any slot."""
    return {slot["State"] for slot in pool.slots().values()} == {"Unclaimed"}


def reserve(*entries: tuple[int, float, list[int]], length: float = FAR) -> Reserve:
    """Return the action that plans (job, start after now, rows)."""
    sizes = [len(rows) for _, _, rows in entries]
    start = np.array([time.time() + start for _, start, _ in entries])
    job = np.array([job for job, _, _ in entries], np.int64)
    rows = np.array([row for _, _, rows in entries for row in rows], np.int32)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Reserve(job, Schedule.build(job, start, start + length, indptr, rows))


def ids(*clusters: int) -> Any:
    """Return the jobs of these clusters."""
    return np.array([job_id(cluster, 0) for cluster in clusters], np.int64)


def admit(*clusters: int) -> Admit:
    """Return the action that deferred jobs were promised something."""
    return Admit(ids(*clusters), np.full(len(clusters), time.time() + FAR))


def done(dones: Any) -> list[Done]:
    """Return what became of changes, all of which were carried out."""
    assert {one.outcome for one in dones} <= {"done"}, [one.text for one in dones]
    return list(dones)


def start(remote: Remote, *actions: Action) -> None:
    """Carry out a plan: its slots are closed to other jobs first, and then its jobs may start."""
    done(remote.apply(*actions))
    time.sleep(CLOSED_S + 0.5)
    done(remote.apply(*actions))


def promised(pool: Pool, *lines: str, seconds: int = 60) -> int:
    """Submit a job with a deadline far off; it waits."""
    words = [f"arguments = {seconds}", f"+RtRunTime = {seconds}"]
    deadline = f"+RtDeadline = {time.time() + FAR:.0f}"
    cluster = pool.submit([*words, deadline, *lines])
    assert pool.job(cluster)["RtAdmission"] == "parked"
    return cluster


def where(pool: Pool, cluster: int, proc: int = 0) -> str:
    """Wait until a job runs, or has run; return its slot."""
    pool.wait_job(cluster, proc, "Running", "Completed")

    def host() -> str:  # a job runs a moment before its host is known
        ad = pool.job(cluster, proc)
        return str(ad.get("RemoteHost") or ad.get("LastRemoteHost") or "")

    return wait_for("its host is known", host)


def test_a_promised_job_starts_on_its_slot(pool: Pool, remote: Remote) -> None:
    """It waits until it is bound, carries its promise, and comes before its user's others."""
    cluster = promised(pool)
    start(remote, reserve((job_id(cluster, 0), 0.0, [4])), admit(cluster))
    assert where(pool, cluster) == SLOTS[4]
    ad = pool.job(cluster)
    assert (ad["RtAdmission"], ad["RtNodeSet"]) == ("judged", SLOTS[4])
    assert ad["RtPromise"] == ad["RtDeadline"]
    assert abs(ad["RtPlannedStart"] - time.time()) < 60
    assert ad["JobPrio"] > 1 << 28


def test_nothing_is_asked_for_twice(pool: Pool, remote: Remote) -> None:
    """A second look shows all that was done for jobs that wait, one for a busy slot."""
    blocker = pool.submit(["arguments = 300", "+RtRunTime = 300"])
    row = SLOTS.index(where(pool, blocker))
    one, other = (row - 1) % len(SLOTS), (row - 2) % len(SLOTS)
    busy, slow = promised(pool), promised(pool, *UNREADY)
    plan = reserve(
        (job_id(busy, 0), 290.0, [row]),
        (job_id(slow, 0), 0.0, [one]),
        (FIRST_OWN_ID, 0.0, [other]),
    )
    start(remote, plan, admit(busy, slow))
    assert pool.job(slow)["RtNodeSet"] == SLOTS[one]
    assert "RtNodeSet" not in pool.job(busy)
    plan = reserve((job_id(busy, 0), 290.0, [row]), (FIRST_OWN_ID, 0.0, [other]))
    done(remote.apply(plan, admit(busy, slow)))
    remote.poll()
    assert not remote.changes(plan, admit(busy, slow))


def test_best_effort_jobs_leave_slots_free_for_planned_starts(pool: Pool, remote: Remote) -> None:
    """What would end too late waits, what ends before starts, and a promised job starts there."""
    done(remote.apply(reserve((FIRST_OWN_ID, 40.0, list(range(6))))))
    long = pool.submit(["arguments = 2", "+RtRunTime = 100"])
    endless = pool.submit(["arguments = 2"])
    short = pool.submit(["arguments = 1", "+RtRunTime = 5"])
    pool.wait_job(short)
    assert [pool.job(each)["JobStatus"] for each in (long, endless)] == [1, 1]
    cluster = promised(pool, seconds=20)
    start(remote, reserve((job_id(cluster, 0), 0.0, [2])), admit(cluster))
    pool.wait_job(long)
    pool.wait_job(endless)
    assert where(pool, cluster) == SLOTS[2]


def test_a_job_that_does_not_start_is_planned_anew(pool: Pool, remote: Remote) -> None:
    """It gets a slot where none failed; one that is no longer promised anything starts anywhere."""
    first, second = promised(pool, *UNREADY), promised(pool, *UNREADY)
    jobs = [job_id(first, 0), job_id(second, 0)]
    start(remote, reserve((jobs[0], 0.0, [0]), (jobs[1], 0.0, [1])), admit(first, second))
    assert sorted(remote.poll().running.id.tolist()) == jobs
    wait_for("they wait again", lambda: remote.poll().queued.id.tolist() == jobs)
    start(remote, reserve((jobs[0], 0.0, [5]), (FIRST_OWN_ID, 0.0, [0, 2, 3, 4])))
    assert pool.job(first)["RtNodeSet"] == SLOTS[5]
    ad = pool.job(second)
    assert (ad["RtAdmission"], ad["RtNodeSet"], ad["JobPrio"]) == ("unjudged", None, 0)
    pool.run(["condor_qedit", "-constraint", "true", "Ready", "true"], user="alice")
    assert [where(pool, first), where(pool, second)] == [SLOTS[5], SLOTS[1]]


def test_a_divided_load(pool: Pool, remote: Remote) -> None:
    """Each chunk runs on its slot and reads its part; procs that got none are removed."""
    load = ["+RtSigma = 100.0", "+RtCms = 0.01", "+RtCps = 1.0", "executable = /bin/sh"]
    script = "\"-c 'env | grep RTSCHED_ | sort; sleep 15'\""
    more = ["environment = \"MINE='a b'\"", "output = chunk.$(Process)", "queue 4"]
    cluster = promised(pool, *load, f"arguments = {script}", *more)
    plan = reserve((job_id(cluster, 0), 0.0, [5, 1, 3]), length=600.0)
    schedule = plan.plan
    shares = np.array([0.5, 0.25, 0.25])
    plan = Reserve(plan.job, Schedule(schedule.entries, schedule.indptr, schedule.nodes, shares))
    start(remote, plan, admit(cluster))
    assert [where(pool, cluster, proc) for proc in range(3)] == [SLOTS[row] for row in (5, 1, 3)]
    assert "MINE=a' 'b" in pool.job(cluster, 1)["Environment"]
    done(remote.apply(reserve()))
    gone = pool.wait_job(cluster, 3, "Removed")
    assert "fewer procs" in gone["RemoveReason"]
    for proc in range(3):
        pool.wait_job(cluster, proc)
    assert pool.path("/home/alice/chunk.1").read_text().split() == [
        "RTSCHED_CHUNK=1",
        f"RTSCHED_DEADLINE={pool.job(cluster, 1)['RtDeadline']:.0f}",
        "RTSCHED_FRACTION=0.250000000",
        "RTSCHED_FROM=0.5",
        f"RTSCHED_NODE={SLOTS[1]}",
        "RTSCHED_NODES=3",
        "RTSCHED_TO=0.75",
    ]


def test_a_parallel_job_runs_at_its_planned_size(pool: Pool, remote: Remote) -> None:
    """On its slots; a later plan of another size counts from what its user asked for."""
    wide = ["universe = parallel", "machine_count = 4", "+MinHosts = 2", '+RtSpeedup = "linear"']
    cluster = promised(pool, *wide)
    job = job_id(cluster, 0)
    start(remote, reserve((FIRST_OWN_ID, 0.0, [5]), (job, 300.0, [5, 0])), admit(cluster))
    assert (pool.job(cluster)["MinHosts"], pool.job(cluster)["MaxHosts"]) == (2, 4)
    start(remote, reserve((job, 0.0, [4, 0, 2])))
    ad = pool.wait_job(cluster, 0, "Running")
    assert (ad["MaxHosts"], ad["RtHosts"]) == (3, "2-4")
    assert sorted(ad["AllRemoteHosts"].split(",")) == [SLOTS[row] for row in (0, 2, 4)]


def test_a_size_that_fits_now(pool: Pool, remote: Remote) -> None:
    """A best-effort parallel job gets it, and starts with it."""
    wide = ["universe = parallel", "machine_count = 5", "+MinHosts = 1", '+RtSpeedup = "linear"']
    cluster = pool.submit([*wide, "+RtRunTime = 60", "arguments = 60"])
    placement = Placement(np.array([2], np.int32), np.array([-1], np.int32))
    done(remote.apply(Place(ids(cluster), placement), Release(ids(cluster))))
    ad = pool.wait_job(cluster, 0, "Running")
    assert len(ad["AllRemoteHosts"].split(",")) == 2


def test_users_read_why(pool: Pool, remote: Remote) -> None:
    """In the queue and in the history."""
    cluster = promised(pool)
    done(remote.apply(Notify(ids(cluster), ('rtsched: so "it" is\n\\ there',))))
    assert pool.job(cluster)["RtWhy"] == 'rtsched: so "it" is \\ there'
    done(remote.apply(Cancel(ids(cluster), ("rtsched: it cannot end by then",))))
    ad = pool.wait_job(cluster, 0, "Removed")
    assert ad["RemoveReason"].startswith("rtsched: it cannot end by then")
    assert ad["RtWhy"] == "rtsched: it cannot end by then"


def test_holds_and_releases(pool: Pool, remote: Remote) -> None:
    """A job is held until it is released; a deferred one starts when it is let go."""
    done(remote.apply(reserve((FIRST_OWN_ID, 0.0, list(range(6))))))
    plain, parked = pool.submit(["arguments = 1"]), promised(pool, seconds=1)
    both = ids(plain, parked)
    done(remote.apply(Hold(both, np.full(2, -np.inf))))
    assert [pool.job(each)["JobStatus"] for each in (plain, parked)] == [5, 1]
    done(remote.apply(reserve(), Release(both)))
    pool.wait_job(plain)
    pool.wait_job(parked)
    assert pool.job(parked)["RtAdmission"] == "unjudged"


def test_users_and_jobs_are_ordered(pool: Pool, remote: Remote) -> None:
    """The negotiator's factors and JobPrio follow the values, and are set but once."""
    done(remote.apply(reserve((FIRST_OWN_ID, 0.0, list(range(6))))))
    clusters = [pool.submit(user=user) for user in ("alice", "alice", "bob")]
    action = SetPriority(ids(*clusters), np.array([0.1, 0.6, 0.1]))
    done(remote.apply(action))
    assert [pool.job(each)["JobPrio"] for each in clusters] == [100, 600, 0]
    reply = pool.run(["condor_userprio", "-allusers", "-af", "Name", "PriorityFactor"]).stdout
    factors = dict(line.split() for line in reply.splitlines() if "@testbed" in line)
    assert float(factors["alice@testbed"]) == 1.0
    assert abs(float(factors["bob@testbed"]) - 1000.0) < 1.0
    remote.poll()
    assert not remote.changes(action)


def test_users_own_priorities_outlive_a_killed_process(pool: Pool, remote: Remote) -> None:
    """Whoever follows knows which JobPrio is the user's, and gives that back."""
    done(remote.apply(reserve((FIRST_OWN_ID, 0.0, list(range(6))))))
    first, second = (pool.submit([f"priority = {prio}"]) for prio in (7, -7))
    with Remote(pool, SETTINGS) as killed:
        done(killed.apply(SetPriority(ids(first, second), np.array([0.1, 0.6]))))
        killed.kill()
    both = (first, second)
    assert [pool.job(job)["JobPrio"] for job in both] == [100, 600]
    done(remote.apply(SetPriority(ids(*both), np.array([0.4, 0.4]))))
    assert [pool.job(job)["JobPrio"] for job in both] == [7, -7]
    done(remote.apply(SetPriority(ids(*both), np.array([0.4, 0.4]))))
    assert [pool.job(job).get("RtJobPrio") for job in both] == [None, None]


def test_jobs_make_way(pool: Pool, remote: Remote) -> None:
    """A running job is vacated; one without a checkpoint is not moved."""
    cluster = pool.submit(["arguments = 300", "+RtRunTime = 300"])
    where(pool, cluster)
    (kept,) = remote.apply(Move(ids(cluster), Schedule.empty()))
    assert kept.outcome == "unsupported"
    done(remote.apply(reserve((FIRST_OWN_ID, 0.0, list(range(6)))), Requeue(ids(cluster))))
    pool.wait_job(cluster, 0, "Idle")
    assert pool.job(cluster)["NumJobStarts"] == 1


def test_jobs_that_outlive_their_run_time(pool: Pool) -> None:
    """Where HTCondor's own policy has not ended one yet, the adapter does."""
    settings = CondorSettings(start_delay_s=3.0, overrun_s=0.0, completing_s=0.0, overruns="remove")
    at_once = "job_max_vacate_time = 0"  # else it has ten seconds more to leave its slot
    cluster = pool.submit(["arguments = 300", "+RtRunTime = 3", at_once])
    where(pool, cluster)
    time.sleep(4.0)
    with Remote(pool, settings) as system:
        done(system.apply(reserve()))
        ad = pool.wait_job(cluster, 0, "Removed")
    assert "rtsched: run time of 3 s is over" in ad["RemoveReason"]


def test_slots_are_ranked(pool: Pool, remote: Remote) -> None:
    """By the wish of a job first, then by delay: by speed, until a plug-in says otherwise."""
    jobs = [pool.submit(["arguments = 30", "+RtRunTime = 30", *UNREADY]) for _ in range(3)]
    sets = tuple(np.array(rows, np.int32) for rows in ([3, 0, 1], [0, 1, 2]))
    placement = Placement(np.zeros(2, np.int32), np.array([0, 1], np.int32), sets)
    done(remote.apply(Place(ids(*jobs[:2]), placement)))
    assert pool.job(jobs[0])["RtRankSet"] == SLOTS[3]
    weight = SetNodeWeight(np.empty(0, np.int64), np.array([3.0, 3.0, 3.0, 3.0, 3.0, 1.0]))
    done(remote.apply(weight))
    time.sleep(1.5)  # the library looks at the table once a second
    pool.run(["condor_qedit", "-constraint", "true", "Ready", "true"], user="alice")
    assert [where(pool, job) for job in jobs] == [SLOTS[row] for row in (3, 0, 5)]


def test_who_is_nobody_changes_nothing(pool: Pool) -> None:
    """A user who is no queue super user is refused, and one refusal stops no other change."""
    cluster = promised(pool)
    settings = CondorSettings(table="/run/rtsched/none/slots")
    with Remote(pool, settings, user="bob") as nobody:
        plan = reserve((job_id(cluster, 0), 0.0, [1]))
        nobody.poll()
        changes = nobody.changes(plan, Cancel(ids(cluster), ("no",)), Release(ids(cluster)))
        dones = nobody.carry_out([*changes, *nobody.changes(SetPriority(ids(cluster), np.ones(1)))])
    outcomes = {(one.change.kind, one.outcome) for one in dones}
    assert ("reserve", "failed") in outcomes
    assert "cannot be written" in next(one.text for one in dones if one.outcome == "failed")
    refused = {"cancel", "release", "set-priority", "tell"}
    assert {kind for kind, outcome in outcomes if outcome == "refused"} >= refused
    ad = pool.job(cluster)
    assert (ad["JobStatus"], ad["RtAdmission"]) == (1, "parked")
    pool.run(["condor_rm", str(cluster)])


def test_a_schedd_that_is_gone_fails_every_change(pool: Pool, remote: Remote) -> None:
    """Each says so, at once; the table is written all the same."""
    clusters = [promised(pool) for _ in range(3)]
    plan = reserve(*((job_id(each, 0), 0.0, [at]) for at, each in enumerate(clusters)))
    remote.poll()
    changes = remote.changes(plan, admit(*clusters))
    schedd = pool.daemon("schedd")
    schedd.stop()
    try:
        began = time.monotonic()
        dones = remote.carry_out(changes)
        assert time.monotonic() - began < 30.0
    finally:
        schedd.start()
        with suppress(AdapterError):  # the session with the one before
            remote.poll()
    went_well = [one.change.text.split()[0] for one in dones if one.outcome != "failed"]
    assert went_well in (["write"], ["write", "request"])  # nobody answers the last one anyway


def test_partitionable_slots_keep_some_of_their_cpus(testbed: None) -> None:
    """Long best-effort jobs take what is left beside planned starts, which find their CPUs free."""
    options = PoolOptions(partitionable=(4, 2), config=fragments(), library=True)
    with Pool("forky", options, files=PARKING) as pool, Remote(pool, SETTINGS) as remote:
        done(remote.apply(reserve((FIRST_OWN_ID, 60.0, [2]), (FIRST_OWN_ID + 1, 50.0, [1]))))
        flood = pool.submit(["arguments = 300", "+RtRunTime = 300", "queue 8"])
        for proc in range(6):
            pool.wait_job(flood, proc, "Running")
        one = promised(pool, seconds=300)
        free = sorted(set(range(4)) - set(remote.poll().allocations.nodes.tolist()))
        assert len(free) == 2
        later = (FIRST_OWN_ID + 1, 70.0, free[1:])
        start(remote, reserve((job_id(one, 0), 0.0, free[:1]), later), admit(one))
        assert where(pool, one).startswith("slot1_")
        done(remote.apply(reserve(later)))
        time.sleep(8)  # a negotiation, and more
        hosts = [pool.job(flood, proc).get("RemoteHost") or "" for proc in range(8)]
        assert sum(host.startswith("slot1_") for host in hosts) == 2
        assert hosts.count("") == 2


def test_the_older_release(testbed: None) -> None:
    """HTCondor 23.9 does the same: a job is bound, another waits for it, factors are set."""
    options = PoolOptions(fast=1, slow=1, config=fragments(), library=True)
    with Pool("trixie", options, files=PARKING) as pool, Remote(pool, SETTINGS) as remote:
        one, other = promised(pool, seconds=300), promised(pool, seconds=300)
        plan = reserve((job_id(one, 0), 0.0, [1]), (FIRST_OWN_ID, 30.0, [0]))
        values = SetPriority(ids(one, other), np.array([0.5, 0.1]))
        start(remote, plan, admit(one), Release(ids(other)), values)
        assert where(pool, one) == SLOTS[1]
        kept = reserve((FIRST_OWN_ID, 30.0, [0]))
        done(remote.apply(kept, Cancel(ids(one), ("no more",))))
        assert pool.wait_job(one, 0, "Removed")["RemoveReason"].startswith("no more")

        def goes_on() -> bool:  # a slot of which a job was removed at once is kept for a while
            done(remote.apply(kept))
            return bool(pool.job(other)["JobStatus"] == STATES["Running"])

        wait_for("the other job runs", goes_on, 60)
        assert where(pool, other) == SLOTS[1]
