"""Sed: what it answers about queued and running jobs, on whole and on shared nodes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.capabilities import PreparedState
from rtsched.core.chain import Chain, Member, Stage
from rtsched.core.decision import observe, steer
from rtsched.model.actions import Move
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.snapshot import Snapshot
from rtsched.model.state import EventKind
from rtsched.model.verdicts import Placement
from rtsched.testing import make_cluster, make_events, make_jobs, make_snapshot
from rtsched_plugins.sed import Recorded, Sed

NEW = PreparedState()
"""Nothing prepared before; what one question leaves in it shows in no other answer."""

FIVE_FAST = make_cluster(30, speed=[1.0] * 5 + [0.25] * 25)


def sed(**settings: Any) -> Sed:
    """Return the plug-in for shared nodes."""
    return Sed(Sed.Config(time_sharing=True, **settings))


def ended(job: list[int], delay: list[float]) -> Recorded:
    """Return the state after some job has ended."""
    return Recorded(np.array(job), np.array(delay), int(EventKind.ENDED))


def moldable(**columns: Any) -> Any:
    """Return moldable jobs."""
    return make_jobs(kind=Kind.MOLDABLE, **columns)


def moved(placement: Any) -> dict[int, list[int]]:
    """Return the nodes of each job that moves."""
    if placement.moves is None:
        return {}
    ids = placement.moves.entries.job.tolist()
    return {job: placement.moves.nodes_of(row).tolist() for row, job in enumerate(ids)}


def test_delay_classes_show_load_and_foreign_load() -> None:
    """α (1 + load + foreign); inf where no process may come."""
    cluster = make_cluster(
        4,
        speed=[1.0, 1.0, 0.5, 0.5],
        foreign_load=[0.0, 1.5, 0.0, 0.0],
        state=np.array([0, 0, 0, NodeState.DRAINED], np.int8),
    )
    snapshot = make_snapshot(None, cluster, running=make_jobs(1), nodes=[[0, 2]])
    classes = sed().rtsched_delay_class(snapshot, NEW)
    assert classes.factor.tolist() == [2.0, 2.5, 4.0, np.inf]
    assert classes.bounds.tolist() == [1.0, 2.0]
    alone = Sed().rtsched_delay_class(snapshot, NEW)
    assert alone.factor.tolist() == [np.inf, 2.5, np.inf, np.inf]


def test_queue_is_mapped_head_first_until_one_must_wait() -> None:
    """The first takes all 30, the second the fast five; the third waits, and so does the last."""
    jobs = moldable(size=30, size_min=3, size_max=30, n=4).take([2, 0, 3, 1])
    snapshot = make_snapshot(jobs, FIVE_FAST)
    placement = sed().rtsched_partition(jobs, FIVE_FAST, snapshot, None, NEW)
    assert placement.size.tolist() == [0, 30, 0, 5]
    sets = [placement.node_sets[k].tolist() if k >= 0 else None for k in placement.node_set]
    assert sets == [[], list(range(30)), None, [0, 1, 2, 3, 4]]
    assert placement.moves is None


def test_a_job_wider_than_its_partition_holds_up_nobody() -> None:
    """There is no opinion on it."""
    cluster = make_cluster(4, partitions={"small": [2, 3]})
    jobs = make_jobs(size=[3, 2], partition="small")
    placement = sed().rtsched_partition(jobs, cluster, make_snapshot(jobs, cluster), None, NEW)
    assert placement.size.tolist() == [0, 2]
    assert placement.node_set[0] == -1
    assert placement.node_sets[placement.node_set[1]].tolist() == [2, 3]


def test_a_node_with_foreign_load_may_be_unusable() -> None:
    """A delay beyond the slowest machine's is too much: the fast node with 2 strangers is."""
    cluster = make_cluster(3, speed=[1.0, 1.0, 0.5], foreign_load=[2.0, 1.0, 0.0])
    jobs = moldable(size=[3], size_min=1, size_max=3)
    placement = sed().rtsched_partition(jobs, cluster, make_snapshot(jobs, cluster), None, NEW)
    assert placement.node_sets[0].tolist() == [1, 2]


