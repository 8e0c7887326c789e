"""Reservations and outages, as spans of time per node, and a queue that keeps to them."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from exclusive_scenarios import serving
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from workloads import ended

from rtsched.logs.sacctmgr import Outage
from rtsched.logs.slurm_reservations import Reservation
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.log import Outcomes
from rtsched.replay.machine import node_events
from rtsched.replay.reservations import blocked_spans, ran_inside
from rtsched.simulator.interface import StaticAnswers
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings


def machine(count: int) -> Cluster:
    """Return nodes n0, n1, ... of speed 1."""
    return Cluster(Nodes.build(count, name=[f"n{k}" for k in range(count)]))


def test_reservations_that_overlap_or_touch_are_one_span() -> None:
    """n0 from 10 to 60; what is over at 5, or has 7 of 8 cores, is none."""
    reservations = [
        Reservation("a", ("n0", "n9"), 10.0, 30.0, "", recurs=True),
        Reservation("b", ("n0", "n1"), 20.0, 50.0, "", recurs=False),
        Reservation("c", ("n0",), 50.0, 60.0, "", recurs=False),
        Reservation("d", ("n1",), 0.0, 5.0, "", recurs=False),
        Reservation("e", (), 0.0, 90.0, "names no nodes", recurs=False),
        Reservation("f", ("n9",), 0.0, 90.0, "", recurs=False),
        Reservation("g", ("n0", "n1"), 0.0, 90.0, "", recurs=False, cpus=7),
    ]
    notes: list[str] = []
    nodes = Nodes.build(2, name=["n0", "n1"], cores=[4, 4])
    found = blocked_spans(reservations, Cluster(nodes), 5.0, notes)
    assert [column.tolist() for column in found] == [
        [0, 1],
        [10.0, 20.0],
        [60.0, 50.0],
        [WHOLE, WHOLE],
    ]
    assert notes[0].startswith("Reservations replayed: 3, of 2 nodes.")
    assert notes[1:] == [
        "Reservations that recur, replayed once, as printed: 1.",
        "Reservations left out, holds some cores of its nodes, and how many of each is not "
        "known: 1.",
        "Reservations left out, names no nodes: 1.",
        "Reservations left out, of nodes that the machine does not have: 1.",
    ]


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=5
)
work = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(1, 3),
        st.integers(1, 30),
        st.integers(0, 29),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=8,
)


class Run(NamedTuple):
    """What was asked for, and what a simulation made of it."""

    submit: NDArray[np.float64]
    size: NDArray[np.int64]
    wall: NDArray[np.float64]
    run_time: NDArray[np.float64]
    rank: NDArray[np.int64]
    """Place of each job in the order of the queue."""
    blocked: Blocked
    start: NDArray[np.float64]
    nodes: list[NDArray[np.int32]]


def run_beside(
    given_spans: list[tuple[int, int, int]],
    given_jobs: list[tuple[int, int, int, int, float]],
    loop: Any,
    order: Any,
) -> Run:
    """Simulate jobs on three nodes; each runs for its requested time less a part."""
    reserved = [
        Reservation("r", (f"n{node}",), float(start), float(start + length), "", recurs=False)
        for node, start, length in given_spans
    ]
    rows = sorted(given_jobs)
    submit, size, wall, early, priority = (np.array(column) for column in zip(*rows, strict=True))
    run_time = np.maximum(wall - early, 1).astype(np.float64)
    jobs = Jobs.build(
        len(rows),
        id=np.arange(len(rows)),
        submit=submit.astype(np.float64),
        size=size.astype(np.int32),
        wall_time=wall.astype(np.float64),
    )
    blocked = blocked_spans(reserved, machine(3), float(submit[0]), [])
    system = ended(
        simulate(
            jobs,
            run_time,
            machine(3),
            settings=ExclusiveSettings(loop=loop, order=order),
            static=StaticAnswers(priority=priority.astype(np.float64)),
            blocked=blocked,
            record_nodes=True,
        )
    )
    offsets, nodes = system.node_rows()
    ahead = (
        np.lexsort((np.arange(len(rows)), -priority)) if order == "priority" else range(len(rows))
    )
    return Run(
        submit,
        size,
        wall,
        run_time,
        np.array(ahead),
        blocked,
        system.job_outcomes().start,
        np.split(nodes, offsets[1:-1]),
    )


@pytest.mark.parametrize("order", ["arrival", "priority"])
@settings(max_examples=100, deadline=None)
@given(spans, work)
def test_fcfs_by_a_plain_loop(
    order: str,
    given_spans: list[tuple[int, int, int]],
    given_jobs: list[tuple[int, int, int, int, float]],
) -> None:
    """The head of the queue starts at the first second at which enough nodes are free for it."""
    # Which of several nodes that would do it takes, the loop takes from the simulation, and checks
    # that each was free for the requested time.
    run = run_beside(given_spans, given_jobs, "fcfs", order)
    until, now = np.zeros(3), float(run.submit[0])
    left = run.rank.tolist()
    while left:
        for job in [job for job in left if run.submit[job] <= now]:
            clash = (run.blocked.start < now + run.wall[job]) & (run.blocked.end > now)
            free = (until <= now) & ~np.isin(np.arange(3), run.blocked.node[clash])
            if free.sum() < run.size[job]:
                break
            assert run.start[job] == now
            assert len(run.nodes[job]) == run.size[job]
            assert free[run.nodes[job]].all()
            until[run.nodes[job]] = now + run.run_time[job]
            left.remove(job)
        now += 1.0


@pytest.mark.parametrize("order", ["arrival", "priority"])
@pytest.mark.parametrize("loop", ["easy", "conservative"])
@settings(max_examples=100, deadline=None)
@given(spans, work)
def test_nobody_runs_into_a_span(
    loop: str,
    order: str,
    given_spans: list[tuple[int, int, int]],
    given_jobs: list[tuple[int, int, int, int, float]],
) -> None:
    """Each job starts, on nodes that are free of others, and of spans for its requested time."""
    run = run_beside(given_spans, given_jobs, loop, order)
    assert np.isfinite(run.start).all()
    for job, (start, nodes) in enumerate(zip(run.start, run.nodes, strict=True)):
        clash = (run.blocked.start < start + run.wall[job]) & (run.blocked.end > start)
        assert len(nodes) == run.size[job]
        assert not np.isin(nodes, run.blocked.node[clash]).any()
        for other in range(job):
            apart = start >= run.start[other] + run.run_time[other]
            apart |= start + run.run_time[job] <= run.start[other]
            assert apart or not np.isin(nodes, run.nodes[other]).any()


def test_conservative_keeps_its_reservations() -> None:
    """All nodes are set aside from 10 to 20. Job 1 waits for them, job 2 goes before, job 3 not."""
    # Jobs 0 to 3 ask for 1, 3, 1 and 1 nodes, for 8, 12, 8 and 15 seconds, and take as long.
    asked = [(0, 1, 8, 0, 0.0), (1, 3, 12, 0, 0.0), (2, 1, 8, 0, 0.0), (3, 1, 15, 0, 0.0)]
    run = run_beside([(node, 10, 10) for node in range(3)], asked, "conservative", "arrival")
    assert run.start.tolist() == [0.0, 20.0, 2.0, 32.0]


def test_policies_are_told_of_jobs_alone() -> None:
    """One job comes, starts and ends: that the node is set aside from 10 to 20 is no event."""
    jobs = Jobs.build(1, id=[0], submit=[0.0], size=[1], wall_time=[15.0], association=[-1])
    system = ended(
        simulate(
            jobs,
            np.array([15.0]),
            machine(1),
            settings=ExclusiveSettings(order="priority"),
            blocked=Blocked.of([(0, 10.0, 20.0, WHOLE)]),
            compiled=serving(jobs),
        )
    )
    assert system.job_outcomes().start.tolist() == [20.0]
    assert system.hook_calls()["observe"][1] == 3


def test_who_ran_inside() -> None:
    """n0 is set aside from 10 to 60 as "a"; "b" holds some cores of whole nodes, "c" comes later.

    Jobs ran in a from 9, 10, 59 and 60 on, in b and c from 20 on, in none; the last never started.
    """
    reservations = [
        Reservation("a", ("n0",), 10.0, 60.0, "", recurs=True),
        Reservation("b", ("n0",), 10.0, 60.0, "", recurs=False, cpus_on=(2,)),
        Reservation("c", ("n1",), 30.0, 60.0, "", recurs=False),
    ]
    outcomes = Outcomes.build(
        8,
        start=[9.0, 10.0, 59.0, 60.0, 20.0, 20.0, 20.0, np.nan],
        reservation=["a", "a", "a", "a", "b", "c", None, "a"],
    )
    cluster = Cluster(Nodes.build(2, name=["n0", "n1"], cores=[4, 4]))
    notes: list[str] = []
    (inside,) = ran_inside(outcomes, reservations, cluster, notes).values()
    assert np.flatnonzero(inside).tolist() == [1, 2]
    assert notes == [
        "4 jobs ran in a reservation that is not replayed, or not then: they are replayed as if "
        "they had asked for none."
    ]
    assert not ran_inside(outcomes, [], cluster, notes)
    assert not ran_inside(Outcomes.build(1, start=[20.0]), reservations, cluster, notes)
    assert len(notes) == 1


T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
DOWN, DRAINED = NodeState.DOWN, NodeState.DRAINED


def in_states(*states: NodeState) -> Cluster:
    """Return nodes n0, n1, ... in these states."""
    names = [f"n{k}" for k in range(len(states))]
    return Cluster(Nodes.build(len(states), name=names, state=np.array(states, np.int8)))


def test_overlapping_outages_count_by_the_worst_state() -> None:
    """Drained from 10 to 50, meanwhile down from 20 to 30."""
    outages = [
        Outage("n1", T0 + 10, T0 + 50, DRAINED),
        Outage("n1", T0 + 20, T0 + 30, DOWN),
        Outage("n0", T0 - 90, T0 - 50, DOWN),
        Outage("n2", T0 - 90, np.inf, DOWN),
        Outage("n7", T0, np.inf, DOWN),
    ]
    notes: list[str] = []
    found = node_events(outages, in_states(NodeState.UP, NodeState.UP, NodeState.UP), T0, notes)
    assert [(event.time - T0, event.node, event.state) for event in found] == [
        (0, 2, DOWN),
        (10, 1, DRAINED),
        (20, 1, DOWN),
        (30, 1, DRAINED),
        (50, 1, NodeState.UP),
    ]
    assert notes[0].startswith("Outages replayed: 3, of 2 nodes.")
    assert notes[1] == "Outages left out, of nodes that the machine does not have: 1."


def test_a_node_that_takes_no_jobs_stays_so() -> None:
    """An outage that ends does not bring it into service."""
    outages = [Outage("n0", T0 + 10, T0 + 50, DOWN)]
    assert node_events(outages, in_states(DRAINED, NodeState.UP), T0, []) == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 20), st.sampled_from([DOWN, DRAINED])),
        min_size=1,
        max_size=8,
    )
)
def test_at_each_instant_the_worst_state(spans: list[tuple[int, int, NodeState]]) -> None:
    """A plain look at each second says the same."""
    outages = [Outage("n0", T0 + start, T0 + start + long, how) for start, long, how in spans]
    events = node_events(outages, in_states(NodeState.UP), T0, [])
    for second in range(80):
        now = T0 + second
        worst = max((each.state for each in outages if each.start <= now < each.end), default=0)
        state = next((event.state for event in reversed(events) if event.time <= now), 0)
        assert state == worst
