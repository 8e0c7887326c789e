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
def _first_staggered(
    node_start: Floats,
    end: Floats,
    indptr: Integers,
    nodes: NDArray[np.int32],
    by_start: Integers,
    kept: NDArray[np.bool_],
    busy: Floats,
) -> int:
    """Return as `first_overlap` does, where nodes are held from starts of their own.

    Each node's intervals are looked at in order of their starts, so that an entry which begins
    earlier may well take a node later than another.
    """
    entry = np.empty(len(nodes), np.int64)
    for i in range(len(end)):
        entry[indptr[i] : indptr[i + 1]] = i
    taken = np.full(len(busy), -np.inf)
    clash = np.zeros(len(end), np.bool_)
    for place in np.argsort(node_start):
        i, node = entry[place], nodes[place]
        latest = node_start[place] + ROUNDING
        clash[i] |= taken[node] > latest or (busy[node] > latest and not kept[i])
        taken[node] = max(taken[node], end[i])
    for i in by_start:
        if clash[i]:
            return int(i)
    return -1


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
    node_start: Floats,
) -> int:
    """Return the first entry by start that gets a node which is not free then, -1 if there is none.

    Parameters
    ----------
    start, end : float64[n]
        Seconds, per entry.
    indptr : int64[n + 1]
        Entry i has the nodes nodes[indptr[i]:indptr[i + 1]].
    nodes : int32[k]
    node_start : float64[k] or float64[0]
        From when each node is held, at or after the entry's start; empty: from that on.
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
    if len(node_start):
        return _first_staggered(node_start, end, indptr, nodes, by_start, kept, busy)
    for i in by_start:
        latest = start[i] + ROUNDING
        for place in range(indptr[i], indptr[i + 1]):
            node = nodes[place]
            if taken[node] > latest or (busy[node] > latest and not kept[i]):
                return int(i)
            taken[node] = max(taken[node], end[i])
    return -1
