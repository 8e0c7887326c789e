"""From a queue and slots to jobs, allocations and marks; polls that follow one another."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from condor_views import NOW, Shown

from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.ids import PROC_BITS, job_id
from rtsched.adapters.condor.pool import Pool
from rtsched.adapters.condor.pool_state import (
    COMPLETED,
    HELD,
    IDLE,
    REMOVED,
    RUNNING,
    SUSPENDED,
    PoolState,
)
from rtsched.adapters.condor.schedd import Bindings, literal
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.system import KEPT_BY_SCRIPT_S, KEPT_S, Observer
from rtsched.adapters.files import replace_file
from rtsched.errors import AdapterError
from rtsched.kernels.dlt import exec_time
from rtsched.kernels.loads import Load
from rtsched.logs.classads import Record
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Jobs, Kind

DELAY, TAIL = 2 * 60 + 10, 30 + 10
"""Two negotiation intervals and 10 s; overrun and completing."""
MARGIN = DELAY + TAIL
LOAD = {"rtsigma": 100.0, "rtcms": 1.0, "rtcps": 10.0, "rtdeadline": NOW + 9000}


def slot(name: str, **said: Any) -> Record:
    """Return the ad of a static slot that nobody has."""
    plain = {"name": name, "machine": name.partition("@")[2], "cpus": 1, "memory": 512}
    return {**plain, "state": "Unclaimed", "activity": "Idle", **said}


def claimed(name: str, schedd: str = "here", **said: Any) -> Record:
    """Return the ad of a slot that a job has; a dynamic one by its name."""
    return slot(name, state="Claimed", remotescheddname=schedd, dynamicslot="_" in name, **said)


def big(name: str = "slot1@a", cpus: int = 4) -> Record:
    """Return the ad of a partitionable slot with 512 MB per CPU."""
    size = {"totalslotcpus": cpus, "totalslotmemory": 512 * cpus}
    return slot(name, partitionableslot=True, **size)


def ad(cluster: int, proc: int = 0, **said: Any) -> Record:
    """Return the ad of a vanilla job that waits."""
    plain: Record = {"clusterid": cluster, "procid": proc, "jobstatus": IDLE, "jobuniverse": 5}
    plain |= {"owner": "root", "user": "root@pool", "qdate": int(NOW) - 1000 + cluster}
    return plain | {"requestcpus": 1, "rtruntime": 600} | said


def runs(cluster: int, proc: int = 0, on: str = "slot1@a", **said: Any) -> Record:
    """Return the ad of a job that has been running for 100 s."""
    since = {"jobstatus": RUNNING, "jobcurrentstartdate": int(NOW) - 100, "remotehost": on}
    return ad(cluster, proc, **(since | said))


class Polls:
    """Polls a pool that shows what it is given, one after the other."""

    def __init__(self, *slots: Record, **settings: Any) -> None:
        self.pool = Shown(slots)
        self._observer = Observer(CondorSettings(**settings), self.pool)

    def __call__(self, *jobs: Record) -> PoolState:
        """Return the next poll, with these jobs in the queue."""
        self.pool.shown_jobs = list(jobs)
        return self._observer.poll()


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass."""
    monkeypatch.setattr(observers.time, "time", lambda: NOW)


def only(jobs: Jobs) -> dict[str, Any]:
    """Return the one job."""
    assert len(jobs) == 1
    return {name: jobs.column(name)[0] for name in jobs.columns()}


def rows_of(view: PoolState, cluster: int, proc: int = 0) -> list[str]:
    """Return the names of the rows that a running job has."""
    held = view.observation.allocations
    at = held.entries.job.tolist().index(job_id(cluster, proc))
    names = view.observation.cluster.nodes.names("name")
    return [names[row] for row in held.nodes_of(at).tolist()]


