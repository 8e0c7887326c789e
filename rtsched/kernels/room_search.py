"""The earliest start of a job on nodes that jobs share, with its nodes in order of their time.

`room_profile.earliest_start` looks at every node at every time. Here a heap of lower bounds says
which node may have room next, so that most nodes are never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.machine_heap import pop, push, sift
from rtsched.kernels.room_profile import RoomProfile, first_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

LAST: float = np.finfo(np.float64).max
"""No node's finite bound is later."""


@outline
def add_nodes(
    bound: NDArray[np.float64],
    start: float,
    after: float,
    until: float,
    heap: NDArray[Any],
    count: int,
) -> int:
    """Add nodes with bounds in (after, until], none before `start`, to a heap of `count` nodes.

    Returns how many it then has.
    """
    for node in range(len(bound)):
        if after < bound[node] <= until:
            heap[count].time = max(bound[node], start)
            heap[count].row = node
            count += 1
    for at in range(count // 2 - 1, -1, -1):
        sift(heap, count, at, heap[at].time, heap[at].row)
    return count


@part
def fit_and_bound(
    profile: RoomProfile,
    node: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    bound: NDArray[np.float64],
    until: float,
) -> float:
    """Return as `first_fit` does; if the node's bound is `start`, raise it, to `until` at the most.

    It becomes the time at which the demand first fits there, however shortly.
    """
    if bound[node] < start:
        return first_fit(profile, node, start, wall, demand, row)
    fit = first_fit(profile, node, start, 0.0, demand, row)
    bound[node] = min(fit, until)
    return first_fit(profile, node, fit, wall, demand, row) if fit < np.inf else fit


@outline
def search_start(
    profile: RoomProfile,
    bound: NDArray[np.float64],
    size: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    until: float,
    heap: NDArray[Any],
    picks: NDArray[np.int64],
) -> float:
    """Return when a job can first have `size` nodes for `wall` seconds, from `start` on.

    Parameters
    ----------
    profile : RoomProfile
    bound : float64[m]
        A time before which its demand does not fit on each node, seconds; inf: it may not use it.
        Raised where the search finds that it fits later.
    size : int
        Nodes wanted, at least 1.
    start, wall : float
        Seconds.
    demand : int64[n, r]
        Row `row` is what it takes on each node.
    until : float
        Seconds: by then it will probably start. It decides how long the search takes, and nothing
        else.
    heap : TIMED[m]
        Scratch.
    picks : int64[m]
        Is given the nodes: those that have room first, of these the lowest.

    Returns
    -------
    float
        inf: never.
    """
    count, found, time = add_nodes(bound, start, -np.inf, until, heap, 0), 0, start
    while True:
        while count > 0 and heap[0].time <= time and found < size:
            node = pop(heap, count)
            count -= 1
            fit = fit_and_bound(profile, node, time, wall, demand, row, bound, until)
            if fit <= time:
                picks[found] = node
                found += 1
            elif fit < np.inf:
                push(heap, count, fit, node)
                count += 1
        if found == size:
            return float(time)
        if until < np.inf and (count == 0 or heap[0].time > until):
            count = add_nodes(bound, start, until, LAST, heap, count)
            until = np.inf
        if count == 0:
            return float(np.inf)
        time, still = heap[0].time, 0
        for k in range(found):
            fit = first_fit(profile, picks[k], time, wall, demand, row)
            if fit <= time:
                picks[still] = picks[k]
                still += 1
            elif fit < np.inf:
                push(heap, count, fit, picks[k])
                count += 1
        found = still
