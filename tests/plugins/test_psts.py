"""The psts plug-in: node queues, arrivals, scans that pay, and what a job is told."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe, steer
from rtsched.model.cluster import Cluster, Topology
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind, Events
from rtsched.model.verdicts import Placement
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot
from rtsched_plugins.kernels.node_queues import (
    NodeQueues,
    balance,
    is_movable,
    last_end,
    least_window,
    loads,
    soonest,
)
from rtsched_plugins.kernels.scans import INDEX, MAJORITY
from rtsched_plugins.psts import (
    JOB,
    NODE,
    POOL,
    SIZE,
    WORK,
    Psts,
    Queues,
    closed,
    empty,
    machine_of,
    opened,
)

ARRIVED, STARTED, ENDED = EventKind.ARRIVED, EventKind.STARTED, EventKind.ENDED


def chain(**settings: object) -> Chain:
    """Return a chain of the one plug-in."""
    return Chain([Member("psts", Psts(Psts.Config(**settings)))])  # type: ignore[arg-type]


def queues_after(cluster: Cluster, events: Events, now: float = 0.0, **settings: object) -> Queues:
    """Return what is remembered after these events."""
    _, states = observe(make_snapshot(None, cluster, now), chain(**settings), events)
    state = states["psts"]
    assert isinstance(state, Queues)
    return state


def nodes_of(queues: Queues) -> dict[int, int]:
    """Return the node of each waiting job, by id."""
    return dict(zip(queues.waiting[:, JOB].tolist(), queues.waiting[:, NODE].tolist(), strict=True))


def for_kernels(queues: Queues, cluster: Cluster, cost: float = 0.0) -> NodeQueues:
    """Return the queues as kernels take them; `cost` is the time of a scan, moving takes none."""
    machine = machine_of(cluster, queues.shape, queues.cell, queues.sets)
    terms, choices = (cost, 0.0), (MAJORITY, INDEX, False, 512)
    none = queues.waiting[:0], Jobs.build(0)
    return opened(queues, *none, machine, np.empty((0, 0)), terms, choices, 0)[0]


def sets_of(placement: Placement | None) -> list[list[int] | None]:
    """Return each row's node set, None where there is no opinion."""
    assert placement is not None
    sets = [nodes.tolist() for nodes in placement.node_sets]
    return [sets[code] if code >= 0 else None for code in placement.node_set.tolist()]


def arrivals(jobs: Jobs) -> list[tuple[float, Any, int]]:
    """Return the arrivals of all jobs at their submission."""
    return [(submit, ARRIVED, row) for row, submit in enumerate(jobs.submit.tolist())]


def test_a_job_arrives_where_it_would_end_first() -> None:
    """Three equal jobs on nodes of speed 1 and 2: the fast node gets the first and the third."""
    cluster = make_cluster(2, speed=[1.0, 2.0])
    jobs = make_jobs(3, submit=0.0)
    assert nodes_of(queues_after(cluster, make_events(jobs, arrivals(jobs)))) == {0: 1, 1: 0, 2: 1}


def test_a_wide_job_arrives_at_neighbours_that_end_first() -> None:
    """Two nodes are wanted where one of four is busy: the pair that ends first is the second."""
    jobs = make_jobs(2, submit=0.0, size=[1, 2])
    assert nodes_of(queues_after(make_cluster(4), make_events(jobs, arrivals(jobs)))) == {
        0: 0,
        1: 1,
    }


def test_an_early_end_starts_a_scan_that_pays() -> None:
    """Both nodes run long jobs, four wait; when one ends at once its node gets three of them."""
    jobs = make_jobs(6, submit=0.0, wall_time=[7200, 7200, 3600, 3600, 3600, 3600])
    happens = [
        (0.0, ARRIVED, 0),
        (0.0, ARRIVED, 1),
        (0.0, STARTED, 0),
        (0.0, STARTED, 1),
        *((1.0, ARRIVED, row) for row in (2, 3, 4, 5)),
    ]
    before = queues_after(make_cluster(2), make_events(jobs, happens))
    assert nodes_of(before) == {2: 0, 3: 1, 4: 0, 5: 1}
    after = queues_after(make_cluster(2), make_events(jobs, [*happens, (2.0, ENDED, 0)]))
    assert sorted(nodes_of(after).values()) == [0, 0, 0, 1]
    assert (after.runs, after.moved) == (1, 1)
    dear = queues_after(
        make_cluster(2), make_events(jobs, [*happens, (2.0, ENDED, 0)]), comm_step=2000.0
    )
    assert nodes_of(dear) == nodes_of(before)
    assert dear.runs == 0