@pytest.mark.parametrize(("native", "seconds"), [("True", KEPT_S), ("", KEPT_BY_SCRIPT_S)])
def test_after_how_long_slots_are_kept(native: str, seconds: float) -> None:
    """By who reads the table; HTCondor's bindings show what is false, or not set, as nothing."""
    polls = Polls(slot("slot1@a"))
    polls.pool.words["RTSCHED_NATIVE"] = native
    assert polls().observation.keeps_after == seconds


def test_waiting_jobs_are_in_order_of_their_submission() -> None:
    """Wall times contain the margin; who states no run time has no end."""
    first = ad(9, qdate=int(NOW) - 2000, acctgroup="hep", accountinggroup="hep.root")
    view = Polls(slot("slot1@a"))(ad(3, 1), ad(3, 0), first, ad(4, rtruntime="long"))
    queued = view.observation.queued
    assert queued.labels() == ["9.0", "3.0", "3.1", "4.0"]
    assert queued.wall_time.tolist() == [600.0 + MARGIN] * 3 + [math.inf]
    assert queued.names("user") == ("root",)
    assert queued.texts("account")[:2] == ["hep", None]
    names = view.observation.accounts.texts("name")
    assert [names[row] for row in queued.association.tolist()] == ["hep.root@pool"] + [
        "root@pool"
    ] * 3
    assert len(view.observation.running) == len(view.observation.allocations) == 0


def test_a_wish_has_its_shape() -> None:
    """A deadline, a class, a load, a moldable job; one that makes no sense is a plain job."""
    wish = {"rtdeadline": NOW + 5000}
    view = Polls(slot("slot1@a", rtclass="fast"), slot("slot2@a"))(
        ad(1, rtclass="fast", **wish),
        ad(2, jobuniverse=11, minhosts=1, maxhosts=2, **wish),
        *(ad(3, proc, totalsubmitprocs=2, **LOAD) for proc in range(2)),
        ad(4, rtspeedup="fast", **wish),
    )
    queued = view.observation.queued
    assert queued.labels() == ["1.0", "2.0", "3.0", "4.0"]
    assert queued.kind.tolist() == [Kind.RIGID, Kind.MOLDABLE, Kind.DIVISIBLE, Kind.RIGID]
    assert queued.size_max.tolist() == [-1, 2, 2, -1]
    assert queued.deadline.tolist() == [NOW + 5000, NOW + 5000, NOW + 9000, math.inf]
    assert queued.sigma.tolist()[2] == 100.0
    mask = view.observation.cluster.partitions[str(queued.texts("partition")[0])]
    assert mask.tolist() == [True, False]


def test_a_running_job_has_its_slot_until_its_end_and_the_overrun() -> None:
    """One that outlives that ends soon, as does one that cleans up; without a run time: never."""
    names = [f"slot{number}@a" for number in range(1, 7)]
    view = Polls(*(claimed(name) for name in names))(
        runs(1),
        runs(2, on=names[1], rtruntime=5, jobcurrentstartdate=int(NOW) - 5000),
        runs(3, on=names[2], jobstatus=REMOVED),
        runs(4, on=names[3], rtruntime="long"),
        runs(5, on=names[4], jobstatus=SUSPENDED),
        {name: value for name, value in runs(6, on=names[5]).items() if "startdate" not in name},
    )
    held = view.observation.allocations
    assert (held.entries.end - NOW).tolist() == [
        500 + TAIL,
        TAIL,
        TAIL,
        math.inf,
        500 + TAIL,
        600 + TAIL,
    ]
    assert [rows_of(view, cluster) for cluster in range(1, 7)] == [[name] for name in names]
    assert view.observation.running.size.tolist() == [1] * 6
    assert view.observation.cluster.usable.all()


