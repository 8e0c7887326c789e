"""Promises to jobs that wait for others, by every planner of deadlines, on either kind of nodes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import admission_actions, judge
from rtsched.core.plan_check import broken_order
from rtsched.core.plan_repair import right_shifted
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot, dependencies_of
from rtsched.model.table import Ragged
from rtsched.model.verdicts import Verdict
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import StopConditions
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.system import OpenDependencies
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio

NOW = 1_795_000_000.0
PLANNERS = {
    "mcdf": Mcdf(),
    "edf": Mcdf(Mcdf.Config(order="deadline")),
    "fifo": Mcdf(Mcdf.Config(order="arrival", nodes="fastest")),
    "portfolio": Portfolio(),
}
WAITS = {"portfolio": "portfolio.waits"}
BEHIND = {"portfolio": "portfolio.behind"}
WHOLE = Cluster.uniform(2)
SHARED = Cluster(
    Nodes.build(2, names={"capacity": ("cpu",)}, capacity=np.array([[4], [4]], np.int64))
)


def chain(planner: str) -> Chain:
    """Return a chain of one planner."""
    return Chain([Member("planner", PLANNERS[planner])], "planner")


def asking(*rows: tuple[float, int, float], shared: bool = False, **columns: Any) -> Jobs:
    """Return rigid jobs 1, 2, ... from (deadline from now, nodes, wall time)."""
    deadline, size, wall = zip(*rows, strict=True)
    n = len(rows)
    names = {"names": {"demand": ("cpu",)}, "demand": np.full((n, 1), 4, np.int64)}
    return Jobs.build(
        n,
        id=np.arange(n) + 1,
        submit=columns.pop("submit", NOW),
        deadline=NOW + np.array(deadline),
        size=np.array(size, np.int32),
        wall_time=np.array(wall, np.float64),
        **(names if shared else {}),
        **columns,
    )


def waiting(*pairs: tuple[int, int], **columns: Any) -> Edges:
    """Return that the second job of each pair waits for the first."""
    before, after = zip(*pairs, strict=True)
    return Edges.build(len(pairs), before=before, after=after, **columns)


def starts(plan: Schedule | None) -> dict[int, float]:
    """Return when a plan starts each job, seconds from now."""
    pairs = zip(plan.entries.job.tolist(), plan.entries.start.tolist(), strict=True)
    return {job: start - NOW for job, start in pairs}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("planner", PLANNERS)
def test_a_job_is_planned_after_those_that_it_waits_for(planner: str, shared: bool) -> None:
    """Job 2 has the earlier deadline, and comes after job 1 on other nodes than need be free."""
    jobs = asking((300, 1, 100), (160, 1, 50), (400, 1, 10), shared=shared)
    snapshot = Snapshot(NOW, SHARED if shared else WHOLE, edges=waiting((1, 2)))
    found = judge(snapshot, chain(planner), jobs)
    assert not found.planner_error
    assert found.verdicts.code.tolist() == [Verdict.ADMIT] * 3
    plan = starts(found.verdicts.plan)
    assert (plan[1], plan[2]) == (0, 100)
    assert plan[3] < 100, "the other node is free until then"


@pytest.mark.parametrize("planner", PLANNERS)
def test_an_earlier_job_gives_way_for_the_one_that_waits(planner: str) -> None:
    """Job 1, promised for later, must start now for job 3, which waits for it, to be in time."""
    # Its own deadline would let it start after job 2; its effective one, 90 - 40, does not.
    jobs = asking((200, 2, 50), (190, 2, 100), (90, 2, 40))
    plan = Schedule.build(
        [2, 1], [NOW, NOW + 100], [NOW + 100, NOW + 150], *Ragged.of([[0, 1], [0, 1]])
    )
    promises = Promises.build(2, job=[1, 2], deadline=jobs.deadline[:2])
    snapshot = Snapshot(
        NOW, WHOLE, queued=jobs.take([0, 1]), promises=promises, plan=plan, edges=waiting((1, 3))
    )
    found = judge(snapshot, chain(planner), jobs.take([2]))
    assert not found.planner_error
    assert found.verdicts.code.tolist() == [Verdict.ADMIT]
    assert starts(found.verdicts.plan) == {1: 0, 3: 50, 2: 90}


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_predecessor_planned_anew_leaves_the_others_their_time(planner: str) -> None:
    """Job 1 lost its start; job 2, planned from 60 s on, waits for it, and job 3 comes before."""
    # Beside them it would end at 70 s, so job 2 is planned anew with it, by 150 s.
    jobs = asking((300, 1, 50), (200, 1, 50), (70, 2, 20))
    plan = Schedule.build([3, 2], [NOW, NOW + 60], [NOW + 20, NOW + 110], *Ragged.of([[0, 1], [1]]))
    promises = Promises.build(3, job=[1, 2, 3], deadline=jobs.deadline)
    snapshot = Snapshot(
        NOW, WHOLE, queued=jobs.take([1, 2]), promises=promises, plan=plan, edges=waiting((1, 2))
    )
    found = judge(snapshot, chain(planner), jobs.take([0]))
    assert not found.planner_error
    assert found.verdicts.code.tolist() == [Verdict.ADMIT]
    new = starts(found.verdicts.plan)
    assert new[2] >= new[1] + 50
    assert new[2] <= 150


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("deadline", "admitted"), [(110.0, True), (109.0, False)])
def test_what_runs_ends_by_its_limit(planner: str, deadline: float, admitted: bool) -> None:
    """Job 1 runs for another 60 s, job 2 takes 50 s after it, though the other node is free."""
    jobs = asking((np.inf, 1, 100), (deadline, 1, 50))
    held = Schedule.build([1], [NOW - 40], [NOW + 60], *Ragged.of([[0]]))
    snapshot = Snapshot(NOW, WHOLE, running=jobs.take([0]), allocations=held, edges=waiting((1, 2)))
    found = judge(snapshot, chain(planner), jobs.take([1]))
    if admitted:
        assert starts(found.verdicts.plan) == {2: 60}
        return
    assert found.verdicts.code.tolist() == [Verdict.REJECT]
    assert found.verdicts.offer.tolist() == [NOW + 110]
    assert found.verdicts.findings[0].reason.code == BEHIND.get(planner, "mcdf.behind")
    assert found.verdicts.findings[0].text(0) == (
        "deadline too soon: it may have to wait for its begin time, or for other jobs, for 1 min, "
        "and it may need 50 s; 1 min 49 s are left"
    )


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_job_whose_predecessor_may_end_at_any_time_is_told_so(planner: str) -> None:
    """Job 1 waits without a promise, or runs without a limit."""
    jobs = asking((np.inf, 1, np.inf), (500, 1, 50))
    held = Schedule.build([1], [NOW - 40], [np.inf], *Ragged.of([[0]]))
    for given_ in ({"queued": jobs.take([0])}, {"running": jobs.take([0]), "allocations": held}):
        snapshot = Snapshot(NOW, WHOLE, edges=waiting((1, 2)), **given_)
        found = judge(snapshot, chain(planner), jobs.take([1]))
        assert found.verdicts.code.tolist() == [Verdict.REJECT]
        assert not np.isfinite(found.verdicts.offer[0])
        assert found.verdicts.findings[0].reason.code == WAITS.get(planner, "mcdf.waits")
        assert (
            found.verdicts.findings[0]
            .text(0)
            .startswith("waits for job 1, whose end cannot be predicted")
        )


@pytest.mark.parametrize("planner", PLANNERS)
def test_an_early_end_lets_the_next_one_start(planner: str) -> None:
    """Job 2 was planned behind job 1, which has ended before its limit."""
    jobs = asking((300, 1, 100), (300, 1, 50))
    plan = Schedule.build([2], [NOW + 60], [NOW + 110], *Ragged.of([[0]]))
    promises = Promises.build(1, job=[2], deadline=jobs.deadline[1:])
    snapshot = Snapshot(NOW, WHOLE, queued=jobs.take([1]), promises=promises, plan=plan)
    found = judge(snapshot, chain(planner), jobs.take([]))
    assert starts(found.verdicts.plan) == {2: 0}


def test_a_start_only_holds_back_until_then() -> None:
    """Slurm's `after`: both jobs may run side by side, and `lag` counts from the start."""
    jobs = asking((300, 1, 100), (300, 1, 50))
    edges = waiting((1, 2), at_start=[True], message_time=[10.0])
    found = judge(Snapshot(NOW, WHOLE, edges=edges), chain("mcdf"), jobs)
    assert starts(found.verdicts.plan) == {1: 0, 2: 10}


