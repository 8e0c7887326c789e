"""Why a job waits, and what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.plan_repair import by_room, without_room
from rtsched.counting import counted
from rtsched.daemon.moments import moment
from rtsched.daemon.reports import Reason
from rtsched.daemon.site import entry_of
from rtsched.model.blocked import NOTHING_BLOCKED
from rtsched.model.resources import allowed_nodes
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.daemon.site import Site
    from rtsched.daemon.working import Steered
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot


def waits(site: Site, steered: Steered | None, job: int, now: float) -> tuple[Reason, ...]:
    """Return why a job waits, the strongest reason first."""
    snapshot = site.snapshot
    place, marked = places(site.marks.job, np.array([job]))
    if marked[0] and site.marks.held[place[0]]:
        deferred = bool(site.marks.deferred[place[0]])
        text = "it is held until it has been evaluated" if deferred else "it is held"
        return (Reason("wait.held", text),)
    found = []
    (limit,) = site.marks.take(place).texts("limit") if marked[0] else (None,)
    if limit:
        text = f"it waits for a limit of its account or QOS ({limit})"
        found.append(Reason("wait.limit", text))
    if (entry := entry_of(snapshot.plan, job)) >= 0:
        start = float(snapshot.plan.entries.start[entry])
        nodes = counted(int(snapshot.plan.entries.size[entry]), "node")
        text = f"it is planned to start at {moment(start, now)} on {nodes} reserved for it"
        if job in site.records and snapshot.plan.entries.end[entry] > site.records[job].deadline:
            text += ", too late for its deadline unless jobs that run there end early"
        return (*found, Reason("wait.planned", text))
    row = snapshot.queued.take(snapshot.queued.id == job)
    found += [*_after_others(snapshot, job), *_begins(row, now)]
    free, kept = _free_and_kept(snapshot, row, now)
    found.append(_nodes(row, free))
    if len(snapshot.blocked.node):
        unreserved, _ = _free_and_kept(replace(snapshot, blocked=NOTHING_BLOCKED), row, now)
        if reserved := int((unreserved & ~free).sum()):
            nodes = counted(reserved, "node is", "nodes are")
            text = f"{nodes} in a reservation of the site before it would end"
            found.append(Reason("wait.reservation", text))
    if kept.any():
        nodes = counted(int(kept.sum()), "free node is", "free nodes are")
        text = f"{nodes} reserved for promised jobs that start before it would end"
        found.append(Reason("wait.kept", text))
    ahead = _ahead(steered, job)
    if ahead is not None:
        jobs = counted(ahead, "waiting job has", "waiting jobs have")
        found.append(Reason("wait.order", f"{jobs} a higher priority from rtsched"))
    return tuple(found)


def needs(snapshot: Snapshot, row: Jobs, now: float) -> tuple[Reason, ...]:
    """Return what a job that is not submitted would wait for now."""
    free, _ = _free_and_kept(snapshot, row, now)
    return (*_begins(row, now), _nodes(row, free))


def _nodes(row: Jobs, free: NDArray[np.bool_]) -> Reason:
    nodes = counted(int(row.size[0]), "node")
    return Reason("wait.nodes", f"it needs {nodes}, {int(free.sum())} free")


def _begins(row: Jobs, now: float) -> tuple[Reason, ...]:
    begin = float(row.begin[0])
    if not now < begin < np.inf:
        return ()
    return (Reason("wait.begin", f"it may not start before {moment(begin, now)}"),)


def _after_others(snapshot: Snapshot, job: int) -> tuple[Reason, ...]:
    first = np.unique(snapshot.edges.before[snapshot.edges.after == job])
    if not len(first):
        return ()
    jobs = counted(len(first), "other job")
    return (Reason("wait.dependency", f"it waits for {jobs}"),)


def _free_and_kept(
    snapshot: Snapshot, row: Jobs, now: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which nodes are free for a job that waits, and which of them promised jobs need.

    Both bool[m]. Where jobs share nodes, those are free that have room for it.
    """
    end, allowed = now + float(row.wall_time[0]), _allowed(snapshot, row)
    if not by_room(snapshot):
        free = (snapshot.free_in <= 0) & allowed
        return free, free & (_next_start(snapshot) < end)
    nodes = np.arange(len(snapshot.cluster), dtype=np.int32)
    offsets = np.arange(len(nodes) + 1, dtype=np.int64)
    alone = Schedule.build(np.full(len(nodes), row.id[0]), now, end, offsets, nodes)
    free = allowed & snapshot.cluster.usable & ~without_room(snapshot, alone, Schedule.empty())
    return free, free & without_room(snapshot, alone, snapshot.plan)


def _allowed(snapshot: Snapshot, row: Jobs) -> NDArray[np.bool_]:
    """Return bool[m]: the nodes that a job may use."""
    (code,), masks = allowed_nodes(row, snapshot.cluster)
    return masks[code] if code >= 0 else np.ones(len(snapshot.cluster), np.bool_)


def helps(site: Site, job: int, now: float) -> tuple[str, ...]:
    """Return what its user could do so that a job starts sooner."""
    snapshot = site.snapshot
    if entry_of(snapshot.plan, job) >= 0 or not len(snapshot.plan) or snapshot.cluster.shared:
        return ()
    row = snapshot.queued.take(snapshot.queued.id == job)
    size = int(row.size[0])
    free = (snapshot.free_in <= 0) & _allowed(snapshot, row)
    room = np.sort((_next_start(snapshot) - now)[free])[::-1]
    if len(room) < size or not np.isfinite(room[size - 1]):
        return ()
    minutes = int(room[size - 1] // 60.0)
    if minutes < 1 or room[size - 1] >= row.wall_time[0]:
        return ()
    return (f"with a time limit of {minutes} min it would fit before the next promised start",)


def terms(steered: Steered | None, job: int) -> dict[str, float]:
    """Return what each plug-in's terms add to a waiting job's priority."""
    found: dict[str, float] = {}
    for ids, order in steered.orders if steered is not None else ():
        rows = np.flatnonzero(ids == job)
        for answer in order.answers if len(rows) else ():
            if answer.value is None or answer.value.per_account:
                continue
            for name, values in answer.value.values.items():
                weight = answer.value.weights.get(name, 1.0)
                found[f"{answer.plugin}.{name}"] = float(weight * values[rows[0]])
    return found


def _next_start(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return float64[m]: the next planned start on each node, seconds since the epoch."""
    first = np.full(len(snapshot.cluster), np.inf)
    np.minimum.at(first, snapshot.plan.nodes, snapshot.plan.starts())
    return first


def _ahead(steered: Steered | None, job: int) -> int | None:
    """Return how many jobs rtsched puts before this one; None where it orders nothing."""
    for ids, order in steered.orders if steered is not None else ():
        rows = np.flatnonzero(ids == job)
        if len(rows):
            return int(np.count_nonzero(order.value > order.value[rows[0]]))
    return None
