"""What jobs used of each resource on shared nodes, by partition, and which GPUs were stranded."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.log import Outcomes
from rtsched.model.table import offsets_of
from rtsched.replay.measures import measure
from rtsched.replay.resource_use import resource_use, stranded_gpu_hours
from rtsched.replay.results import Results, Workload

HOUR = 3600.0
GIB = 2**30
CPU, MEM, GPU = RESOURCES = ("cpu", "mem", "gres/gpu")


def workload(
    submit: list[float],
    demand: list[tuple[int, int, int]],
    capacity: list[tuple[int, int, int]],
    **columns: object,
) -> Workload:
    """Return jobs and nodes with these cores, GiB of memory and GPUs."""
    unit = np.array([1, GIB, 1])
    jobs = Jobs.build(
        len(submit),
        names={"demand": RESOURCES, "partition": ("cpu", "gpu")},
        id=np.arange(len(submit)),
        submit=np.array(submit),
        demand=np.array(demand, np.int64).reshape(-1, 3) * unit,
        **columns,
    )
    nodes = Nodes.build(
        len(capacity), names={"capacity": RESOURCES}, capacity=np.array(capacity, np.int64) * unit
    )
    outcomes = Outcomes.build(len(submit))
    run_time = np.ones(len(submit))
    cluster = Cluster(nodes)
    return workload_of(jobs, run_time, cluster, outcomes=outcomes)


def on(nodes: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return node rows as a run has them."""
    return offsets_of(np.array([len(some) for some in nodes])), np.concatenate(nodes).astype(
        np.int32
    )


def two_partitions() -> Workload:
    """Return three jobs in partition `cpu` of both nodes and `gpu` of the second."""
    work = workload(
        [0.0, HOUR, 0.0],
        [(4, 8, 0), (2, 4, 2), (1, 1, 1)],
        [(8, 16, 0), (8, 32, 4)],
        size=np.array([2, 1, 1], np.int32),
        partition=np.array([0, 1, 1], np.int32),
    )
    partitions = {"gpu": np.array([False, True])}
    return replace(work, cluster=replace(work.cluster, partitions=partitions))


def test_hours_per_resource_and_partition() -> None:
    """From hour 0 to 4; the last job never ran, its partition's node is the second alone."""
    work = two_partitions()
    results = Results.build(
        3,
        start=[HOUR, 2 * HOUR, np.nan],
        end=[3 * HOUR, 4 * HOUR, np.nan],
        size=np.array([2, 1, 0], np.int32),
    )
    use = resource_use(work, results)
    assert {name: some.used_h for name, some in use.resources.items()} == {
        CPU: 2 * 4 * 2 + 2 * 2,
        MEM: 2 * 8 * 2 + 4 * 2,
        GPU: 2 * 2,
    }
    assert [use.resources[name].available_h for name in RESOURCES] == [16 * 4, 48 * 4, 4 * 4]
    assert use.resources[GPU].utilisation == 4 / 16
    cpu, gpu = use.partitions["cpu"], use.partitions["gpu"]
    assert (cpu.jobs, cpu.mean_wait_s, gpu.jobs, gpu.mean_wait_s) == (1, HOUR, 2, HOUR)
    assert cpu.resources[CPU] == (16.0, 64.0)
    assert gpu.resources[CPU] == (4.0, 32.0)
    assert gpu.resources[GPU] == (4.0, 16.0)
    assert cpu.resources[GPU].utilisation == 0.0
    found = measure(work, results)
    assert found["memory_utilisation"] == pytest.approx(40 / 192)
    assert found["gpu_utilisation"] == 0.25
    assert found["stranded_gpu_h"] is None  # nobody said who ran where