def test_planners_that_cannot_follow_dependencies_say_so() -> None:
    """Those that treat nodes as unequal, insure promises or send loads in rounds."""
    for settings_ in ({"spare_nodes": 1}, {"unequal_nodes": True}, {"rounds": 2}):
        assert not Mcdf(Mcdf.Config(**settings_)).capabilities.follows_dependencies
    assert all(plugin.capabilities.follows_dependencies for plugin in PLANNERS.values())


def test_the_checker_refuses_a_start_before_the_end() -> None:
    """Only one that is earlier than in the present plan: what runs longer is nobody's fault."""
    edges = waiting((1, 2))
    alone, both = (
        Schedule.build(ids, NOW + np.array(at), NOW + np.array(at) + 50, *Ragged.of(nodes))
        for ids, at, nodes in (([2], [40.0], [[0]]), ([1, 2], [0.0, 40.0], [[0], [1]]))
    )
    late = Schedule.build([1], [NOW - 5], [NOW + 45], *Ragged.of([[1]]))
    fault = "starts job 2 before job 1, for which it waits, has ended"
    assert broken_order(both, Snapshot(NOW, WHOLE, edges=edges)) == fault
    assert broken_order(both, Snapshot(NOW, WHOLE, plan=both, edges=edges)) is None
    assert broken_order(both, Snapshot(NOW, WHOLE)) is None
    runs = Snapshot(NOW, WHOLE, allocations=late, edges=edges)
    assert broken_order(alone, runs) == fault
    assert broken_order(alone, Snapshot(NOW, WHOLE, allocations=late, plan=alone, edges=edges)) is (
        None
    )
    started = edges.replace(at_start=np.array([True]))
    assert broken_order(both, Snapshot(NOW, WHOLE, edges=started)) is None


