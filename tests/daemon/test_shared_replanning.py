"""Promises on nodes that jobs share: what still fits, what is planned anew, and who may start."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scene import T0, Scene
from test_replanning import told

from rtsched.core.plan_repair import free_now, start_delays
from rtsched.daemon.instant import with_imminent_started
from rtsched.daemon.waiting import waits
from rtsched.model.actions import Requeue
from rtsched.model.resources import demand_of, room_of
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio
from rtsched_plugins.spare import Spare

RUN = 600.0
NODES = ((4, 2), (4, 0), (8, 4))
"""Cores and GPUs."""
PLANNERS = pytest.mark.parametrize("planner", ["mcdf", "spare"])


def promised(scene: Scene, job: int, demand: tuple[int, int], **columns: object) -> tuple[int, str]:
    """Have a job promised its deadline; return the id that it gets and its token."""
    given = {"size": 1, "wall_time": RUN, "deadline": T0 + 20 * RUN, **columns}
    judged = scene.submit(scene.site.snapshot.now, demand=demand, **given)
    assert judged.verdict == "admit", judged.reply.text
    scene.demand[job] = demand
    return job, judged.reply.token


def overcommitted(snapshot: Snapshot, plan: Schedule, *, beside_running: bool) -> bool:
    """Return whether jobs are planned to take more of a node than it has, instant by instant."""
    cluster = snapshot.cluster
    jobs = [*plan.entries.job.tolist()]
    rows = [snapshot.queued.id.tolist().index(job) for job in jobs]
    demand = demand_of(snapshot.queued.take(rows), cluster)
    spans = [
        (plan.entries.start[k], plan.entries.end[k], plan.nodes_of(k).tolist(), demand[k])
        for k in range(len(plan))
    ]
    if beside_running:
        held, taken = snapshot.allocations, demand_of(snapshot.running, cluster)
        spans += [
            (-np.inf, held.entries.end[k], held.nodes_of(k).tolist(), taken[k])
            for k in range(len(held))
        ]
    room = room_of(cluster)
    for instant in [start for start, *_ in spans if start > -np.inf]:
        used = np.zeros_like(room)
        for start, end, nodes, amounts in spans:
            if start <= instant + 1e-3 and end > instant + 2e-3:
                used[nodes] += amounts
        if (used > room).any():
            return True
    return False


@PLANNERS
def test_a_job_that_stays_longer_moves_only_those_without_room(planner: str) -> None:
    """A best-effort job keeps 2 of 4 cores for longer than it said: who needs 3 is planned anew."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 2)])
    scene.demand[90] = (2, 0)
    busy = ((90, "", T0, T0 + 100, (0,)),)
    scene.poll(T0, running=busy)
    queued = (promised(scene, 7, (3, 0)),)
    queued += (promised(scene, 8, (1, 2)),)
    scene.poll(T0 + 1, queued, busy)
    assert scene.planned() == {7: (100.0, [0]), 8: (0.0, [0])}
    scene.poll(T0 + 2, queued, ((90, "", T0, T0 + 300, (0,)),))
    assert scene.planned() == {7: (300.0, [0]), 8: (2.0, [0])}


@PLANNERS
def test_a_start_within_the_leeway_stays_planned(planner: str) -> None:
    """Who may start so much later and still ends in time is not planned anew for it."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 2)])
    scene.demand[90] = (4, 0)
    scene.poll(T0, running=((90, "", T0, T0 + 100, (0,)),), leeway=20.0)
    queued = (promised(scene, 7, (3, 0)),)
    for until, start in ((119.0, 100.0), (125.0, 125.0)):
        scene.poll(T0 + 1, queued, ((90, "", T0, T0 + until, (0,)),), leeway=20.0)
        assert scene.planned() == {7: (start, [0])}


@PLANNERS
def test_two_that_fit_one_by_one_but_not_together(planner: str) -> None:
    """What stays on the node leaves room for one of two planned at the same time."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 0)])
    scene.demand[90] = (4, 0)
    busy = ((90, "", T0, T0 + 100, (0,)),)
    scene.poll(T0, running=busy)
    queued = (promised(scene, 7, (2, 0)), promised(scene, 8, (2, 0)))
    scene.poll(T0 + 1, queued, busy)
    assert scene.planned() == {7: (100.0, [0]), 8: (100.0, [0])}
    scene.demand[91] = (1, 0)
    late = ((91, "", T0 + 2, T0 + 400, (0,)),)
    scene.poll(T0 + 3, queued, late)
    assert sorted(start for start, _ in scene.planned().values()) == [100.0, 400.0]


