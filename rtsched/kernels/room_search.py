"""The earliest start of a job on nodes that jobs share, with its nodes in order of their time.

`room_profile.earliest_start` looks at every node at every time. Here a heap of lower bounds says
which node may have room next, so that most nodes are never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.machine_compiling import outline
from rtsched.kernels.machine_heap import pop, push, sift
from rtsched.kernels.room_profile import RoomProfile, first_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray


@outline
def heap_of(bound: NDArray[np.float64], start: float, heap: NDArray[Any]) -> int:
    """Make a heap of the nodes with a finite bound, none before `start`; return how many."""
    count = 0
    for node in range(len(bound)):
        if bound[node] < np.inf:
            heap[count].time = max(bound[node], start)
            heap[count].row = node
            count += 1
    for at in range(count // 2 - 1, -1, -1):
        sift(heap, count, at, heap[at].time, heap[at].row)
    return count


@outline
def search_start(
    profile: RoomProfile,
    bound: NDArray[np.float64],
    size: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    heap: NDArray[Any],
    picks: NDArray[np.int64],
) -> float:
    """Return when a job can first have `size` nodes for `wall` seconds, from `start` on.

    Parameters
    ----------
    profile : RoomProfile
    bound : float64[m]
        A time before which its demand does not fit on each node, seconds; inf: it may not use it.
    size : int
        Nodes wanted, at least 1.
    start, wall : float
        Seconds.
    demand : int64[n, r]
        Row `row` is what it takes on each node.
    heap : TIMED[m]
        Scratch.
    picks : int64[m]
        Is given the nodes: those that have room first, of these the lowest.

    Returns
    -------
    float
        inf: never.
    """
    count, found, time = heap_of(bound, start, heap), 0, start
    while True:
        while count > 0 and heap[0].time <= time and found < size:
            node = pop(heap, count)
            count -= 1
            fit = first_fit(profile, node, time, wall, demand, row)
            if fit <= time:
                picks[found] = node
                found += 1
            elif fit < np.inf:
                push(heap, count, fit, node)
                count += 1
        if found == size:
            return float(time)
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