def test_upgrade_when_the_load_fell() -> None:
    """The job on the fast five ran at 2 while another was there; without upgrades it still does."""
    running = make_jobs(1, id=[7])
    snapshot = make_snapshot(None, FIVE_FAST, running=running, nodes=[list(range(5))])
    none, state = snapshot.queued, ended([7], [2.0])
    assert moved(sed().rtsched_partition(none, FIVE_FAST, snapshot, state, NEW)) == {
        7: [0, 1, 2, 3, 4]
    }
    still = sed(upgrade=False).rtsched_partition(none, FIVE_FAST, snapshot, state, NEW)
    assert moved(still) == {}


def slow_one(**columns: Any) -> Any:
    """Return a snapshot in which job 7 runs on the two slow of four nodes until 3600 s."""
    cluster = make_cluster(4, speed=[1.0, 1.0, 0.25, 0.25], **columns)
    running = make_jobs(1, id=[7], size=2)
    return make_snapshot(None, cluster, running=running, nodes=[[2, 3]])


@pytest.mark.parametrize(
    ("settings", "occasion", "moves"),
    [
        ({}, EventKind.ENDED, {7: [0, 1]}),
        ({}, EventKind.ARRIVED, {}),
        ({}, EventKind.NODE_CHANGED, {}),
        ({"migrate": False}, EventKind.ENDED, {}),
        ({"upgrade": False}, EventKind.ENDED, {7: [0, 1]}),
    ],
)
def test_migration_when_a_job_has_ended(
    settings: dict[str, Any], occasion: EventKind, moves: dict[int, list[int]]
) -> None:
    """It goes to the fast nodes; not after an arrival."""
    snapshot = slow_one()
    state = Recorded(np.array([7]), np.array([4.0]), int(occasion))
    placement = sed(**settings).rtsched_partition(
        snapshot.queued, snapshot.cluster, snapshot, state, NEW
    )
    assert moved(placement) == moves


def test_nobody_migrates_while_a_job_waits() -> None:
    """The queue is served instead."""
    snapshot = slow_one()
    jobs = make_jobs(id=[9], size=[2])
    placement = sed().rtsched_partition(jobs, snapshot.cluster, snapshot, ended([7], [4.0]), NEW)
    assert moved(placement) == {}
    assert placement.node_sets[0].tolist() == [0, 1]


@pytest.mark.parametrize(("now", "moves"), [(3500.0, {7: [0, 1]}), (3560.0, {})])
def test_benefit_test(now: float, moves: dict[int, list[int]]) -> None:
    """35.4 s of pause: of 100 s left 25 remain on the fast nodes, of 40 s 10."""
    cluster = slow_one().cluster
    running = make_jobs(1, id=[7], size=2)
    snapshot = make_snapshot(None, cluster, now, running=running, nodes=[[2, 3]])
    asked = sed(benefit_test=True)
    placement = asked.rtsched_partition(snapshot.queued, cluster, snapshot, ended([7], [4.0]), NEW)
    assert moved(placement) == moves


def test_a_node_that_was_shut_down_must_be_left() -> None:
    """For a slower one if need be, though nobody gains, and though a job waits."""
    down = np.array([0, NodeState.DOWN, 0, 0], np.int8)
    cluster = make_cluster(4, speed=[1.0, 1.0, 0.25, 0.25], state=down)
    running, jobs = make_jobs(1, id=[7], size=2), make_jobs(id=[9], size=[2])
    snapshot = make_snapshot(jobs, cluster, running=running, nodes=[[0, 1]])
    state = Recorded(np.array([7]), np.array([1.0]), int(EventKind.NODE_CHANGED))
    placement = sed().rtsched_partition(jobs, cluster, snapshot, state, NEW)
    assert moved(placement) == {7: [0, 2]}
    assert placement.node_sets[placement.node_set[0]].tolist() == []
    assert moved(sed(migrate=False).rtsched_partition(jobs, cluster, snapshot, state, NEW)) == {}


def test_a_job_that_foreign_load_slowed_may_go() -> None:
    """It was mapped with delay 1 and has 2 now."""
    cluster = make_cluster(3, speed=[1.0, 1.0, 0.5], foreign_load=[1.0, 0.0, 0.0])
    snapshot = make_snapshot(None, cluster, running=make_jobs(1, id=[7]), nodes=[[0]])
    state = Recorded(np.array([7]), np.array([1.0]), int(EventKind.NODE_CHANGED))
    placement = sed().rtsched_partition(snapshot.queued, cluster, snapshot, state, NEW)
    assert moved(placement) == {7: [1]}


