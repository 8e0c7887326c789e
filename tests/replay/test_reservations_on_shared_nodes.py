"""Reservations of nodes that jobs share: of all of a node, or of some of its CPUs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job, conservative, starts_beside
from test_planning_on_shared_nodes import (
    NOW,
    asking,
    chain,
    cluster,
    judged_in_turn,
    licensed,
    several,
    streams,
)
from test_shared_nodes import as_table, found, licenses, machine, node, workloads
from workloads import ended

from rtsched.core.chain import Chain
from rtsched.core.decision import admission_actions, judge
from rtsched.core.plan_check import plan_fault
from rtsched.logs.slurm_reservations import Reservation
from rtsched.model.actions import Reject, Reserve
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.replay.reservations import blocked_spans
from rtsched.simulator.interface import StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.system import System

Capacity = list[tuple[int, ...]]
Span = tuple[int, float, float, int]
"""Node, start, end and CPUs."""


def named(capacity: Capacity) -> Cluster:
    """Return nodes n0, n1, ... with these amounts of CPUs, memory and GPUs."""
    nodes = machine(capacity).nodes
    return Cluster(
        nodes.replace_text("name", np.arange(len(nodes)), [f"n{k}" for k in range(len(nodes))])
    )


def reservation(nodes: tuple[str, ...], start: float, end: float, *cpus: int) -> Reservation:
    """Return one of whole nodes, or of some CPUs of each."""
    return Reservation("r", nodes, start, end, "", recurs=False, cpus_on=cpus)


def beside(
    spans: list[Span], jobs: list[Job], capacity: Capacity, loop: Any, licenses: int = 0
) -> System:
    """Return the system when all has happened."""
    return ended(
        simulate(
            as_table(jobs),
            np.array([job.run for job in jobs]),
            machine(capacity, licenses),
            settings=ExclusiveSettings(loop=loop),
            blocked=Blocked.of(spans),
            record_nodes=True,
        )
    )


def test_spans_add_up() -> None:
    """Of 4 CPUs 1 from 10, 3 from 20, all from 30, as 3 and 2 are 5, and from 40; 1 until 60."""
    reservations = [
        reservation(("n0",), 10.0, 30.0, 1),
        reservation(("n0", "n1"), 20.0, 40.0, 2, 0),
        reservation(("n0",), 30.0, 60.0, 3),
        reservation(("n0",), 40.0, 50.0),
        reservation(("n1",), 40.0, 50.0, 2),
        reservation(("n0",), 50.0, 60.0, 9)._replace(cpus=1, cpus_on=()),
    ]
    notes: list[str] = []
    blocked = blocked_spans(reservations, named([(4, 8, 0), (2, 8, 0)]), 0.0, notes)
    assert list(zip(*(column.tolist() for column in blocked), strict=True)) == [
        (0, 10.0, 20.0, 1),
        (0, 20.0, 30.0, 3),
        (0, 30.0, 60.0, WHOLE),
        (1, 40.0, 50.0, WHOLE),
    ]
    assert notes[0].startswith("Reservations replayed: 6, of 2 nodes.")


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_by_hand(loop: str) -> None:
    """Of 4 CPUs each, those of node 0 are set aside from 20 to 30, 3 of node 1 from 10 to 40."""
    # Job 0 asks for 2 CPUs for 15 s, which node 0 has. Job 1 asks for 2 for 25 s: at 30 on node 0.
    # Job 2 asks for 2 for 10 s, which node 0 has beside job 0. Job 3 asks for 1 for 50 s, which
    # node 1 has left.
    asked = [(2, 15), (2, 25), (2, 10), (1, 50)]
    jobs = [Job(0.0, 1, (cpus, 0, 0), float(wall), float(wall)) for cpus, wall in asked]
    system = beside([(0, 20, 30, WHOLE), (1, 10, 40, 3)], jobs, [(4, 8, 0), (4, 8, 0)], loop)
    ahead = {2: (0.0, [0]), 3: (0.0, [1])}
    others = {2: (30.0, [0]), 3: (30.0, [1])} if loop == "fcfs" else ahead
    assert found(system) == {0: (0.0, [0]), 1: (30.0, [0])} | others


spans_of_nodes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 20), st.integers(0, 4)),
    min_size=1,
    max_size=5,
)
"""Node, start, length, CPUs; 0: all."""


def drawn_apart(given_spans: list[tuple[int, int, int, int]], capacity: Capacity) -> list[Span]:
    """Return the spans on nodes that there are; one node's come one after the other."""
    clock = dict.fromkeys(range(len(capacity)), 0.0)
    spans = []
    for where, gap, length, cpus in given_spans:
        row = where % len(capacity)
        start = clock[row] + gap
        clock[row] = start + length
        spans.append((row, start, clock[row], cpus if 0 < cpus < capacity[row][0] else WHOLE))
    return spans


