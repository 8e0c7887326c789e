"""Plans that are mended: who keeps a start, who gets another; also around reservations."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scene import BOB, T0, Scene

from rtsched.daemon.admission import AdmissionResult
from rtsched.daemon.site import Step, states
from rtsched.daemon.waiting import waits
from rtsched.model.actions import Notify, Requeue
from rtsched.model.blocked import NOTHING_BLOCKED, RECURS_AHEAD, WHOLE, Blocked, with_recurring
from rtsched.model.jobs import Periodic
from rtsched.model.schedule import Schedule
from rtsched_plugins.mcdf import Mcdf

RUN = 600.0
LEEWAY = 60.0


def promised(scene: Scene, job: int, **columns: object) -> tuple[int, str]:
    """Have a job promised its deadline and seen in the queue; return its id and token."""
    judged = scene.submit(scene.site.snapshot.now, **columns)
    assert judged.verdict == "admit", judged.reply.text
    return job, judged.reply.token


def overlaps(plan: Schedule) -> bool:
    """Return whether some node is planned for two jobs at one time."""
    of = np.repeat(np.arange(len(plan)), np.diff(plan.indptr))
    starts, ends = plan.starts(), plan.entries.end[of]
    for node in np.unique(plan.nodes):
        mine = np.flatnonzero(plan.nodes == node)
        mine = mine[np.argsort(starts[mine])]
        if (starts[mine][1:] < ends[mine][:-1] - 1e-3).any():
            return True
    return False


def told(settled: Step) -> dict[int, str]:
    """Return what users are told, by job id."""
    tells = [each for each in settled.actions if isinstance(each, Notify)]
    return {job: text for t in tells for job, text in zip(t.job.tolist(), t.text, strict=True)}


def start_of(scene: Scene, job: int) -> float:
    """Return when a job is planned to start; nan: never."""
    entries = scene.site.snapshot.plan.entries
    found = entries.start[entries.job == job]
    return float(found[0]) if len(found) else np.nan


def two_lose_nodes(wall: float) -> Scene:
    """Let one job lose a node that may come back, another one a node that does not, at a time.

    Of four nodes, job 7 has the first two and job 8, which runs `wall` s, the third. The first dies
    for a moment, the third for good; the fourth is busy until after both deadlines.
    """
    scene = Scene()
    busy = ((90, "", T0, T0 + 9 * RUN, (3,)),)
    scene.poll(T0, running=busy)
    queued = (promised(scene, 7, size=2, wall_time=RUN, deadline=T0 + 2 * RUN),)
    scene.poll(T0 + 1, queued, busy)
    queued += (promised(scene, 8, size=1, wall_time=wall, deadline=T0 + 1.5 * RUN),)
    scene.poll(T0 + 2, queued, busy)
    plan = scene.site.snapshot.plan
    assert [plan.nodes_of(k).tolist() for k in range(2)] == [[0, 1], [2]]
    scene.poll(T0 + 3, queued, busy, down=(0, 2), flapping=(0,))
    return scene


def test_a_limit_that_breaks_a_promise_is_named() -> None:
    """The message names the limit of the QOS when the job can no longer end in time."""
    scene = Scene(nodes=1)
    token = scene.submit(T0, size=1, wall_time=RUN, deadline=T0 + RUN + 30).reply.token
    queued, limits = ((7, token),), {7: "QOSGrpCpuLimit"}
    settled = scene.poll(T0 + 10, queued, limits=limits)
    assert [reason.code for reason in waits(settled.site, None, 7, T0 + 10)] == [
        "wait.limit",
        "wait.planned",
    ]
    settled = scene.poll(T0 + 60, queued, limits=limits)
    (broken,) = settled.changed
    assert broken.state == "broken"
    limit = "a limit of its account, QOS or partition (QOSGrpCpuLimit)"
    assert broken.why == f"the job waits for {limit}"
    (told,) = [action for action in settled.actions if isinstance(action, Notify)]
    assert "can no longer be kept, since the job waits for a limit" in told.text[0]


def test_a_job_that_a_limit_keeps_waiting_is_not_planned_anew_for_ever() -> None:
    """Slurm starts job 7 at neither of two planned starts: its promise breaks, its nodes are free.

    Its deadline is a day away. Another job, which waits for nothing, keeps its promise.
    """
    scene = Scene(nodes=2)
    asked = {"size": 1, "wall_time": RUN, "deadline": T0 + 86400}
    queued = ((7, scene.submit(T0, **asked).reply.token),)
    queued += ((8, scene.submit(T0, **asked).reply.token),)
    limits = {7: "QOSGrpCpuLimit"}
    starts, changed = [], []
    for second in range(1, 60):
        settled = scene.poll(T0 + second, queued, limits=limits)
        changed += [(second, record) for record in settled.changed if record.state != "firm"]
        plan = scene.site.snapshot.plan
        starts += plan.entries.start[plan.entries.job == 7].tolist()
    ((second, broken),) = changed
    assert (sorted(set(starts)), second) == ([T0, T0 + 21], 42)
    assert (broken.id, broken.state, broken.why) == (
        7,
        "broken",
        "the job did not start at 2 planned starts, since it waits for a limit of its account, "
        "QOS or partition (QOSGrpCpuLimit)",
    )
    assert scene.site.snapshot.plan.entries.job.tolist() == [8]
    assert scene.site.promises.keys() == {8}


def test_who_is_kept_from_two_starts_by_a_limit_is_told_which() -> None:
    """In the comment of the job; a start that it missed for other reasons does not count."""
    scene = Scene(nodes=1)
    deadline = T0 + 86400
    queued = ((7, scene.submit(T0, size=1, wall_time=RUN, deadline=deadline).reply.token),)
    told = []
    for second in range(1, 80):
        limits = {} if second < 25 else {7: "AssocGrpGRES"}
        settled = scene.poll(T0 + second, queued, limits=limits)
        told += [(second, one.text) for one in settled.actions if isinstance(one, Notify)]
    assert told == [
        (
            63,
            (
                "rtsched: the promise is given up: the job did not start at 2 planned starts, "
                "since it waits for a limit of its account, QOS or partition (AssocGrpGRES); the "
                "job may run yet",
            ),
        )
    ]


def test_what_stays_on_a_lost_node_is_not_planned_over() -> None:
    """Job 7 waits for its node; job 8 does not get the other one of its nodes at the same time."""
    scene = two_lose_nodes(RUN)
    plan, records = scene.site.snapshot.plan, scene.site.promises
    assert not overlaps(plan)
    assert {job: record.state for job, record in records.items()} == {7: "firm", 8: "firm"}
    assert start_of(scene, 8) == T0 + 3, "it is sure of its node, job 7 is not"
    scene.poll(T0 + 4, tuple((j, r.token) for j, r in records.items()), down=(2,))
    assert not overlaps(scene.site.snapshot.plan)
    assert set(scene.site.promises) == {7, 8}
    assert np.isfinite(start_of(scene, 7)), "its node came back, and the fourth is free"


def test_what_fits_beside_it_does_not_touch_it() -> None:
    """Where the planner finds a plan around the job that waits for its node, both have theirs."""
    scene = Scene(nodes=3)
    queued = (promised(scene, 7, size=2, wall_time=RUN, deadline=T0 + 1.1 * RUN),)
    scene.poll(T0 + 1, queued)
    queued += (promised(scene, 8, size=1, wall_time=RUN, deadline=T0 + 4 * RUN),)
    scene.poll(T0 + 2, queued)
    scene.poll(T0 + 3, queued, down=(0, 2), flapping=(0,))
    plan = scene.site.snapshot.plan
    assert not overlaps(plan)
    assert sorted(plan.entries.job.tolist()) == [7, 8]


def late(scene: Scene, at: float, queued: tuple[tuple[int, str], ...]) -> None:
    """Look `at` seconds after the first planned start: the jobs wait, and their nodes are free."""
    scene.poll(T0 + at, queued, leeway=LEEWAY)


def test_a_slow_controller_breaks_no_promise() -> None:
    """Slurm has not started a job 25 s after its planned start; by its limit it still can end."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + RUN),)
    for at in (5, 15, 25, 45, 59):
        late(scene, at, queued)
        assert scene.site.promises[7].state == "firm"
        assert start_of(scene, 7) == T0
    settled = scene.poll(
        T0 + 61, (), ((7, queued[0][1], T0 + 60, T0 + 60 + RUN, (0,)),), leeway=LEEWAY
    )
    assert not [r for r in settled.changed if r.state == "broken"]


