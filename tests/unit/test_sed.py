"""Sed: what it answers about queued and running jobs, in snapshots made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtsched.core.capabilities import PreparedState
from rtsched.core.chain import Chain, Member, Stage
from rtsched.core.cycle import steer
from rtsched.model.actions import Move
from rtsched.model.cluster import NodeState
from rtsched.model.events import EventKind
from rtsched.model.jobs import Kind
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
