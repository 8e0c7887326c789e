"""Heterogeneous jobs with one promise: one row for all components of one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_printed import alike, job_rows, printed

from rtsched.adapters.live import CompletionStatus, Observation, SubmitReply
from rtsched.adapters.slurm.completions import completions_in
from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts, backfill_interval_of
from rtsched.adapters.slurm.groups import joined_components
from rtsched.adapters.slurm.last_applied import LastApplied, SlurmState
from rtsched.adapters.slurm.layout import ClusterLayout, PartitionParts
from rtsched.adapters.slurm.observation import allocations_of, completions_of, jobs_of, marks_of
from rtsched.adapters.slurm.reserving import reserve_changes
from rtsched.adapters.slurm.rows import JobRows, parts
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule

NOW = 1_800_000_000.0
DUE = f"{NOW + 9000:.0f}"
MIB = 1 << 20
FACTS = SlurmFacts(
    margin=20.0,
    partitions={
        "all": Partition("all", 600.0, 86400.0, True, 6, 4, 1000 * MIB),
        "quick": Partition("quick", 600.0, 86400.0, True, 6, 4, 1000 * MIB),
    },
    default="all",
    backfill=30.0,
)
TRANSLATOR = SlurmTranslator()
PLAIN = {
    "hetjobid": "7",
    "partition": "all",
    "dependency": "(null)",
    "eligibletime": "N/A",
    "submittime": f"{NOW - 60:.0f}",
    "reason": "JobHeldUser",
    "prioritylong": "0",
    "admin_comment": "rtsched:parked",
    "tres-per-job": "N/A",
    "minmemory": "100M",
    "deadline": DUE,
    "comment": "(null)",
}


def component(offset: int, nodes: int, minutes: int, **more: str) -> dict[str, str]:
    """Return a component of job 7 that waits, of a processor on each node."""
    return PLAIN | {
        "jobid": str(7 + offset),
        "jobarrayid": f"7+{offset}",
        "tres": f"cpu={nodes},mem=1G,node={nodes}",
        "numcpus": str(nodes),
        "maxnodes": str(nodes),
        "timelimit": f"{minutes}:00",
        **more,
    }


def shown(*jobs: dict[str, str], facts: SlurmFacts = FACTS) -> JobRows:
    """Return the rows of what squeue prints, with those of heterogeneous jobs joined."""
    return joined_components(job_rows(printed(*jobs)), facts)


def view_of(found: JobRows, facts: SlurmFacts = FACTS) -> SlurmState:
    """Return what a poll shows on six nodes."""
    cluster = Cluster.uniform(6)
    names = tuple(f"n{k}" for k in range(6))
    parts_of = PartitionParts(cluster, alike(cluster), {}, Sharing())
    rows_by_name = {name: k for k, name in enumerate(names)}
    layout = ClusterLayout(cluster, rows_by_name, facts.partitions, "all", parts_of)
    queued, running, _ = parts(found)
    allocations = allocations_of(found, running, layout, facts, NOW)
    observation = Observation(
        NOW,
        cluster,
        jobs_of(found, queued, facts),
        jobs_of(found, running, facts, allocations.entries.size),
        allocations,
        marks_of(found, np.concatenate([queued, running]), facts),
    )
    return SlurmState(found, observation, facts, names, (), NOW)


def test_components_that_wait() -> None:
    """One job of all their nodes for the longest limit, by the earliest deadline."""
    earlier = f"{NOW + 8000:.0f}"
    found = shown(component(1, 2, 30, deadline=earlier), component(0, 1, 10), PLAIN | OTHER)
    assert found.id.tolist() == [9, 7]
    view = view_of(found)
    jobs = view.observation.queued.take([view.queued[7]])
    assert (jobs.kind[0], jobs.size[0], jobs.deadline[0]) == (Kind.RIGID, 3, NOW + 8000)
    assert jobs.wall_time[0] == 1800.0 + 20.0 + 30.0, "the backfill scheduler starts it"
    assert jobs.labels() == ["7"]
    marks = view.observation.marks.take(view.observation.marks.job == 7)
    assert (marks.deferred[0], marks.held[0], marks.last[0]) == (True, True, 8)
    assert marks.texts("unusable") == [None]


OTHER = {"jobid": "9", "jobarrayid": "9", "hetjobid": "N/A", "admin_comment": "(null)"}


def test_components_that_run() -> None:
    """It holds the nodes of those that run, until the last of them ends at the latest."""
    started = {"state": "RUNNING", "starttime": f"{NOW - 100:.0f}", "prioritylong": "5"}
    first = component(0, 1, 10, nodelist="n0", **started)
    second = component(1, 2, 30, nodelist="n[3-4]", **started)
    view = view_of(shown(first, second))
    allocations = view.observation.allocations
    assert allocations.entries.job.tolist() == [7]
    assert allocations.nodes.tolist() == [0, 3, 4]
    assert allocations.entries.end.tolist() == [NOW - 100 + 1800 + 20]
    gone = second | {"state": "CANCELLED", "endtime": f"{NOW - 5:.0f}"}
    allocations = view_of(shown(first, gone)).observation.allocations
    assert (allocations.entries.job.tolist(), allocations.nodes.tolist()) == ([7], [0])
    assert allocations.entries.end.tolist() == [NOW - 100 + 600 + 20]


def test_components_that_are_over() -> None:
    """It ended with the last of them; one that its user cancelled is no missed promise."""
    began = {"starttime": f"{NOW - 100:.0f}"}
    first = component(0, 1, 10, state="COMPLETED", nodelist="n0", endtime=f"{NOW - 5:.0f}", **began)
    second = component(1, 2, 9, state="CANCELLED", nodelist="n1", endtime=f"{NOW - 9:.0f}", **began)
    found = shown(first, second)
    ended = completions_of(found, parts(found)[2])
    assert (ended.job.tolist(), ended.end.tolist()) == ([7], [NOW - 5])
    assert ended.status.tolist() == [CompletionStatus.COMPLETED]
    lines = "7+0|COMPLETED|100|200\n7+1|COMPLETED|100|260\n8|COMPLETED|1|2"
    ended = completions_in(lines)
    assert (ended.job.tolist(), ended.end.tolist()) == ([7, 8], [260.0, 2.0])
    assert completions_in("7+0|COMPLETED|100|200\n7+1|RUNNING|100|Unknown").job.tolist() == []


def test_one_reservation_for_all() -> None:
    """They enter it by one command, and none gets the node count or the limit of all."""
    freed = {"prioritylong": "5", "reason": "Resources"}
    view = view_of(shown(component(0, 1, 10, **freed), component(1, 2, 30, **freed)))
    indptr, nodes = np.array([0, 3]), np.array([0, 1, 5], np.int32)
    plan = Schedule.build([7], [NOW + 100], [NOW + 1950], indptr, nodes)
    found = reserve_changes(plan, view, SlurmSettings(promised_first=False), LastApplied())
    created, bound = (" ".join(change.command.words[1:]) for change in found)
    assert created.startswith("create reservation ReservationName=rtsched_7")
    assert "Nodes=n[0-1,5] Users=ann" in created
    assert bound == "update JobId=7 ReservationName=rtsched_7 ExcNodeList="


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"partition": "quick"}, "whose components are in different partitions"),
        ({"account": "chemistry"}, "are charged to different accounts"),
        ({"qos": "high"}, "whose components have different QOS"),
        ({"maxnodes": "9"}, "want more or fewer nodes; give each --nodes with one number"),
        ({"reqnodes": "n1"}, "with a list of nodes; leave --nodelist out"),
        ({"numcpus": "5", "maxnodes": "1"}, "requests 5 processors per node"),
        ({"minmemory": "2000M"}, "requests 2000 MiB of memory per node"),
        ({"feature": "fast"}, "the nodes of the cluster are not known yet"),
        ({"licenses": "matlab:1"}, "job that needs licences"),
        ({"tres-per-node": "gres/gpu:1"}, "no node of partition all has gres/gpu"),
        ({"reservation": "mine"}, "a job in a reservation"),
    ],
)
def test_what_one_component_asks_for_counts_for_all(more: dict[str, str], says: str) -> None:
    """It has no deadline in the models then, and is rejected with the reason."""
    view = view_of(shown(component(0, 1, 10), component(1, 1, 30, **more)))
    assert not np.isfinite(view.observation.queued.deadline).any()
    (problem,) = view.observation.marks.texts("unusable")
    assert problem is not None
    assert says in problem


def test_conditions_of_all_components_hold_for_all_nodes() -> None:
    """Constraints are joined, excluded nodes are those of all; alike ones are said once."""
    conditions = {"feature": "fast|new", "excnodes": "n1"}
    found = shown(
        component(0, 1, 10, **conditions),
        component(1, 2, 30, feature="big", excnodes="n[1-2]"),
        component(2, 1, 30, **conditions),
    )
    assert (found.features, found.excluded) == (["(fast|new)&(big)"], ["n[1-2]"])
    assert shown(component(0, 1, 10, feature="a"), component(1, 1, 9, feature="a")).features == [
        "a"
    ]


def test_jobs_that_want_nothing_of_us() -> None:
    """Their components stay as Slurm shows them."""
    plain = {"deadline": "N/A", "admin_comment": "(null)"}
    free = (component(0, 1, 10, **plain), component(1, 2, 30, **plain))
    assert shown(*free).id.tolist() == [7, 8]


HARDWARE = (({"cpu": 4, "mem": 1000 * MIB, "gres/gpu": 2}, 6),)
SHARING = replace(
    FACTS,
    sharing=Sharing(("cpu", "mem", "gres/gpu")),
    partitions={"all": replace(FACTS.partitions["all"], hardware=HARDWARE)},
)


def test_on_nodes_that_jobs_share_each_node_has_the_most_that_a_component_takes() -> None:
    """It has whole nodes, as long as it waits and while it runs."""
    first = component(0, 1, 10, tres="cpu=1,mem=300M,node=1,gres/gpu=1", minmemory="300M")
    second = component(1, 2, 30, tres="cpu=6,mem=200M,node=2", numcpus="6")
    started = {"state": "RUNNING", "starttime": f"{NOW - 100:.0f}"}
    for state in ({}, started | {"nodelist": "n0"}):
        found = shown(first | state, second | state, facts=SHARING)
        assert found.id.tolist() == [7]
        view = view_of(found, SHARING)
        jobs = view.observation.running if state else view.observation.queued
        assert jobs.exclusive.tolist() == [True]
        assert jobs.column("demand").tolist() == [[3, 300 * MIB, 1]]
        assert view.observation.marks.texts("unusable") == [None]


def test_on_nodes_that_jobs_share_it_is_bound_by_its_reservation() -> None:
    """No component gets the nodes of all, or a place in the queue."""
    freed = {"prioritylong": "5", "reason": "Resources"}
    found = shown(component(0, 1, 10, **freed), component(1, 2, 30, **freed), facts=SHARING)
    view = view_of(found, SHARING)
    view.observation = replace(
        view.observation,
        cluster=Cluster(
            Nodes.build(6, names={"capacity": ("cpu",)}, capacity=np.full((6, 1), 4, np.int64))
        ),
    )
    indptr, nodes = np.array([0, 3]), np.array([0, 1, 5], np.int32)
    plan = Schedule.build([7], [NOW + 100], [NOW + 1950], indptr, nodes)
    created, bound = (
        " ".join(change.command.words[1:])
        for change in reserve_changes(plan, view, SlurmSettings(), LastApplied())
    )
    assert created.startswith("create reservation ReservationName=rtsched_7")
    assert "Nodes=n[0-1,5] Users=ann" in created
    assert bound == "update JobId=7 ReservationName=rtsched_7 ExcNodeList="


def described(facts: SlurmFacts = FACTS, **fields: Any) -> Any:
    """Return the submission of a component with a deadline."""
    asked = {Tag.USER_ID: 1000, Tag.DEADLINE: int(NOW) + 9000, Tag.HET_JOB_OFFSET: 0}
    asked |= {Tag.TIME_LIMIT: 10, Tag.NUM_TASKS: 8}
    return TRANSLATOR.describe(
        asked | {Tag[name.upper()]: value for name, value in fields.items()}, facts, NOW
    )


def test_a_component_that_is_submitted() -> None:
    """It is held, with whole nodes and as many as it needs: Slurm must not choose another count."""
    asked = described()
    assert (asked.problem, asked.component) == ("", True)
    fields = TRANSLATOR.answer(asked, SubmitReply(False, "held", deferred=True), FACTS)
    assert fields[Tag.ADMIN_COMMENT] == "rtsched:parked"
    assert (fields[Tag.PRIORITY], fields[Tag.SHARED]) == (0, 0)
    assert (fields[Tag.MIN_NODES], fields[Tag.MAX_NODES]) == (2, 2)
    shared = described(SHARING, pn_min_memory=100)
    assert shared.problem == ""
    assert TRANSLATOR.answer(shared, SubmitReply(False, "held", deferred=True), SHARING) == fields
    assert "that needs licences" in described(SHARING, licenses="a:1").problem
    assert "backfill scheduler" in described(replace(FACTS, backfill=math.inf)).problem
    assert [TRANSLATOR.number_of(name) for name in ("7+1", "7", "+1")] == [7, 7, -1]


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({}, 30.0),
        ({"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_interval=5,x"}, 5.0),
        ({"SchedulerParameters": "bf_continue,bf_interval=-1"}, math.inf),
        ({"SchedulerType": "sched/builtin"}, math.inf),
    ],
)
def test_how_often_the_backfill_scheduler_runs(config: dict[str, str], seconds: float) -> None:
    """Manual page slurm.conf."""
    assert backfill_interval_of(config) == seconds


STATES = ("PENDING", "RUNNING", "COMPLETING", "COMPLETED", "CANCELLED", "NODE_FAIL")


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.integers(1, 90),
            st.sampled_from(STATES),
            st.integers(-500, 0),
            st.booleans(),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_nothing_of_a_component_is_lost(given_: list[tuple[int, int, str, int, bool]]) -> None:
    """Whatever states they are in: one row that waits, runs or is over, with all that it needs."""
    jobs = []
    for offset, (nodes, minutes, state, began, named) in enumerate(given_):
        has = state not in {"PENDING", "CANCELLED"}
        times = {"starttime": f"{NOW + began:.0f}", "endtime": f"{NOW + 60:.0f}"} if has else {}
        place = {"nodelist": f"n{offset}"} if has else {}
        plain = {} if named else {"deadline": "N/A"}
        jobs.append(component(offset, nodes, minutes, state=state, **times, **place, **plain))
    jobs[-1] |= {"deadline": DUE}
    found = shown(*jobs)
    assert found.id.tolist() == [7]
    alive = {state for _, _, state, _, _ in given_} & {"RUNNING", "COMPLETING"}
    queued, running, over = parts(found)
    waits = any(state == "PENDING" for _, _, state, _, _ in given_)
    assert [len(queued), len(running), len(over)] == [
        int(not alive and waits),
        int(bool(alive)),
        int(not alive and not waits),
    ]
    assert found.deadline[0] == NOW + 9000
    assert found.min_nodes[0] == sum(nodes for nodes, *_ in given_)
    if not alive:
        assert found.limit[0] == 60.0 * max(minutes for _, minutes, *_ in given_)
    else:
        ends = [
            NOW + began + 60.0 * minutes
            for _, minutes, state, began, _ in given_
            if state in {"RUNNING", "COMPLETING"}
        ]
        assert found.start[0] + found.limit[0] == max(ends)