def test_when_it_cannot_end_in_time_it_is_broken() -> None:
    """By its own limit, without the margins, the job would end too late."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + RUN),)
    late(scene, 59, queued)
    assert 7 in scene.site.promises
    late(scene, 62, queued)
    assert 7 not in scene.site.promises


def test_a_late_job_with_time_left_is_put_off() -> None:
    """Later than the leeway it is planned anew; who comes after it is told the truth."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + RUN + 30),)
    late(scene, 59, queued)
    assert start_of(scene, 7) == T0
    late(scene, 75, queued)
    assert scene.site.promises[7].state == "firm"
    entries = scene.site.snapshot.plan.entries
    assert (entries.start.tolist(), entries.end.tolist()) == ([T0 + 75], [T0 + 75 + RUN - LEEWAY])
    judged = scene.submit(T0 + 76, uid=BOB, size=1, wall_time=RUN, deadline=T0 + 2 * RUN + 14)
    assert judged.verdict == "reject"


def test_where_nothing_starts_late_it_is_planned_anew_as_ever() -> None:
    """Without leeway, as on HTCondor, 20 s are the end; so they are where nodes are not free."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + RUN),)
    scene.poll(T0 + 25, queued)
    assert 7 not in scene.site.promises


def test_a_job_that_may_start_early_keeps_its_nodes() -> None:
    """Its reservation has begun, and its nodes came free early: nobody else is promised them."""
    scene = Scene(nodes=1, planner="edf")
    busy = ((90, "", T0, T0 + 100, (0,)),)
    scene.poll(T0, running=busy, leeway=LEEWAY)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + 4 * RUN),)
    scene.poll(T0 + 5, queued, busy, leeway=LEEWAY)
    assert start_of(scene, 7) == T0 + 100
    other = {"uid": BOB, "size": 1, "wall_time": RUN, "deadline": T0 + 100 + RUN + 30}
    before = scene.site
    judged = scene.submit(T0 + 35, **other)
    assert judged.verdict == "admit", "job 7 cannot start yet: it may be moved"
    scene.site = before
    judged = scene.submit(T0 + 45, **other)
    assert judged.verdict == "reject", "job 7 may have started since the last poll"


def test_a_job_that_may_start_early_keeps_its_nodes_when_the_plan_is_mended() -> None:
    """Another job lost its node, and must not get that of one which may have started."""
    scene = Scene(nodes=2, planner="edf")
    busy = ((90, "", T0, T0 + 100, (0,)), (91, "", T0, T0 + 100, (1,)))
    scene.poll(T0, running=busy, leeway=LEEWAY)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + 5 * RUN),)
    scene.poll(T0 + 1, queued, busy, leeway=LEEWAY)
    queued += (promised(scene, 8, size=1, wall_time=RUN, deadline=T0 + 4 * RUN),)
    scene.poll(T0 + 2, queued, busy, leeway=LEEWAY)
    plan = scene.site.snapshot.plan
    lost = int(plan.nodes[plan.entries.job.tolist().index(8)])
    scene.poll(T0 + 50, queued, (busy[1 - lost],), down=(lost,), leeway=LEEWAY)
    assert start_of(scene, 7) == T0 + 100
    assert start_of(scene, 8) == T0 + 100 + RUN
    assert not overlaps(scene.site.snapshot.plan)


@pytest.mark.parametrize(
    ("seed", "nodes", "jobs", "most"), [(20, 6, 20, 12.0), (19, 10, 40, 20.0), (21, 10, 40, 20.0)]
)
def test_where_many_are_late_the_plan_is_put_off(
    seed: int, nodes: int, jobs: int, most: float
) -> None:
    """Slurm starts nothing for 25 s; all have hours left, but the planner's order fails by then."""
    scene = Scene(nodes=nodes, unused_promises_per_hour=0, unused_offers_per_hour=1000)
    random = np.random.default_rng(seed)
    queued: tuple[tuple[int, str], ...] = ()
    for number in range(jobs):
        size, hours = int(random.integers(1, nodes)), random.uniform(2.0, most)
        judged = scene.submit(T0, size=size, wall_time=3600.0, deadline=T0 + 3600.0 * hours)
        if judged.verdict == "admit":
            queued += ((10 + number, judged.reply.token),)
    scene.poll(T0 + 1, queued)
    for at in (25, 30):
        scene.poll(T0 + at, queued)
        records, plan = scene.site.promises, scene.site.snapshot.plan
        assert {job for job, _ in queued} <= records.keys()
        assert not overlaps(plan)
        ends = dict(zip(plan.entries.job.tolist(), plan.entries.end.tolist(), strict=True))
        assert all(ends[job] <= records[job].deadline for job, _ in queued)


