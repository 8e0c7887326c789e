"""Reservations, as spans of time per node, and a queue that keeps to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.errors import ConfigError
from rtsched.logs.slurm_reservations import Reservation
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.replay.reservations import blocked_spans
from rtsched.simulator.interface import WHOLE, Blocked, NodeEvent
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
    said: list[str] = []
    nodes = Nodes.build(2, name=["n0", "n1"], cores=[4, 4])
    found = blocked_spans(reservations, Cluster(nodes), 5.0, said)
    assert [column.tolist() for column in found] == [
        [0, 1],
        [10.0, 20.0],
        [60.0, 50.0],
        [WHOLE, WHOLE],
    ]
    assert said[0].startswith("Reservations replayed: 3, of 2 nodes.")
    assert said[1:] == [
        "Reservations that recur, replayed once, as printed: 1.",
        "Reservations left out, holds some cores of its nodes, and it is not said how many of "
        "each: 1.",
        "Reservations left out, names no nodes: 1.",
        "Reservations left out, of nodes that the machine does not have: 1.",
    ]


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=5
)
work = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(1, 30), st.integers(0, 29)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(spans, work)
def test_fcfs_by_a_plain_loop(
    given_spans: list[tuple[int, int, int]], given_jobs: list[tuple[int, int, int, int]]
) -> None:
    """The head of the queue starts at the first second at which enough nodes are free for it.

    A job runs for its requested time less a part; which of several nodes that would do it takes,
    the loop takes from the simulation, and checks that each was free for the requested time.
    """
    reserved = [
        Reservation("r", (f"n{node}",), float(start), float(start + length), "", recurs=False)
        for node, start, length in given_spans
    ]
    rows = sorted(given_jobs)
    submit, size, wall, early = (np.array(column) for column in zip(*rows, strict=True))
    run_time = np.maximum(wall - early, 1).astype(np.float64)
    jobs = Jobs.build(
        len(rows),
        id=np.arange(len(rows)),
        submit=submit.astype(np.float64),
        size=size.astype(np.int32),
        wall_time=wall.astype(np.float64),
    )
    blocked = blocked_spans(reserved, machine(3), float(submit[0]), [])
    system = simulate(
        jobs,
        run_time,
        machine(3),
        settings=ExclusiveSettings(loop="fcfs"),
        blocked=blocked,
        record_nodes=True,
    )
    while not system.advance().done:
        pass
    start = system.job_outcomes().start
    offsets, nodes = system.node_rows()
    until, now = np.zeros(3), 0.0
    for job in range(len(rows)):
        now = max(now, float(submit[job]))
        while True:
            clash = (blocked.start < now + wall[job]) & (blocked.end > now)
            free = (until <= now) & ~np.isin(np.arange(3), blocked.node[clash])
            if free.sum() >= size[job]:
                break
            now += 1.0
        assert start[job] == now
        taken = nodes[offsets[job] : offsets[job + 1]]
        assert len(taken) == size[job]
        assert free[taken].all()
        until[taken] = now + run_time[job]


def test_outages_beside_reservations_are_refused() -> None:
    """In one sentence."""
    jobs = Jobs.build(1, id=[0], submit=[0.0], size=[1], wall_time=[5.0])
    with pytest.raises(ConfigError, match="outages and reservations cannot be replayed together"):
        simulate(
            jobs,
            np.array([5.0]),
            machine(1),
            settings=ExclusiveSettings(),
            blocked=Blocked.of([(0, 1.0, 2.0, WHOLE)]),
            node_events=[NodeEvent(1.0, 0, NodeState.DOWN)],
        )
