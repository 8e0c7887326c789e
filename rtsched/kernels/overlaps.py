"""Whether a plan gives a node to two jobs at one time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

ROUNDING: float = 1e-6
"""Seconds by which entries may overlap: epoch seconds are exact to a quarter of that."""


@compiled
def first_overlap(
    start: Floats,
    end: Floats,
    indptr: Integers,
    nodes: NDArray[np.int32],
    by_start: Integers,
    kept: NDArray[np.bool_],
    held_until: Floats,
    held_indptr: Integers,
    held_nodes: NDArray[np.int32],
    n_nodes: int,
) -> int:
    """Return the first entry by start that gets a node which is not free then, -1 if there is none.

    Parameters
    ----------
    start, end : float64[n]
        Seconds, per entry.
    indptr : int64[n + 1]
        Entry i has the nodes nodes[indptr[i]:indptr[i + 1]].
    nodes : int32[k]
    by_start : int64[n]
        Entries with ascending starts.
    kept : bool[n]
        Entries that need not fit around running jobs.
    held_until, held_indptr, held_nodes
        When each running job ends, seconds, and its nodes.
    n_nodes : int
        Nodes of the cluster.
    """
    taken = np.full(n_nodes, -np.inf)
    busy = taken.copy()
    for i in range(len(held_until)):
        for place in range(held_indptr[i], held_indptr[i + 1]):
            busy[held_nodes[place]] = max(busy[held_nodes[place]], held_until[i])
    for i in by_start:
        latest = start[i] + ROUNDING
        for place in range(indptr[i], indptr[i + 1]):
            node = nodes[place]
            if taken[node] > latest or (busy[node] > latest and not kept[i]):
                return int(i)
            taken[node] = max(taken[node], end[i])
    return -1
