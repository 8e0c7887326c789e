"""Repair of plans: which starts are still to be had, and the same jobs in the same order.

Where the nodes of a plan are equal, and it kept enough of them free, that always succeeds (see
`rtsched_plugins.insurance`). A planner that plans anew may fail, since it searches by other rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rtsched.kernels.room import RoomProfile, empty_profile, fill_room, first_starts
from rtsched.model.resources import demand_of, room_of
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot

T = TypeVar("T", np.float64, np.bool_)


def by_room(snapshot: Snapshot) -> bool:
    """Return whether nodes change in other ways than by jobs that end: they have room over time."""
    return snapshot.cluster.shared or len(snapshot.blocked.node) > 0


def with_leeway(snapshot: Snapshot, leeway: float) -> Snapshot:
    """Return the snapshot in which nodes are set aside so many seconds later.

    A job that starts late by that still ends by its own limit before they are (see `Observation`),
    and the batch system starts it.
    """
    blocked = snapshot.blocked
    if not len(blocked.node) or not leeway:
        return snapshot
    later = np.minimum(blocked.start + leeway, blocked.end)
    return replace(snapshot, blocked=blocked._replace(start=later))


def start_delays(snapshot: Snapshot, plan: Schedule, slack: float) -> NDArray[np.float64]:
    """Return how long each entry's nodes keep it from its planned start, float64[n], seconds.

    Counted from now, if that is after the planned start; 0: they do not; inf: a node takes no jobs.

    Parameters
    ----------
    snapshot : Snapshot
        Now, and what runs.
    plan : Schedule
        `n` entries of jobs that wait.
    slack : float
        Where nodes have room over time (`by_room`), an entry that is later than that, in seconds,
        keeps none after it from their starts.
    """
    if not by_room(snapshot):
        wanted = np.maximum(plan.starts() - snapshot.now, 0.0)
        return _largest_of(plan, np.maximum(snapshot.free_in[plan.nodes] - wanted, 0.0))
    delay, entry = np.zeros(len(plan)), plan.rows()
    delay[entry[~snapshot.cluster.usable[plan.nodes]]] = np.inf
    ready = np.maximum(plan.entries.start - snapshot.now, 0.0)
    start = _starts(snapshot, Schedule.empty(), plan, ready, ready + slack)
    return np.maximum(delay, start - ready)


def free_now(snapshot: Snapshot, plan: Schedule, within: float) -> NDArray[np.bool_]:
    """Return whether each entry could start within so many seconds on its own nodes, bool[n].

    Where nodes have room over time (`by_room`): beside those planned before it, each as early as it
    could itself.
    """
    if not by_room(snapshot):
        busy = snapshot.free_in > within
        if busy.all():
            return np.equal(plan.ragged.lengths, 0)
        return ~_largest_of(plan, busy[plan.nodes])
    free, entry = np.ones(len(plan), np.bool_), plan.rows()
    free[entry[~snapshot.cluster.usable[plan.nodes]]] = False
    now = np.zeros(len(plan))
    planned = np.maximum(plan.entries.start - snapshot.now, 0.0)
    start = _starts(snapshot, Schedule.empty(), plan, now, now + within, planned)
    return free & (start <= within)


def _largest_of(plan: Schedule, values: NDArray[T]) -> NDArray[T]:
    """Return the largest of each entry's values, one per node; 0 for one without nodes."""
    found, some = np.zeros(len(plan), values.dtype), plan.ragged.lengths > 0
    if some.any():
        found[some] = np.maximum.reduceat(values, plan.indptr[:-1][some])
    return found


def put_off(
    snapshot: Snapshot, some: Schedule, plan: Schedule, latest: NDArray[np.float64]
) -> Schedule:
    """Return some entries as soon as there is room on their own nodes beside a plan.

    None before its own start, and each beside those of them that are planned before. Without those
    that would start after `latest`, float64[n], seconds since the epoch, or have lost a node.
    """
    ready, last = np.maximum(some.entries.start - snapshot.now, 0.0), latest - snapshot.now
    start = _starts(snapshot, plan, some, ready, last)
    start[some.rows()[~snapshot.cluster.usable[some.nodes]]] = np.inf
    end = snapshot.now + start + (some.entries.end - some.entries.start)
    moved = some.entries.replace(start=snapshot.now + start, end=end)
    kept = np.isfinite(start) & (start <= last)
    return replace(some, entries=moved).take(np.flatnonzero(kept))


def without_room(snapshot: Snapshot, some: Schedule, plan: Schedule) -> NDArray[np.bool_]:
    """Return which of some entries have no room on their nodes beside a plan, bool[n].

    And beside those of them that are planned before.
    """
    ready = np.maximum(some.entries.start - snapshot.now, 0.0)
    return _starts(snapshot, plan, some, ready, ready + ROUNDING) > ready + ROUNDING


def _starts(
    snapshot: Snapshot,
    before: Schedule,
    plan: Schedule,
    ready: NDArray[np.float64],
    latest: NDArray[np.float64],
    otherwise: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return what `first_starts` finds beside what runs and the plan `before`."""
    entries = plan.entries
    start = np.empty(len(plan))
    left = np.full(len(plan), np.inf) if otherwise is None else otherwise
    first_starts(
        _left(snapshot, before, len(plan.nodes) + len(plan)),
        np.lexsort((entries.job, entries.start)),
        ready,
        latest,
        left,
        np.maximum(entries.end - entries.start - ROUNDING, 0.0),
        plan.indptr.copy(),
        plan.nodes.copy(),
        _demand(snapshot, plan),
        start,
    )
    return start


def _left(snapshot: Snapshot, plan: Schedule, more: int) -> RoomProfile:
    """Return what running jobs, reservations of the site and a plan leave from now on.

    There is room for `more` jobs on a node, or with licences, to be taken off.
    """
    cluster, blocked = snapshot.cluster, snapshot.blocked
    both = Schedule.joined([snapshot.allocations, blocked.schedule(), plan])
    running, kept = demand_of(snapshot.running, cluster), blocked.demand(cluster)
    demand = np.concatenate([running, kept, _demand(snapshot, plan)])
    room = room_of(cluster)
    steps = len(room) + 2 * (len(both.nodes) + len(both) + more)
    profile = empty_profile(len(room), steps, room.shape[1], len(cluster.licenses))
    end = np.maximum(both.entries.end - snapshot.now, 0.0)
    start = both.entries.start - snapshot.now
    fill_room(profile, room, start, end, both.indptr.copy(), both.nodes.copy(), demand, 0.0)
    return profile


def _demand(snapshot: Snapshot, plan: Schedule) -> NDArray[np.int64]:
    """Return what the jobs of a plan, which wait, take on each node."""
    row, _ = places(snapshot.queued.id, plan.entries.job)
    return np.ascontiguousarray(demand_of(snapshot.queued.take(row), snapshot.cluster))


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
    waits = are_in(snapshot.edges.after, plan.entries.job).any()
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
