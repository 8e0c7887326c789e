"""How node queues change by what happens: arrivals, starts, ends, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from rtsched.api import EventKind
from rtsched_plugins.node_balance import rebalanced
from rtsched_plugins.node_queues import (
    JOB,
    NODE,
    POOL,
    SIZE,
    STAYS,
    Machine,
    arrived,
    first_place,
    fixed_load,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Events, Snapshot
    from rtsched_plugins.node_balance import Terms
    from rtsched_plugins.node_queues import Queues

    Ints = NDArray[np.int64]

LEAVES = (EventKind.STARTED, EventKind.REJECTED, EventKind.ENDED)
"""After these a job does not wait."""
BALANCES = (EventKind.ARRIVED, EventKind.ENDED, EventKind.NODE_CHANGED)
"""After these the queues may have become uneven."""


def told(queues: Queues, events: Events, rows: Ints, snapshot: Snapshot, terms: Terms) -> Queues:
    """Return the queues after events, one after the other, balanced wherever that pays.

    Parameters
    ----------
    queues : Queues
        Before them.
    events : Events
        In order of time.
    rows : int64[e, 6]
        The row of `Queues.waiting` that each event's job would have, for no node yet.
    snapshot : Snapshot
        Says on which nodes started jobs run; where it does not know a job any more, the nodes
        that the job was for count.
    terms : Terms
        On which a scan runs.
    """
    machine = Machine.of(snapshot.cluster, queues.cell)
    planned = np.isin(queues.waiting[:, JOB], snapshot.plan.entries.job)
    if planned.any():  # they start as their plan says
        queues = replace(queues, waiting=queues.waiting[~planned])
    kinds, times = events.rows.kind.tolist(), events.rows.time.tolist()
    for at, (kind, time) in enumerate(zip(kinds, times, strict=True)):
        row = rows[at : at + 1]
        if kind == EventKind.ARRIVED:
            fixed = fixed_load(queues, machine, time)
            others = queues.waiting[queues.waiting[:, JOB] != row[0, JOB]]
            queues = replace(queues, waiting=arrived(others, row, fixed, machine))
        elif kind == EventKind.STARTED:
            wall = float(events.jobs.wall_time[at])
            queues = _started(queues, int(row[0, JOB]), time, wall, snapshot, machine)
        if kind in LEAVES:
            queues = _without(queues, int(row[0, JOB]), time, kind == EventKind.ENDED)
        if kind in BALANCES:
            queues = rebalanced(queues, snapshot.cluster, machine, time, terms)
    return queues


def _without(queues: Queues, job: int, time: float, ended: bool) -> Queues:
    """Return the queues without a waiting job; if it ended its nodes are idle."""
    waits = queues.waiting[:, JOB] == job
    if waits.any():
        queues = replace(queues, waiting=queues.waiting[~waits])
    held = queues.holder == job
    if ended and held.any():
        holder, until = np.where(held, -1, queues.holder), np.where(held, time, queues.busy_until)
        queues = replace(queues, holder=holder, busy_until=until)
    return queues


def _started(
    queues: Queues, job: int, time: float, wall: float, snapshot: Snapshot, machine: Machine
) -> Queues:
    """Return the queues with a job on its nodes until its requested end."""
    runs = np.flatnonzero(snapshot.running.id == job)
    if len(runs):
        nodes = snapshot.allocations.nodes_of(int(runs[0])).astype(np.int64)
    else:
        nodes = _nodes_for(queues.waiting[queues.waiting[:, JOB] == job], machine)
    holder, until = queues.holder.copy(), queues.busy_until.copy()
    holder[nodes], until[nodes] = job, time + wall
    return replace(queues, holder=holder, busy_until=until)


def _nodes_for(rows: Ints, machine: Machine) -> Ints:
    """Return the nodes that a waiting job is for; none if it is not known."""
    if not len(rows):
        return np.empty(0, np.int64)
    if rows[0, POOL] == STAYS:
        return rows[0, NODE : NODE + 1]
    members = machine.members(int(rows[0, POOL]))
    first = int(first_place(rows, members, machine)[0])
    return members[first : first + int(rows[0, SIZE])]
