"""The sed plug-in without time sharing where jobs share nodes: classes of nodes that have room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.cycle import observe, steer
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.events import EventKind
from rtsched.model.jobs import Jobs, Kind
from rtsched.testing import make_events, make_snapshot
from rtsched_plugins.sed import Recorded, Sed

if TYPE_CHECKING:
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.verdicts import Placement

RESOURCES = ("cpu", "mem", "gres/gpu")
MATLAB = "license/matlab"


def machine(capacity: list[tuple[int, int, int]], **more: Any) -> Cluster:
    """Return nodes with these amounts of cores, memory and GPUs."""
    columns = {name: more.pop(name) for name in ("speed", "state") if name in more}
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table, **columns)
    return Cluster(nodes, **more)


def asking(demand: list[tuple[int, ...]], **columns: Any) -> Jobs:
    """Return moldable jobs of 1 to 4 nodes that ask for these cores, memory, GPUs and licences."""
    names = {"demand": (*RESOURCES, MATLAB), **columns.pop("names", {})}
    n = len(demand)
    table = np.array([(*each, 0)[:4] for each in demand], np.int64).reshape(n, 4)
    given = {
        "id": np.arange(n),
        "submit": np.zeros(n),
        "wall_time": np.full(n, 3600.0),
        "kind": np.full(n, Kind.MOLDABLE, np.int8),
        "size_min": np.ones(n, np.int32),
        "size_max": np.full(n, 4, np.int32),
        **columns,
    }
    return Jobs.build(n, names=names, demand=table, **given)


def chain(**settings_given: object) -> Chain:
    """Return a chain of the one plug-in, as `sed-batch` has it."""
    given: dict[str, Any] = {"migrate": False, **settings_given}
    return Chain([Member("sed", Sed(Sed.Config(**given)))])


def placed(snapshot: Snapshot) -> Placement:
    """Return the answer about all jobs that wait."""
    asked = chain()
    placement = steer(snapshot, asked).placement
    metrics = asked.hook_metrics["partition"]["sed"]
    assert not metrics.errors, metrics.first_error
    assert placement is not None
    return placement


def sets_of(placement: Placement) -> list[list[int] | None]:
    """Return each row's node set, None where there is no opinion."""
    sets = [nodes.tolist() for nodes in placement.node_sets]
    return [sets[code] if code >= 0 else None for code in placement.node_set.tolist()]


def filled(cluster: Cluster, cores: list[int], jobs: Jobs) -> Snapshot:
    """Return a snapshot in which jobs wait and so many cores of each node are taken."""
    rows = [row for row, count in enumerate(cores) if count]
    names, n = {"demand": RESOURCES}, len(rows)
    running = Jobs.build(
        n,
        names=names,
        id=100 + np.arange(n),
        submit=np.zeros(n),
        wall_time=np.full(n, 100.0),
        demand=np.array([(cores[row], 0, 0) for row in rows], np.int64).reshape(n, 3),
    )
    return make_snapshot(jobs, cluster, running=running, nodes=[[row] for row in rows])


@pytest.mark.parametrize(
    ("taken", "size"),
    [
        ([0, 0, 0, 0], 4),
        ([4, 4, 4, 4], 4),
        ([0, 0, 5, 8], 1),
        ([5, 0, 0, 0], 3),
        ([5, 8, 8, 0], 1),
        ([8, 8, 8, 8], 1),
    ],
)
def test_a_job_takes_the_class_of_least_delay_per_process_among_nodes_with_room(
    taken: list[int], size: int
) -> None:
    """A node of speed 2 and three of speed 1, of 8 cores each; processes of 4 cores.

    With room on all, 4 processes at delay 2 are a half each, one at delay 1 is 1. With room on one
    slow node only, 2/2 is no less than 1/1, and the faster class wins. Without the fast node there
    are as many processes as there are slow nodes with room. Where none has, the least size waits.
    """
    cluster = machine([(8, 64, 0)] * 4, speed=[2.0, 1.0, 1.0, 1.0])
    placement = placed(filled(cluster, taken, asking([(4, 1, 0)])))
    assert placement.size.tolist() == [size]
    assert sets_of(placement) == [[0, 1, 2, 3]]


