"""Reservations of nodes that are out of service meanwhile, and of nodes with periodic work."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import ended

from rtsched.model.actions import Reserve
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Periodic
from rtsched.model.resources import CPU
from rtsched.model.schedule import Schedule
from rtsched.simulator.interface import NodeEvent, StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.system import System

UP, DRAINED, DOWN = NodeState.UP, NodeState.DRAINED, NodeState.DOWN
LOOPS: list[Any] = ["fcfs", "easy", "conservative"]
Span = tuple[int, float, float]
Event = tuple[float, int, NodeState]
BOTH_KINDS = pytest.mark.parametrize("shared", [False, True], ids=["whole nodes", "shared nodes"])


def run(
    nodes: int,
    jobs: list[tuple[float, int, float]],
    spans: list[Span],
    events: list[Event],
    *,
    shared: bool = False,
    loop: Any = "easy",
    down: tuple[int, ...] = (),
    periodic: Periodic | None = None,
) -> System:
    """Return the system when jobs of (submission, nodes, seconds) have ended on nodes of 1 CPU."""
    state = np.zeros(nodes, np.int8)
    state[list(down)] = DOWN
    submit, size, wall = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    columns: dict[str, Any] = {"submit": submit, "size": size.astype(np.int32), "wall_time": wall}
    table, hardware = Jobs.build(len(jobs), id=np.arange(len(jobs)), **columns), Nodes.build(nodes)
    if shared:
        ones = np.ones((max(len(jobs), nodes), 1), np.int64)
        table = Jobs.build(
            len(jobs), names={"demand": (CPU,)}, id=table.id, demand=ones[: len(jobs)], **columns
        )
        hardware = Nodes.build(nodes, names={"capacity": (CPU,)}, capacity=ones[:nodes])
    return ended(
        simulate(
            table,
            wall,
            Cluster(hardware.replace(state=state)),
            settings=ExclusiveSettings(loop=loop),
            blocked=Blocked.of([(*span, WHOLE) for span in spans]),
            periodic=periodic,
            node_events=[NodeEvent(*event) for event in events],
            record_nodes=True,
        )
    )


@BOTH_KINDS
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("events", "down", "start"),
    [
        pytest.param([(5, 0, DOWN), (15, 0, UP)], (), 30, id="it comes back inside"),
        pytest.param([(15, 0, DOWN), (45, 0, UP)], (), 45, id="it comes back after"),
        pytest.param([(15, 0, DOWN), (20, 0, UP)], (), 30, id="it is away in the middle"),
        pytest.param([(12, 0, UP)], (0,), 30, id="it comes at last"),
        pytest.param([(40, 0, UP)], (0,), 40, id="it comes after all"),
        pytest.param([(11, 0, DRAINED), (35, 0, UP)], (), 35, id="it is drained"),
        pytest.param([(11, 0, DRAINED), (12, 0, DOWN), (13, 0, UP)], (), 30, id="it is rebooted"),
        pytest.param([(30, 0, DOWN), (50, 0, UP)], (), 50, id="it dies at the end"),
    ],
)
def test_one_node(
    shared: bool, loop: Any, events: list[Event], down: tuple[int, ...], start: float
) -> None:
    """A job that comes at 9 and takes 5 s does not end before the reservation, from 10 to 30."""
    system = run(1, [(9, 1, 5)], [(0, 10, 30)], events, shared=shared, loop=loop, down=down)
    assert system.job_outcomes().start.tolist() == [start]


def test_a_job_that_is_killed_waits_for_the_end_of_the_reservation() -> None:
    """Its node dies at 5 and is back at 8; the rest of its time would reach into it."""
    system = run(1, [(0, 1, 10)], [(0, 10, 30)], [(5, 0, DOWN), (8, 0, UP)])
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [30]
    assert outcomes.restarts.tolist() == [1]


def test_periodic_work_gives_way_to_a_reservation() -> None:
    """Of 2 s in every 10, from 0 on; the node is set aside from 11 to 25, so not at 20."""
    work = Periodic.build(1, node=[0], exec_time=[2.0], period=[10.0], phase=[0.0])
    jobs = [(0.0, 1, 8.0), (0.0, 1, 1.0), (0.0, 1, 5.0), (0.0, 1, 3.0)]
    system = run(1, jobs, [(0, 11, 25)], [], periodic=work)
    assert system.job_outcomes().start.tolist() == [2, 25, 32, 26]


def test_it_asks_of_nodes_only_who_wants_to_know() -> None:
    """Whether or not a node changes at the same time as reservations are laid out."""
    for asks in (False, True):
        system = simulate(
            Jobs.build(1, id=[0], submit=[0.0], size=[1], wall_time=[50.0]),
            np.array([50.0]),
            Cluster(Nodes.build(2)),
            settings=ExclusiveSettings(),
            blocked=Blocked.of([(1, 10.0, 20.0, WHOLE)]),
            node_events=[NodeEvent(15.0, 1, DOWN), NodeEvent(18.0, 1, UP)],
            stop_at=StopConditions(nodes=asks),
        )
        told = []
        while not (point := system.advance()).done:
            told += [point.time] * point.nodes_changed
        assert told == ([15.0, 18.0] if asks else [])


def test_a_plan_laid_out_after_an_outage_leaves_reservations_alone() -> None:
    """The job that comes at 7 would end at 12 on a node that is set aside from 10 to 30."""
    system = simulate(
        Jobs.build(1, id=[0], submit=[7.0], size=[1], wall_time=[5.0]),
        np.array([5.0]),
        Cluster(Nodes.build(2)),
        settings=ExclusiveSettings(),
        blocked=Blocked.of([(0, 10.0, 30.0, WHOLE)]),
        node_events=[NodeEvent(5.0, 1, DOWN)],
        stop_at=StopConditions(nodes=True),
    )
    while not (point := system.advance()).done:
        if point.nodes_changed:
            system.apply([Reserve(np.zeros(0, np.int64), Schedule.empty())])
    assert system.job_outcomes().start.tolist() == [30]


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 30)), max_size=4)
outages = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 30)), min_size=1, max_size=4
)
work = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(1, 25)), min_size=1, max_size=6
)


def apart(given_: list[tuple[int, int, int]]) -> list[Span]:
    """Return spans as node, start and end, of which those of a node do not overlap or touch."""
    columns = np.array(given_, np.float64).reshape(-1, 3).T
    merged = Blocked.merged(columns[0].astype(np.int64), columns[1], columns[1] + columns[2])
    return list(zip(*(column.tolist() for column in merged[:3]), strict=True))


@BOTH_KINDS
@settings(max_examples=60, deadline=None)
@given(spans, outages, work, st.sampled_from(LOOPS))
def test_no_job_runs_where_a_node_is_set_aside_or_away(
    shared: bool,
    given_spans: list[tuple[int, int, int]],
    given_outages: list[tuple[int, int, int]],
    given_jobs: list[tuple[int, int, int]],
    loop: Any,
) -> None:
    """All run in the end, their last runs clear of both; without outages as if none was given."""
    reserved, away = apart(given_spans), apart(given_outages)
    events = [
        (time, node, state)
        for node, *pair in away
        for time, state in zip(pair, (DOWN, UP), strict=True)
    ]
    jobs = [(float(submit), size, float(wall)) for submit, size, wall in sorted(given_jobs)]
    system = run(3, jobs, reserved, events, shared=shared, loop=loop)
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    assert np.isfinite(outcomes.start).all()
    for row, (_, size, wall) in enumerate(jobs):
        start, end = outcomes.start[row], outcomes.end[row]
        mine = nodes[offsets[row] : offsets[row + 1]].tolist()
        assert end - start == wall
        assert len(mine) == size
        for node, begin, over in (*reserved, *away):
            assert node not in mine or end <= begin or start >= over
