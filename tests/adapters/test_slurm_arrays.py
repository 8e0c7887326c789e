"""Job arrays with one promise: how many tasks run at a time, and one row for all of them."""

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
from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts
from rtsched.adapters.slurm.groups import joined_arrays
from rtsched.adapters.slurm.last_applied import LastApplied, SlurmState
from rtsched.adapters.slurm.layout import ClusterLayout, PartitionParts
from rtsched.adapters.slurm.observation import allocations_of, jobs_of, marks_of
from rtsched.adapters.slurm.reserving import reserve_changes
from rtsched.adapters.slurm.rows import JobRows, ReservationRow, parts
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.logs.node_requests import NodeSets
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Kind, last_end
from rtsched.model.schedule import Schedule

NOW = 1_800_000_000.0
GIB = 1 << 30
GIVEN = Sharing(("cpu", "mem"))
ALL = Partition("all", 600.0, 86400.0, True, 10, 16, 64 * GIB, core_memory=GIB)
"""A GiB per core where a job does not say."""
FACTS = SlurmFacts(
    margin=20.0,
    partitions={
        "all": ALL,
        "alone": replace(ALL, name="alone", exclusive=True),
        "threads": replace(ALL, name="threads", threads=2),
        "large": replace(ALL, name="large", core_memory=0, node_memory=32 * GIB),
        "gpus": replace(ALL, name="gpus", hardware=(({"gres/gpu": 4}, 10),), gpu_cores=5),
    },
    default="all",
    given=GIVEN,
)
TRANSLATOR = SlurmTranslator()


def described(facts: SlurmFacts = FACTS, **fields: Any) -> Any:
    """Return the submission of an array with a deadline in a day."""
    asked: dict[int, str | int] = {
        Tag.USER_ID: 1000,
        Tag.DEADLINE: int(NOW) + 80000,
        Tag.TIME_LIMIT: 20,
        Tag.ARRAY_INX: "1-1000",
    }
    return TRANSLATOR.describe(
        asked | {Tag[name.upper()]: value for name, value in fields.items()}, facts, NOW
    )


@pytest.mark.parametrize(
    ("fields", "per_node", "most"),
    [
        ({}, 16, 10),  # 63 nodes would do, the partition has 10
        ({"array_inx": "1-40"}, 16, 3),
        ({"cpus_per_task": 3}, 5, 10),
        ({"pn_min_memory": 24 * 1024}, 2, 10),
        ({"mem_per_cpu": 8 * 1024, "cpus_per_task": 2}, 4, 10),
        ({"array_inx": "1-1000%40"}, 16, 2),
        ({"array_inx": "1-1000%5"}, 5, 1),
        ({"pn_min_memory": 0}, 1, 10),  # --mem=0: all memory of its node
        ({"shared": 0}, 1, 10),
        ({"partition": "alone"}, 1, 10),
        ({"partition": "threads", "pn_min_memory": 1024}, 8, 10),
        ({"partition": "large"}, 2, 10),  # the partition's default counts before the cluster's
        ({"partition": "gpus", "tres_per_node": "gres/gpu:1", "cpus_per_task": 2}, 4, 10),
        ({"partition": "gpus", "tres_per_node": "gres/gpu:1"}, 3, 10),
        (
            {"partition": "gpus", "tres_per_node": "gres/gpu:1", "cpus_per_tres": "gres/gpu:8"},
            *(2, 10),
        ),
        (
            {"partition": "gpus", "tres_per_job": "gres/gpu:2", "mem_per_tres": "gres/gpu:16384"},
            *(1, 10),
        ),
    ],
)
def test_how_many_tasks_run_on_a_node(fields: dict[str, Any], per_node: int, most: int) -> None:
    """Cores, whole ones, and memory decide, and how many the user lets run at a time."""
    asked = described(**fields)
    jobs = asked.jobs
    assert not asked.problem
    assert (jobs.kind[0], jobs.wall_time[0]) == (Kind.ARRAY, 1220.0)
    assert (jobs.tasks_per_node[0], jobs.size_min[0], jobs.size_max[0]) == (per_node, 1, most)