def test_dynamic_slots_have_rows_of_their_parent() -> None:
    """The same ones as long as they live; as many as they have CPUs."""
    poll = Polls(big(), claimed("slot1_1@a", cpus=2), claimed("slot1_2@a"))
    pair = runs(1, on="slot1_1@a", requestcpus=2)
    view = poll(pair, runs(2, on="slot1_2@a"))
    assert rows_of(view, 1) == ["slot1@a#2", "slot1@a#3"]
    assert rows_of(view, 2) == ["slot1@a#1"]
    assert view.observation.running.cores.tolist() == [2, 1]
    poll.pool.shown_slots = [big(), claimed("slot1_2@a"), claimed("slot1_3@a")]
    view = poll(runs(2, on="slot1_2@a"), runs(3, on="slot1_3@a"))
    assert [rows_of(view, cluster) for cluster in (2, 3)] == [["slot1@a#1"], ["slot1@a#3"]]


def test_a_promised_job_sits_in_front() -> None:
    """There planners look for rows first, so that a plan seldom finds its rows taken."""
    poll = Polls(big(), claimed("slot1_1@a"), claimed("slot1_2@a"))
    view = poll(runs(1, on="slot1_1@a"), runs(2, on="slot1_2@a", rtadmission="t1"))
    assert [rows_of(view, cluster) for cluster in (1, 2)] == [["slot1@a#3"], ["slot1@a#0"]]


def test_slots_of_others_are_drained() -> None:
    """Another schedd's claims take rows; a job of ours that just ended takes none."""
    poll = Polls(
        big(),
        claimed("slot1_1@a", "there", cpus=2),
        claimed("slot2@a", "there"),
        claimed("slot3@a"),
        slot("slot4@a"),
    )
    view = poll()
    nodes = view.observation.cluster.nodes
    drained = [
        name
        for name, state in zip(nodes.texts("name"), nodes.state.tolist(), strict=True)
        if state == NodeState.DRAINED
    ]
    assert drained == ["slot1@a#2", "slot1@a#3", "slot2@a"]
    again = poll()
    assert again.observation.cluster is view.observation.cluster
    poll.pool.shown_slots = poll.pool.shown_slots[:2]
    after = poll().observation.cluster
    assert after.version == view.observation.cluster.version + 1
    assert after.nodes.state.tolist()[-3:] == [NodeState.DOWN] * 3


def test_a_parallel_job_has_all_its_slots() -> None:
    """Its first proc tells them all; it is one job."""
    hosts = "slot1@a,slot2@b"
    view = Polls(claimed("slot1@a"), claimed("slot2@b"))(
        runs(1, jobuniverse=11, minhosts=2, maxhosts=2, allremotehosts=hosts)
    )
    assert rows_of(view, 1) == ["slot1@a", "slot2@b"]
    job = only(view.observation.running)
    assert (job["size"], job["cores"]) == (2, 2)


def chunks(*procs: Record, **said: Any) -> list[Record]:
    """Return the procs of a load of four."""
    return [proc | {"totalsubmitprocs": 4, **LOAD, **said} for proc in procs]


def test_a_load_runs_as_long_as_one_of_its_chunks_does() -> None:
    """Chunks that are about to start have the slots that they are bound to."""
    poll = Polls(*(claimed(f"slot{number}@a") for number in range(1, 5)))
    waiting = ad(1, 1, rtnodeset="slot2@a", rtadmission="t1")
    view = poll(*chunks(runs(1, 0), waiting, ad(1, 2), ad(1, 3)))
    assert len(view.observation.queued) == 0
    assert rows_of(view, 1) == ["slot1@a", "slot2@a"]
    job = only(view.observation.running)
    assert (job["size"], job["cores"], job["deadline"]) == (2, 2, NOW + 9000)


def test_a_load_takes_as_long_as_its_chunks_need() -> None:
    """With more of them it ends earlier; what has ended counts as one that ran."""
    poll = Polls(*(claimed(f"slot{number}@a") for number in range(1, 5)))
    two = chunks(runs(1, 0), runs(1, 1, on="slot2@a"), rtruntime=1e6)
    length = float(exec_time(2, Load(100.0, 1.0, 10.0, 0.0, 0.0))) + TAIL
    for procs in (two, two[1:]):
        held = poll(*procs).observation.allocations
        assert held.entries.end[0] == pytest.approx(NOW - 100 + length)
    waits = chunks(ad(1, 1), rtruntime=1e6)
    assert len(poll(*waits).observation.running) == 1, "one chunk ended and the other was put back"
    assert len(Polls(slot("slot1@a"))(*waits).observation.queued) == 1, "nobody saw one run"


