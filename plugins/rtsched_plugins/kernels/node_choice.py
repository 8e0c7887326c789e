"""Which nodes each task of an accepted plan gets: always the free ones of lowest index."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

BLOCK: int = 64


@compiled
def choose_nodes(
    free: Floats, by_release: Integers, start: Floats, end: Floats, size: Integers, order: Integers
) -> tuple[Integers, NDArray[np.int32]]:
    """Return the nodes of each task as (indptr, nodes), replaying a plan in placement order.

    Parameters
    ----------
    free : float64[N]
        When each node becomes free, seconds, +inf where it is unusable.
    by_release : int64[N]
        Node indices in ascending order of `free`.
    start, end : float64[n]
        Seconds, per task.
    size : int64[n]
        Nodes per task.
    order : int64[n]
        Tasks in placement order, that is with ascending starts.

    Returns
    -------
    indptr : int64[n + 1]
    nodes : int32[indptr[n]]
        Task i gets nodes[indptr[i]:indptr[i + 1]], ascending.
    """
    n = len(start)
    indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        indptr[i + 1] = indptr[i] + size[i]
    nodes = np.empty(indptr[n], np.int32)
    is_free = np.zeros(len(free), np.bool_)
    free_in = np.zeros(len(free) // BLOCK + 1, np.int64)
    running = [(np.inf, 0)]
    released = 0
    for k in range(n):
        task = order[k]
        while released < len(free) and free[by_release[released]] <= start[task]:
            node = by_release[released]
            is_free[node] = True
            free_in[node // BLOCK] += 1
            released += 1
        while running[0][0] <= start[task]:
            ended = heapq.heappop(running)[1]
            for place in range(indptr[ended], indptr[ended + 1]):
                is_free[nodes[place]] = True
                free_in[nodes[place] // BLOCK] += 1
        _take_lowest(is_free, free_in, nodes, indptr[task], indptr[task + 1])
        heapq.heappush(running, (end[task], task))
    return indptr, nodes


@compiled
def _take_lowest(
    is_free: NDArray[np.bool_],
    free_in: Integers,
    nodes: NDArray[np.int32],
    place: int,
    until: int,
) -> None:
    """Move the lowest free nodes into nodes[place:until]."""
    block = 0
    while place < until:
        if free_in[block] == 0:
            block += 1
            continue
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(is_free))):
            if is_free[node]:
                is_free[node] = False
                free_in[block] -= 1
                nodes[place] = node
                place += 1
                if place == until or free_in[block] == 0:
                    break
