"""The psts plug-in where jobs share nodes: by which resource it balances, where jobs may go."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe, steer
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.state import EventKind, Events, decode_state, encode_state
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot
from rtsched_plugins.kernels.node_queues import (
    NodeQueues,
    balance,
    last_end,
    loads,
    scarcest,
    seconds_of_pools,
    set_fixed,
)
from rtsched_plugins.kernels.scans import INDEX, MAJORITY
from rtsched_plugins.psts import (
    AMOUNT,
    JOB,
    NODE,
    SIZE,
    WORK,
    Psts,
    Queues,
    closed,
    empty,
    gathered,
    machine_of,
    opened,
    rows_of,
)

ARRIVED, STARTED, ENDED = EventKind.ARRIVED, EventKind.STARTED, EventKind.ENDED
RESOURCES = ("cpu", "mem", "gres/gpu")


def machine(capacity: list[tuple[int, int, int]], **more: Any) -> Cluster:
    """Return nodes with these amounts of cores, memory and GPUs."""
    columns = {name: more.pop(name) for name in ("speed", "state") if name in more}
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table, **columns)
    return Cluster(nodes, **more)


def asking(demand: list[tuple[int, int, int]], **columns: Any) -> Jobs:
    """Return jobs that ask for these amounts of cores, memory and GPUs on each node."""
    names = {"demand": RESOURCES, **columns.pop("names", {})}
    n, table = len(demand), np.array(demand, np.int64).reshape(len(demand), 3)
    given = {"submit": np.zeros(n), "wall_time": np.full(n, 3600.0), **columns}
    return Jobs.build(n, names=names, id=np.arange(n), demand=table, **given)


def chain(**settings_given: object) -> Chain:
    """Return a chain of the one plug-in."""
    return Chain([Member("psts", Psts(Psts.Config(**settings_given)))])  # type: ignore[arg-type]


def queues_after(cluster: Cluster, events: Events, **settings_given: object) -> Queues:
    """Return what is remembered after these events."""
    asked = chain(**settings_given)
    _, states = observe(make_snapshot(None, cluster), asked, events)
    assert not asked.hook_metrics["observe"]["psts"].errors
    state = states["psts"]
    assert isinstance(state, Queues)
    return state


def nodes_of(queues: Queues) -> dict[int, int]:
    """Return the node of each waiting job, by id."""
    return dict(zip(queues.waiting[:, JOB].tolist(), queues.waiting[:, NODE].tolist(), strict=True))


def arrivals(jobs: Jobs, rows: range | None = None) -> list[tuple[float, Any, int]]:
    """Return arrivals of jobs at their submission."""
    return [(float(jobs.submit[row]), ARRIVED, row) for row in rows or range(len(jobs))]


def for_kernels(queues: Queues, cluster: Cluster) -> NodeQueues:
    """Return the queues as kernels take them; scans and moves take no time."""
    machine = machine_of(cluster, queues.shape, queues.cell, queues.sets)
    terms, choices = (0.0, 0.0), (MAJORITY, INDEX, False, 512)
    none = queues.waiting[:0], Jobs.build(0)
    return opened(queues, *none, machine, np.empty((0, 0)), terms, choices, 0)[0]


def evened(queues: Queues, cluster: Cluster) -> Queues:
    """Return the queues after free scans by each resource."""
    q = for_kernels(queues, cluster)
    balance(q, 0.0)
    return closed(queues, q, queues.waiting)


def scarcest_of(queues: Queues, cluster: Cluster) -> list[tuple[int, float]]:
    """Return by which resource each waiting job counts, and how many seconds of it are wanted."""
    q = for_kernels(queues, cluster)
    set_fixed(q, 0.0)
    seconds = seconds_of_pools(q)
    return [scarcest(q, row, seconds) for row in range(len(queues.waiting))]


def told(jobs: Jobs, cluster: Cluster) -> Queues:
    """Return queues in which jobs wait, as many on each node as their ids are alike modulo n."""
    queues, rows = gathered(empty(cluster, 1), *rows_of(jobs, cluster, 86400.0, 0))
    rows[:, NODE] = np.arange(len(jobs)) % len(cluster)
    return msgspec.structs.replace(queues, waiting=rows)


def test_jobs_arrive_where_their_scarcest_resource_is_free_first() -> None:
    """GPUs are scarce on the nodes that have some; jobs without GPUs go by the cores of all.

    Two jobs of one GPU go to both GPU nodes, one of two to the first, and the next to the second.
    A job of 4 cores would bring these nodes to 5/8 and 6/8 hours, the node without GPUs to 4/16.
    """
    cluster = machine([(8, 64, 4), (8, 64, 4), (16, 64, 0)])
    jobs = asking([(1, 1, 1), (1, 1, 1), (1, 1, 2), (1, 1, 1), (4, 1, 0)])
    queues = queues_after(cluster, make_events(jobs, arrivals(jobs)))
    assert nodes_of(queues) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 2}


def test_the_scarcest_resource_is_that_with_most_work_for_what_there_is() -> None:
    """One job asks for 2 of 8 cores and 1 of 8 GPUs, then others for GPUs alone.

    Of cores 2 * 3600 s on 8 are 900 s, of GPUs 450 s; three more GPUs make that 1,800 s.
    """
    cluster = machine([(4, 64, 4), (4, 64, 4)])
    jobs = asking([(2, 0, 1), (0, 0, 3)])
    for rows, resource, seconds in (([0], 0, 900.0), ([0, 1], 2, 1800.0)):
        queues = told(jobs.take(rows), cluster)
        assert scarcest_of(queues, cluster)[0] == (resource, seconds)


def test_of_equally_scarce_resources_the_first_counts() -> None:
    """2 of 8 cores and 1 of 4 GPUs: both are a quarter; cores stand first."""
    cluster = machine([(8, 64, 4)])
    queues = told(asking([(2, 1, 1)]), cluster)
    assert scarcest_of(queues, cluster) == [(0, 900.0)]


def test_an_early_end_starts_a_scan_of_gpu_hours() -> None:
    """Two nodes of 4 GPUs run jobs of 4 GPUs for two hours; eight of 2 GPUs and one hour wait.

    When the first job ends after 2 s, 8 * 7,200 GPU-seconds wait and 4 * 7,198 run. Half of all is
    43,196: the idle node gets 6 jobs with 43,200, the other keeps 2.
    """
    cluster = machine([(64, 64, 4), (64, 64, 4)])
    wall = np.array([7200.0] * 2 + [3600.0] * 8)
    jobs = asking([(1, 1, 4)] * 2 + [(1, 1, 2)] * 8, wall_time=wall)
    happens = [*arrivals(jobs, range(2)), (0.0, STARTED, 0), (0.0, STARTED, 1)]
    happens += [(1.0, ARRIVED, row) for row in range(2, 10)]
    before = queues_after(cluster, make_events(jobs, happens))
    assert sorted(nodes_of(before).values()) == [0] * 4 + [1] * 4
    after = queues_after(cluster, make_events(jobs, [*happens, (2.0, ENDED, 0)]))
    assert sorted(nodes_of(after).values()) == [0] * 6 + [1] * 2
    assert (after.runs, after.moved) == (1, 2)


def test_a_scan_by_one_resource_moves_no_job_that_counts_by_another() -> None:
    """Jobs with GPUs are balanced over both GPU nodes by GPUs; the cores of the other one stay."""
    cluster = machine([(64, 64, 4), (64, 64, 4)])
    queues = told(asking([(1, 1, 2)] * 6 + [(1, 0, 0)]), cluster)
    rows = queues.waiting.copy()
    rows[:, NODE] = 0
    queues = msgspec.structs.replace(queues, waiting=rows)
    after = evened(queues, cluster)
    assert sorted(nodes_of(after).values()) == [0] * 4 + [1] * 3
    assert nodes_of(after)[6] == 0


def test_sets_hold_only_nodes_that_hold_the_job_and_that_it_may_use() -> None:
    """By capacity, partition, request and state; no opinion where too few are left."""
    state = np.array([0, 0, 0, NodeState.DOWN], np.int8)
    cluster = machine(
        [(8, 64, 4), (8, 64, 2), (16, 64, 0), (16, 64, 4)],
        state=state,
        partitions={"some": np.array([True, False, True, True])},
        node_sets={"-w n1": np.array([False, True, False, False])},
    )
    jobs = asking(
        [(1, 1, 1), (1, 1, 3), (12, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 5), (1, 1, 4)],
        size=np.array([1, 1, 1, 1, 1, 1, 2], np.int32),
        names={"partition": ("some",), "node_request": ("-w n1",)},
        partition=np.array([-1, -1, -1, 0, 0, -1, -1], np.int32),
        node_request=np.array([-1, -1, -1, -1, 0, -1, -1], np.int32),
    )
    placement = steer(make_snapshot(jobs, cluster), chain()).placement
    assert placement is not None
    found = [
        set(placement.node_sets[code].tolist()) if code >= 0 else None
        for code in placement.node_set.tolist()
    ]
    assert found == [{0, 1}, {0}, {2}, {0, 2}, {1}, None, None]


def test_an_exclusive_job_counts_with_the_whole_node() -> None:
    """One core of an exclusive job is worth the 8 that a node has; it runs with those of its own.

    Four jobs of 2 cores are as much; so one node gets the exclusive job and the other these.
    """
    cluster = machine([(8, 64, 0), (8, 64, 0)])
    exclusive = np.array([True, False, False, False, False])
    jobs = asking([(1, 1, 0)] + [(2, 1, 0)] * 4, exclusive=exclusive)
    queues = queues_after(cluster, make_events(jobs, arrivals(jobs)))
    assert nodes_of(queues) == {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}
    uneven = machine([(8, 64, 0), (24, 64, 0)])
    events = make_events(jobs, [(0.0, ARRIVED, 0), (0.0, STARTED, 0)])
    queues = queues_after(uneven, events)
    q = for_kernels(queues, uneven)
    set_fixed(q, 0.0)
    assert (q.fixed[0] * q.machine.common[0] / 1000).tolist() == [0.0, 24 * 3600.0]


def test_an_exclusive_job_does_not_count_by_what_only_some_of_its_nodes_have() -> None:
    """It may go to nodes with and without GPUs: it takes 12 cores on average, and no GPU."""
    cluster = machine([(8, 64, 4), (16, 64, 0)])
    jobs = asking([(1, 0, 0), (1, 0, 1)], exclusive=np.array([True, True]))
    rows, _ = rows_of(jobs, cluster, 86400.0, 0)
    assert rows[:, AMOUNT:].tolist() == [[12, 64, 0], [8, 64, 4]]


def test_strict_jobs_wait_for_their_own_node() -> None:
    """While a node is idle for which nobody waits no job is bound, afterwards each to its node."""
    cluster = machine([(8, 64, 0)] * 2)
    jobs = asking([(8, 1, 0)] * 2)
    for rows, expected in (([0], [[0, 1]]), ([0, 1], [[0], [1]])):
        snapshot = make_snapshot(jobs.take(rows), cluster)
        placement = steer(snapshot, chain(binding="strict")).placement
        assert placement is not None
        assert [placement.node_sets[at].tolist() for at in placement.node_set] == expected


node = st.tuples(st.integers(1, 8), st.integers(1, 9), st.integers(0, 4))
demand = st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 4))


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Cluster, Jobs]:
    """Draw a machine of shared nodes, some of them down or slow, and jobs of all forms."""
    capacity = draw(st.lists(node, min_size=1, max_size=6))
    n = len(capacity)
    mask = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    cluster = machine(
        capacity,
        speed=draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=n, max_size=n)),
        state=np.array(draw(st.lists(st.sampled_from([0, 0, 0, 2]), min_size=n, max_size=n))),
        partitions={"some": draw(mask), "few": draw(mask)},
    )
    rows = draw(st.lists(st.tuples(demand, st.integers(1, 3), st.integers(1, 9)), max_size=10))
    k = len(rows)
    flags = draw(st.lists(st.sampled_from([False, False, True]), min_size=k, max_size=k))
    jobs = asking(
        [amounts for amounts, *_ in rows],
        size=np.array([size for _, size, _ in rows], np.int32),
        wall_time=3600.0 * np.array([hours for *_, hours in rows]),
        exclusive=np.array(flags, np.bool_),
        names={"partition": ("some", "few")},
        partition=np.array(draw(st.lists(st.integers(-1, 1), min_size=k, max_size=k)), np.int32),
    )
    return cluster, jobs


def fits(cluster: Cluster, jobs: Jobs, row: int, at: int) -> bool:
    """Return whether a job may use a node that is up, and the node holds it; plain code."""
    code = int(jobs.partition[row])
    allowed = code < 0 or bool(cluster.partitions[("some", "few")[code]][at])
    asked, has = jobs.demand[row].tolist(), cluster.nodes.capacity[at].tolist()
    up = cluster.nodes.state[at] == NodeState.UP
    return up and allowed and all(a <= b for a, b in zip(asked, has, strict=True))


@settings(max_examples=80, deadline=None)
@given(scenes(), st.data())
def test_placements_always_fit_and_no_job_is_lost(
    scene: tuple[Cluster, Jobs], data: st.DataObject
) -> None:
    """Whatever runs and waits: a job's set is all nodes that fit, if they are enough."""
    cluster, jobs = scene
    n = len(jobs)
    running = sorted(data.draw(st.sets(st.integers(0, max(n - 1, 0)), max_size=3))) if n else []
    happens: list[tuple[float, Any, int]] = [(0.0, ARRIVED, row) for row in running]
    happens += [(0.0, STARTED, row) for row in running]
    happens += [(1.0, ARRIVED, row) for row in range(n) if row not in running]
    happens += [(2.0, ENDED, row) for row in running[:1]]
    asked = chain(comm_step=0.0, comp_step=0.0, least_imbalance=0.0)
    _, states = observe(make_snapshot(None, cluster), asked, make_events(jobs, happens))
    waiting = jobs.take([row for row in range(n) if row not in running])
    placement = steer(make_snapshot(waiting, cluster, 2.0, states=dict(states)), asked).placement
    for hook in ("observe", "partition"):
        assert not asked.hook_metrics[hook]["psts"].errors, asked.hook_metrics[hook]["psts"]
    if not n:
        return
    assert sorted(nodes_of(states["psts"])) == waiting.id.tolist()
    for row, code in enumerate([] if placement is None else placement.node_set.tolist()):
        fitting = {at for at in range(len(cluster)) if fits(cluster, waiting, row, at)}
        if len(fitting) < waiting.size[row]:
            assert code == -1
        else:
            assert placement is not None
            assert set(placement.node_sets[code].tolist()) == fitting