def test_a_chunk_that_is_over_before_anybody_looked() -> None:
    """The history tells that it ran; it is asked only when procs are gone."""
    poll = Polls(*(slot(f"slot{number}@a") for number in range(1, 5)))
    four = chunks(*(ad(1, proc) for proc in range(4)))
    assert len(poll(*four).observation.queued) == 1
    assert not any("ClusterId" in asked for asked in poll.pool.asked)
    poll.pool.shown_past = [ad(1, 3, jobstatus=REMOVED, **LOAD)]
    assert len(poll(*four[:3]).observation.queued) == 1, "it was removed before it ran"
    over = {"jobstatus": COMPLETED, "jobstartdate": int(NOW) - 2, **LOAD}
    poll.pool.shown_past.insert(0, ad(1, 0, **over))
    for _ in range(2):
        view = poll(*four[1:3])
        assert (len(view.observation.queued), len(view.observation.running)) == (0, 1)
    assert sum("ClusterId" in asked for asked in poll.pool.asked) == 2


def bound(cluster: int, proc: int = 0, since: float = 5.0, **said: Any) -> Record:
    """Return the ad of a job that was given slots some seconds ago."""
    start = {"rtplannedstart": int(NOW - since), "rtadmission": f"t{cluster}"}
    return ad(cluster, proc, rtdeadline=NOW + 9000, **start, **said)


def test_a_job_that_has_its_slots_counts_as_running() -> None:
    """Nothing may move it any more, though HTCondor has yet to start it."""
    wide = {"jobuniverse": 11, "minhosts": 2, "maxhosts": 2, "rtnodeset": "slot2@a,slot3@a"}
    view = Polls(*(slot(f"slot{number}@a") for number in range(1, 4)))(
        bound(1, rtnodeset="slot1@a"), bound(2, **wide)
    )
    assert (len(view.observation.queued), len(view.bound)) == (0, 2)
    assert rows_of(view, 1) == ["slot1@a"]
    assert rows_of(view, 2) == ["slot2@a", "slot3@a"]
    entries = view.observation.allocations.entries
    assert (entries.start - NOW).tolist() == [-5.0, -5.0]
    assert (entries.end - NOW).tolist() == [595 + MARGIN] * 2


@pytest.mark.parametrize(
    "said",
    [
        {"since": DELAY + 2.0},
        {"rtnodeset": "slot2@a"},
        {"rtadmission": "unjudged"},
        {"rtplannedstart": None},
        {"jobstatus": HELD},
    ],
)
def test_a_job_that_cannot_start_on_its_slots_waits(said: dict[str, Any]) -> None:
    """It was given them too long ago, another job has them, or it may start anywhere."""
    poll = Polls(slot("slot1@a"), claimed("slot2@a"))
    since = said.pop("since", 5.0)
    waiting = {**bound(1, since=since, rtnodeset="slot1@a"), **said}
    view = poll(waiting, runs(2, on="slot2@a"))
    assert (view.observation.queued.id.tolist(), view.bound) == ([job_id(1, 0)], frozenset())