def test_nodes_that_are_down_are_not_available() -> None:
    """Neither of all nodes nor of a partition's; what nobody has, has no utilisation."""
    work = two_partitions()
    nodes = work.cluster.nodes.replace(state=[NodeState.UP, NodeState.DOWN])
    work = replace(work, cluster=replace(work.cluster, nodes=nodes))
    results = Results.build(3, start=[0.0] * 3, end=[HOUR] * 3, size=np.ones(3, np.int32))
    use = resource_use(work, results)
    assert use.resources[CPU].available_h == 8.0
    assert use.resources[GPU].utilisation is None
    assert use.partitions["gpu"].resources[CPU].utilisation is None


def test_whole_nodes_have_no_such_table() -> None:
    """And neither has a replay in which nothing ended."""
    work = two_partitions()
    nothing = Results.build(3)
    assert resource_use(work, nothing) is None
    assert stranded_gpu_hours(work, nothing, on([[], [], []])) is None
    whole = replace(work, cluster=Cluster.uniform(2))
    ran = Results.build(3, start=[0.0] * 3, end=[HOUR] * 3, size=np.ones(3, np.int32))
    assert resource_use(whole, ran) is None
    assert stranded_gpu_hours(whole, ran, on([[0], [1], [1]])) is None


@pytest.mark.parametrize(
    ("demand", "exclusive", "hours"),
    [
        ((8, 1, 1), False, 2 * 3.0),  # all cores: three GPUs are left over, for two hours
        ((1, 16, 2), False, 2 * 2.0),  # all memory
        ((7, 15, 1), False, 0.0),  # a core and a GiB are left: somebody may still use the GPUs
        ((1, 1, 0), True, 2 * 4.0),  # nobody may join an exclusive job
        ((8, 16, 4), False, 0.0),  # no GPU is left
    ],
)
def test_stranded_gpus(demand: tuple[int, int, int], exclusive: bool, hours: float) -> None:
    """One job on one of two nodes with 8 cores, 16 GiB and 4 GPUs."""
    work = workload([0.0], [demand], [(8, 16, 4)] * 2, exclusive=[exclusive])
    results = Results.build(1, start=[HOUR], end=[3 * HOUR], size=np.ones(1, np.int32))
    assert stranded_gpu_hours(work, results, on([[1]])) == hours
    assert measure(work, results, on([[1]]))["stranded_gpu_h"] == hours


def test_two_jobs_strand_gpus_together() -> None:
    """From hour 1, when the second takes the last cores, to 2, when the first ends."""
    work = workload([0.0, 0.0], [(4, 1, 1), (4, 1, 0)], [(8, 16, 4), (64, 512, 0)])
    results = Results.build(
        2, start=[0.0, HOUR], end=[2 * HOUR, 5 * HOUR], size=np.ones(2, np.int32)
    )
    assert stranded_gpu_hours(work, results, on([[0], [0]])) == 3.0
    assert stranded_gpu_hours(work, results, on([[0], [1]])) == 0.0


@given(st.data())
def test_stranded_gpus_as_counted_instant_by_instant(data: st.DataObject) -> None:
    """Whole hours on two nodes: what is stranded in each hour, by plain counting."""
    capacity = [(4, 4, 2), (2, 4, 3)]
    n = data.draw(st.integers(1, 8))
    amount = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))
    demand = data.draw(st.lists(amount, min_size=n, max_size=n))
    start = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    length = np.array(data.draw(st.lists(st.integers(1, 4), min_size=n, max_size=n)))
    nodes = data.draw(st.lists(st.sampled_from([[0], [1], [0, 1]]), min_size=n, max_size=n))
    work = workload([0.0] * n, demand, capacity)
    size = np.array([len(some) for some in nodes], np.int32)
    results = Results.build(n, start=start * HOUR, end=(start + length) * HOUR, size=size)
    expected = 0
    for hour in range(10):
        for node, has in enumerate(capacity):
            free = np.array(has)
            for row in range(n):
                if node in nodes[row] and start[row] <= hour < start[row] + length[row]:
                    free -= demand[row]
            if free[0] <= 0 or free[1] <= 0:
                expected += max(free[2], 0)
    assert stranded_gpu_hours(work, results, on(nodes)) == pytest.approx(expected)
