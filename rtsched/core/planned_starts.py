"""Whether planned starts are still to be had: what runs, and what is planned before, stands first.

On whole nodes an entry of a plan needs nodes that are free of running jobs. On nodes that jobs
share, or that are set aside at times, it needs room beside those, and beside the entries that start
before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.planned_room import first_starts
from rtsched.kernels.room_profile import RoomProfile, empty_profile, fill_room
from rtsched.model.resources import demand_of, room_of
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.snapshot import Snapshot

ROUNDING = 1e-6
"""Seconds by which entries may overlap: epoch seconds are exact to a quarter of that."""


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
        return np.maximum(_last_of(plan, snapshot.free_in[plan.nodes] - wanted), 0.0)
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
        return _last_of(plan, snapshot.free_in[plan.nodes]) <= within
    free, entry = np.ones(len(plan), np.bool_), plan.rows()
    free[entry[~snapshot.cluster.usable[plan.nodes]]] = False
    now = np.zeros(len(plan))
    planned = np.maximum(plan.entries.start - snapshot.now, 0.0)
    start = _starts(snapshot, Schedule.empty(), plan, now, now + within, planned)
    return free & (start <= within)


def _last_of(plan: Schedule, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latest of each entry's times, one per node; -inf for one without nodes."""
    latest = np.full(len(plan), -np.inf)
    some = plan.ragged.lengths > 0
    if some.any():
        latest[some] = np.maximum.reduceat(times, plan.indptr[:-1][some])
    return latest


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
