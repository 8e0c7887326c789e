"""Clusters with one promise: their procs are one job of a poll, and start in rounds."""

from typing import Any

import numpy as np
import pytest
from test_condor_observation import (
    DELAY,
    MARGIN,
    NOW,
    TAIL,
    Polls,
    ad,
    big,
    claimed,
    rows_of,
    runs,
    slot,
)

from rtsched.adapters.condor import system as observers
from rtsched.adapters.condor.commands import LastApplied
from rtsched.adapters.condor.completions import completions_of
from rtsched.adapters.condor.facts import CondorFacts, parts_of
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.pool_state import COMPLETED, HELD, REMOVED, PoolState
from rtsched.adapters.condor.settings import CondorSettings
from rtsched.adapters.condor.steering import CondorSteering
from rtsched.adapters.condor.submission import CondorTranslator
from rtsched.adapters.live import CompletionStatus, FeasibilityRequest, SubmitReply
from rtsched.adapters.wire import Tag
from rtsched.errors import AdapterError
from rtsched.logs.classads import Record
from rtsched.model.actions import Admit, Reserve
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule

GB = 1 << 30
A = job_id(7, 0)
PROMISED = {"rtadmission": "judged", "rttoken": "t1", "rtperslot": 1, "rtdeadline": NOW + 9000}
LIMIT = 600 + MARGIN


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no time pass but by what a test writes here."""
    now = [NOW]
    monkeypatch.setattr(observers.time, "time", lambda: now[0])
    return now


def procs(*which: Record, **said: Any) -> list[Record]:
    """Return the procs of an array."""
    return [{"totalsubmitprocs": len(which), **one, **PROMISED, **said} for one in which]


def statics(count: int) -> list[Record]:
    """Return slots that nobody has."""
    return [slot(f"slot{number}@a") for number in range(1, count + 1)]


def edits(view: PoolState, plan: Schedule | None = None, now: float = NOW) -> list[tuple[Any, ...]]:
    """Return what a plan has set on jobs: attribute, procs, value."""
    memory = LastApplied()
    names = [name or "" for name in view.observation.cluster.nodes.texts("name")]
    memory.closed = dict.fromkeys(names, NOW - 100)
    steering = CondorSteering(view, CondorSettings(), memory, now)
    action = Reserve(np.empty(0, np.int64), plan or Schedule.empty())
    return [
        (step.attribute, tuple(job - A for job in step.jobs), step.value)
        for change in steering.changes(action)
        for step in change.command or ()
        if hasattr(step, "attribute") and "Prio" not in step.attribute
    ]


def plan_of(*rows: int) -> Schedule:
    """Return a plan of the array on these rows, from now on."""
    return Schedule.build(
        np.array([A]),
        np.array([NOW]),
        np.array([NOW + 3 * LIMIT]),
        np.array([0, len(rows)]),
        np.array(rows, np.int32),
    )


def test_a_cluster_waits_as_one_job() -> None:
    """Its width follows from its procs and the slots; a held proc is none that nobody may start."""
    held = ad(7, 3, jobstatus=HELD, enteredcurrentstatus=int(NOW))
    view = Polls(*statics(3))(*procs(*(ad(7, at) for at in range(3)), held, ad(7, 4)), ad(8))
    queued = view.observation.queued
    assert queued.labels() == ["7.0", "8.0"]
    assert queued.kind.tolist() == [Kind.ARRAY, Kind.RIGID]
    assert (queued.tasks[0], queued.tasks_per_node[0]) == (5, 1)
    assert (queued.size_min[0], queued.size_max[0]) == (1, 3)
    assert queued.wall_time[0] == LIMIT
    marks = view.observation.marks
    assert (marks.held.tolist(), marks.texts("token")) == ([False, False], ["t1", None])
    view = Polls(*statics(3))(*procs(*(ad(7, at, jobstatus=HELD) for at in range(2))))
    assert view.observation.marks.held.tolist() == [True]


def test_who_is_promised_nothing_is_a_job_by_itself() -> None:
    """Procs that were let go, and such that a library without arrays has judged."""
    free = procs(ad(7, 0), ad(7, 1), rtadmission="unjudged")
    old = [{**one, "rtperslot": None, "clusterid": 8} for one in procs(ad(7, 0), ad(7, 1))]
    labels = Polls(*statics(3))(*free, *old).observation.queued.labels()
    assert labels == ["7.0", "7.1", "8.0", "8.1"]


def test_it_runs_until_its_last_proc_has_ended(clock: list[float]) -> None:
    """Its slots are its own while procs wait: 7 procs on 2 slots take 4 rounds."""
    poll = Polls(claimed("slot1@a"), *statics(3)[1:])
    given = {"rtslots": "slot1@a,slot2@a", "rtplannedstart": int(NOW) - 100}
    waiting = [ad(7, at, rtnodeset="slot1@a,slot2@a") for at in range(1, 7)]
    view = poll(*procs(runs(7, 0), *waiting, **given))
    assert len(view.observation.queued) == 0
    assert rows_of(view, 7) == ["slot1@a", "slot2@a"]
    assert view.bound == {A}
    assert view.observation.running.tasks.tolist() == [6]
    entries = view.observation.allocations.entries
    assert entries.start[0] == NOW - 100
    # slot1: 600 s from NOW - 100 and the tail, then 3 rounds; slot2: 3 rounds from now on
    assert entries.end[0] == NOW - 100 + 600 + TAIL + 3 * LIMIT
    clock[0] = NOW + 2 * LIMIT
    view = poll(*procs(runs(7, 6, jobcurrentstartdate=int(clock[0]) - 10), **given))
    assert rows_of(view, 7) == ["slot1@a"], "no proc waits, so the other slot is given back"
    assert view.bound == frozenset()
    assert view.observation.allocations.entries.start[0] == NOW - 100
    assert view.observation.allocations.entries.end[0] == clock[0] - 10 + 600 + TAIL


def test_between_two_rounds_it_still_runs(clock: list[float]) -> None:
    """For as long as a start may take; then it waits, and is planned anew."""
    poll = Polls(*statics(2))
    given = {"rtslots": "slot1@a", "rtnodeset": "slot1@a", "rtplannedstart": int(NOW) - 5000}
    poll(*procs(runs(7, 0), ad(7, 1), **given))
    clock[0] = NOW + DELAY - 1
    view = poll(*procs(ad(7, 1), **given))
    assert view.observation.running.labels() == ["7.0"]
    assert rows_of(view, 7) == ["slot1@a"]
    clock[0] = NOW + DELAY + 1
    view = poll(*procs(ad(7, 1), **given))
    assert view.observation.queued.labels() == ["7.0"]
    assert not len(view.observation.running)


def test_its_end_stands_while_a_start_takes_its_time(clock: list[float]) -> None:
    """Each round has time for that."""
    poll = Polls(*statics(2))
    given = {"rtslots": "slot1@a", "rtnodeset": "slot1@a", "rtplannedstart": int(NOW)}
    waiting = procs(*(ad(7, at) for at in range(3)), **given)
    for late in (0.0, DELAY - 1.0):
        clock[0] = NOW + late
        ends = poll(*waiting).observation.allocations.entries.end.tolist()
        assert ends == [NOW + 3 * LIMIT]


def test_on_slots_of_its_own_all_procs_may_start() -> None:
    """One edit gives all of them the slots; a proc that is held has none."""
    waiting = procs(*(ad(7, at) for at in range(4)))
    waiting[2] |= {"jobstatus": HELD}
    assert edits(Polls(*statics(3))(*waiting), plan_of(0, 1)) == [
        ("RtSlots", (0, 1, 3), '"slot1@a,slot2@a"'),
        ("RtNodeSet", (0, 1, 3), '"slot1@a,slot2@a"'),
        ("RtPromise", (0, 1, 3), f"{NOW + 9000:.0f}"),
        ("RtPlannedStart", (0, 1, 3), f"{NOW:.0f}"),
    ]


def test_a_proc_that_asks_for_more_than_was_promised_does_not_start() -> None:
    """Its owner may change what it requests: it would take what others need."""
    waiting = procs(*(ad(7, at) for at in range(3)))
    waiting[1] |= {"requestcpus": 2, "rtnodeset": "slot1@a"}
    found = edits(Polls(big(), unit_cpus=1)(*waiting), plan_of(0, 1))
    assert ("RtNodeSet", (1,), "undefined") in found
    assert ("RtNodeSet", (0, 2), '"slot1@a"') in found


def test_of_a_slot_that_others_share_it_takes_its_part() -> None:
    """It has two of four CPUs: so many procs may start, and the next when one has ended."""
    poll = Polls(big(), unit_cpus=1)
    waiting = [ad(7, at) for at in range(4)]
    steps = edits(poll(*procs(*waiting)), plan_of(0, 1))
    found = {name: (which, value) for name, which, value in steps}
    assert found["RtSlots"] == ((0, 1, 2, 3), '"slot1@a,slot1@a"')
    assert found["RtNodeSet"] == ((0, 1), '"slot1@a"')
    given = {"rtslots": "slot1@a,slot1@a", "rtplannedstart": int(NOW)}
    for one in waiting[:2]:
        one["rtnodeset"] = "slot1@a"
    view = poll(*procs(*waiting, **given))
    assert rows_of(view, 7) == ["slot1@a#0", "slot1@a#1"]
    assert edits(view) == []
    poll.pool.shown_slots = [big(), claimed("slot1_1@a")]
    view = poll(*procs(runs(7, 0, on="slot1_1@a"), *waiting[2:], **given))
    assert len(rows_of(view, 7)) == 2
    assert edits(view) == [("RtNodeSet", (2,), '"slot1@a"'), ("RtPlannedStart", (2,), f"{NOW:.0f}")]


def test_where_jobs_share_slots() -> None:
    """Two procs at a time on each machine: what both take is planned, kept, and given back."""
    machine = big(cpus=4)
    poll = Polls(machine, share_nodes=True)
    said = {"rtperslot": 2, "requestmemory": 256}
    view = poll(*procs(*(ad(7, at) for at in range(5)), **said))
    queued = view.observation.queued
    assert queued.demand.tolist() == [[2, 512 << 20, 0, 0, 2]]
    assert (queued.tasks[0], queued.tasks_per_node[0], queued.size_max[0]) == (5, 2, 1)
    given = said | {"rtslots": "slot1@a", "rtplannedstart": int(NOW)}
    poll.pool.shown_slots = [machine, claimed("slot1_1@a", memory=256)]
    rest = [ad(7, 1, rtnodeset="slot1@a"), *(ad(7, at) for at in range(2, 5))]
    view = poll(*procs(runs(7, 0, on="slot1_1@a"), *rest, **given))
    assert view.observation.running.demand.tolist() == [[2, 512 << 20, 0, 0, 2]]
    assert edits(view) == []


def test_procs_that_nobody_judged_are_an_array_if_they_are_alike() -> None:
    """Its deadline is the first one's, and all carry from then on that they are one."""
    said = {"rtadmission": "parked", "rttoken": "parked", "rtperslot": None}
    waiting = procs(*(ad(7, at, requestmemory=16) for at in range(3)), **said)
    waiting[2]["rtdeadline"] += 1
    poll = Polls(*statics(2))
    view = poll(*waiting)
    assert view.observation.queued.kind.tolist() == [Kind.ARRAY]
    assert view.observation.marks.deferred.tolist() == [True]
    steering = CondorSteering(view, CondorSettings(), LastApplied(), NOW)
    (admitted,) = steering.changes(Admit(np.array([A]), np.array([NOW])))
    assert [(step.attribute, len(step.jobs), step.value) for step in admitted.command] == [
        ("RtPerSlot", 3, "1"),
        ("RtDeadline", 1, f"{NOW + 9000}"),
        ("RtAdmission", 3, '"judged"'),
    ]
    waiting[1]["requestmemory"] = 32
    assert len(poll(*waiting).observation.queued) == 3
    assert len(Polls(*statics(2), arrays=False)(*procs(ad(7, 0), ad(7, 1), **said)).ads) == 2


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        (({}, {"exitcode": 1}), CompletionStatus.COMPLETED),
        (({}, {"jobstatus": REMOVED}), CompletionStatus.COMPLETED),
        (({"jobstatus": REMOVED}, {"jobstatus": REMOVED}), CompletionStatus.FAILED),
    ],
)
def test_how_it_ended(ends, status: CompletionStatus) -> None:
    """What was promised is that its procs run in time, whatever comes of them."""
    plain = {"jobstatus": COMPLETED, "exitcode": 0, "jobstartdate": NOW, "completiondate": 0}
    ads = [
        {**one, **plain, **said, "enteredcurrentstatus": NOW + at}
        for at, (one, said) in enumerate(zip(procs(ad(7, 0), ad(7, 1)), ends, strict=True))
    ]
    found = completions_of(ads)
    assert (found.job.tolist(), found.status.tolist()) == ([A], [status])
    assert found.end.tolist() == [NOW + 1]
    assert found.texts("token") == ["t1"]


