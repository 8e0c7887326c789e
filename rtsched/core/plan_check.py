"""Check of a plan without any kernel: it can be carried out and keeps its promises.

It shares no code with planners: what they get wrong shows here before a promise is given.
Only what differs from the present plan is checked, on the nodes that it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.model.jobs import Jobs, Kind, array_time, occurrences
from rtsched.model.resources import allowed_nodes, demand_of, lacking, room_of
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.schedule import Schedule
    from rtsched.model.snapshot import Snapshot

    Mask = NDArray[np.bool_]

ROUNDING = 1e-6
"""Seconds by which entries may overlap: epoch seconds are exact to a quarter of that."""
RELATIVE = 1e-9
"""Of the time that is left until a deadline: how late an end may be."""


def broken_promise(
    plan: Schedule, jobs: Jobs, snapshot: Snapshot, promise: NDArray[np.float64]
) -> str | None:
    """Return which promise a plan breaks that the present plan does not break, as `plan_fault`."""
    place, there = places(snapshot.plan.entries.job, plan.entries.job)
    before = np.full(len(plan), -np.inf)
    before[there] = snapshot.plan.entries.end[place[there]]
    later = plan.entries.end > before  # the others end in time, or did not before
    job, end, before = plan.entries.job[later], plan.entries.end[later], before[later]
    deadline = np.full(len(job), np.inf)
    promises = snapshot.promises  # they count before those given now
    for ids, deadlines in ((jobs.id, promise), (promises.job, promises.deadline)):
        row, promised = places(ids, job)
        deadline[promised] = deadlines[row[promised]]
    until = deadline + ROUNDING + RELATIVE * np.maximum(deadline - snapshot.now, 0.0)
    late = (end > until) & (before <= until)
    if not late.any():
        return None
    k = int(np.argmax(late))
    return f"ends job {job[k]} {end[k] - deadline[k]:g} s after the deadline it is promised"


def broken_order(plan: Schedule, snapshot: Snapshot) -> str | None:
    """Return which job of a plan starts before one that it waits for is to end, as `plan_fault`.

    Not those that start as early in the present plan.
    """
    edges = snapshot.edges
    if not len(edges):
        return None
    early, before = (too_early(each, snapshot) for each in (plan, snapshot.plan))
    new = early > np.fmax(before, 0.0) + ROUNDING
    if not new.any():
        return None
    k = int(np.argmax(new))
    waits, first = edges.after[k], edges.before[k]
    return f"starts job {waits} before job {first}, for which it waits, has ended"


def plan_fault(
    plan: Schedule, jobs: Jobs, snapshot: Snapshot, promise: NDArray[np.float64]
) -> str | None:
    """Return what is wrong with a plan, for a sentence that begins with "plan", or None.

    Parameters
    ----------
    plan : Schedule
        Of jobs that wait or are in the batch, as `rtsched.core.checks` makes sure; not pre-emptive.
    jobs : Jobs
        The batch.
    snapshot : Snapshot
        The state that the plan is for: nodes, running jobs, present plan, promises.
    promise : float64[n]
        The deadline promised now to each job of the batch, seconds since the epoch; inf: none.
    """
    fault = broken_promise(plan, jobs, snapshot, promise)
    if fault is not None:
        return fault
    new = _changed(plan, snapshot.plan)
    changed = np.flatnonzero(new)
    for some, at in _jobs_of(plan.entries.job[changed], snapshot, jobs):
        fault = _misfits(plan.take(changed[at]), some, snapshot)
        if fault is not None:
            return fault
    if not len(changed):
        return None
    if snapshot.cluster.licenses:
        fault = _licenses_overcommitted(plan, new, jobs, snapshot)
    return fault or _overcommitted(plan, new, jobs, snapshot)


def too_early(plan: Schedule, snapshot: Snapshot) -> NDArray[np.float64]:
    """Return for each dependency how long before it is over the job that waits is planned.

    float64, seconds; nan: that job is not planned, or the other one neither that nor running.
    """
    edges, runs = snapshot.edges, snapshot.allocations
    over = np.full(len(edges), np.nan)
    for schedule, column in ((runs, np.full(len(runs), -np.inf)), (plan, plan.entries.start)):
        row, there = places(schedule.entries.job, edges.before)
        row = row[there]
        over[there] = np.where(edges.at_start[there], column[row], schedule.entries.end[row])
    row, waits = places(plan.entries.job, edges.after)
    early = np.full(len(edges), np.nan)
    early[waits] = over[waits] - plan.entries.start[row[waits]]
    return early


def _jobs_of(
    ids: NDArray[np.int64], snapshot: Snapshot, jobs: Jobs
) -> Iterator[tuple[Jobs, NDArray[np.int64]]]:
    """Yield the jobs of the batch, those promised, and others that wait, and which ids are theirs.

    The queue, which may be long, is looked at for those only that are nowhere else.
    """
    left = np.arange(len(ids))
    for table in (jobs, snapshot.promised, snapshot.queued):
        if len(left):
            row, there = places(table.id, ids[left])
            if there.any():
                yield table.take(row[there]), left[there]
            left = left[~there]


def _changed(plan: Schedule, before: Schedule) -> Mask:
    """Return which entries are not in the present plan as they are, bool[k]."""
    row, same = places(before.entries.job, plan.entries.job)
    if not len(before):
        return ~same
    same &= before.entries.start[row] == plan.entries.start
    same &= before.entries.end[row] == plan.entries.end
    same &= before.ragged.lengths[row] == plan.ragged.lengths
    shift = np.where(same, before.indptr[row] - plan.indptr[:-1], 0)
    there = np.minimum(np.arange(len(plan.nodes)) + plan.per_node(shift), len(before.nodes) - 1)
    differs = before.nodes[there] != plan.nodes
    if len(plan.node_start) or len(before.node_start):
        differs |= before.starts()[there] != plan.starts()
    same[plan.ragged.rows_at(np.flatnonzero(differs))] = False
    return ~same


def _misfits(plan: Schedule, planned: Jobs, snapshot: Snapshot) -> str | None:
    """Return which entry is in the past, too short, or on too few or the wrong nodes."""
    entries, size = plan.entries, plan.ragged.lengths
    rigid, divisible = planned.kind == Kind.RIGID, planned.kind == Kind.DIVISIBLE
    least = np.where(divisible, 1, planned.size)
    most = np.where(divisible, len(snapshot.cluster), planned.size)
    least = np.where(~rigid & (planned.size_min > 0), planned.size_min, least)
    most = np.where(~rigid & (planned.size_max > 0), planned.size_max, most)
    pace = snapshot.cluster.pace
    slowest = np.minimum.reduceat(pace[plan.nodes], plan.indptr[:-1])
    needed = np.where(rigid, planned.wall_time / np.maximum(slowest, 1.0), 0.0)
    array = planned.kind == Kind.ARRAY
    if array.any():
        needed = np.where(array, array_time(planned, np.maximum(size, 1)), needed)
    short = entries.end - entries.start < needed - ROUNDING
    wrong = {
        "starts job {} in the past": entries.start < snapshot.now - ROUNDING,
        "starts job {} before it may begin": entries.start < planned.begin - ROUNDING,
        "gives job {} less time than it asks for": short,
        "gives job {} a number of nodes that it does not ask for": (size < least) | (size > most),
        "gives job {} nodes that it cannot use": _on_wrong_nodes(plan, planned, snapshot.cluster),
    }
    for text, rows in wrong.items():
        if rows.any():
            return text.format(entries.job[np.argmax(rows)])
    return None


def _on_wrong_nodes(plan: Schedule, planned: Jobs, cluster: Cluster) -> Mask:
    """Return which entries have a node twice, or one out of service or that is not for them."""
    owner, nodes = plan.rows(), plan.nodes
    pinned = planned.pinned[owner]
    wrong = ~cluster.usable[nodes] | ((pinned >= 0) & (pinned != nodes))
    code, masks = allowed_nodes(planned, cluster)
    for at, mask in enumerate(masks):
        wrong |= (code == at)[owner] & ~mask[nodes]
    order = np.lexsort((nodes, owner))
    wrong[order[1:]] |= (np.diff(nodes[order]) == 0) & (np.diff(owner[order]) == 0)
    found = lacking(planned, cluster)
    found[owner[wrong]] = True
    return found


def _overcommitted(plan: Schedule, new: Mask, jobs: Jobs, snapshot: Snapshot) -> str | None:
    """Return on which node of a new entry its jobs take more than there is."""
    cluster, held = snapshot.cluster, snapshot.allocations
    touched = np.zeros(len(cluster), np.bool_)
    touched[plan.nodes[plan.per_node(new)]] = True
    at, held_at = np.flatnonzero(touched[plan.nodes]), np.flatnonzero(touched[held.nodes])
    entry, holder = plan.ragged.rows_at(at), held.ragged.rows_at(held_at)
    begin = plan.node_start[at] if len(plan.node_start) else plan.entries.start[entry]
    kept = snapshot.blocked
    kept = kept.take(touched[kept.node] & (kept.end > snapshot.now))
    work = snapshot.periodic.take(np.flatnonzero(touched[snapshot.periodic.node]))
    row, first, last = occurrences(work, snapshot.now, float(plan.entries.end[new].max()))
    begin = np.concatenate([begin, kept.start, first])
    where = np.concatenate([plan.nodes[at], kept.node, work.node[row], held.nodes[held_at]])
    taken = _taken(plan, entry, holder, jobs, snapshot)
    set_aside = kept.demand(cluster), demand_of(work, cluster)[row]
    taken = np.concatenate([taken[: len(entry)], *set_aside, taken[len(entry) :]])
    until = np.concatenate([plan.entries.end[entry], kept.end, last, held.entries.end[holder]])
    is_new = np.concatenate([new[entry], np.zeros(len(kept.node) + len(row), np.bool_)])
    node = _overfull(where, begin, until, taken, is_new, room_of(cluster))
    if node < 0:
        return None
    return f"takes more of node {cluster.nodes.texts('name')[node] or node} than it has"


def _licenses_overcommitted(
    plan: Schedule, new: Mask, jobs: Jobs, snapshot: Snapshot
) -> str | None:
    """Return whether a new entry takes licences of which jobs take more than there are."""
    entry, holder = np.arange(len(plan)), np.arange(len(snapshot.allocations))
    kinds = len(snapshot.cluster.licenses)
    taken = _taken(plan, entry, holder, jobs, snapshot)[:, -1 - kinds : -1]
    room = room_of(snapshot.cluster)[-1:, -1 - kinds : -1]
    until = np.concatenate([plan.entries.end, snapshot.allocations.entries.end])
    where = np.zeros(len(until), np.int64)
    new = new & (taken[: len(plan)] > 0).any(axis=1)
    if _overfull(where, plan.entries.start, until, taken, new, room) < 0:
        return None
    return "takes more licences, or of a limit, than there are"


def _taken(
    plan: Schedule,
    entry: NDArray[np.int64],
    holder: NDArray[np.int64],
    jobs: Jobs,
    snapshot: Snapshot,
) -> NDArray[np.int64]:
    """Return what entries of a plan, then of what runs, take, int64[n, r]."""
    running = demand_of(snapshot.running.take(holder), snapshot.cluster)
    taken = np.zeros((len(entry) + len(holder), running.shape[1]), np.int64)
    for some, rows in _jobs_of(plan.entries.job[entry], snapshot, jobs):
        taken[rows] = demand_of(some, snapshot.cluster)
    taken[len(entry) :] = running
    return taken


def _overfull(
    where: NDArray[np.integer[Any]],
    begin: NDArray[np.float64],
    until: NDArray[np.float64],
    taken: NDArray[np.int64],
    new: Mask,
    room: NDArray[np.int64],
) -> int:
    """Return a row of `room` of which more is taken while something new is there; -1: none.

    `n` things take something of the rows `where` until some time; the first k of them since
    `begin`, of which some are `new`, and the others since ever.
    """
    others = len(taken) - len(begin)
    is_new = np.concatenate([new, np.zeros(others, np.bool_)])[:, None]
    change = np.concatenate([taken, is_new], axis=1)
    change = np.concatenate([change, -change])
    time = np.concatenate([begin, np.full(others, -np.inf), until - ROUNDING])
    where = np.concatenate([where, where])
    order = np.lexsort((np.arange(len(change)) < len(taken), time, where))
    total = np.cumsum(change[order], axis=0)  # 0 after the last end on each row
    over = (total[:, :-1] > room[where[order]]).any(axis=1) & (total[:, -1] > 0)
    return int(where[order][np.argmax(over)]) if over.any() else -1
