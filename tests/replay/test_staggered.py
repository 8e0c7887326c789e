"""Plans in which nodes join a job after its start, on the simulated exclusive nodes."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from exclusive_scenarios import ORIGIN
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import ended, workload_of

from rtsched.model.actions import Admit, Reserve
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.log import FinalState
from rtsched.model.schedule import Schedule
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, Outcome, StopConditions
from rtsched.simulator.settings import ExclusiveSettings


def system_of(
    rows: Sequence[tuple[float, float, int, Kind]], nodes: int, **more: Any
) -> ExclusiveNodes:
    """Return a system with jobs from (submit, run time, size, kind)."""
    submit, run, size, kind = (np.array(column) for column in zip(*rows, strict=True))
    jobs = Jobs.build(
        len(rows),
        id=np.arange(len(rows)) + 7,
        submit=ORIGIN + submit,
        wall_time=run.astype(np.float64),
        size=size.astype(np.int32),
        kind=kind.astype(np.int8),
    )
    more = {"stop_at": StopConditions(arrivals=True), "record_nodes": True} | more
    return ExclusiveNodes(jobs, run.astype(np.float64), Cluster.uniform(nodes), **more)


def entry(job: int, starts: Sequence[float], nodes: Sequence[int], end: float) -> Schedule:
    """Return a plan of one job, whose nodes it gets at `starts`, relative to the origin."""
    begin = ORIGIN + np.array(starts, np.float64)
    offsets = np.array([0, len(nodes)])
    where = np.array(nodes, np.int32)
    return Schedule.build([job], [begin.min()], [ORIGIN + end], offsets, where, node_start=begin)


def reserve(system: ExclusiveNodes, plan: Schedule) -> None:
    """Let a system have a plan."""
    assert system.apply([Reserve(plan.entries.job, plan)]) == (Outcome.DONE,)


ONE_LATER = [(0.0, 6.0, 1, Kind.RIGID), (0.0, 8.0, 2, Kind.DIVISIBLE)]


def test_a_node_joins_a_job_when_it_is_free() -> None:
    """Job 8 starts on node 1 at 0; node 0 is job 7's until 6, then job 8's until 8."""
    system = system_of([*ONE_LATER, (3.0, 1.0, 1, Kind.RIGID)], 2)
    system.advance()
    reserve(system, entry(8, [0.0, 6.0], [1, 0], 8.0))
    assert system.advance().arrivals.tolist() == [2]
    snapshot = system.snapshot()
    assert snapshot.free_in.tolist() == [5.0, 5.0]
    assert len(snapshot.plan) == 0
    assert snapshot.queued.id.tolist() == []
    held = snapshot.allocations
    assert (held.starts()[held.indptr[1] :] - ORIGIN).tolist() == [0.0, 6.0]
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert (outcomes.start - ORIGIN).tolist() == [0.0, 0.0, 8.0]
    assert (outcomes.end - ORIGIN).tolist() == [6.0, 8.0, 9.0]
    assert outcomes.size.tolist() == [1, 2, 1]
    assert outcomes.service.tolist() == [6.0, 8.0 + 2.0, 1.0]
    offsets, nodes = system.node_rows()
    assert sorted(nodes[offsets[1] : offsets[2]].tolist()) == [0, 1]


def test_a_node_that_is_to_join_stays_reserved_under_a_new_plan() -> None:
    """A plan laid meanwhile does not free node 0 for the job that comes at 3."""
    system = system_of([*ONE_LATER, (3.0, 2.0, 1, Kind.RIGID), (3.0, 9.0, 1, Kind.DIVISIBLE)], 2)
    system.advance()
    reserve(system, entry(8, [0.0, 7.0], [1, 0], 8.0))
    system.advance()
    reserve(system, entry(10, [9.0], [1], 18.0))
    assert len(system.snapshot().plan) == 1
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert (outcomes.start - ORIGIN).tolist() == [0.0, 0.0, 8.0, 9.0]
    assert outcomes.size.tolist() == [1, 2, 1, 1]


@pytest.mark.parametrize(("died", "restarted"), [(1.0, 20.0), (7.0, 20.0)])
def test_a_job_whose_later_node_is_dead_dies_with_it(died: float, restarted: float) -> None:
    """Before it joined (noticed at 6) or after: the job is queued again for all its nodes."""
    events = [NodeEvent(ORIGIN + died, 0, NodeState.DOWN), NodeEvent(ORIGIN + 20, 0, NodeState.UP)]
    system = system_of(
        ONE_LATER[1:], 2, node_events=events, settings=ExclusiveSettings(requeue=True)
    )
    system.advance()
    reserve(system, entry(7, [0.0, 6.0], [1, 0], 8.0))
    ended(system)
    outcomes = system.job_outcomes()
    assert outcomes.restarts.tolist() == [1]
    assert outcomes.size.tolist() == [2]
    assert (outcomes.start - ORIGIN).tolist() == [restarted]


def test_a_job_that_loses_its_place_takes_its_later_nodes_with_it() -> None:
    """The node it was to start on is dead: it waits in the queue, and node 0 is anybody's."""
    events = [NodeEvent(ORIGIN + 1.0, 1, NodeState.DOWN), NodeEvent(ORIGIN + 30, 1, NodeState.UP)]
    rows = [(0.0, 8.0, 2, Kind.DIVISIBLE), (9.0, 5.0, 1, Kind.RIGID)]
    system = system_of(rows, 2, node_events=events)
    system.advance()
    reserve(system, entry(7, [2.0, 6.0], [1, 0], 10.0))
    ended(system)
    outcomes = system.job_outcomes()
    assert (outcomes.start - ORIGIN).tolist() == [30.0, 9.0]


works = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 12), st.integers(1, 5), st.booleans()), max_size=14
)


@settings(deadline=None, max_examples=40)
@given(works, st.sampled_from(["fcfs", "easy", "conservative"]), st.integers(0, 2**16))
def test_joined_nodes_serve_one_job_at_a_time(work: Any, loop: str, seed: int) -> None:
    """Random staggered plans beside a queue: all start and end as planned, no node serves two."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum([row[0] for row in work])
    rows = [
        (float(at), float(run), size, Kind.DIVISIBLE if planned else Kind.RIGID)
        for at, (_, run, size, planned) in zip(submit, work, strict=True)
    ]
    if not rows:
        return
    system = system_of(rows, 5, settings=ExclusiveSettings(loop=loop))
    plans: dict[int, Schedule] = {}
    while not (point := system.advance()).done:
        ids = system.jobs.id[point.arrivals]
        system.apply([Admit(ids, np.full(len(ids), np.inf))])
        for row in point.arrivals[system.jobs.kind[point.arrivals] == Kind.DIVISIBLE].tolist():
            snapshot = system.snapshot()
            left = snapshot.plan
            free = snapshot.free_in + snapshot.now - ORIGIN
            ends = np.repeat(left.entries.end - ORIGIN, np.diff(left.indptr))
            np.maximum.at(free, left.nodes, ends)
            nodes = np.argsort(free, kind="stable")[: system.jobs.size[row]]
            begin = np.ceil(free[nodes]) + np.sort(rng.integers(0, 3, len(nodes)))
            end = float(begin.max()) + float(system.jobs.wall_time[row])
            plan = entry(int(system.jobs.id[row]), begin.tolist(), nodes.tolist(), end)
            plans[row] = plan
            reserve(system, Schedule.joined([left, plan]))
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    taken: list[tuple[int, float, float]] = []
    for row in range(len(rows)):
        mine = nodes[offsets[row] : offsets[row + 1]].tolist()
        start = dict.fromkeys(mine, float(outcomes.start[row]))
        if row in plans:
            assert outcomes.start[row] == plans[row].entries.start[0]
            assert outcomes.end[row] == plans[row].entries.end[0]
            start = dict(zip(plans[row].nodes.tolist(), plans[row].starts().tolist(), strict=True))
            assert sorted(start) == sorted(mine)
        taken += [(node, start[node], float(outcomes.end[row])) for node in mine]
    taken.sort()
    for (a, _, end), (b, start, _) in itertools.pairwise(taken):
        assert a != b or end <= start


@pytest.mark.parametrize("order", ["cost-derivative", "arrival", "deadline"])
@pytest.mark.parametrize("setting", [{"staggered": True}, {"rounds": 8}, {"unequal_nodes": True}])
def test_replays_keep_every_promise(order: str, setting: dict[str, Any]) -> None:
    """On bursts of loads, whatever the setting, nothing admitted is late."""
    rng = np.random.default_rng(5)
    n = 120
    arrival = np.sort(rng.choice(rng.uniform(0, 6e4, 30), n))
    sigma = rng.uniform(5, 200, n)
    jobs = Jobs.build(
        n,
        id=np.arange(n),
        submit=ORIGIN + arrival,
        deadline=ORIGIN + arrival + sigma * rng.uniform(10, 90, n),
        kind=Kind.DIVISIBLE,
        sigma=sigma,
        cms=1.0,
        cps=100.0,
        setup_link=rng.choice([0.0, 3.0], n),
        rounds=8,
    )
    speed = np.array([1.0, 1.0, 0.5, 2.0] * 3) if "unequal_nodes" in setting else np.ones(12)
    cluster = Cluster(Nodes.build(12, speed=speed))
    workload = workload_of(jobs, np.ones(n), cluster)
    preset = presets()["mcdf"]
    table = preset.plugin[0]
    chosen = msgspec.structs.replace
    preset = chosen(preset, plugin=[chosen(table, settings={"order": order, **setting})])
    run = replay(workload, "mcdf", preset)
    measures = measure(workload, run.results)
    assert measures["missed"] == 0
    admitted = run.results.fate != FinalState.REJECTED
    assert 10 < admitted.sum() < n
    assert (run.results.end[admitted] <= jobs.deadline[admitted] + 1e-3).all()