def test_a_load_that_has_its_slots_counts_as_running() -> None:
    """All chunks together; the procs that got none belong to it."""
    poll = Polls(*(slot(f"slot{number}@a") for number in range(1, 4)))
    chunk = {"rtplannedstart": int(NOW), "rtadmission": "t1"}
    sets = ({"rtnodeset": "slot1@a"}, {"rtnodeset": "slot2@a"}, {})
    view = poll(*chunks(*(ad(1, proc, **chunk, **one) for proc, one in enumerate(sets))))
    assert (len(view.observation.queued), rows_of(view, 1)) == (0, ["slot1@a", "slot2@a"])
    length = float(exec_time(2, Load(100.0, 1.0, 10.0, 0.0, 0.0))) + MARGIN
    assert view.observation.allocations.entries.end[0] == pytest.approx(
        NOW + min(length, 600 + MARGIN)
    )


def test_suspended_jobs() -> None:
    """Nobody knows when they end."""
    poll = Polls(slot("slot1@a"), slot("slot2@a"))
    view = poll(runs(1), runs(2, on="slot2@a", jobstatus=SUSPENDED))
    assert view.observation.marks.suspended.tolist() == [False, True]


def test_marks() -> None:
    """Admissions and the words in their place, holds, and who must not be stopped."""
    poll = Polls(slot("slot1@a"), slot("slot2@a"))
    view = poll(
        ad(1, rtadmission="judged", rttoken="t1"),
        ad(2, rtadmission="parked", rttoken="parked"),
        ad(3, rtadmission="unjudged", rttoken="t3", owner="nobody-at-all"),
        ad(4, jobstatus=HELD),
        ad(5, rtcheckpoint=False, rtadmission="judged", rttoken="parked"),
        runs(6, rtcheckpoint=True),
    )
    marks = view.observation.marks
    assert marks.texts("token") == ["t1", None, None, None, None, None]
    assert marks.deferred.tolist() == [False, True, False, False, False, False]
    assert marks.held.tolist() == [False, True, False, True, False, False]
    assert marks.requeues.tolist() == [True, True, True, True, False, True]
    assert marks.uid.tolist() == [0, 0, -1, 0, 0, 0]
    assert only(view.observation.running)["checkpoints"]


def test_the_order_of_waiting_jobs_is_the_negotiators() -> None:
    """Ann has a better priority than root, who has two cores; held and running jobs have none."""
    poll = Polls(slot("slot1@a"), slot("slot2@a"))
    jobs = ad(1), ad(2, jobprio=3), ad(3, owner="ann", user="ann@pool"), ad(4, jobstatus=HELD)
    assert np.isnan(poll(*jobs, runs(5)).observation.marks.priority).all()
    poll.pool.shown_submitters = [
        {"name": "root@pool", "priority": 600.0, "weightedresourcesused": 2.0},
        {"name": "ann@pool", "priority": 500.0, "weightedresourcesused": 0.0},
    ]
    marks = poll(*jobs, runs(5)).observation.marks
    known = np.isfinite(marks.priority)
    assert known.tolist() == [True, True, True, False, False]
    assert np.argsort(-marks.priority[known]).tolist() == [2, 1, 0]


def test_edges_are_between_jobs_of_the_queue() -> None:
    """A job that is over keeps nobody waiting."""
    wish = {"rtafter": "1.0, 2.0 99.0", "rtmessagetime": 3.5, "rtdeadline": NOW + 9000}
    edges = Polls(slot("slot1@a"))(ad(1), runs(2), ad(3, **wish)).observation.edges
    assert edges.before.tolist() == [job_id(1, 0), job_id(2, 0)]
    assert edges.after.tolist() == [job_id(3, 0)] * 2
    assert edges.message_time.tolist() == [3.5, 3.5]


def test_who_is_over_and_kept_in_the_queue_has_ended() -> None:
    """Unless another chunk of it is still there."""
    over = {"jobstatus": COMPLETED, "exitcode": 0, "completiondate": int(NOW) - 5}
    view = Polls(slot("slot1@a"))(ad(1, **over), *chunks(ad(2, 0, **over), ad(2, 1)))
    assert view.observation.completions.job.tolist() == [job_id(1, 0)]
    assert view.observation.queued.labels() == ["2.0"]