@settings(max_examples=80, deadline=None)
@given(scenes())
def test_loads_and_the_scarcest_resource_as_the_plain_way(scene: tuple[Cluster, Jobs]) -> None:
    """Work per node and resource, and each job's resource, counted job by job with fractions."""
    cluster, jobs = scene
    jobs = jobs.replace(size=np.ones(len(jobs), np.int32))
    queues = told(jobs, cluster)
    q = for_kernels(queues, cluster)
    fitting = [
        [at for at in range(len(cluster)) if fits(cluster, jobs, row, at)]
        for row in range(len(jobs))
    ]
    amounts = queues.waiting[:, AMOUNT:].tolist()
    power = [
        [Fraction(speed) * int(has) * bool(up) for has in row]
        for speed, row, up in zip(
            cluster.nodes.speed.tolist(), cluster.nodes.capacity, cluster.usable, strict=True
        )
    ]
    seconds = [[Fraction(-1)] * 3 for _ in fitting]
    for resource, common in enumerate(q.machine.common.tolist()):
        unit, load = Fraction(common, 1000), [0] * len(cluster)
        for row, nodes in enumerate(fitting):
            work = amounts[row][resource] * int(jobs.wall_time[row])
            for at in [at for at in nodes if at >= row % len(cluster)][:1] or nodes[-1:]:
                load[at] += math.ceil(work / unit)
        assert loads(q, resource).tolist() == load
        for row, nodes in enumerate(fitting):
            if amounts[row][resource] > 0 and nodes:
                does = sum(power[at][resource] for at in nodes)
                asked = sum(load[at] for at in nodes) * unit
                seconds[row][resource] = asked / does if does else Fraction(0)
    chosen = scarcest_of(queues, cluster)
    for row in [row for row, nodes in enumerate(fitting) if nodes]:
        assert chosen[row][0] == seconds[row].index(max(seconds[row]))


