"""The queue simulated ahead, with submissions drawn from the past and jobs of few columns.

With the true run times and arrivals it is the replay.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rtsched.estimates.ahead import WEEKS, ahead, lean, next_arrivals
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.resources import CPU, GPU, MEMORY
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import Ragged
from rtsched.model.units import DAY, WEEK
from rtsched.replay.synth import Lublin
from rtsched.simulator.interface import NodeEvent
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.testing import make_cluster, make_jobs, make_snapshot

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


NOW = 1000 * DAY + 12345.0


def hourly(days: float) -> np.ndarray:
    """Return a submission an hour, the last one an instant ago."""
    return np.flip(NOW - 1.0 - np.arange(0.0, days * DAY, 3600.0))


def test_empty() -> None:
    """Nobody submits anything."""
    row, at = next_arrivals(np.zeros(0), NOW, NOW + WEEK, np.random.default_rng(0))
    assert (len(row), len(at)) == (0, 0)


def test_what_is_in_the_future_only() -> None:
    """A past whose clock went wrong is none."""
    row, _ = next_arrivals(np.array([NOW + 5.0]), NOW, NOW + WEEK, np.random.default_rng(0))
    assert len(row) == 0


@pytest.mark.parametrize("days", [0.5, 1.0, 1.5, 2.0, 3.0, 8.0, 30.0, 200.0])
def test_rates_and_order(days: float) -> None:
    """As many come as before, in order, none before now, however little is known."""
    submit = hourly(days)
    for seed in range(5):
        row, at = next_arrivals(submit, NOW, NOW + WEEK, np.random.default_rng(seed))
        assert (at >= NOW).all()
        assert (at < NOW + WEEK).all()
        assert (np.diff(at) >= 0.0).all()
        assert len(row) == pytest.approx(WEEK / 3600.0, rel=0.3)
        assert (submit[row] < NOW).all()


@pytest.mark.parametrize("days", [3.0, 8.0, 100.0])
def test_the_time_of_day_is_kept(days: float) -> None:
    """Who submitted at nine does so again."""
    submit = hourly(days)
    row, at = next_arrivals(submit, NOW, NOW + WEEK, np.random.default_rng(2))
    shift = (at - submit[row]) / DAY
    assert shift == pytest.approx(np.round(shift))
    assert (shift >= 1.0).all()
    assert (shift <= min(days + 7.0, 7.0 * (WEEKS + 1))).all()


def test_weekdays_count_double() -> None:
    """Half of the days, and a seventh of the other half, are of the same weekday."""
    submit = hourly(80.0)
    random, same, every = np.random.default_rng(3), 0, 0
    for _ in range(100):
        row, at = next_arrivals(submit, NOW, NOW + WEEK, random)
        same += int((np.round((at - submit[row]) / DAY) % 7 == 0).sum())
        every += len(at)
    assert same / every == pytest.approx(0.5 + 0.5 / 7, abs=0.06)


def test_until_now() -> None:
    """No time ahead, no arrivals."""
    row, _ = next_arrivals(hourly(30.0), NOW, NOW, np.random.default_rng(0))
    assert len(row) == 0


@given(
    back=st.lists(st.floats(-1e6, 1e8), max_size=30),
    ahead=st.floats(0.0, 30 * DAY),
    seed=st.integers(0, 9),
)
def test_any_past(back: list[float], ahead: float, seed: int) -> None:
    """In order, between now and the end, and rows that there are."""
    submit = np.sort(NOW - np.array(back))
    row, at = next_arrivals(submit, NOW, NOW + ahead, np.random.default_rng(seed))
    assert ((row >= 0) & (row < len(submit))).all()
    assert ((at >= NOW) & (at < NOW + ahead)).all()
    assert (np.diff(at) >= 0.0).all()


def test_a_single_job_a_moment_ago() -> None:
    """A history of a millisecond is no flood of arrivals."""
    row, _ = next_arrivals(np.array([NOW - 0.001]), NOW, NOW + 14 * DAY, np.random.default_rng(0))
    assert len(row) < 100_000


def test_texts_that_no_job_has_stay_missing() -> None:
    """A column of codes without any names is no list of names."""
    jobs = Jobs.build(2, id=[1, 2], name=["a", None]).replace(node_request=[-1, -1])
    found = lean(jobs, "name", "user")
    for column in ("node_request", "partition", "user"):
        assert found.texts(column) == [None, None]
    assert found.texts("name") == ["a", None]