FACTS = CondorFacts(
    margin=30.0,
    parts=parts_of([""] * 3, np.array([4, 4, 8]), np.array([4 * GB, 4 * GB, 8 * GB]))[0],
    domain="pool",
)


def described(facts: CondorFacts = FACTS, **said: object):
    """Return what the submission of a proc of ten means, with all that the library says."""
    plain: dict[str, object] = {"ClusterId": 7, "ProcId": 0, "JobUniverse": 5, "Owner": '"root"'}
    plain |= {"TotalSubmitProcs": 10, "RtRunTime": 60, "RtDeadline": NOW + 9000, "RequestCpus": 1}
    lines = {**plain, "RequestMemory": 1024, "WholeCluster": "true", **said}
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return CondorTranslator().describe({Tag.AD: text}, facts, NOW)


def test_a_submission_of_a_cluster() -> None:
    """The first proc is the array; the answer tells how many run on a slot at a time."""
    found = described()
    assert (found.job, found.jobs.kind[0], found.jobs.tasks[0]) == (A, Kind.ARRAY, 10)
    assert (found.jobs.size_min[0], found.jobs.size_max[0]) == (1, 3)
    answer = CondorTranslator().answer(found, SubmitReply(False, "", False, "t1"), FACTS)
    assert answer[Tag.NTASKS_PER_NODE] == 1
    assert Tag.NTASKS_PER_NODE not in CondorTranslator().answer(found, SubmitReply(False), FACTS)