@settings(max_examples=80, deadline=None)
@given(scenes())
def test_a_scan_conserves_work_and_brings_the_last_end_nearer(scene: tuple[Cluster, Jobs]) -> None:
    """By each resource the waiting work stays the same, and jobs stay where they fit."""
    cluster, jobs = scene
    queues = told(jobs, cluster)
    after = evened(queues, cluster)
    assert np.array_equal(
        np.delete(after.waiting, NODE, axis=1), np.delete(queues.waiting, NODE, axis=1)
    )
    q, moved = for_kernels(queues, cluster), for_kernels(after, cluster)
    for view in range(len(q.units)):
        assert loads(q, view).sum() == loads(moved, view).sum()
    if after.runs == 1 and len(jobs):
        chosen = np.array([resource for resource, _ in scarcest_of(queues, cluster)])
        changed = np.flatnonzero(after.waiting[:, NODE] != queues.waiting[:, NODE])
        view = int(chosen[changed[0]])
        mine, ends = chosen == view, []
        for each in (queues, after):
            parts = (
                for_kernels(msgspec.structs.replace(each, waiting=each.waiting[rows]), cluster)
                for rows in (~mine, mine)
            )
            stays, queued = (loads(part, view) for part in parts)
            ends.append(last_end(q.machine.power[view], stays, queued))
        assert ends[1] < ends[0]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=7),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(1, 3)), max_size=12),
    st.integers(0, 3),
)
def test_one_resource_is_as_whole_nodes_with_that_resource_as_unit(
    capacity: list[int], rows: list[tuple[int, int, int]], busy: int
) -> None:
    """A node of c cores is as a node of speed c, a job of a cores as one that takes a times longer.

    Some nodes run a job that takes all of them.
    """
    n, k = len(capacity), len(rows)
    busy = min(busy, n)
    least = min(capacity)
    amounts = np.array([min(amount, least) for amount, *_ in rows], np.int64)
    wall = 600.0 * np.array([units for _, units, _ in rows])
    size = np.array([min(nodes, n) for *_, nodes in rows], np.int32)
    names, table = {"capacity": ("cpu",)}, np.array(capacity, np.int64)[:, None]
    shared = Cluster(Nodes.build(n, names=names, capacity=table))
    whole = make_cluster(n, speed=[float(cores) for cores in capacity])
    found = []
    for cluster, times in ((shared, 1), (whole, amounts)):
        columns: dict[str, Any] = {}
        taken: dict[str, Any] = {}
        if cluster is shared:
            columns = {"names": {"demand": ("cpu",)}, "demand": amounts[:, None]}
            taken = {"names": {"demand": ("cpu",)}, "demand": table[:busy]}
        jobs = Jobs.build(
            k, id=np.arange(k), submit=np.zeros(k), size=size, wall_time=wall * times, **columns
        )
        held = Jobs.build(
            busy,
            id=100 + np.arange(busy),
            submit=np.zeros(busy),
            wall_time=np.full(busy, 2000.0),
            **taken,
        )
        both = Jobs.joined([held, jobs])
        happens = [(0.0, STARTED, row) for row in range(busy)]
        happens += [(1.0, ARRIVED, busy + row) for row in range(k)]
        snapshot = make_snapshot(
            None, cluster, 1.0, running=held, nodes=[[row] for row in range(busy)]
        )
        asked = chain(comm_step=0.0, comp_step=0.0, least_imbalance=0.0)
        _, states = observe(snapshot, asked, make_events(both, happens))
        happens = [(2.0, ENDED, row) for row in range(busy)]
        after = replace(snapshot, now=2.0, states=dict(states))
        _, states = observe(after, asked, make_events(both, happens)) if busy else (None, states)
        found.append(nodes_of(states["psts"]) if "psts" in states else {})
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_the_state_is_data_however_events_are_cut(scene: tuple[Cluster, Jobs]) -> None:
    """Told one by one or all at once, the state is the same, and reads back from what is stored."""
    cluster, jobs = scene
    if not len(jobs):
        return
    happens = [*arrivals(jobs), *((1.0, STARTED, row) for row in range(0, len(jobs), 2))]
    happens += [(2.0, ENDED, 0)]
    events = make_events(jobs, happens)
    at_once = queues_after(cluster, events)
    asked, states = chain(), {}
    for row in range(len(events)):
        piece = type(events)(events.rows.take([row]), events.jobs.take([row]))
        _, states = observe(make_snapshot(None, cluster, states=dict(states)), asked, piece)
    stored = encode_state(at_once)
    assert encode_state(states["psts"]) == stored
    assert encode_state(decode_state(stored, Queues)) == stored