@PLANNERS
def test_room_now_beside_those_before(planner: str) -> None:
    """A job that may start at any moment takes its cores from now on, for who is judged then."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 0)])
    scene.demand[90] = (4, 0)
    scene.poll(T0, running=((90, "", T0, T0 + 1000, (0,)),))
    queued = (promised(scene, 7, (3, 0)), promised(scene, 8, (1, 0)), promised(scene, 9, (2, 0)))
    scene.poll(T0 + 1, queued, ((90, "", T0, T0 + 1000, (0,)),))
    assert {job: start for job, (start, _) in scene.planned().items()} == {
        7: 1000,
        8: 1000,
        9: 1600,
    }
    snapshot = scene.site.snapshot
    empty = type(snapshot)(
        T0 + 2, snapshot.cluster, snapshot.queued, plan=snapshot.plan, promises=snapshot.promises
    )
    order = snapshot.plan.entries.job.tolist()
    assert dict(zip(order, free_now(empty, empty.plan, 1.0).tolist(), strict=True)) == {
        7: True,
        8: True,
        9: False,
    }
    after, due = with_imminent_started(empty)
    assert sorted(due.entries.job.tolist()) == [7, 8]
    assert after.allocations.entries.start.tolist() == [T0 + 2, T0 + 2]
    assert not start_delays(empty, empty.plan, 1.0).any()


@PLANNERS
def test_who_may_not_start_yet_leaves_its_nodes_to_others_until_then(planner: str) -> None:
    """Jobs 8 and 9, planned after 600 s on an empty node, do not count as started there now."""
    # Job 9 does as soon as job 7, for which it waits, runs.
    scene = Scene(nodes=2, planner=planner, capacity=[(4, 0), (4, 0)])
    first = promised(scene, 7, (4, 0))
    scene.poll(T0, (first,))
    queued = (
        first,
        promised(scene, 8, (4, 0), begin=T0 + RUN),
        promised(scene, 9, (1, 0), after=7),
    )
    scene.poll(T0 + 1, queued, edges=((7, 9),))
    assert {job: start for job, (start, _) in scene.planned().items()} == {7: 0, 8: RUN, 9: RUN}
    _, due = with_imminent_started(scene.site.snapshot)
    assert due.entries.job.tolist() == [7]
    runs = ((7, queued[0][1], T0, T0 + RUN, (scene.planned()[7][1][0],)),)
    scene.poll(T0 + 2, queued[1:], runs, edges=((7, 9),))
    _, due = with_imminent_started(scene.site.snapshot)
    assert set(due.entries.job.tolist()) <= {9}


@PLANNERS
def test_who_may_start_shares_nodes_from_then_on(planner: str) -> None:
    """Job 7 was promised a whole node until it may start; then job 8 is planned beside it."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 0)])
    due = T0 + 100 + RUN + 50
    alone = promised(scene, 7, (1, 0), exclusive=True, begin=T0 + 100, deadline=due)
    scene.poll(T0 + 1, (alone,))
    assert scene.site.snapshot.queued.exclusive.tolist() == [True]
    refused = scene.submit(T0 + 1, demand=(1, 0), size=1, wall_time=RUN, deadline=T0 + RUN + 50)
    assert refused.verdict == "reject"
    shared = scene.site.row(7).replace(exclusive=np.array([False]))
    scene.poll(T0 + 101, (alone,), changed={"exclusive": False})
    assert scene.site.requested.exclusive.tolist() == [False]
    assert scene.site.requested.equals(shared)
    beside = promised(scene, 8, (3, 0), deadline=T0 + RUN + 102)
    scene.poll(T0 + 102, (alone, beside), changed={"exclusive": False})
    assert scene.planned()[8] == (101.0, [0])