def test_jobs_share_nodes_as_far_as_there_is_room() -> None:
    """Nodes of 8 cores hold two processes of 4: two jobs take all four nodes, the third waits."""
    cluster = machine([(8, 64, 0)] * 4)
    placement = placed(filled(cluster, [0] * 4, asking([(4, 1, 0)] * 3)))
    assert placement.size.tolist() == [4, 4, 1]
    placement = placed(filled(cluster, [1, 0, 0, 0], asking([(4, 1, 0)] * 3)))
    assert placement.size.tolist() == [4, 3, 1]


def test_processes_with_gpus_have_the_classes_of_nodes_with_gpus() -> None:
    """The fast node has none: a job with GPUs takes three others, one without all four."""
    cluster = machine([(8, 64, 0), *[(8, 64, 2)] * 3], speed=[2.0, 1.0, 1.0, 1.0])
    placement = placed(filled(cluster, [0] * 4, asking([(1, 1, 2), (1, 1, 0), (1, 1, 1)])))
    assert placement.size.tolist() == [3, 4, 1]
    assert sets_of(placement) == [[1, 2, 3], [0, 1, 2, 3], [1, 2, 3]]


def test_exclusive_jobs_need_nodes_without_others() -> None:
    """One core is taken on two nodes of four: an exclusive job takes the two others."""
    jobs = asking([(1, 1, 0), (1, 1, 0)], exclusive=np.array([True, False]))
    placement = placed(filled(machine([(8, 64, 0)] * 4), [1, 0, 1, 0], jobs))
    assert placement.size.tolist() == [2, 2]


def test_a_job_without_licences_waits_with_its_least_size() -> None:
    """One licence is left: the second job that needs it cannot start now."""
    cluster = machine([(8, 64, 0)] * 4, licenses={MATLAB: 1})
    placement = placed(filled(cluster, [0] * 4, asking([(1, 1, 0, 1), (1, 1, 0, 1), (1, 1, 0, 0)])))
    assert placement.size.tolist() == [4, 1, 4]


def test_rigid_jobs_prefer_the_fastest_nodes_that_hold_them() -> None:
    """By capacity, partition, request and state; no opinion where too few are left."""
    state = np.array([0, 0, 0, NodeState.DOWN], np.int8)
    cluster = machine(
        [(8, 64, 4), (8, 64, 2), (16, 64, 0), (16, 64, 4)],
        state=state,
        speed=[1.0, 2.0, 4.0, 4.0],
        partitions={"some": np.array([True, False, True, True])},
        node_sets={"-w n1": np.array([False, True, False, False])},
    )
    jobs = asking(
        [(1, 1, 1), (1, 1, 3), (12, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 5), (1, 1, 4)],
        kind=np.zeros(7, np.int8),
        size=np.array([1, 1, 1, 1, 1, 1, 2], np.int32),
        names={"partition": ("some",), "node_request": ("-w n1",)},
        partition=np.array([-1, -1, -1, 0, 0, -1, -1], np.int32),
        node_request=np.array([-1, -1, -1, -1, 0, -1, -1], np.int32),
    )
    placement = placed(make_snapshot(jobs, cluster))
    assert sets_of(placement) == [[1, 0], [0], [2], [2, 0], [1], None, None]
    assert placement.size.tolist() == [0] * 7


def test_who_runs_on_a_node_does_not_slow_a_process_there() -> None:
    """Delays are those of the nodes' speeds alone, whatever runs; so are recorded ones."""
    cluster = machine([(8, 64, 0)] * 2, speed=[2.0, 1.0])
    snapshot = filled(cluster, [4, 4], asking([(1, 1, 0)]))
    asked = chain()
    classes = asked.delay_class(snapshot.queued, snapshot)
    assert classes is not None
    assert classes.factor.tolist() == [1.0, 2.0]
    events = make_events(
        snapshot.running, [(0.0, EventKind.STARTED, 0), (0.0, EventKind.STARTED, 1)]
    )
    _, states = observe(snapshot, asked, events)
    state = states["sed"]
    assert isinstance(state, Recorded)
    assert state.delay.tolist() == [1.0, 2.0]