def as_plan(
    spans: list[Span], jobs: list[Job]
) -> tuple[list[Job], dict[int, tuple[float, list[int]]]]:
    """Return the jobs with one for each span behind them, and where and when those start."""
    last = jobs[-1].submit
    held = [
        Job(last, 1, (max(cpus, 0), 0, 0), end - start, end - start, exclusive=cpus == WHOLE)
        for _, start, end, cpus in spans
    ]
    plan = {len(jobs) + k: (start, [row]) for k, (row, start, _, _) in enumerate(spans)}
    return jobs + held, plan


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@given(
    jobs=workloads(),
    capacity=st.lists(node, min_size=1, max_size=3),
    given_spans=spans_of_nodes,
    licenses=licenses,
)
def test_as_the_plain_way(
    loop: str,
    jobs: list[Job],
    capacity: Capacity,
    given_spans: list[tuple[int, int, int, int]],
    licenses: int,
) -> None:
    """A job starts when and where a plain loop says, which takes spans for planned jobs."""
    spans = drawn_apart(given_spans, capacity)
    started = found(beside(spans, jobs, capacity, loop, licenses))
    everybody, plan = as_plan(spans, jobs)
    expected = (
        conservative(everybody, capacity, licenses=licenses, plan=plan)
        if loop == "conservative"
        else starts_beside(everybody, capacity, loop, plan, licenses)
    )
    assert started == {key: expected[key] for key in expected if key < len(jobs)}
    assert_out_of_the_way(started, jobs, spans, capacity)


def assert_out_of_the_way(
    started: dict[int, tuple[float, list[int]]],
    jobs: list[Job],
    spans: list[Span],
    capacity: Capacity,
) -> None:
    """Assert that no job had a node, or more CPUs than were left, while that was set aside."""
    for key, (start, rows) in started.items():
        for row, begin, end, cpus in spans:
            if row in rows and begin < start + jobs[key].wall and end > start:
                assert cpus != WHOLE
                assert jobs[key].demand[0] <= capacity[row][0] - cpus


@pytest.mark.parametrize("policy", [chain(), several()])
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@given(
    stream=streams(), capacity=st.lists(node, min_size=1, max_size=3), given_spans=spans_of_nodes
)
@settings(max_examples=40)
def test_promises_are_kept_beside_reservations(
    policy: Chain,
    loop: Any,
    stream: tuple[list[Job], list[float]],
    capacity: Capacity,
    given_spans: list[tuple[int, int, int, int]],
) -> None:
    """Jobs come one after the other; plans pass the checker, and no start runs into a span."""
    jobs, deadlines = stream
    spans = [
        (row, NOW + start, NOW + end, cpus)
        for row, start, end, cpus in drawn_apart(given_spans, capacity)
    ]
    table = as_table(jobs)
    table = table.replace(submit=NOW + table.submit, deadline=NOW + np.array(deadlines))
    system = simulate(
        table,
        np.array([job.run for job in jobs]),
        licensed(2, *capacity),
        settings=ExclusiveSettings(loop=loop),
        stop_at=StopConditions(arrivals=True, early_ends=True),
        blocked=Blocked.of(spans),
        record_nodes=True,
    )
    judged_in_turn(system, table, policy)
    assert_out_of_the_way(found(system), jobs, spans, capacity)


@pytest.mark.parametrize(
    ("cpus", "demand", "wall", "deadline", "start"),
    [
        (WHOLE, 1, 100.0, 900.0, 0.0),  # ends as the reservation begins
        (WHOLE, 1, 101.0, 900.0, 200.0),
        (WHOLE, 1, 101.0, 300.0, None),
        (5, 3, 101.0, 300.0, 0.0),  # 3 of 8 CPUs are left
        (5, 4, 101.0, 900.0, 200.0),
        (5, 4, 101.0, 300.0, None),
    ],
)
def test_plans_leave_reservations_their_time(
    cpus: int, demand: int, wall: float, deadline: float, start: float | None
) -> None:
    """The node, of 8 CPUs, is set aside from 100 to 200; a rejected job reads when it could end."""
    jobs = asking((deadline, 1, wall, (demand, 1, 0)))
    span = (0, NOW + 100.0, NOW + 200.0, cpus)
    snapshot = Snapshot(NOW, cluster((8, 8, 4)), blocked=Blocked.of([span]))
    first, *others = admission_actions(jobs, judge(snapshot, chain(), jobs).verdicts)
    if start is None:
        assert isinstance(first, Reject)
        assert (first.offer - NOW).tolist() == [200.0 + wall]
    else:
        assert isinstance(others[0], Reserve)
        assert (others[0].plan.entries.start - NOW).tolist() == [start]


def test_the_checker_knows_reservations() -> None:
    """A plan from 50 to 151 on a node that is set aside from 100; what is over does not count."""
    jobs = asking((900.0, 1, 101.0, (4, 1, 0)))
    plan = Schedule.build(
        [0], [NOW + 50.0], [NOW + 151.0], np.array([0, 1]), np.array([0], np.int32)
    )
    for span, fault in [
        ((0, NOW + 100.0, NOW + 200.0, WHOLE), "takes more of node 0 than it has"),
        ((0, NOW + 100.0, NOW + 200.0, 5), "takes more of node 0 than it has"),
        ((0, NOW + 100.0, NOW + 200.0, 4), None),
        ((0, NOW + 151.0, NOW + 200.0, WHOLE), None),
        ((0, NOW - 100.0, NOW - 50.0, WHOLE), None),
    ]:
        snapshot = Snapshot(NOW, cluster((8, 8, 4)), blocked=Blocked.of([span]))
        assert plan_fault(plan, jobs, snapshot, jobs.deadline) == fault
