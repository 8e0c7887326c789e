"""Reservations of nodes that jobs share: of all of a node, or of some of its CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_reference import Job, conservative, starts_beside
from test_shared_nodes import as_table, found, licenses, machine, node, workloads

from rtsched.logs.slurm_reservations import Reservation
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster
from rtsched.replay.reservations import blocked_spans
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
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
    system = simulate(
        as_table(jobs),
        np.array([job.run for job in jobs]),
        machine(capacity, licenses),
        settings=ExclusiveSettings(loop=loop),
        blocked=Blocked.of(spans),
        record_nodes=True,
    )
    while not system.advance().done:
        pass
    return system


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
    said: list[str] = []
    blocked = blocked_spans(reservations, named([(4, 8, 0), (2, 8, 0)]), 0.0, said)
    assert list(zip(*(column.tolist() for column in blocked), strict=True)) == [
        (0, 10.0, 20.0, 1),
        (0, 20.0, 30.0, 3),
        (0, 30.0, 60.0, WHOLE),
        (1, 40.0, 50.0, WHOLE),
    ]
    assert said[0].startswith("Reservations replayed: 6, of 2 nodes.")


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_by_hand(loop: str) -> None:
    """Of 4 CPUs each, those of node 0 are set aside from 20 to 30, 3 of node 1 from 10 to 40.

    Job 0 asks for 2 CPUs for 15 s, which node 0 has. Job 1 asks for 2 for 25 s: at 30 on node 0.
    Job 2 asks for 2 for 10 s, which node 0 has beside job 0. Job 3 asks for 1 for 50 s, which
    node 1 has left.
    """
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
    for key, (start, rows) in started.items():
        for row, begin, end, cpus in spans:
            if row in rows and begin < start + jobs[key].wall and end > start:
                assert cpus != WHOLE
                assert jobs[key].demand[0] <= capacity[row][0] - cpus
