"""A plan restored after nodes were lost: the same jobs in the same order on the nodes left.

Where the nodes of a plan are equal, and it kept enough of them free, that always succeeds (see
`rtsched_plugins.insurance`). A planner that plans anew may fail, since it searches by other rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot

ROUNDING = 1e-6
"""Seconds by which an end may pass a deadline: epoch seconds are exact to a quarter of that."""


def restored(
    snapshot: Snapshot, plan: Schedule, jobs: Jobs, free: NDArray[np.float64]
) -> Schedule | None:
    """Return a plan with the entries of `plan` in order of their starts, none before its own.

    Parameters
    ----------
    snapshot : Snapshot
        Now, and which nodes each partition has.
    plan : Schedule
        Entries with the nodes that they had; one whose job is to start at once starts now.
    jobs : Jobs
        Row by row with `plan`, with the promised deadlines and partitions.
    free : float64[m]
        Seconds from now at which each node takes a job; inf: it takes none.

    Returns
    -------
    Schedule or None
        Each entry as long and on as many nodes as before, on the same ones where they are free by
        then. None where that ends a job too late, or where it cannot be told: jobs take turns on a
        node or join it later, wait for each other, or leave time for recurring work.
    """
    if plan.preemptive or len(plan.node_start) or len(snapshot.periodic) or len(snapshot.edges):
        return None
    free, entries = free.copy(), plan.entries
    start, end, nodes = entries.start.copy(), entries.end.copy(), plan.nodes.copy()
    inside = _allowed(snapshot, jobs)
    for row in np.lexsort((entries.job, entries.start)).tolist():
        at = slice(int(plan.indptr[row]), int(plan.indptr[row + 1]))
        allowed = inside[int(jobs.partition[row])] & np.isfinite(free)
        size = at.stop - at.start
        if int(allowed.sum()) < size:
            return None
        ready = max(entries.start[row] - snapshot.now, 0.0)
        ready = max(ready, float(np.partition(free[allowed], size - 1)[size - 1]))
        last = ready + float(entries.end[row] - entries.start[row])
        if snapshot.now + last > jobs.deadline[row] + ROUNDING:
            return None
        nodes[at] = _taken(plan.nodes[at], np.flatnonzero(allowed & (free <= ready)), free)
        free[nodes[at]] = last
        start[row], end[row] = snapshot.now + ready, snapshot.now + last
    shares = plan.fractions if len(plan.fractions) else None
    return Schedule.build(entries.job, start, end, plan.indptr, nodes, shares)


def _allowed(snapshot: Snapshot, jobs: Jobs) -> dict[int, NDArray[np.bool_]]:
    """Return by the code of each partition which nodes it has; all, where that is not known."""
    everywhere, known = np.ones(len(snapshot.cluster), np.bool_), snapshot.cluster.partitions
    names = jobs.names("partition")
    masks = {code: known.get(name, everywhere) for code, name in enumerate(names)}
    return {-1: everywhere, **masks}


def _taken(
    before: NDArray[np.int32], open_: NDArray[np.int64], free: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Return as many of the nodes in `open_` as an entry had, the same in the same places.

    In place of lost ones it takes those that come free last.
    """
    taken = before.copy()
    lost = ~np.isin(before, open_)
    others = np.setdiff1d(open_, before)
    latest = others[np.argsort(-free[others], kind="stable")]
    taken[lost] = latest[: int(lost.sum())]
    return taken