def test_moving_data_has_its_price() -> None:
    """The same scan does not pay where a job's data take an hour over the link."""
    jobs = make_jobs(6, submit=0.0, wall_time=[7200, 7200, 3600, 3600, 3600, 3600])
    happens = [(0.0, ARRIVED, 0), (0.0, ARRIVED, 1), (0.0, STARTED, 0), (0.0, STARTED, 1)]
    happens += [(1.0, ARRIVED, row) for row in (2, 3, 4, 5)] + [(2.0, ENDED, 0)]
    events = make_events(jobs, happens)
    slow = queues_after(make_cluster(2), events, bandwidth=1.0, job_bytes=3600)
    assert slow.scans >= 1
    assert slow.runs == 0
    fast = queues_after(make_cluster(2), events, bandwidth=1e6, job_bytes=3600)
    assert fast.runs == 1


def test_pinned_jobs_stay() -> None:
    """Three jobs are pinned to node 0; whatever else comes goes to node 1, they never move."""
    jobs = make_jobs(6, submit=0.0, pinned=[0, 0, 0, -1, -1, -1])
    state = queues_after(make_cluster(2), make_events(jobs, arrivals(jobs)), comm_step=0.0)
    assert nodes_of(state) == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}


def test_soft_jobs_may_take_any_node_and_strict_ones_their_own() -> None:
    """A wish is an order of all nodes; a bond is one node, and only while nobody's are idle."""
    jobs = make_jobs(4, submit=0.0, size=[1, 1, 1, 2])
    snapshot = make_snapshot(jobs, make_cluster(3))
    soft = steer(snapshot, chain()).placement
    assert sets_of(soft) == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    strict = steer(snapshot, chain(binding="strict")).placement
    assert sets_of(strict) == [[0], [1], [2], [0, 1, 2]]
    few = make_snapshot(jobs.take([0, 1]), make_cluster(3))
    assert sets_of(steer(few, chain(binding="strict")).placement) == [[0, 1, 2], [1, 2, 0]]


def test_partitions_dead_nodes_and_too_wide_jobs() -> None:
    """Sets hold usable nodes of the partition; a job wider than they are is left alone."""
    cluster = make_cluster(4, partitions={"half": [2, 3]}, state=np.array([0, 2, 0, 0], np.int8))
    jobs = make_jobs(4, submit=0.0, partition=["half", None, "half", None], size=[1, 1, 3, 3])
    placement = steer(make_snapshot(jobs, cluster), chain()).placement
    assert sets_of(placement) == [[2, 3], [0, 2, 3], None, [0, 2, 3]]


def test_a_job_wider_than_what_is_up_is_work_of_no_node() -> None:
    """One of three nodes is down: a job of three waits, and the queues are as if it did not."""
    cluster = make_cluster(3, state=np.array([0, 0, 2], np.int8))
    jobs = make_jobs(3, submit=0.0, size=[3, 1, 1], wall_time=[1000.0, 10.0, 20.0])
    queues = queues_after(cluster, make_events(jobs, arrivals(jobs)))
    q = for_kernels(queues, cluster)
    assert nodes_of(queues) == {0: 0, 1: 0, 2: 1}
    assert (loads(q, 0) * q.machine.common[0] / 1000).tolist() == [10.0, 20.0, 0.0]
    assert [is_movable(q, 0, row) for row in range(3)] == [False, True, True]


def test_jobs_leave_a_node_that_went_down() -> None:
    """Two jobs wait for node 0; when it is lost the next nodes serve them."""
    jobs = make_jobs(2, submit=0.0)
    _, states = observe(
        make_snapshot(None, make_cluster(2)), chain(), make_events(jobs, arrivals(jobs))
    )
    lost = make_cluster(2, state=np.array([2, 0], np.int8))
    placement = steer(make_snapshot(jobs, lost, states=dict(states)), chain()).placement
    assert sets_of(placement) == [[1], [1]]


def test_the_cluster_s_own_grid_is_used() -> None:
    """Cells of a given grid decide who is whose neighbour."""
    topology = Topology(shape=(2, 2), cell=np.array([3, 0, 1, 2]))
    cluster = Cluster(make_cluster(4).nodes, topology=topology)
    jobs = make_jobs(1, submit=0.0, size=2)
    placement = steer(make_snapshot(jobs, cluster), chain()).placement
    assert sets_of(placement) == [[1, 2, 3, 0]]
    ring = Topology(link=np.array([[0, 2], [2, 1]], np.int32), bandwidth=np.ones(2))
    chained = Cluster(make_cluster(3).nodes, topology=ring)
    placement = steer(make_snapshot(jobs, chained), chain(dimension=1)).placement
    assert sets_of(placement) == [[0, 2, 1]]


