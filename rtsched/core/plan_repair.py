"""A plan restored after nodes were lost, or jobs came late: the same jobs in the same order.

Where the nodes of a plan are equal, and it kept enough of them free, that always succeeds (see
`rtsched_plugins.insurance`). A planner that plans anew may fail, since it searches by other rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.planned_starts import by_room, put_off
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot

ROUNDING = 1e-6
"""Seconds by which an end may pass a deadline: epoch seconds are exact to a quarter of that."""

ROUNDS = 10
"""How often more entries are made to stay where they are, where a plan is put off."""


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
    if not _plain(snapshot, plan):
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
    return Schedule.build(
        entries.job, start, end, plan.indptr, nodes, shares, rounds=entries.rounds
    )


def right_shifted(
    snapshot: Snapshot, plan: Schedule, deadline: NDArray[np.float64], leeway: float
) -> Schedule:
    """Return the entries of `plan` on their own nodes, each put off until these are free.

    In the order of their starts, and as long as before: the right shift of a schedule. Those that
    would end too late so keep the starts that they have, and others are put off until after them.

    Parameters
    ----------
    snapshot : Snapshot
        Now, and when its nodes are free of running jobs.
    plan : Schedule
        The entries.
    deadline : float64[n]
        Of each entry's job, seconds since the epoch.
    leeway : float
        Seconds by which nodes may come free after a planned start.

    Returns
    -------
    Schedule
        Without those that would end too late, or have lost a node; without any where it cannot be
        told, as with `restored`.
    """
    if not _plain(snapshot, plan):
        return Schedule.empty()
    entries, entry = plan.entries, plan.rows()
    length = entries.end - entries.start
    if by_room(snapshot):
        return put_off(snapshot, plan, Schedule.empty(), deadline + ROUNDING - length)
    wanted = entries.start - snapshot.now
    free = np.zeros(len(plan))
    np.maximum.at(free, entry, snapshot.free_in[plan.nodes])
    ready = np.where(free > np.maximum(wanted, 0.0) + leeway, free, np.maximum(wanted, 0.0))
    stays = np.zeros(len(plan), np.bool_)
    for _ in range(ROUNDS):
        start = _shifted(plan, ready, stays)
        late = ~(snapshot.now + start + length <= deadline + ROUNDING)
        more = late & ~stays & (ready == wanted)
        if not more.any():
            break
        stays |= more
    start, end = snapshot.now + start, snapshot.now + start + length
    moved = replace(plan, entries=entries.replace(start=start, end=end))
    return moved.take(np.flatnonzero(~late))


def _shifted(
    plan: Schedule, ready: NDArray[np.float64], stays: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return when each entry starts if it may from `ready` on, and some stay there.

    Seconds from now, as `ready` is; inf: never.
    """
    length = plan.entries.end - plan.entries.start
    entry = plan.rows()
    fixed = stays[entry]
    on, begin, end = plan.nodes[fixed], ready[entry[fixed]], (ready + length)[entry[fixed]]
    start, taken = ready.copy(), np.zeros(int(plan.nodes.max(initial=0)) + 1)
    for row in np.lexsort((plan.entries.job, plan.entries.start)).tolist():
        if stays[row] or not np.isfinite(ready[row]):
            continue
        nodes = plan.nodes_of(row)
        at, mine = max(start[row], taken[nodes].max(initial=0.0)), np.isin(on, nodes)
        while True:
            last = at + length[row] - ROUNDING
            clash = mine & (begin < last) & (end > at + ROUNDING)
            if not clash.any():
                break
            at = float(end[clash].max())
        start[row], taken[nodes] = at, at + length[row]
    return start


def _plain(snapshot: Snapshot, plan: Schedule) -> bool:
    """Whether jobs have all their nodes from start to end, and nothing else has to be minded."""
    shared = plan.preemptive or len(plan.node_start)
    waits = np.isin(snapshot.edges.after, plan.entries.job).any()
    return not (shared or len(snapshot.periodic) or waits)


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
