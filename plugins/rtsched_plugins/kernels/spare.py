"""Spare capability: by when new work can end beside periodic and reserved work, in slots.

`earliest_finish` is the least slot by which one more task can end on a node while every deadline
holds, from the node's present state. `choose_node` is the choice for one task among nodes of one
processor each, beside all that is guaranteed there.

References
----------
He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: response-first and utilisation-first selection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.edf import NEVER, Work, run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slots = NDArray[np.int64]


@compiled
def earliest_finish(
    work: Work,
    node: int,
    now: int,
    ready: int,
    cost: int,
    latest: int,
    hyper: int,
    utilisation: float,
) -> int:
    """Return the least slot by which a task can end, `NEVER` if that is after `latest`.

    The task needs `cost` slots from `ready` (>= now) on. The answer is the least f such that the
    node, given the task with deadline f, keeps every deadline; no scheduler ends it earlier.

    Between `now` and `ready` the node runs by EDF. That does, for every b, as much as possible of
    the work due by b, so from then on one sum per deadline decides: the slots due by b, and `cost`
    where b >= f, must fit between `ready` and b. The last deadline b where they do not gives
    f = ready + (slots due by b) + cost.
    """
    if ready + cost > latest:
        return NEVER
    if ready == now:
        return walk(work, node, ready, cost, latest, hyper, utilisation)
    low, high = work.first[node], work.first[node + 1]
    upcoming, rest = work.upcoming[low:high].copy(), work.rest[low:high].copy()
    due, missed = work.due[low:high].copy(), work.missed[node]
    tasks = 0
    row = work.head[node]
    while row >= 0:
        tasks += 1
        row = work.after[row]
    left = np.empty(tasks, np.int64)
    row = work.head[node]
    for i in range(tasks):
        left[i] = work.left[row]
        row = work.after[row]
    run(work, node, now, ready, False, np.empty((0, 3), np.int64))
    finish = walk(work, node, ready, cost, latest, hyper, utilisation)
    work.upcoming[low:high], work.rest[low:high], work.due[low:high] = upcoming, rest, due
    work.missed[node] = missed
    row = work.head[node]
    for i in range(tasks):
        work.left[row] = left[i]
        row = work.after[row]
    return finish


@compiled
def walk(
    work: Work, node: int, ready: int, cost: int, latest: int, hyper: int, utilisation: float
) -> int:
    """Return the earliest finish of a task that is ready now, see `earliest_finish`.

    The deadlines are walked in order. The walk ends where none can bind any more: later than
    (A + cost) / (1 - U), where A + U b is at least the work due by b; or after a hyper-period
    without one that does.
    """
    low, high = work.first[node], work.first[node + 1]
    count = high - low
    at, amount = np.empty(count, np.int64), np.empty(count, np.int64)
    bound, settled = float(ready + cost), ready
    for i in range(count):
        p = low + i
        started = work.rest[p] > 0
        at[i] = work.due[p] if started else work.upcoming[p] + work.relative[p]
        amount[i] = work.rest[p] if started else work.cost[p]
        bound += work.rest[p] + work.cost[p] * (
            1.0 - (work.relative[p] + work.upcoming[p]) / work.period[p]
        )
        settled = max(settled, work.upcoming[p] + work.relative[p])
    row = work.head[node]
    while row >= 0:
        bound += work.left[row]
        settled = max(settled, work.deadline[row])
        row = work.after[row]
    bound = bound / (1.0 - utilisation) if utilisation < 1.0 else np.inf
    bound = max(1.000001 * bound + 1.0, float(settled))
    total, finish, quiet = ready, ready + cost, settled
    row = work.head[node]
    while True:
        which, b = -1, NEVER
        for i in range(count):
            if at[i] < b:
                which, b = i, at[i]
        while row >= 0 and work.left[row] == 0:
            row = work.after[row]
        if row >= 0 and work.deadline[row] < b:
            b = work.deadline[row]
            total += work.left[row]
            row = work.after[row]
        elif which < 0 or b > bound or b > quiet + hyper:
            return finish
        else:
            total += amount[which]
            p = low + which
            at[which] += work.period[p]
            amount[which] = work.cost[p]
        if b - total < cost:
            finish, quiet = total + cost, max(b, settled)
            if finish > latest or (utilisation >= 1.0 and b > settled):
                return NEVER


class PeriodicNodes(NamedTuple):
    """Nodes with their work as it is at slot `now`, and what `hyperperiods` says of them."""

    now: int
    work: Work
    hyper: Slots
    utilisation: NDArray[np.float64]


@compiled
def choose_node(
    machine: PeriodicNodes, ready: Slots, costs: Slots, deadline: int, last: bool, beyond: bool
) -> tuple[int, int, int]:
    """Return the node for a task, its finish there, and the least finish that would be too late.

    Response-first takes the least finish, utilisation-first (`last`) the greatest that meets the
    deadline; of equals the lowest node. Node -1: it meets the deadline on none. The third number is
    asked for by `beyond` and else `NEVER`.

    Parameters
    ----------
    machine : PeriodicNodes
        The nodes; left as it was.
    ready : int64[m]
        Slot at which the task has all that it waits for on each node.
    costs : int64[m]
        Slots that it takes on each; 0: it cannot run there.
    deadline : int
        Slot by which it must end.
    last, beyond : bool
    """
    node, finish, late = -1, NEVER, NEVER
    for k in range(len(machine.hyper)):
        if costs[k] <= 0:
            continue
        limit = deadline
        if beyond:
            limit = max(limit, late)
        if not last:
            limit = min(limit, finish - 1)
        end = earliest_finish(
            machine.work,
            k,
            machine.now,
            ready[k],
            costs[k],
            limit,
            machine.hyper[k],
            machine.utilisation[k],
        )
        if end > deadline:
            late = min(late, end)
        elif node < 0 or (end > finish if last else end < finish):
            node, finish = k, end
    return node, finish, late