def test_where_slurm_gives_whole_nodes() -> None:
    """Each task has one, also where it gets all memory since there is no default."""
    without = replace(FACTS, partitions={"all": replace(ALL, core_memory=0)})
    assert described(without).jobs.tasks_per_node[0] == 1
    assert described(replace(FACTS, given=Sharing())).jobs.tasks_per_node[0] == 1


def test_more_memory_per_processor_than_slurm_gives() -> None:
    """MaxMemPerCPU: a task of 8 GiB takes four processors of 2 GiB."""
    part = replace(ALL, most_core_memory=2 * GIB)
    asked = described(replace(FACTS, partitions={"all": part}), pn_min_memory=8 * 1024)
    assert asked.jobs.tasks_per_node[0] == 4


@pytest.mark.parametrize(
    ("fields", "per_node", "most", "demand"),
    [
        ({}, 16, 10, {"cpu": 16, "mem": 16 * GIB}),
        # 10 nodes with 8 tasks are more than two with 16
        ({"pn_min_memory": 8 * 1024}, 8, 10, {"cpu": 8, "mem": 64 * GIB}),
        # two nodes with 8 tasks are more than ten with one
        ({"pn_min_memory": 64 * 1024}, 8, 10, {"cpu": 8, "mem": 512 * GIB}),
        ({"tres_per_node": "gres/gpu:1"}, 4, 10, {"gres/gpu": 4, "cpu": 4, "mem": 4 * GIB}),
        ({"array_inx": "1-1000%3"}, 3, 1, {"cpu": 3, "mem": 3 * GIB}),
        ({"pn_min_memory": 0}, 1, 10, {"cpu": 1}),
    ],
)
def test_where_promised_jobs_share_nodes(
    fields: dict[str, Any], per_node: int, most: int, demand: dict[str, int]
) -> None:
    """An array has whole nodes, those with which the most of its tasks run at a time."""
    resources = ("cpu", "mem", "gres/gpu")
    ordinary = {"cpu": 16, "mem": 64 * GIB, "gres/gpu": 0}
    large = {"cpu": 16, "mem": 512 * GIB, "gres/gpu": 4}
    hardware = (ordinary, 8), (large, 2)
    part = replace(FACTS.partitions["all"], hardware=hardware, core_memory=GIB)
    facts = replace(FACTS, sharing=Sharing(resources), partitions={"all": part})
    asked = described(facts, **fields)
    jobs = asked.jobs
    assert not asked.problem
    assert (jobs.kind[0], jobs.exclusive[0], jobs.wall_time[0]) == (Kind.ARRAY, True, 1220.0)
    assert (jobs.tasks_per_node[0], jobs.size_max[0]) == (per_node, most)
    assert dict(zip(jobs.names("demand"), jobs.demand[0].tolist(), strict=True)) == demand


def test_what_the_filter_sets() -> None:
    """Neither nodes nor time limit of a task change, and its tasks may share nodes."""
    asked = described()
    reply = SubmitReply(False, "", False, "token", NOW + 9000, NOW, NOW + 4000, 4, ("n1", "n2"))
    fields = TRANSLATOR.answer(asked, reply, FACTS)
    unwanted = {Tag.MIN_NODES, Tag.MAX_NODES, Tag.SHARED, Tag.TIME_LIMIT, Tag.COMMENT}
    assert fields[Tag.ADMIN_COMMENT] == "rtsched:token"
    assert not unwanted & fields.keys()
    parked = TRANSLATOR.answer(asked, SubmitReply(False, deferred=True), FACTS)
    assert Tag.SHARED not in parked
    assert TRANSLATOR.number_of("12_3") == TRANSLATOR.number_of("12") == 12


