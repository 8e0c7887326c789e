"""Events in node queues: arrivals, starts, ends and changes of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from rtsched.api import EventKind
from rtsched_plugins.node_balance import evened
from rtsched_plugins.node_queues import (
    AMOUNT,
    HELD_AMOUNT,
    HELD_JOB,
    HELD_NODE,
    JOB,
    NODE,
    POOL,
    SIZE,
    STAYS,
    first_place,
    queued,
    without_unused,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Events, Snapshot
    from rtsched_plugins.node_balance import Terms
    from rtsched_plugins.node_queues import Machine, Queues, Views

    Ints = NDArray[np.int64]

ASKS = (EventKind.ARRIVED, EventKind.STARTED)
"""What a job asks for matters to these."""
LEAVES = (EventKind.STARTED, EventKind.REJECTED, EventKind.ENDED, EventKind.WITHDRAWN)
"""After these a job does not wait."""
BALANCES = (EventKind.ARRIVED, EventKind.ENDED, EventKind.NODE_CHANGED)
"""After these the queues may have become uneven."""


def told(
    queues: Queues,
    events: Events,
    rows: Ints,
    snapshot: Snapshot,
    views: Views,
    terms: Terms,
) -> Queues:
    """Return the queues after events, one after the other, balanced wherever that pays.

    Parameters
    ----------
    queues : Queues
        Before them.
    events : Events
        In order of time.
    rows : int64[e, 6 + r]
        The row of `Queues.waiting` that each event's job would have, for no node yet; its pool is
        one of the queues'. Of kinds not in `ASKS` only the job.
    snapshot : Snapshot
        Says on which nodes started jobs run; where it does not know a job any more, the nodes
        that the job was for count.
    views : Views
        The machine.
    terms : Terms
        On which a scan runs.
    """
    cluster = snapshot.cluster
    planned = np.isin(queues.waiting[:, JOB], snapshot.plan.entries.job)
    if planned.any():  # they start as their plan says
        queues = replace(queues, waiting=queues.waiting[~planned])
    kinds, times = events.rows.kind.tolist(), events.rows.time.tolist()
    for at, (kind, time) in enumerate(zip(kinds, times, strict=True)):
        row = rows[at : at + 1]
        if kind == EventKind.ARRIVED:
            others = queues.waiting[queues.waiting[:, JOB] != row[0, JOB]]
            queues = replace(queues, waiting=others)
            queues = replace(queues, waiting=queued(queues, row, views.by_resource, time))
        elif kind == EventKind.STARTED:
            nodes = _nodes_of(queues, int(row[0, JOB]), snapshot, views.whole)
            amounts = np.repeat(row[:, AMOUNT:], len(nodes), axis=0)
            if cluster.shared and events.jobs.exclusive[at]:
                amounts = cluster.nodes.capacity[nodes]
            until = time + float(events.jobs.wall_time[at])
            queues = _started(queues, int(row[0, JOB]), nodes, amounts, until)
        if kind in LEAVES:
            queues = _without(queues, int(row[0, JOB]), kind == EventKind.ENDED)
        if kind in BALANCES:
            queues = evened(queues, cluster, views.by_resource, time, terms)
    return without_unused(queues)


def _without(queues: Queues, job: int, ended: bool) -> Queues:
    """Return the queues without a waiting job; if it ended it holds no node any more."""
    waits = queues.waiting[:, JOB] == job
    if waits.any():
        queues = replace(queues, waiting=queues.waiting[~waits])
    holds = queues.held[:, HELD_JOB] == job
    if ended and holds.any():
        queues = _holding(queues, ~holds)
    return queues


def _holding(queues: Queues, kept: NDArray[np.bool_]) -> Queues:
    """Return the queues with only these rows of what running jobs hold."""
    return replace(queues, held=queues.held[kept], held_until=queues.held_until[kept])


def _started(queues: Queues, job: int, nodes: Ints, amounts: Ints, until: float) -> Queues:
    """Return the queues with a job on these nodes; whole ones it takes over from who had them."""
    gone = queues.held[:, HELD_JOB] == job
    if not queues.resources:
        gone |= np.isin(queues.held[:, HELD_NODE], nodes)
    queues = _holding(queues, ~gone)
    held = np.empty((len(nodes), queues.held.shape[1]), np.int64)
    held[:, HELD_JOB], held[:, HELD_NODE], held[:, HELD_AMOUNT:] = job, nodes, amounts
    return replace(
        queues,
        held=np.concatenate([queues.held, held]),
        held_until=np.append(queues.held_until, np.full(len(nodes), until)),
    )


def _nodes_of(queues: Queues, job: int, snapshot: Snapshot, machine: Machine) -> Ints:
    """Return the nodes on which a job started, or those that it was for if it runs no more."""
    runs = np.flatnonzero(snapshot.running.id == job)
    if len(runs):
        return snapshot.allocations.nodes_of(int(runs[0])).astype(np.int64)
    return _nodes_for(queues.waiting[queues.waiting[:, JOB] == job], machine)


def _nodes_for(rows: Ints, machine: Machine) -> Ints:
    """Return the nodes that a waiting job is for; none if it is not known."""
    if not len(rows):
        return np.empty(0, np.int64)
    if rows[0, POOL] == STAYS:
        return rows[0, NODE : NODE + 1]
    members = machine.members_of(int(rows[0, POOL]))
    first = int(first_place(rows, machine)[0])
    return members[first : first + int(rows[0, SIZE])]