@settings(max_examples=60, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.floats(1.0, 3.0)), min_size=2, max_size=6
    ),
    down=st.sets(st.integers(0, 4), min_size=1, max_size=4),
    flapping=st.sets(st.integers(0, 4)),
    at=st.sampled_from([3.0, 25.0, 80.0, 300.0]),
    leeway=st.sampled_from([0.0, LEEWAY]),
)
@example(
    jobs=[(1, 1, 1.0), (1, 2, 3.0), (2, 1, 1.0), (2, 1, 2.0)],
    down={0},
    flapping={0, 1, 2},
    at=300.0,
    leeway=0.0,
)
@example(
    jobs=[(1, 3, 2.3883830906962134), (3, 1, 1.0), (1, 1, 2.091928079339403), (1, 3, 1.0)],
    down={0},
    flapping={0, 1, 2},
    at=300.0,
    leeway=0.0,
)
@example(
    jobs=[(2, 2, 1.0), (2, 2, 2.0), (2, 2, 3.0), (2, 3, 1.0)],
    down={2},
    flapping={0},
    at=300.0,
    leeway=0.0,
)
def test_no_node_is_planned_twice(
    jobs: list[tuple[int, int, float]], down: set[int], flapping: set[int], at: float, leeway: float
) -> None:
    """Whatever is lost, late, or may come back."""
    scene = Scene(nodes=5)
    queued = scene.submit_all(jobs)
    scene.poll(T0 + 1, queued, leeway=leeway)
    for later in (0.0, 5.0):
        here = tuple((job, r.token) for job, r in scene.site.promises.items() if job < 100)
        scene.poll(T0 + at + later, here, down=tuple(down), flapping=tuple(flapping), leeway=leeway)
        assert not overlaps(scene.site.snapshot.plan)