def rows(*jobs: dict[str, str], mark: str = "rtsched:abc") -> JobRows:
    """Return tasks of array 12, limited to ten minutes, of one processor."""
    plain = {
        "partition": "all",
        "dependency": "(null)",
        "tres-per-job": "N/A",
        "tres": "cpu=1,mem=1G,node=1",
        "numcpus": "1",
        "minmemory": "1G",
        "maxnodes": "1",
        "timelimit": "10:00",
        "admin_comment": mark,
    }
    return job_rows(printed(*(plain | job for job in jobs)))


WAITING = {"jobid": "12", "jobarrayid": "12_[40-99]", "state": "PENDING"}
INSIDE = WAITING | {"reservation": "rtsched_12"}


def task(number: int, job: int, start: float, **more: str) -> dict[str, str]:
    """Return a task that runs on n1."""
    return {
        "jobid": str(job),
        "jobarrayid": f"12_{number}",
        "state": "RUNNING",
        "nodelist": "n1",
        "starttime": f"{start:.0f}",
        **more,
    }


def reservation(start: float) -> ReservationRow:
    """Return the array's reservation of two nodes."""
    return ReservationRow("rtsched_12", start, start + 9000.0, ("n1", "n2"), ("ann",), ())


def test_an_array_that_waits() -> None:
    """It is one row; tasks that Slurm started before its reservation are rows of their own."""
    found = joined_arrays(rows(WAITING, task(1, 13, NOW - 50)), [], FACTS, NOW)
    assert dict(zip(found.id.tolist(), found.tasks.tolist(), strict=True)) == {12: 60, 13: 1}
    assert found.state[found.id.tolist().index(12)] == "PENDING"
    ahead = joined_arrays(rows(INSIDE), [reservation(NOW + 100)], FACTS, NOW)
    assert (ahead.id.tolist(), ahead.state) == ([12], ["PENDING"])


def test_an_array_that_runs() -> None:
    """In its reservation it is one job on all reserved nodes, until its last round is over."""
    shown = rows(INSIDE, task(1, 13, NOW - 50), task(2, 14, NOW - 100))
    found = joined_arrays(shown, [reservation(NOW - 100)], FACTS, NOW)
    assert (found.id.tolist(), found.state, found.nodes) == ([12], ["RUNNING"], ["n[1-2]"])
    assert found.start.tolist() == [NOW - 100]
    # 32 at a time on two nodes: 30 start now, the other 30 follow them.
    assert found.end.tolist() == [NOW + 2 * 620.0]
    assert found.tasks.tolist() == [60]
    assert state_of(found, []).observation.running.tasks.tolist() == [60]


HELD = {"jobid": "19", "jobarrayid": "12_7", "state": "PENDING", "reason": "JobHeldUser"}


def test_an_array_some_of_whose_tasks_are_held() -> None:
    """It is not held before only held tasks are left; then its nodes are not kept for them."""
    for shown in (rows(HELD, WAITING), rows(WAITING, HELD)):
        found = joined_arrays(shown, [], FACTS, NOW)
        assert (found.id.tolist(), found.reason) == ([12], ["Resources"])
        assert found.tasks.tolist() == [61]
    begun, inside = [reservation(NOW - 100)], HELD | {"reservation": "rtsched_12"}
    found = joined_arrays(rows(inside, task(1, 13, NOW - 50)), begun, FACTS, NOW)
    assert found.state == ["RUNNING"]
    found = joined_arrays(rows(inside), begun, FACTS, NOW)
    assert (found.id.tolist(), found.state) == ([12], ["PENDING"])
    assert state_of(found, begun).observation.marks.held.tolist() == [True]


def test_a_job_whose_reservation_slurm_deleted() -> None:
    """Slurm holds it: licences that were lowered make it delete reservations of more."""
    shown = rows({"jobid": "7", "state": "RESV_DEL_HOLD", "reason": "JobHeldAdmin"})
    marks = state_of(shown, []).observation.marks
    assert marks.texts("problem") == ["Slurm deleted its reservation, and holds it"]