def test_a_running_job_without_a_time_limit_takes_nothing_of_what_it_does_not_ask_for() -> None:
    """It runs on node 0 for ever, with a core; a GPU there is as free as one of node 1."""
    cluster = machine([(8, 64, 4), (8, 64, 4)])
    jobs = asking([(1, 0, 0), (0, 0, 1), (1, 0, 0)], wall_time=np.array([np.inf, 60.0, 60.0]))
    happens = [(0.0, ARRIVED, 0), (0.0, STARTED, 0), (1.0, ARRIVED, 1), (1.0, ARRIVED, 2)]
    queues = queues_after(cluster, make_events(jobs, happens))
    assert nodes_of(queues) == {1: 0, 2: 1}
    q = for_kernels(queues, cluster)
    set_fixed(q, 1.0)
    assert q.fixed[0, 0] > 10**9
    assert q.fixed[1:].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("resources", [0, 1])
def test_any_number_of_running_jobs_without_a_time_limit_can_be_counted(resources: int) -> None:
    """On 1,500 nodes, each with one such job, those that wait are balanced all the same."""
    n, given = 1500, {"wall_time": np.full(1502, np.inf)}
    cluster = make_cluster(n)
    if resources:
        cluster = machine([(1, 1, 0)] * n)
        demand = {"names": {"demand": RESOURCES}, "demand": np.array([(1, 0, 0)] * (n + 2))}
        given.update(demand)  # type: ignore[arg-type]
    jobs = make_jobs(n + 2, submit=0.0, **given)
    happens = [(0.0, STARTED, row) for row in range(n)]
    happens += [(1.0, ARRIVED, n), (1.0, ARRIVED, n + 1), (2.0, ENDED, 1), (2.0, ENDED, 2)]
    running = jobs.take(range(n))
    snapshot = make_snapshot(None, cluster, running=running, nodes=[[row] for row in range(n)])
    asked = chain()
    _, states = observe(snapshot, asked, make_events(jobs, happens))
    metrics = asked.hook_metrics["observe"]["psts"]
    assert not metrics.errors, metrics.first_error
    assert sorted(nodes_of(states["psts"]).values()) == [1, 2]