def test_environments_only_of_those_that_may_be_promised_something() -> None:
    """Those of all jobs would be far more to read than all the rest."""
    poll = Polls(slot("slot1@a"))
    told = ad(1, rtdeadline=NOW + 9000, environment="A=1")
    view = poll(told, ad(2, environment="B=2", rtwhy="waits"))
    assert view.ads[0]["environment"] == "A=1"
    assert "environment" not in view.ads[1]
    assert len(poll.pool.asked) == 2
    poll(ad(2, environment="B=2"))
    assert len(poll.pool.asked) == 3


def test_facts() -> None:
    """Margins by the negotiation interval or the settings, and the site's run time."""
    facts = Polls(slot("slot1@a"))().facts
    assert (facts.margin, facts.run_time, facts.domain) == (MARGIN, math.inf, "pool")
    other = Polls(slot("slot1@a"), start_delay_s=5.0, overrun_s=1.0, completing_s=2.0, run_time_s=9)
    assert (other().facts.margin, other().facts.run_time) == (8.0, 9.0)


def test_a_pool_without_slots_is_an_error() -> None:
    """It says where to look; a collector that has just started forgets none that we know."""
    with pytest.raises(AdapterError, match="condor_status"):
        Polls()()
    poll = Polls(slot("slot1@a"))
    before = poll().observation.cluster
    for up in (20.0, math.inf, math.inf):  # at first it has not heard of itself
        poll.pool.shown_slots, poll.pool.up = [], up
        assert poll().observation.cluster is before


def test_a_job_whose_machine_was_started_anew_has_no_slot() -> None:
    """Its shadow looks for it on; the slot is free for plans, unless somebody has it."""
    late, early = {"enteredcurrentstate": NOW - 10}, {"enteredcurrentstate": NOW - 101}
    job = runs(1)
    assert rows_of(Polls(slot("slot1@a", **early))(job), 1) == ["slot1@a"]
    assert rows_of(Polls(slot("slot1@a", **late))(job), 1) == []
    assert rows_of(Polls(claimed("slot1@a", **late))(job), 1) == ["slot1@a"]
    parent, job = big() | {"daemonstarttime": NOW - 10}, runs(1, on="slot1_1@a")
    assert rows_of(Polls(parent)(job), 1) == []
    assert rows_of(Polls(parent, claimed("slot1_1@a"))(job), 1) == ["slot1@a#3"]


def test_everything_starts_anew_at_once(tmp_path: Path) -> None:
    """Promises wait until the collector must know all slots, or those that the table names."""
    table = tmp_path / "slots"
    poll = Polls(slot("slot1@a"), table=str(table))
    poll.pool.up = 20.0
    with pytest.raises(AdapterError, match="reports 1 slot so far"):
        poll(ad(1, rtadmission="t1", rtdeadline=NOW + 9000))
    replace_file(table, "rtsched-slots 1 5 900\nslot1@a\t1\t-\nslot1@b\t1\t-\n")
    with pytest.raises(AdapterError, match="knows all of them"):
        poll(ad(1, rtadmission="t1", rtdeadline=NOW + 9000))
    poll.pool.shown_slots.append(slot("slot1@b"))
    assert len(poll(ad(1, rtadmission="t1", rtdeadline=NOW + 9000)).observation.queued) == 1