def test_an_array_that_runs_on_the_nodes_that_it_asked_for() -> None:
    """Of the others none is smaller that it could have got."""
    names, features = ["n1", "n2", "n3"], ["large", "large", "small"]
    cores = np.array([16, 16, 2], np.int32)
    nodes = Nodes.build(3, name=names, features=features, cores=cores, memory=64 * GIB)
    masks = {"all": np.ones(3, np.bool_)}
    cluster = Cluster(nodes, masks, node_sets=NodeSets(nodes, masks))
    parts = PartitionParts(cluster, alike(cluster), {"all": {"state": "UP"}}, Sharing())
    facts = replace(FACTS, partitions={"all": parts.part("all", masks["all"])}, parts=parts)
    asked = INSIDE | {"deadline": f"{NOW + 9000:.0f}"}
    for feature, rounds in (("large", 2), ("(null)", 15)):
        shown = rows(asked | {"feature": feature})
        found = joined_arrays(shown, [reservation(NOW - 100)], facts, NOW)
        assert found.end.tolist() == [NOW + rounds * 620.0]


def test_the_last_round() -> None:
    """When no task waits any more, only the nodes count on which some still run."""
    shown = rows(task(1, 13, NOW - 50), task(99, 12, NOW - 10, nodelist="n2"))
    found = joined_arrays(shown, [reservation(NOW - 3000)], FACTS, NOW)
    assert (found.id.tolist(), found.nodes, found.end.tolist()) == ([12], ["n[1-2]"], [NOW + 590.0])
    found = joined_arrays(rows(task(1, 13, NOW - 50)), [reservation(NOW - 3000)], FACTS, NOW)
    assert (found.id.tolist(), found.nodes) == ([12], ["n1"])


@pytest.mark.parametrize(
    ("states", "last"),
    [
        (("COMPLETED", "FAILED"), "COMPLETED"),
        (("FAILED", "FAILED"), "FAILED"),
        (("COMPLETED", "NODE_FAIL"), "NODE_FAIL"),
        (("TIMEOUT", "CANCELLED"), "TIMEOUT"),
        (("COMPLETED", "DEADLINE"), "DEADLINE"),
    ],
)
def test_an_array_that_is_over(states: tuple[str, str], last: str) -> None:
    """It ended with its last task; tasks that failed by themselves are no missed promise."""
    ended = [
        task(k, 13 - k, NOW - 90, state=state, endtime=f"{NOW - 20 + 5 * k:.0f}")
        for k, state in enumerate(states)
    ]
    found = joined_arrays(rows(*ended), [], FACTS, NOW)
    assert (found.id.tolist(), found.state) == ([12], [last])
    assert (found.start.tolist(), found.end.tolist()) == ([NOW - 90], [NOW - 15])


def test_arrays_without_a_promise() -> None:
    """They stay as Slurm shows them."""
    for mark in ("(null)", "rtsched:unjudged"):
        shown = rows(WAITING, task(1, 13, NOW - 50), mark=mark)
        assert joined_arrays(shown, [], FACTS, NOW) is shown


@given(
    st.lists(st.integers(0, 100), max_size=6),
    st.integers(0, 40),
    st.integers(1, 8),
    st.integers(0, 30),
)
def test_the_last_end_is_that_of_a_list_schedule(
    running: list[int], tasks: int, at_a_time: int, more: int
) -> None:
    """Each task that waits starts where one ends first."""
    limit = 100.0 + more
    free = sorted(float(end) for end in running)
    free = sorted(free + [0.0] * max(at_a_time - len(free), 0))
    last = max(free) if running else 0.0
    for _ in range(tasks):
        first = free.pop(0)
        free = sorted([*free, first + limit])
        last = max(last, first + limit)
    assert last_end(np.array(running, np.float64), tasks, at_a_time, limit, 0.0) == last