def test_moves_reach_the_batch_system() -> None:
    """The cycle makes an action of them, behind the placement."""
    snapshot = slow_one()
    chain = Chain([Member("sed", sed())])
    states = {"sed": ended([7], [4.0])}
    snapshot = type(snapshot)(**{**vars(snapshot), "states": states})
    actions = steer(snapshot, chain).actions
    assert [type(action).__name__ for action in actions] == ["Place", "Move"]
    assert isinstance(actions[1], Move)
    assert actions[1].job.tolist() == [7]


def test_delays_are_recorded_when_jobs_start_or_move() -> None:
    """Others keep theirs, and who does not run is forgotten."""
    plugin, running = sed(upgrade=False), make_jobs(2, id=[8, 7], size=2)
    snapshot = make_snapshot(None, slow_one().cluster, running=running, nodes=[[0, 1], [2, 3]])
    before = Recorded(np.array([5, 7]), np.array([9.0, 8.0]), int(EventKind.ARRIVED))
    events = make_events(
        make_jobs(2, id=[8, 5]), [(0.0, EventKind.STARTED, 0), (1.0, EventKind.ENDED, 1)]
    )
    after = plugin.rtsched_observe(events, snapshot, before, NEW)
    assert after is not None
    assert (after.job.tolist(), after.delay.tolist()) == ([7, 8], [8.0, 1.0])
    assert after.occasion == EventKind.ENDED
    events = make_events(make_jobs(1, id=[7]), [(2.0, EventKind.MOVED, 0)])
    last = plugin.rtsched_observe(events, snapshot, after, NEW)
    assert last is not None
    assert last.delay.tolist() == [4.0, 1.0]


def test_batch_sizes_of_moldable_jobs() -> None:
    """Free: 2 fast and 3 slow. 1/2 beats 4/5, so 2; then 4/3 of the rest; the last waits with 2."""
    cluster = make_cluster(6, speed=[1.0, 1.0, 1.0, 0.25, 0.25, 0.25])
    jobs = moldable(size=[6, 6, 6], size_min=2, size_max=6)
    snapshot = make_snapshot(jobs, cluster, running=make_jobs(1, id=[70]), nodes=[[0]])
    placement = Sed().rtsched_partition(jobs, cluster, snapshot, None, NEW)
    assert placement.size.tolist() == [2, 3, 2]
    assert [nodes.tolist() for nodes in placement.node_sets] == [[0, 1, 2, 3, 4, 5]]


def test_batch_migrations_are_for_jobs_with_checkpoints() -> None:
    """And only to nodes that nobody uses."""
    cluster = slow_one().cluster
    for checkpoints, moves in ((False, {}), (True, {7: [1]})):
        running = make_jobs(2, id=[6, 7], checkpoints=checkpoints)
        snapshot = make_snapshot(None, cluster, running=running, nodes=[[0], [2]])
        state = ended([6, 7], [1.0, 4.0])
        assert (
            moved(Sed().rtsched_partition(snapshot.queued, cluster, snapshot, state, NEW)) == moves
        )


def test_static_where_nothing_can_change_it() -> None:
    """Rigid jobs without migrations want the fastest nodes, whoever runs where."""
    jobs, cluster = make_jobs(2, checkpoints=True), make_cluster(2)
    fixed = Sed(Sed.Config(migrate=False))
    assert fixed.capabilities.static_hooks(jobs, cluster) == {"partition"}
    assert Sed().capabilities.static_hooks(jobs, cluster) == set()
    assert Sed().capabilities.static_hooks(make_jobs(2), cluster) == {"partition"}
    assert fixed.capabilities.static_hooks(moldable(size=2, size_min=1), cluster) == set()
    assert sed().capabilities.static_hooks(jobs, cluster) == set()
    chain = Chain([Member("sed", fixed)])
    assert chain.asks("partition", Stage.DYNAMIC) == ("sed",)
    chain.mark_static(jobs, cluster)
    assert chain.asks("partition", Stage.STATIC) == ("sed",)
    chain.mark_static(moldable(size=2, size_min=1), cluster)
    assert chain.asks("partition", Stage.DYNAMIC) == ("sed",)


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