def test_ten_thousand_jobs_are_read() -> None:
    """A flood of jobs, each of its own user's making."""
    poll = Polls(*(slot(f"slot{number}@a") for number in range(30)))
    jobs = [ad(number // 100, number % 100) for number in range(10_000)]
    assert len(poll(*jobs).observation.queued) == 10_000


def test_a_job_that_was_seen_waiting_is_not_being_spooled() -> None:
    """Whatever its owner writes into it."""
    forged = {"jobstatus": HELD, "holdreasoncode": 16}
    poll = Polls(slot("s1@a"))
    poll(ad(1))
    procs = poll(ad(1, **forged), ad(2, **forged)).procs
    assert procs.passing.tolist() == [False, True]


def test_problems_are_told() -> None:
    """What is left out is counted."""
    view = Polls(slot("slot1@a"), big("slot2@a"), unit_cpus=5)(ad(1, 1 << 20))
    small, great = view.observation.problems
    assert small.endswith("unit_cpus, which get no promised jobs: 1")
    assert great.endswith("too large: 1")


def test_literals() -> None:
    """Texts are quoted so that nobody breaks out, and hold no control characters."""
    assert literal('a "b" \\ c\nd') == '"a \\"b\\" \\ c d"'
    assert [literal(value) for value in (True, 5, 0.5)] == ["true", "5", "0.5"]


def mixed(count: int) -> Any:
    """Return what the bindings make of so many submitters: one record per last digit."""
    found: dict[str, Record] = {}
    for number in range(1, count + 1):
        for name, value in (("Name", f"u{number}"), ("PriorityFactor", float(number))):
            whole = f"{name}{number}"
            found.setdefault(whole[-1], {})[whole[:-1]] = value
    return found.values()


def test_more_than_ten_submitters_are_told_apart() -> None:
    """Whether the bindings mix them up, as those of 25.14 do, or not."""
    pool: Any = Pool.__new__(Pool)
    pool._bindings = Bindings(20.0)
    pool._bindings.classad = SimpleNamespace(Value=SimpleNamespace)
    plain = [{"Name": f"u{number}", "PriorityFactor": float(number)} for number in range(1, 124)]
    for said in (mixed(123), plain):
        pool._negotiator = lambda said=said: SimpleNamespace(getPriorities=lambda: said)
        found = {ad["name"]: ad["priorityfactor"] for ad in pool.submitters()}
        assert found == {f"u{number}": float(number) for number in range(1, 124)}


def test_a_load_of_which_too_little_is_left_says_so() -> None:
    """Its deadline is not shown any more, but was not taken away by its user."""
    left = ad(1, **LOAD, rtminnodes=2, totalsubmitprocs=3, rtadmission="judged")
    view = Polls(slot("slot1@a"), slot("slot2@a"))(left, ad(2))
    assert view.observation.marks.texts("problem") == ["it needs 2 procs and has 1", None]


def test_a_deferred_job_that_its_user_holds_is_judged_later() -> None:
    """What is promised to it would be void at once."""
    marks = Polls(slot("slot1@a"))(ad(1, rtadmission="parked", jobstatus=HELD)).observation.marks
    assert (marks.deferred.tolist(), marks.held.tolist()) == ([False], [True])


def test_which_jobs_run_without_the_promise_that_they_asked_for() -> None:
    """Those that have a deadline and no admission, and never had one."""
    due = {"rtdeadline": NOW + 9e3, "rtelse": "run"}
    marks = Polls(slot("slot1@a"))(
        ad(1, **due),
        ad(2, **due, rtadmission="unjudged", rttoken="unjudged"),
        ad(3, rtelse="run"),
        ad(4, **due, rtadmission="parked", rttoken="parked"),
        ad(5, **due, rtadmission="unjudged", rttoken="a1"),
        ad(6, **due, jobstatus=HELD),
        runs(7, on="slot1@a", **due),
    ).observation.marks
    assert sorted(marks.job[marks.unpromised] >> PROC_BITS) == [1, 2]
    assert marks.texts("otherwise") == ["run"] * 7


def test_nothing_is_planned_where_a_job_did_not_start() -> None:
    """Its slot is drained for a while; another row of the machine is not."""
    poll = Polls(slot("slot1@a"), slot("slot2@a"))
    late = bound(1, since=DELAY + 2.0, rtnodeset="slot1@a")
    view = poll(late)
    assert view.observation.cluster.nodes.state.tolist() == [NodeState.DRAINED, NodeState.UP]
    view = poll(runs(2, on="slot1@a"))
    assert view.observation.cluster.nodes.state.tolist() == [NodeState.UP] * 2