@given(st.lists(st.floats(0, 9), min_size=1, max_size=20), st.data())
def test_the_least_window_of_neighbours(values: list[float], data: st.DataObject) -> None:
    """It is the first one whose largest value is least, as found window by window."""
    size = data.draw(st.integers(1, len(values)))
    found = least_window(np.array(values), size, np.zeros(len(values), np.int64))
    latest = [max(values[k : k + size]) for k in range(len(values) - size + 1)]
    assert found == latest.index(min(latest))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=12),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=4, max_size=7),
    st.data(),
)
def test_scans_lose_no_job_and_keep_room_for_each(
    wanted: list[tuple[int, int]], speed: list[float], data: st.DataObject
) -> None:
    """Whatever runs and waits, jobs keep a place for their size and none is lost."""
    cluster = make_cluster(len(speed), speed=speed)
    size, hours = zip(*wanted, strict=True)
    jobs = make_jobs(len(wanted), submit=0.0, size=list(size), wall_time=3600.0 * np.array(hours))
    running = data.draw(st.sets(st.integers(0, len(wanted) - 1), max_size=3))
    happens: list[tuple[float, Any, int]] = [(0.0, ARRIVED, row) for row in running]
    happens += [(0.0, STARTED, row) for row in running]
    happens += [(1.0, ARRIVED, row) for row in range(len(wanted)) if row not in running]
    happens += [(2.0, ENDED, row) for row in sorted(running)[:1]]
    free = {"comm_step": 0.0, "comp_step": 0.0, "least_imbalance": 0.0}
    state = queues_after(cluster, make_events(jobs, happens), **free)
    assert sorted(nodes_of(state)) == [row for row in range(len(wanted)) if row not in running]
    assert state.runs <= state.scans
    waiting = jobs.take([row for row in range(len(wanted)) if row not in running])
    snapshot = make_snapshot(waiting, cluster, 2.0, states={"psts": state})
    placement = steer(snapshot, chain(binding="strict", **free)).placement
    assert placement is None or all(
        nodes is not None and len(nodes) >= width
        for nodes, width in zip(sets_of(placement), waiting.size.tolist(), strict=True)
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(*(st.integers(0, 6), st.integers(1, 4), st.integers(1, 9))), min_size=1),
    st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 9)), min_size=7, max_size=9
    ),
)
def test_a_scan_is_carried_out_only_if_the_last_end_comes_sooner(
    wanted: list[tuple[int, int, int]], nodes: list[tuple[float, int]]
) -> None:
    """The last end is never before the bound, and a scan that moves jobs brings it nearer."""
    speed, busy = zip(*nodes, strict=True)
    cluster = make_cluster(len(nodes), speed=list(speed))
    waiting = np.zeros((len(wanted), 6), np.int64)
    waiting[:, JOB] = np.arange(len(wanted))
    waiting[:, [NODE, SIZE, WORK]] = wanted
    waiting[:, POOL] = -1
    running = np.stack([np.full(len(nodes), -1), np.arange(len(nodes))], axis=1)
    queues = msgspec.structs.replace(
        empty(cluster, 2), waiting=waiting, held=running, held_until=np.array(busy, float)
    )
    q, cost = for_kernels(queues, cluster, 0.1), 0.1
    balance(q, 0.0)
    power, held, total = q.machine.power[0], q.fixed[0], int((q.units[0] * q.size).sum())
    before = last_end(power, held, for_kernels(queues, cluster).queued[0])
    after, least = last_end(power, held, q.queued[0]), soonest(power, held, total, q.units.max())
    assert min(before, after) >= least - 1e-9
    found = closed(queues, q, waiting)
    if found.runs:
        assert after < before - cost
    else:
        assert np.array_equal(found.waiting, waiting)


def test_promised_jobs_are_not_looked_at() -> None:
    """A job that the plan owns leaves the queues at the next event."""
    jobs = make_jobs(3, submit=0.0)
    link, first = chain(), make_events(jobs, arrivals(jobs))
    _, states = observe(make_snapshot(None, make_cluster(2)), link, first)
    indptr, node = np.array([0, 1]), np.array([0], np.int32)
    plan = Schedule.build([1], [0.0], [3600.0], indptr, node)
    later = make_snapshot(jobs, make_cluster(2), 1.0, plan=plan, states=dict(states))
    _, states = observe(later, link, make_events(jobs, [(1.0, STARTED, 0)]))
    assert sorted(nodes_of(states["psts"])) == [2]


def test_bad_settings_are_refused() -> None:
    """A negative step time is no setting."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"comm_step": -1.0}, Psts.Config)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"binding": "loose"}, Psts.Config)