@pytest.mark.parametrize(
    "said",
    [
        {"ProcId": 1},
        {"TotalSubmitProcs": 1},
        {"WholeCluster": "undefined"},
        {"RtDeadline": "undefined"},
    ],
)
def test_a_proc_by_itself(said: dict[str, object]) -> None:
    """A later proc, the only one, one of a library that knows no arrays, or without a deadline."""
    found = described(**said)
    assert found.jobs.kind[0] == Kind.RIGID
    assert not found.problem


def test_a_site_may_do_without() -> None:
    """The planner `spare` gives arrays no promise."""
    facts = CondorFacts(margin=30.0, parts=FACTS.parts, arrays=False)
    assert described(facts).jobs.kind[0] == Kind.RIGID


def test_late_materialization_gets_no_promise() -> None:
    """The user reads what to leave out."""
    for name in ("JobFactoryId", "JobMaterializeDigestFile"):
        assert "max_materialize" in described(**{name: 1}).problem


@pytest.mark.parametrize(
    ("count", "cpus", "each", "most"),
    [
        (3, 1, 1, 3),  # one on each machine
        (6, 1, 2, 3),  # all at once
        (1000, 1, 4, 3),  # 4 on three machines are 12 at a time, 8 on one are 8
        (1000, 3, 1, 3),
    ],
)
def test_how_many_run_on_a_slot_that_jobs_share(
    count: int, cpus: int, each: int, most: int
) -> None:
    """As few on each as have most of them run at once."""
    facts = CondorFacts(margin=30.0, parts=FACTS.parts, shared=True)
    row = described(facts, TotalSubmitProcs=count, RequestCpus=cpus, RequestMemory=128).jobs
    assert (row.tasks_per_node[0], row.size_max[0]) == (each, most)
    assert row.demand[0].tolist() == [cpus * each, (128 << 20) * each, 0, 0, each]


def test_a_question_about_an_array() -> None:
    """`rtsched feasible --array` names its procs."""
    translator = CondorTranslator()
    fields = translator.fields_of(FeasibilityRequest(0, NOW + 900.0, time_s=60.0, array="1-50"))
    assert translator.describe(fields, FACTS, NOW).jobs.tasks[0] == 50
    for array in ("1-50%8", "5", "9-1"):
        with pytest.raises(AdapterError, match="range of procs"):
            translator.fields_of(FeasibilityRequest(0, NOW, array=array))
