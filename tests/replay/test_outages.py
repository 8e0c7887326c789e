"""Outages of nodes, as changes of their states in a replay."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rtsched.logs.sacctmgr import Outage
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.replay.machine import node_events

T0 = 1_767_225_600.0
"""2026-01-01T00:00:00 UTC."""
DOWN, DRAINED = NodeState.DOWN, NodeState.DRAINED


def machine(*states: NodeState) -> Cluster:
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
    found = node_events(outages, machine(NodeState.UP, NodeState.UP, NodeState.UP), T0, notes)
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
    assert node_events(outages, machine(DRAINED, NodeState.UP), T0, []) == ()


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
    events = node_events(outages, machine(NodeState.UP), T0, [])
    for second in range(80):
        now = T0 + second
        worst = max((each.state for each in outages if each.start <= now < each.end), default=0)
        state = next((event.state for event in reversed(events) if event.time <= now), 0)
        assert state == worst