@pytest.mark.parametrize("planner", ["mcdf", "edf", "spare"])
def test_a_requeued_job_waits_for_a_node_that_may_come_back(planner: str) -> None:
    """It ran, its node was lost, and nothing else is free: it has no entry, and is not broken."""
    scene = Scene(nodes=1, planner=planner)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + 3 * RUN),)
    scene.poll(T0 + 1, queued)
    scene.poll(T0 + 2, (), ((7, queued[0][1], T0 + 2, T0 + 2 + RUN, (0,)),))
    settled = scene.poll(T0 + 30, queued, down=(0,), flapping=(0,))
    assert scene.site.promises[7].state == "firm"
    assert settled.actions[0].unplanned == {7}, "the batch system is not to let it go"
    assert states(scene.site) == {"at-risk": 1}
    assert "at risk: no nodes are known" in told(settled)[7]
    settled = scene.poll(T0 + 60, queued)
    assert settled.actions[0].unplanned == frozenset()
    assert np.isfinite(start_of(scene, 7))


@pytest.mark.parametrize("planned", [True, False])
def test_nobody_waits_for_a_node_for_too_long(planned: bool) -> None:
    """What waits for a node that may come back breaks while its deadline is ahead: 1 RUN before."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + 3 * RUN),)
    scene.poll(T0 + 1, queued)
    if not planned:
        scene.poll(T0 + 2, (), ((7, queued[0][1], T0 + 2, T0 + 2 + RUN, (0,)),))
    scene.poll(T0 + 2 * RUN - 1, queued, down=(0,), flapping=(0,))
    assert states(scene.site) == {"at-risk": 1}
    settled = scene.poll(T0 + 2 * RUN + 1, queued, down=(0,), flapping=(0,))
    assert [(record.id, record.state) for record in settled.changed] == [(7, "broken")]


def insured(nodes: int) -> Scene:
    """Return a site whose promises survive the loss of a node."""
    return Scene(nodes=nodes, plugin=Mcdf(Mcdf.Config(spare_nodes=1)))


def test_an_insured_job_begins_again_on_the_spare_node() -> None:
    """Its node died under it a moment before its end; it is planned at once, and its user told."""
    scene = insured(3)
    queued = (promised(scene, 7, size=2, wall_time=RUN, deadline=T0 + 2 * RUN + 30),)
    scene.poll(T0 + 1, queued)
    scene.poll(T0 + 2, (), ((7, queued[0][1], T0 + 2, T0 + 2 + RUN, (0, 1)),))
    settled = scene.poll(T0 + RUN, queued, down=(1,))
    assert not settled.changed
    (tell,) = [each for each in settled.actions if isinstance(each, Notify)]
    assert tell.job.tolist() == [7]
    assert "restarts, planned to start now, still promised" in tell.text[0]
    again = scene.poll(T0 + RUN + 1, queued, down=(1,))
    assert not [each for each in again.actions if isinstance(each, Notify)], "once"
    plan = scene.site.snapshot.plan
    assert plan.entries.start.tolist() == [T0 + RUN]
    assert sorted(plan.nodes.tolist()) == [0, 2]


def test_best_effort_on_the_spare_node_gives_way() -> None:
    """As few jobs as needed are requeued, the latest starters; however long they have run."""
    scene = insured(4)
    queued = (promised(scene, 7, size=2, wall_time=RUN, deadline=T0 + 2 * RUN + 30),)
    scene.poll(T0 + 1, queued)
    others = tuple((90 + k, "", T0 - 50.0 + k, T0 + 9 * RUN, (k,)) for k in (2, 3))
    scene.poll(T0 + 2, (), ((7, queued[0][1], T0 + 2, T0 + 2 + RUN, (0, 1)), *others))
    settled = scene.poll(T0 + RUN, queued, others, down=(1,))
    assert not settled.changed
    (requeue,) = [each for each in settled.actions if isinstance(each, Requeue)]
    assert requeue.job.tolist() == [93]
    assert sorted(scene.site.snapshot.plan.nodes.tolist()) == [0, 3]


def test_a_promise_without_a_place_is_at_risk_until_it_is_hopeless() -> None:
    """It is planned as soon as its nodes come free, and does not keep others from promises."""
    scene = Scene(nodes=1)
    queued = (promised(scene, 7, size=1, wall_time=RUN, deadline=T0 + 2 * RUN),)
    taken = ((90, "", T0 + 1, T0 + 1.5 * RUN, (0,)),)
    for at in (30.0, 40.0):
        scene.poll(T0 + at, queued, taken)
        assert scene.site.at_risk == {7: T0 + 2.5 * RUN}
        assert start_of(scene, 7) == T0 + 1.5 * RUN
    other = {"uid": BOB, "size": 1, "wall_time": RUN}
    judged = scene.submit(T0 + 41, deadline=T0 + 3.6 * RUN, **other)
    assert judged.verdict == "admit", judged.reply.text
    judged = scene.submit(T0 + 42, deadline=T0 + 2.5 * RUN, **other)
    assert judged.verdict == "reject", "it would move the one at risk further"
    scene.poll(T0 + RUN - 5, queued, taken)
    assert scene.site.promises[7].state == "firm"
    settled = scene.poll(T0 + RUN + 1, queued, taken)
    assert [record.state for record in settled.changed if record.id == 7] == ["broken"]


DAY = 86400.0
BOTH_KINDS = pytest.mark.parametrize("shared", [False, True], ids=["whole nodes", "shared nodes"])


def span(node: int, start: float, end: float) -> tuple[int, float, float, int]:
    """Return a span of a whole node, in seconds after T0."""
    return node, T0 + start, T0 + end, WHOLE


def scene_of(nodes: int, shared: bool, *spans: tuple[int, float, float, int]) -> Scene:
    """Return a site with nodes of 4 cores of which some are set aside."""
    scene = Scene(nodes, capacity=[(4, 0)] * nodes if shared else ())
    scene.blocked = Blocked.of(spans)
    scene.poll(T0)
    return scene


def ask(scene: Scene, wall: float, deadline: float, size: int = 1) -> AdmissionResult:
    """Submit a job of all cores of its nodes; the deadline in seconds after T0."""
    demand = (4, 0) if scene.cluster.shared else None
    now = scene.site.snapshot.now
    return scene.submit(now, size=size, wall_time=wall, deadline=T0 + deadline, demand=demand)


def starts(scene: Scene) -> list[float]:
    """Return the planned starts, seconds after T0."""
    return (scene.site.snapshot.plan.entries.start - T0).tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 6)), max_size=9))
def test_merged_spans_cover_the_same_instants_once(given_: list[tuple[int, int, int]]) -> None:
    """Instant by instant; and none of a node overlaps or touches another of it."""
    spans = [(node, start, start + length) for node, start, length in given_]
    columns = np.array(spans, np.float64).reshape(-1, 3).T
    found = Blocked.merged(columns[0].astype(np.int64), columns[1], columns[2])
    instants = {(n, t) for n, start, end in spans for t in range(start, end)}
    rows = list(zip(found.node.tolist(), found.start.tolist(), found.end.tolist(), strict=True))
    assert [(n, t) for n, a, b in rows for t in range(int(a), int(b))] == sorted(instants)
    apart = [(n, b, m, c) for (n, _, b), (m, c, _) in pairwise(rows)]
    assert all(n < m or b < c for n, b, m, c in apart)
    assert (found.cpus == WHOLE).all()


def test_merged_spans_without_an_end() -> None:
    """One that never ends takes in all later ones of its node."""
    merged = Blocked.merged(
        np.array([1, 0, 1, 1]), np.array([5.0, 1.0, 0.0, 9.0]), np.array([np.inf, 2.0, 6.0, 10.0])
    )
    assert merged.node.tolist() == [0, 1]
    assert merged.end.tolist() == [2.0, np.inf]
    assert Blocked.merged(*(column[:0] for column in merged[:3])).equals(NOTHING_BLOCKED)


def test_recurring_work_of_a_short_period_is_laid_out_for_less() -> None:
    """1,024 times of 10 s; the spans stay the same for a fifteenth of that."""
    work = Periodic.build(1, node=[2], exec_time=[3.0], period=[10.0], phase=[0.0])
    spans = with_recurring(NOTHING_BLOCKED, work, 700.0)
    begin = 10240 / 15
    assert spans.equals(with_recurring(NOTHING_BLOCKED, work, 2 * begin - 0.1))
    assert not spans.equals(with_recurring(NOTHING_BLOCKED, work, 2 * begin))
    assert spans.start[:2].tolist() == [680.0, 690.0]
    assert (spans.start[-1], spans.end[-1]) == (10920.0, np.inf)


@BOTH_KINDS
def test_jobs_are_planned_before_and_after_a_reservation(shared: bool) -> None:
    """Of both nodes from 1000 to 2000 s: what does not end before starts after it."""
    scene = scene_of(2, shared, span(0, 1000, 2000), span(1, 1000, 2000))
    assert ask(scene, 900, 1000, size=2).verdict == "admit"
    assert starts(scene) == [0.0]
    assert ask(scene, 900, 3000, size=2).verdict == "admit"
    assert starts(scene) == [0.0, 2000.0]
    refused = ask(scene, 150, 2000, size=2)
    assert refused.verdict == "reject"
    assert 3050 <= refused.offer - T0 < 3050 + 60


@BOTH_KINDS
def test_a_promise_is_moved_out_of_the_way_of_a_new_reservation(shared: bool) -> None:
    """To another node at the same time, or to after it; only if neither will do it breaks."""
    # That is as soon as the job could no longer end in time if it started at once.
    scene = scene_of(2, shared)
    token = ask(scene, RUN, 3 * RUN).reply.token
    scene.poll(T0 + 1, ((7, token),))
    (node,) = scene.site.snapshot.plan.nodes.tolist()
    scene.blocked = Blocked.of([span(node, 100, 5000)])
    settled = scene.poll(T0 + 2, ((7, token),))
    assert not settled.changed
    assert starts(scene) == [pytest.approx(1, abs=2)]
    assert scene.site.snapshot.plan.nodes.tolist() == [1 - node]

    scene.blocked = Blocked.of([span(0, 100, 5000), span(1, 100, 1000)])
    settled = scene.poll(T0 + 3, ((7, token),))
    assert not settled.changed
    assert starts(scene) == [1000.0]

    scene.blocked = Blocked.of([span(0, 100, 5000), span(1, 100, 1300)])
    settled = scene.poll(T0 + 4, ((7, token),))
    assert not settled.changed
    assert told(settled)[7].startswith("rtsched: at risk: ")
    assert told(settled)[7].endswith(", unless a reservation of the site ends early")
    (reason,) = waits(scene.site, None, 7, T0 + 4)
    assert reason.text.endswith("its deadline unless a reservation of the site ends early")
    settled = scene.poll(T0 + 1205, ((7, token),))
    assert [record.state for record in settled.changed] == ["broken"]
    assert any(isinstance(action, Notify) for action in settled.actions)


@BOTH_KINDS
def test_a_job_that_starts_late_before_a_reservation_stays_where_it_is(shared: bool) -> None:
    """Its time contains the leeway: by its own limit it ends before the reservation."""
    scene = scene_of(1, shared, span(0, RUN, 3 * RUN))
    token = ask(scene, RUN, 2 * RUN).reply.token
    scene.poll(T0 + 5, ((7, token),), leeway=60.0)
    settled = scene.poll(T0 + 15, ((7, token),), leeway=60.0)
    assert not settled.changed
    assert starts(scene) == [0.0]
    settled = scene.poll(T0 + 665, ((7, token),), leeway=60.0)
    assert [record.state for record in settled.changed] == ["broken"]


@BOTH_KINDS
def test_the_end_of_a_maintenance_is_an_instant_to_start_at(shared: bool) -> None:
    """All nodes are in it when the job is submitted."""
    scene = scene_of(2, shared, span(0, -500, 700), span(1, -500, 700))
    assert ask(scene, RUN, 700 + RUN, size=2).verdict == "admit"
    assert starts(scene) == [700.0]


def test_a_planner_that_knows_of_no_spans_has_its_nodes_closed() -> None:
    """From `reserved_ahead` before a span on; a span farther ahead is not looked at."""
    scene = Scene(2, plugin=Mcdf(Mcdf.Config(rounds=2)), planner="mine")
    scene.reserved_ahead = 1000.0
    scene.blocked = Blocked.of([span(0, 500, 900), span(1, 2000, 3000)])
    scene.poll(T0)
    assert scene.site.snapshot.cluster.usable.tolist() == [False, True]
    assert not len(scene.site.snapshot.blocked.node)
    scene.poll(T0 + 1500)
    assert scene.site.snapshot.cluster.usable.tolist() == [True, False]


@BOTH_KINDS
def test_recurring_work_is_planned_around(shared: bool) -> None:
    """For two weeks; then its node is set aside for good, and nothing is promised there."""
    scene = scene_of(1, shared)
    scene.periodic = Periodic.build(
        1, node=[0], exec_time=[3600.0], period=[DAY], phase=[T0 + 3600.0], left=[0.0]
    )
    scene.poll(T0)
    assert ask(scene, 3600, DAY).verdict == "admit"
    assert ask(scene, DAY - 3600, 2 * DAY + 3600).verdict == "admit"
    assert starts(scene) == [0.0, 7200.0]
    assert ask(scene, DAY, 30 * DAY).verdict == "reject"
    spans = scene.site.snapshot.blocked
    assert len(spans.node) == RECURS_AHEAD // DAY + 1
    assert spans.end[-1] == np.inf
    assert scene.site.snapshot.cluster.usable.all()
    same = spans
    scene.poll(T0 + 60)
    assert scene.site.snapshot.blocked is same


def test_why_a_job_waits_for_a_reservation() -> None:
    """Both nodes are free, and one is set aside before the job would end."""
    scene = scene_of(2, False, span(0, 300, 900))
    scene.poll(T0 + 1, ((8, ""),), changed={"wall_time": RUN, "size": 2})
    found = {reason.code: reason.text for reason in waits(scene.site, None, 8, T0 + 1)}
    assert found["wait.nodes"] == "it needs 2 nodes, 1 free"
    assert found["wait.reservation"] == (
        "1 node is in a reservation of the site before it would end"
    )
