"""The queue simulated ahead: with the true run times and arrivals it is the replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rtsched.estimates.ahead import ahead
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.resources import CPU, GPU, MEMORY
from rtsched.model.schedule import Schedule
from rtsched.model.table import Ragged
from rtsched.replay.synth import Lublin
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.testing import make_cluster, make_jobs, make_snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.interface import NodeEvent

JOBS, NODES = 600, 32
SYSTEM = ExclusiveSettings()


def workload() -> tuple[Jobs, NDArray[np.float64]]:
    """Return jobs in whole seconds that keep the machine busy."""
    log = Lublin(jobs=JOBS, nodes=NODES, load=1.1, seed=5, users=8).log()
    jobs = log.jobs.replace(id=np.arange(JOBS), submit=np.floor(log.jobs.submit))
    return jobs, np.ceil(log.outcomes.run_time)


def assert_is_the_replay(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    cluster: Cluster,
    edges: Edges | None = None,
    at: int = 300,
    system: ExclusiveSettings = SYSTEM,
) -> Snapshot:
    """Replay, stop after so many arrivals, look ahead, and compare all starts to the second."""
    edges = Edges.build(0) if edges is None else edges
    machine = simulate(jobs, run_time, cluster, system, edges=edges)
    machine.advance(at)
    snapshot = machine.snapshot()
    assert len(snapshot.queued) >= 5
    assert len(snapshot.running) >= 2
    while not machine.advance().done:
        pass
    true = machine.starts()
    state, rows = ahead(snapshot, jobs)
    present = np.concatenate([snapshot.running.id, snapshot.queued.id[rows]])
    later = np.flatnonzero(jobs.submit > snapshot.now)
    found = state.simulate(
        run_time[present],
        later + len(present),
        jobs.submit[later],
        run_time[later],
        system,
        np.inf,
    )
    assert found == pytest.approx(true[snapshot.queued.id[rows]], abs=1.0)
    return snapshot


@pytest.mark.parametrize("loop", ["easy", "fcfs"])
def test_exclusive_nodes(loop: str) -> None:
    """Where it does not matter which nodes jobs run on."""
    system = ExclusiveSettings(loop=loop)  # type: ignore[arg-type]
    assert_is_the_replay(*workload(), Cluster.uniform(NODES), system=system)


def test_partitions() -> None:
    """Where each job keeps to the nodes of its partition."""
    jobs, run_time = workload()
    cluster = make_cluster(
        NODES, partitions={"all": range(NODES), "left": range(16), "right": range(12, NODES)}
    )
    names = np.where(jobs.size <= 12, np.array(["left", "right"])[jobs.id % 2], "all").tolist()
    jobs = Jobs.build(
        JOBS,
        id=jobs.id,
        submit=jobs.submit,
        wall_time=jobs.wall_time,
        size=jobs.size,
        partition=names,
    )
    snapshot = assert_is_the_replay(jobs, run_time, cluster)
    assert len(set(snapshot.queued.texts("partition"))) > 1


def test_dependencies() -> None:
    """Jobs wait for running and for waiting ones."""
    jobs, run_time = workload()
    early = np.arange(200, 296, 4)
    edges = Edges.build(len(early), before=early, after=early + 3)
    snapshot = assert_is_the_replay(jobs, run_time, Cluster.uniform(NODES), edges)
    assert len(snapshot.edges)


def shared() -> tuple[Jobs, Cluster]:
    """Return jobs that share nodes with four GPUs by cores, memory and GPUs."""
    jobs, _ = workload()
    random = np.random.default_rng(2)
    resources = CPU, MEMORY, GPU
    capacity = np.tile(np.array([[32, 256, 4]], np.int64), (8, 1))
    cluster = Cluster(Nodes.build(8, names={"capacity": resources}, capacity=capacity))
    demand = np.column_stack(
        [
            random.integers(4, 17, JOBS),
            random.integers(16, 129, JOBS),
            random.choice([0, 0, 1, 2, 4], JOBS),
        ]
    )
    made = Jobs.build(
        JOBS,
        names={"demand": resources},
        id=jobs.id,
        submit=jobs.submit,
        wall_time=jobs.wall_time,
        size=np.where(jobs.size > 16, 2, 1),
        demand=demand,
    )
    return made, cluster


def test_shared_nodes() -> None:
    """Where jobs take cores, memory and GPUs of their nodes."""
    jobs, cluster = shared()
    assert_is_the_replay(jobs, 3.0 * workload()[1], cluster)


def running_and_waiting(cluster: Cluster, plan: Schedule | None = None) -> Snapshot:
    """Return a job on nodes 0 and 1 until 3600, and two of two nodes that wait."""
    running = make_jobs(1, id=[10], size=2, wall_time=3600.0, submit=0.0)
    queued = make_jobs(2, id=[11, 12], size=[2, 2], wall_time=1000.0, submit=[5.0, 6.0])
    others = {} if plan is None else {"plan": plan}
    return make_snapshot(queued, cluster, 100.0, running=running, nodes=[[0, 1]], **others)


def starts(snapshot: Snapshot, *run_time: float) -> list[float]:
    """Return the starts ahead, without arrivals."""
    state, _ = ahead(snapshot, Jobs.build(0))
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    found: list[float] = state.simulate(np.array(run_time), *none, SYSTEM, np.inf).tolist()
    return found


def test_a_plan_is_kept() -> None:
    """A promised job starts as planned, and the others around it."""
    plan = Schedule.build([12], [500.0], [1500.0], *Ragged.of([[2, 3]]))
    snapshot = running_and_waiting(make_cluster(4), plan)
    # 11 would last from 100 to 1100 on the nodes of 12: it waits for the running job's end
    assert starts(snapshot, 2000.0, 1000.0, 1000.0) == [1500.0, 500.0]


def test_a_drained_node() -> None:
    """Its running job goes on, and no other comes after it."""
    states = np.full(4, NodeState.UP)
    states[0] = NodeState.DRAINED
    cluster = make_cluster(4)
    cluster = replace(cluster, nodes=cluster.nodes.replace(state=states))
    snapshot = running_and_waiting(cluster)
    assert starts(snapshot, 2000.0, 1000.0, 1000.0) == [100.0, 1100.0]
    wide = make_snapshot(
        make_jobs(1, id=[13], size=4, submit=5.0),
        cluster,
        100.0,
        running=snapshot.running,
        nodes=[[0, 1]],
    )
    assert starts(wide, 2000.0, 1000.0) == [np.inf]


def test_nodes_out_of_service() -> None:
    """Nothing starts on them."""
    states = np.full(4, NodeState.UP)
    states[2:] = NodeState.DOWN
    cluster = make_cluster(4)
    cluster = replace(cluster, nodes=cluster.nodes.replace(state=states))
    assert starts(running_and_waiting(cluster), 2000.0, 1000.0, 1000.0) == [2000.0, 3000.0]


def test_priorities() -> None:
    """The highest is first; rows say who is who."""
    snapshot = running_and_waiting(make_cluster(4))
    state, rows = ahead(snapshot, Jobs.build(0), np.array([1.0, 2.0]))
    none = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    found = state.simulate(np.array([5000.0, 1000.0, 1000.0]), *none, SYSTEM, np.inf)
    assert rows.tolist() == [1, 0]
    assert found.tolist() == [100.0, 1100.0]


def test_shared_nodes_with_a_plan() -> None:
    """Running jobs leave the room that they do not take."""
    resources = (CPU,)
    cluster = Cluster(
        Nodes.build(1, names={"capacity": resources}, capacity=np.array([[4]], np.int64))
    )

    def jobs(ids: list[int], cores: list[int]) -> Jobs:
        return Jobs.build(
            len(ids),
            names={"demand": resources},
            id=ids,
            submit=np.zeros(len(ids)),
            wall_time=np.full(len(ids), 1000.0),
            demand=np.array(cores, np.int64)[:, None],
        )

    snapshot = make_snapshot(
        jobs([2, 3], [2, 3]), cluster, 100.0, running=jobs([1], [2]), nodes=[[0]]
    )
    assert starts(snapshot, 600.0, 1000.0, 50.0) == [100.0, 1100.0]


def events_of(snapshot: Snapshot) -> tuple[NodeEvent, ...]:
    """Return what takes nodes out of service."""
    return ahead(snapshot, Jobs.build(0))[0].node_events


def test_nobody_runs_and_waits() -> None:
    """An empty machine and an empty queue."""
    snapshot = make_snapshot(None, make_cluster(4), 100.0)
    assert starts(snapshot) == []
    assert events_of(snapshot) == ()
