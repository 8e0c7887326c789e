"""Heterogeneous jobs of a log: alike components are one job, and are promised as one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Ending, Log, Outcomes
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.replay.results import REASONS, Obstacle, Results, Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare

NONE = WorkloadOptions(deadline_rule="none")
SHARED = WorkloadOptions(deadline_rule="none", unit="resources")
RESOURCES = ("cpu", "gres/gpu", "license/matlab")


def log(n: int, cluster: Cluster, edges: Edges | None = None, **columns: Any) -> Log:
    """Return a log of `n` jobs, submitted at 0 unless said; columns of jobs and of outcomes."""
    of_outcomes = columns.keys() & (Outcomes.columns().keys() - {"size"})
    happened = {name: columns.pop(name) for name in of_outcomes}
    jobs: dict[str, Any] = {"id": np.arange(1, n + 1), "submit": np.zeros(n), **columns}
    names = jobs.pop("names", {})
    lists = {"nodes": names.pop("nodes")} if "nodes" in names else {}
    names |= {"demand": RESOURCES} if "demand" in jobs else {}
    happened.setdefault("run_time", np.full(n, 10.0))
    return Log(
        Jobs.build(n, names=names, **jobs),
        Outcomes.build(n, names=lists, **happened),
        ("site.log",),
        "sacct",
        edges=edges or Edges.build(0),
        cluster=cluster,
    )


def machine(*capacity: tuple[int, int], **partitions: list[bool]) -> Cluster:
    """Return nodes with these cores and GPUs, and five licences."""
    amounts = np.array(capacity, np.int64)
    nodes = Nodes.build(
        len(amounts), names={"capacity": RESOURCES[:2]}, capacity=amounts, cores=amounts[:, 0]
    )
    masks = {name: np.array(mask) for name, mask in partitions.items()}
    return Cluster(nodes, masks, licenses={RESOURCES[2]: 5})


def under(policy: str, work: Workload) -> Results:
    """Return what a policy made of the jobs."""
    return replay(work, policy, presets()[policy], record_nodes=False).results


@pytest.mark.parametrize(("policy", "starts"), [("fcfs", [0, 100, 100]), ("easy", [0, 100, 2])])
def test_components_start_together(policy: str, starts: list[float]) -> None:
    """One node and two nodes wait until three are free; one of them would have fitted before."""
    read = log(
        4,
        Cluster.uniform(4),
        submit=[0.0, 1, 1, 2],
        size=[3, 1, 2, 1],
        run_time=[100.0, 10, 10, 5],
        wall_time=[100.0, 10, 10, 5],
        het_job=[-1, 2, 2, -1],
    )
    work = prepare(read, NONE)
    assert work.jobs.size.tolist() == [3, 3, 1]
    assert under(policy, work).start.tolist() == starts
    assert any(
        "1 heterogeneous job of 2 components in all: the components start together" in text
        for text in work.assumptions
    )


def test_their_nodes_are_held_until_the_last_one_ends() -> None:
    """The longest limit and run time count, the earliest deadline, and every processor."""
    read = log(
        3,
        Cluster.uniform(9),
        names={"label": ("5+0", "5+1", "5+2"), "nodes": ("n1", "n[2-3]")},
        label=[0, 1, 2],
        nodes=[0, 1, -1],
        size=[1, 2, 4],
        size_min=[-1, 1, -1],
        size_max=[-1, 3, -1],
        kind=np.array([Kind.RIGID, Kind.MOLDABLE, Kind.RIGID], np.int8),
        node_count=[1, 2, 1],
        wall_time=[50.0, 90, 60],
        run_time=[40.0, 20, 55],
        start=[5.0, 5, 5],
        end=[45.0, 25, 60],
        deadline=[np.inf, 300, 400],
        ending=np.array([Ending.COMPLETED, Ending.FAILED, Ending.COMPLETED], np.int8),
        restarts=[0, 1, 0],
        het_job=[1, 1, 1],
    )
    work = prepare(read, NONE)
    jobs, outcomes = work.jobs, work.outcomes
    assert jobs.labels() == ["5"]
    assert (jobs.size[0], jobs.node_count[0], jobs.wall_time[0]) == (7, 4, 90)
    assert jobs.cores[0] == -1  # as in the log
    assert (jobs.kind[0], jobs.size_min[0], jobs.size_max[0]) == (Kind.RIGID, -1, -1)
    assert (jobs.deadline[0], work.run_time[0], jobs.het_job[0]) == (300, 55, -1)
    assert (outcomes.start[0], outcomes.end[0], outcomes.restarts[0]) == (5, 60, 1)
    assert outcomes.ending[0] == Ending.FAILED
    assert outcomes.texts("nodes") == ["n1,n[2-3]"]
    assert (work.promisable.jobs, work.promisable.promisable) == (1, 1)


def test_each_component_has_whole_nodes() -> None:
    """Three and five of four cores a node are one and two nodes."""
    cluster = machine((4, 0), (4, 0), (4, 0))
    read = log(2, cluster, size=[3, 5], wall_time=[9.0, 9], run_time=[9.0, 9], het_job=[1, 1])
    work = prepare(read, WorkloadOptions(deadline_rule="none", unit="node"))
    assert work.jobs.size.tolist() == [3]


def test_others_wait_for_a_heterogeneous_job_once() -> None:
    """Dependencies on and of components are those of the job; of each other they have none."""
    edges = Edges.build(
        5, before=[1, 2, 4, 4, 1], after=[3, 3, 1, 2, 2], at_start=[False, False, True, True, False]
    )
    read = log(4, Cluster.uniform(4), edges, het_job=[1, 1, -1, -1])
    work = prepare(read, NONE)
    found = zip(work.edges.before, work.edges.after, work.edges.at_start, strict=True)
    assert sorted(found) == [(1, 3, False), (4, 1, True)]
    assert under("fcfs", work).start.tolist() == [0, 10, 0]


def test_on_shared_nodes_alike_components_are_one_job() -> None:
    """Two cores on one and on two nodes, with licences that all of them need at once."""
    cluster = machine((4, 0), (4, 0), (4, 0))
    read = log(
        3,
        cluster,
        size=[2, 4, 9],
        node_count=[1, 2, 3],
        demand=[(2, 0, 3), (2, 0, 1), (3, 0, 0)],
        wall_time=[10.0, 10, 10],
        het_job=[1, 1, -1],
    )
    work = prepare(read, SHARED)
    assert work.jobs.size.tolist() == [3, 3]
    assert work.jobs.demand.tolist() == [[2, 0, 4], [3, 0, 0]]
    assert under("easy", work).start.tolist() == [0, 10]
    assert work.promisable.share == 1.0


@pytest.mark.parametrize(
    "columns",
    [
        {"demand": [(2, 0, 0), (2, 1, 0), (1, 0, 0)]},  # one needs a GPU
        {"demand": [(3, 0, 0), (2, 0, 0), (1, 0, 0)]},
        {"names": {"partition": ("slow", "fast")}, "partition": [0, 1, -1]},
        {"exclusive": [True, False, False]},
        {"size": [6, 9, 1], "node_count": [2, 3, 1]},  # on five of three nodes
    ],
)
def test_other_components_stay_apart(columns: dict[str, Any]) -> None:
    """They start one by one, which is said, and no deadline can be promised to them."""
    cluster = machine((4, 1), (4, 0), (4, 0), slow=[True, True, False], fast=[False, True, True])
    usual = {
        "size": [2, 2, 1],
        "node_count": [1, 1, 1],
        "demand": [(2, 0, 0), (2, 0, 0), (1, 0, 0)],
        "wall_time": [10.0, 10, 10],
    }
    read = log(3, cluster, het_job=[1, 1, -1], **(usual | columns))
    work = prepare(read, SHARED)
    assert len(work.jobs) == 3
    assert any(
        "2 components of 1 heterogeneous job: each starts by itself" in text
        for text in work.assumptions
    )
    assert work.promisable.others.count == {REASONS[Obstacle.HETEROGENEOUS]: 2}


def test_partitions_of_the_same_nodes_are_the_same() -> None:
    """Components in two partitions that share all their nodes are alike."""
    half = [True, True, False]
    cluster = machine((4, 1), (4, 0), (4, 0), slow=half, fast=half)
    names = {"partition": ("slow", "fast")}
    columns = {"names": names, "partition": [0, 1], "wall_time": [9.0, 9]}
    read = log(2, cluster, size=[4, 4], node_count=[1, 1], het_job=[1, 1], **columns)
    assert prepare(read, SHARED).jobs.size.tolist() == [2]


def test_a_component_alone_in_the_log_is_a_job() -> None:
    """As where sacct printed one partition only: it keeps its own label and its range."""
    read = log(
        1,
        Cluster.uniform(4),
        names={"label": ("5+1",)},
        label=[0],
        size=[2],
        size_min=[1],
        size_max=[3],
        kind=np.array([Kind.MOLDABLE], np.int8),
        het_job=[1],
        wall_time=[10.0],
    )
    work = prepare(read, NONE)
    assert work.jobs.labels() == ["5+1"]
    assert (work.jobs.kind[0], work.jobs.size_max[0]) == (Kind.MOLDABLE, 3)
    assert work.promisable.share == 1.0
    assert not any("heterogeneous" in text for text in work.assumptions)
    wide = log(2, Cluster.uniform(4), size=[5, 1], het_job=[1, -1], wall_time=[10.0, 10])
    assert prepare(wide, NONE).promisable.others.count == {REASONS[Obstacle.TOO_LARGE]: 1}


Split = tuple[int, int, int, int, int, int]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.integers(1, 4),
            st.integers(1, 20),
            st.integers(0, 5),
            st.integers(1, 3),
            st.integers(0, 60),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["fcfs", "easy", "conservative", "mcdf", "edf-mn", "portfolio"]),
    st.booleans(),
)
def test_as_a_rigid_job_of_all_nodes(cases: list[Split], policy: str, shared: bool) -> None:
    """Jobs cut in two components start, are promised and end as the jobs that were cut."""
    cluster = machine((2, 0), (2, 0), (2, 0), (2, 0))
    whole: dict[str, list[Any]] = {name: [] for name in ("id", "submit", "size", "wall_time")}
    whole |= {name: [] for name in ("run_time", "deadline", "demand", "het_job", "node_count")}
    parts: dict[str, list[Any]] = {name: [] for name in whole}
    for key, (submit, size, wall, early, cores, slack) in enumerate(cases):
        run, due = max(wall - early, 1), submit + wall + slack if slack else np.inf
        each = min(cores, 2)
        row = (10 * key, submit, size, wall, run, due, (each, 0, 0), -1, size)
        cut = min(cores, size - 1)
        for into in (whole, parts):
            pieces = [size] if into is whole or not cut else [cut, size - cut]
            for at, piece in enumerate(pieces):
                values = dict(zip(whole, row, strict=True))
                values["id"] += at
                values["size"] = piece * (each if shared else 1)
                values["node_count"] = piece
                values["het_job"] = 10 * key if len(pieces) > 1 else -1
                for name in whole:
                    into[name].append(values[name])
    options = SHARED if shared else WorkloadOptions(deadline_rule="none", unit="node")
    if not shared:
        cluster = Cluster.uniform(4)
    found = []
    for table in (whole, parts):
        n = len(table["id"])
        columns = {
            name: np.array(values, np.float64 if name not in {"id", "het_job"} else np.int64)
            for name, values in table.items()
        }
        for name in ("size", "node_count"):
            columns[name] = columns[name].astype(np.int32)
        columns["demand"] = np.array(table["demand"], np.int64)
        work = prepare(log(n, cluster, **columns), options)
        found.append((work.jobs, under(policy, work)))
    assert found[0][0].id.tolist() == found[1][0].id.tolist()
    assert found[0][1].equals(found[1][1])