def test_only_dependencies_of_planned_jobs_keep_a_plan_from_being_put_off() -> None:
    """The node is busy for 30 s more; who waits among best-effort jobs does not matter."""
    plan = Schedule.build([1], [NOW], [NOW + 50], *Ragged.of([[0]]))
    held = Schedule.build([9], [NOW - 5], [NOW + 30], *Ragged.of([[0]]))
    for edges, moved in ((waiting((8, 9)), {1: 30.0}), (waiting((8, 1)), {})):
        snapshot = Snapshot(NOW, WHOLE, allocations=held, edges=edges)
        assert starts(right_shifted(snapshot, plan, np.array([NOW + 90]), 1.0)) == moved


def test_what_is_known_of_the_jobs_before() -> None:
    """Job 3 runs, 4 has no limit, 5 waits without a plan, 6 is to be planned, 7 has ended."""
    held = Schedule.build([3, 4], [NOW, NOW], [NOW + 30, np.inf], *Ragged.of([[0], [1]]))
    edges = waiting((3, 1), (6, 1), (4, 2), (5, 6), message_time=[2.0, 0.0, 0.0, 0.0])
    found = dependencies_of(
        np.array([1, 2, 6]), Snapshot(NOW, WHOLE, allocations=held, edges=edges)
    )
    assert found.ready.tolist() == [NOW + 32, -np.inf, -np.inf]
    assert found.unknown.tolist() == [-1, 4, 5]
    assert (found.before.tolist(), found.after.tolist()) == ([2], [0])
    assert found
    assert not dependencies_of(np.array([9]), Snapshot(NOW, WHOLE, edges=edges))


