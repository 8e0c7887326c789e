"""Which nodes each task of an accepted plan gets: always the free ones of lowest index."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission_heap import empty_heap, pop, push
from rtsched_plugins.kernels.no_refcount import no_refcount

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
    running = empty_heap(n)
    released = lowest = 0
    for k in range(n):
        task = order[k]
        while released < len(free) and free[by_release[released]] <= start[task]:
            node = by_release[released]
            is_free[node] = True
            free_in[node // BLOCK] += 1
            lowest = min(lowest, node // BLOCK)
            released += 1
        while running.instant[0] <= start[task]:
            ended = pop(running)
            for place in range(indptr[ended], indptr[ended + 1]):
                is_free[nodes[place]] = True
                free_in[nodes[place] // BLOCK] += 1
                lowest = min(lowest, nodes[place] // BLOCK)
        lowest = _take_lowest(is_free, free_in, lowest, nodes, indptr[task], indptr[task + 1])
        push(running, end[task], task)
    return indptr, nodes


@no_refcount
def _take_lowest(
    is_free: NDArray[np.bool_],
    free_in: Integers,
    block: int,
    nodes: NDArray[np.int32],
    place: int,
    until: int,
) -> int:
    """Move the lowest free nodes into nodes[place:until]; return the block of the last.

    No node of a block before `block` is free.
    """
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
    return block