def test_large_amounts_are_counted_in_steps() -> None:
    """Bytes of memory and long times stay far below what integers hold; cores are exact."""
    tera = 2**40
    cluster = machine([(128, tera, 8), (128, tera // 2, 8)])
    jobs = asking([(0, tera // 4 + 1, 0)] * 3, wall_time=np.full(3, 1e7))
    queues = queues_after(cluster, make_events(jobs, arrivals(jobs)))
    assert nodes_of(queues) == {0: 0, 1: 0, 2: 1}
    assert for_kernels(queues, cluster).machine.step.tolist() == [1, 2**28, 1]
    assert queues.waiting[:, SIZE].tolist() == [1, 1, 1]
    assert queues.waiting[:, WORK].tolist() == [10**7] * 3


def test_a_state_of_other_resources_is_begun_anew() -> None:
    """Queues of a machine whose resources were others are not read by the wrong columns."""
    jobs = asking([(1, 1, 0)])
    state = queues_after(machine([(8, 64, 4)]), make_events(jobs, arrivals(jobs)))
    nodes = Nodes.build(1, names={"capacity": ("cpu",)}, capacity=np.array([[8]]))
    snapshot = make_snapshot(jobs, Cluster(nodes), states={"psts": state})
    asked = chain()
    assert steer(snapshot, asked).placement is not None
    assert not asked.hook_metrics["partition"]["psts"].errors


@pytest.mark.parametrize("kind", [STARTED, ENDED])
def test_who_leaves_takes_its_set_along(kind: EventKind) -> None:
    """Sets of nodes are remembered only while a job waits that needs them."""
    cluster = machine([(8, 64, 4), (8, 64, 0)])
    jobs = asking([(1, 1, 1), (1, 1, 0)])
    state = queues_after(cluster, make_events(jobs, [*arrivals(jobs), (1.0, kind, 0)]))
    assert state.sets.tolist() == [[True, True]]