def test_rigid_jobs_are_answered_before_the_run() -> None:
    """What they prefer depends on nothing that changes; sizes of moldable ones do."""
    cluster, declared = machine([(8, 64, 0)]), Sed(Sed.Config(migrate=False)).capabilities
    jobs = asking([(1, 1, 0)])
    assert declared.static_hooks is not None
    assert declared.static_hooks(jobs.replace(kind=np.zeros(1, np.int8)), cluster) == {"partition"}
    assert declared.static_hooks(jobs, cluster) == set()
    assert declared.places_resources
    assert not Sed(Sed.Config(time_sharing=True)).capabilities.places_resources


node = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
demand = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2), st.integers(0, 1))


def expected_sizes(
    cluster: Cluster, jobs: Jobs, taken: list[int], licenses: int
) -> tuple[list[int], list[list[int]]]:
    """Return sizes and the nodes that fit, job by job and class by class, in plain code."""
    slow = (cluster.nodes.speed.max() / cluster.nodes.speed).tolist()
    has = cluster.nodes.capacity.tolist()
    room = [[cores - used, *rest] for (cores, *rest), used in zip(has, taken, strict=True)]
    sizes, fitting = [], []
    for row, (*asked, licence) in enumerate(jobs.demand.tolist()):
        fits = [
            at
            for at, amounts in enumerate(has)
            if cluster.usable[at] and all(a <= b for a, b in zip(asked, amounts, strict=True))
        ]
        least, most = int(jobs.size_min[row]), min(int(jobs.size_max[row]), len(fits))
        fitting.append(fits)
        options = []
        for delay in sorted(set(slow)):
            now = [
                at
                for at in fits
                if slow[at] <= delay and all(a <= b for a, b in zip(asked, room[at], strict=True))
            ]
            size = min(len(now), most)
            if licence <= licenses and size >= least:
                options.append((delay / size, len(now) - size, delay, now, size))
        if not options:
            sizes.append(least)
            continue
        _, _, _, now, size = min(options, key=lambda option: option[:3])
        sizes.append(size)
        licenses -= licence
        for at in sorted(now, key=lambda at: (slow[at], at))[:size]:
            room[at] = [left - a for left, a in zip(room[at], asked, strict=True)]
    return sizes, fitting


@settings(max_examples=150, deadline=None)
@given(
    nodes=st.lists(
        st.tuples(node, st.sampled_from([1.0, 2.0, 4.0]), st.integers(0, 6), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    rows=st.lists(st.tuples(demand, st.integers(1, 3), st.integers(0, 3)), min_size=1, max_size=8),
)
def test_sizes_as_the_plain_way(nodes: list[Any], rows: list[Any]) -> None:
    """Each job in turn takes the best of all classes in what the ones before it left."""
    state = np.where([up for *_, up in nodes], 0, int(NodeState.DRAINED)).astype(np.int8)
    cluster = machine(
        [amounts for amounts, *_ in nodes],
        speed=[speed for _, speed, *_ in nodes],
        state=state,
        licenses={MATLAB: 2},
    )
    jobs = asking(
        [amounts for amounts, *_ in rows],
        size=np.array([low for _, low, _ in rows], np.int32),
        size_min=np.array([low for _, low, _ in rows], np.int32),
        size_max=np.array([low + more for _, low, more in rows], np.int32),
    )
    taken = [min(used, amounts[0]) for amounts, _, used, _ in nodes]
    placement = placed(filled(cluster, taken, jobs))
    sizes, fitting = expected_sizes(cluster, jobs, taken, 2)
    slow = cluster.nodes.speed.max() / cluster.nodes.speed
    for row, nodes_given in enumerate(sets_of(placement)):
        if len(fitting[row]) < jobs.size_min[row]:
            assert nodes_given is None
            continue
        assert nodes_given == sorted(fitting[row], key=lambda at: (slow[at], at))
        assert placement.size[row] == sizes[row]
