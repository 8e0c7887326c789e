"""Whether a plan gives a node to two jobs at one time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    import numpy as np
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
    busy: Floats,
    taken: Floats,
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
        Entries that need not fit around `busy`.
    busy : float64[m]
        Until when running jobs have each node, seconds.
    taken : float64[m]
        Until when entries have each node: -inf; it is written to.
    """
    for i in by_start:
        latest = start[i] + ROUNDING
        for place in range(indptr[i], indptr[i + 1]):
            node = nodes[place]
            if taken[node] > latest or (busy[node] > latest and not kept[i]):
                return int(i)
            taken[node] = max(taken[node], end[i])
    return -1