@PLANNERS
def test_a_job_without_a_place_is_at_risk_as_long_as_it_may_end_in_time(planner: str) -> None:
    """It is planned too late, tried again, and broken when it could not end in time any more."""
    scene = Scene(nodes=1, planner=planner, capacity=[(4, 0)])
    scene.demand |= {90: (4, 0), 91: (2, 0)}
    scene.poll(T0, running=((90, "", T0, T0 + 100, (0,)),))
    queued = (promised(scene, 7, (3, 0), deadline=T0 + 800),)
    scene.poll(T0 + 1, queued, ((90, "", T0, T0 + 100, (0,)),))
    assert scene.planned() == {7: (100.0, [0])}
    other = ((91, "", T0 + 10, T0 + 400, (0,)),)
    for at in (30.0, 31.0):
        settled = scene.poll(T0 + at, queued, other)
        assert scene.planned() == {7: (400.0, [0])}
        assert scene.site.at_risk == {7: T0 + 400.0 + RUN}
        assert ("at risk: the job is now planned" in told(settled).get(7, "")) is (at == 30.0)
    (reason,) = waits(scene.site, None, 7, T0 + 31)
    assert reason.text.endswith("too late for its deadline unless jobs that run there end early")
    judged = scene.submit(T0 + 31, demand=(1, 0), size=1, wall_time=RUN, deadline=T0 + 1000)
    assert judged.verdict == "admit", "beside it there is room"
    early = Scene(nodes=1, planner=planner, capacity=[(4, 0)])
    early.site, early.demand = scene.site, scene.demand
    early.poll(T0 + 150, queued)
    assert early.planned()[7] == (150.0, [0]), "the other one ended early"
    assert not early.site.at_risk
    scene.poll(T0 + 201, queued, other)
    assert 7 not in scene.site.promises


@pytest.mark.parametrize("planner", [Mcdf, Portfolio, Spare])
@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(1, 4),
            st.floats(1.0, 3.0),
            st.integers(1, 4),
            st.integers(0, 2),
        ),
        min_size=2,
        max_size=6,
    ),
    busy=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(50, 500)),
        max_size=3,
        unique_by=lambda each: each[0],
    ),
    down=st.sets(st.integers(0, 2), max_size=2),
    flapping=st.sets(st.integers(0, 2)),
    at=st.sampled_from([3.0, 25.0, 80.0, 300.0]),
    leeway=st.sampled_from([0.0, 60.0]),
)
def test_no_amount_is_planned_twice(
    planner: type[Mcdf | Portfolio | Spare],
    jobs: list[tuple[int, int, float, int, int]],
    busy: list[tuple[int, int, int]],
    down: set[int],
    flapping: set[int],
    at: float,
    leeway: float,
) -> None:
    """Whatever runs on, is lost, late, or may come back: by a plain count at every start."""
    scene = Scene(nodes=3, capacity=NODES, plugin=planner())
    queued: tuple[tuple[int, str], ...] = ()
    for number, (size, hundreds, slack, cores, gpus) in enumerate(jobs):
        wall = 100.0 * hundreds
        columns = {"size": size, "wall_time": wall, "deadline": T0 + 1 + slack * wall}
        judged = scene.submit(T0, demand=(cores, gpus), **columns)
        if judged.verdict == "admit":
            queued += ((10 + number, judged.reply.token),)
            scene.demand[10 + number] = (cores, gpus)
    scene.poll(T0 + 1, queued, leeway=leeway)
    running = tuple(
        (90 + k, "", T0 + 1, T0 + seconds, (node,)) for k, (node, _, seconds) in enumerate(busy)
    )
    scene.demand |= {90 + k: (cores, 0) for k, (_, cores, _) in enumerate(busy)}
    for later in (0.0, 5.0):
        here = tuple((job, r.token) for job, r in scene.site.promises.items() if job < 90)
        alive = tuple(each for each in running if each[4][0] not in down)
        settled = scene.poll(
            T0 + at + later, here, alive, down=tuple(down), flapping=tuple(flapping), leeway=leeway
        )
        snapshot = scene.site.snapshot
        assert not overcommitted(snapshot, snapshot.plan, beside_running=False)
        gone = {job for each in settled.actions if isinstance(each, Requeue) for job in each.job}
        running = tuple(each for each in running if each[0] not in gone)
        if not flapping and not leeway and not gone:
            coming = snapshot.plan.take(
                np.flatnonzero(snapshot.plan.entries.start >= snapshot.now - 1.0)
            )
            assert not overcommitted(snapshot, coming, beside_running=True)


@pytest.mark.parametrize(
    ("demand", "loses"), [((2, 0), False), ((1, 0), False), ((3, 0), True), ((4, 0), True)]
)
@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_asks_for_more_of_its_nodes_loses_its_promise(
    demand: tuple[int, int], loses: bool, first: bool
) -> None:
    """As its user may ask for until a poll shows the job, and an admin at any time."""
    scene = Scene(nodes=2, capacity=[(4, 2), (4, 2)])
    entry = promised(scene, 7, (2, 0))
    if not first:
        scene.poll(T0 + 1, queued=(entry,))
    amounts = np.array([demand], np.int64)
    settled = scene.poll(T0 + 2, queued=(entry,), changed={"demand": amounts})
    why = ["it requests larger nodes than were promised"] if loses else []
    assert [r.why for r in settled.changed if r.state == "void"] == why