def test_dependencies_in_snapshots() -> None:
    """Those of submitted jobs that have not ended; of an array, its tasks."""
    jobs = Jobs.build(5, id=[1, 2, 3, 4, 5], submit=[0.0, 0, 1, 2, 3], array=[7, 7, -1, -1, -1])
    edges = Edges.build(
        5,
        before=[7, 3, 4, 5, 99],
        after=[3, 4, 3, 4, 5],
        whole_array=[True, False, False, False, False],
    )
    found = OpenDependencies(jobs, edges)
    over: list[int] = []

    def pairs(now: float) -> list[tuple[int, int]]:
        shown = found.at(now, lambda rows: ~np.isin(rows, over))
        assert not shown.whole_array.any()
        return sorted(zip(shown.before.tolist(), shown.after.tolist(), strict=True))

    assert pairs(0) == []
    assert pairs(1) == [(1, 3), (2, 3)]
    over.append(0)
    assert pairs(2) == [(2, 3), (3, 4)]
    over += [1, 2]
    assert pairs(3) == []


class Stream(NamedTuple):
    """A workload with dependencies."""

    jobs: Jobs
    run: list[float]
    edges: Edges


@st.composite
def streams(draw: st.DrawFn, shared: bool) -> Stream:
    """Draw jobs that come close together, most of which wait for earlier ones."""
    rows: list[tuple[float, int, float]] = []
    submit, time = [], 0.0
    n = draw(st.integers(2, 9))
    for _ in range(n):
        time += draw(st.sampled_from([0, 0, 1, 3]))
        submit.append(NOW + time)
        wall = float(draw(st.integers(1, 12)))
        slack = draw(st.sampled_from([0, 5, 20, 40, None]))
        due = np.inf if slack is None else time + wall + slack
        rows.append((due, draw(st.integers(1, 2)), wall))
    array = [draw(st.sampled_from([-1, -1, 5])) for _ in range(n)]
    jobs = asking(*rows, shared=shared, submit=submit, array=array)
    if shared:
        demand = [[draw(st.integers(1, 4))] for _ in range(n)]
        jobs = jobs.with_column("demand", np.array(demand, np.int64))
    run = [draw(st.floats(0.1, 1.0)) * wall for _, _, wall in rows]
    pairs = [(a, b) for b in range(2, n + 1) for a in range(1, b)]
    some = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=8, unique=True))
    edges = waiting(*some, at_start=[draw(st.sampled_from([False] * 4 + [True])) for _ in some])
    last = max((row + 1 for row, key in enumerate(array) if key == 5), default=n)
    if last < n and draw(st.booleans()):
        whole = waiting((5, n), whole_array=[True])
        edges = Edges.joined([edges, whole])
    return Stream(jobs, run, edges)


def in_order(stream: Stream, start: Sequence[float], end: Sequence[float]) -> bool:
    """Return whether every job that ran did so after those that it waits for."""
    edges, jobs = stream.edges, stream.jobs
    for k in range(len(edges)):
        whole, first = edges.whole_array[k], int(edges.before[k])
        rows = np.flatnonzero(jobs.array == first) if whole else [first - 1]
        over = start if edges.at_start[k] else end
        for row in rows:
            if over[row] > start[int(edges.after[k]) - 1] + 1e-6:  # not where either did not run
                return False
    return True


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("shared", [False, True])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_promise_is_kept_and_every_order(planner: str, shared: bool, data: Any) -> None:
    """Jobs come one after the other and end early; each plan passes the checks."""
    stream = data.draw(streams(shared))
    policy = chain(planner)
    system = ExclusiveNodes(
        stream.jobs,
        np.array(stream.run),
        SHARED if shared else WHOLE,
        ExclusiveSettings(loop="easy"),
        edges=stream.edges,
        stop_at=StopConditions(arrivals=True, early_ends=True),
    )
    while not (point := system.advance()).done:
        arrived = stream.jobs.take(point.arrivals)
        judgement = judge(system.snapshot(), policy, arrived)
        assert not judgement.planner_error
        system.apply(admission_actions(arrived, judgement.verdicts))
    outcomes = system.job_outcomes()
    promised = np.isfinite(outcomes.promise)
    assert (outcomes.end[promised] <= outcomes.promise[promised] + 1e-5).all()
    assert in_order(stream, outcomes.start.tolist(), outcomes.end.tolist())
