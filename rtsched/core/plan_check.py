"""Whether a plan can be carried out and keeps its promises, worked out without any kernel.

It shares no code with planners: what they get wrong shows here before a promise is given.
Only what differs from the present plan is checked, on the nodes that it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.allowed_nodes import allowed_nodes
from rtsched.model.jobs import Kind, array_time
from rtsched.model.resources import demand_of, lacking, room_of
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule
    from rtsched.model.snapshot import Snapshot

    Amounts = NDArray[np.int64]
    Mask = NDArray[np.bool_]

ROUNDING = 1e-6
"""Seconds by which entries may overlap: epoch seconds are exact to a quarter of that."""
RELATIVE = 1e-9
"""Of the time that is left until a deadline: how late an end may be."""


def broken_promise(
    plan: Schedule, jobs: Jobs, snapshot: Snapshot, promise: NDArray[np.float64]
) -> str | None:
    """Return which promise a plan breaks that the present plan does not break, as `plan_fault`."""
    ids = np.concatenate([snapshot.promises.job, jobs.id])
    deadlines = np.concatenate([snapshot.promises.deadline, promise])
    row, promised = places(ids, plan.entries.job)
    deadline = np.full(len(plan), np.inf)
    deadline[promised] = deadlines[row[promised]]
    until = deadline + ROUNDING + RELATIVE * np.maximum(deadline - snapshot.now, 0.0)
    late = plan.entries.end > until
    if not late.any():
        return None
    before, there = places(snapshot.plan.entries.job, plan.entries.job)
    late[there] &= snapshot.plan.entries.end[before[there]] <= until[there]
    if not late.any():
        return None
    k = int(np.argmax(late))
    seconds = plan.entries.end[k] - deadline[k]
    return f"ends job {plan.entries.job[k]} {seconds:g} s after the deadline it is promised"


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
    if not new.any():
        return None
    touched = np.zeros(len(snapshot.cluster), np.bool_)
    touched[plan.nodes[plan.per_node(new)]] = True
    on_them = _rows_on(plan, touched)
    some, new = plan.take(on_them), new[on_them]
    row, waits = places(snapshot.queued.id, some.entries.job)
    place, _ = places(jobs.id, some.entries.job)
    demand = np.empty((len(some), len(snapshot.cluster.nodes.names("capacity")) + 1), np.int64)
    for planned, mine in (
        (snapshot.queued.take(row[waits]), waits),
        (jobs.take(place[~waits]), ~waits),
    ):
        rows, changed = np.flatnonzero(mine), new[mine]
        demand[rows] = demand_of(planned, snapshot.cluster)
        misfit = _misfits(some.take(rows[changed]), planned.take(changed), snapshot)
        if misfit:
            return misfit
    return _overcommitted(some, new, demand, touched, snapshot)


def _rows_on(part: Schedule, touched: Mask) -> NDArray[np.int64]:
    """Return the entries that have some of the touched nodes."""
    found = np.zeros(len(part), np.bool_)
    found[part.ragged.rows_at(np.flatnonzero(touched[part.nodes]))] = True
    return np.flatnonzero(found)


def _changed(plan: Schedule, before: Schedule) -> Mask:
    """Return which entries are not in the present plan as they are, bool[k]."""
    row, same = places(before.entries.job, plan.entries.job)
    if not len(before):
        return ~same
    for name in ("start", "end", "size"):
        same &= getattr(before.entries, name)[row] == getattr(plan.entries, name)
    kept = np.flatnonzero(same)
    own = plan.ragged.places(kept)
    theirs = before.ragged.places(row[kept])
    differs = plan.nodes[own.values] != before.nodes[theirs.values]
    if len(plan.node_start) or len(before.node_start):
        differs |= plan.starts()[own.values] != before.starts()[theirs.values]
    same[kept[own.rows_at(np.flatnonzero(differs))]] = False
    return ~same


def _misfits(plan: Schedule, planned: Jobs, snapshot: Snapshot) -> str | None:
    """Return which entry is in the past, too short, or on too few or the wrong nodes."""
    if not len(plan):
        return None
    entries, size = plan.entries, plan.ragged.lengths
    rigid, divisible = planned.kind == Kind.RIGID, planned.kind == Kind.DIVISIBLE
    least = np.where(divisible, 1, planned.size)
    most = np.where(divisible, len(snapshot.cluster), planned.size)
    least = np.where(~rigid & (planned.size_min > 0), planned.size_min, least)
    most = np.where(~rigid & (planned.size_max > 0), planned.size_max, most)
    needed = np.where(planned.kind == Kind.ARRAY, array_time(planned, np.maximum(size, 1)), 0.0)
    needed = np.where(rigid, planned.wall_time, needed)
    short = entries.end - entries.start < needed - ROUNDING
    wrong = {
        "starts job {} in the past": entries.start < snapshot.now - ROUNDING,
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


def _overcommitted(
    plan: Schedule, new: Mask, taken: Amounts, touched: Mask, snapshot: Snapshot
) -> str | None:
    """Return on which of the touched nodes a new entry takes more than there is.

    `taken`, int64[n, r]: what each entry takes on each of its nodes.
    """
    cluster, held = snapshot.cluster, snapshot.allocations
    rows = _rows_on(held, touched)
    held, running = held.take(rows), snapshot.running.take(rows)
    demand = np.concatenate([taken, demand_of(running, cluster)])
    is_new = np.concatenate([new, np.zeros(len(held), np.bool_)])
    job = np.concatenate([plan.rows(), len(plan) + held.rows()])
    node = np.concatenate([plan.nodes, held.nodes])
    begin = np.concatenate([plan.starts(), np.full(len(held.nodes), -np.inf)])
    until = np.concatenate([plan.per_node(plan.entries.end), held.per_node(held.entries.end)])
    here = touched[node]
    job, node, begin, until = job[here], node[here], begin[here], until[here] - ROUNDING
    amounts = np.column_stack([demand[job], is_new[job]])
    change = np.concatenate([amounts, -amounts])
    time, where = np.concatenate([begin, until]), np.concatenate([node, node])
    order = np.lexsort((np.arange(len(change)) < len(amounts), time, where))
    total = np.cumsum(change[order], axis=0)  # 0 after the last end on each node
    over = (total[:, :-1] > room_of(cluster)[where[order]]).any(axis=1) & (total[:, -1] > 0)
    if not over.any():
        return None
    name = cluster.nodes.texts("name")[where[order][np.argmax(over)]]
    return f"takes more of node {name or where[order][np.argmax(over)]} than it has"