def test_what_accounting_knows_of_an_array() -> None:
    """It has ended when all its tasks have."""
    lines = ["12_1|COMPLETED|100|200", "12_2|FAILED|100|260", "13|COMPLETED|1|2"]
    found = completions_in("\n".join(lines))
    assert found.job.tolist() == [12, 13]
    assert (found.start.tolist(), found.end.tolist()) == ([100.0, 1.0], [260.0, 2.0])
    assert found.status.tolist() == [CompletionStatus.COMPLETED] * 2
    for state in ("RUNNING|100|Unknown", "PENDING|Unknown|Unknown"):
        assert completions_in("\n".join([lines[0], f"12_[3-4]|{state}"])).job.tolist() == []
    assert math.isnan(completions_in("14_1|CANCELLED|Unknown|90").start[0])


def state_of(found: JobRows, reservations: list[ReservationRow]) -> SlurmState:
    """Return what a poll shows of one array on two nodes."""
    cluster = Cluster.uniform(2)
    parts_of = PartitionParts(cluster, alike(cluster), {}, Sharing())
    rows_by_name = {"n1": 0, "n2": 1}
    layout = ClusterLayout(cluster, rows_by_name, FACTS.partitions, "all", parts_of)
    queued, running, _ = parts(found)
    allocations = allocations_of(found, running, layout, FACTS, NOW)
    observation = Observation(
        NOW,
        layout.cluster,
        jobs_of(found, queued, FACTS),
        jobs_of(found, running, FACTS, allocations.entries.size),
        allocations,
        marks_of(found, np.concatenate([queued, running]), FACTS),
    )
    return SlurmState(found, observation, FACTS, ("n1", "n2"), reservations, NOW)


def reserving(view: SlurmState, plan: Schedule) -> list[str]:
    """Return what is to be changed about reservations, jobs in them and their sizes."""
    found = reserve_changes(plan, view, SlurmSettings(promised_first=False), LastApplied())
    return [" ".join(change.command.words[1:]) for change in found]


def test_the_reservation_of_an_array() -> None:
    """Its waiting tasks enter it, and their nodes and limits stay theirs."""
    view = state_of(joined_arrays(rows(WAITING), [], FACTS, NOW), [])
    indptr, nodes = np.array([0, 2]), np.array([0, 1], np.int32)
    plan = Schedule.build([12], [NOW + 100], [NOW + 1340], indptr, nodes)
    created, bound = reserving(view, plan)
    assert created.startswith("create reservation ReservationName=rtsched_12")
    assert "Nodes=n[1-2]" in created
    assert bound == "update JobId=12 ReservationName=rtsched_12 ExcNodeList="


def test_the_reservation_of_an_array_that_runs() -> None:
    """No task leaves it; it ends with the last one, and gives back nodes without tasks."""
    ends = math.ceil(NOW + 1260.0 + SlurmSettings().grace_s)
    kept = replace(reservation(NOW - 100), end=ends)
    shown = rows(INSIDE, task(1, 13, NOW - 50, reservation="rtsched_12"))
    found = joined_arrays(shown, [kept], FACTS, NOW)
    assert found.end.tolist() == [NOW + 2 * 620.0]
    assert reserving(state_of(found, [kept]), Schedule.empty()) == []
    last = rows(task(1, 13, NOW - 50, reservation="rtsched_12"))
    (changed,) = reserving(
        state_of(joined_arrays(last, [kept], FACTS, NOW), [kept]), Schedule.empty()
    )
    assert "Nodes=n1 " in changed + " "
    over = rows(task(1, 13, NOW - 50, state="COMPLETED", endtime=f"{NOW - 5:.0f}"))
    view = state_of(joined_arrays(over, [kept], FACTS, NOW), [kept])
    assert reserving(view, Schedule.empty()) == ["delete ReservationName=rtsched_12"]
