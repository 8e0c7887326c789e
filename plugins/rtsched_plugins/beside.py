"""A place for one more job beside a plan of whole nodes that stays as it is.

A plan that is made anew in an order of the planner's own may put a newcomer before a job that has
no time to spare, and so reject nearly everybody. Beside the plan as it is nobody moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched_plugins.kernels.beside import Gaps, Shape, are_open, shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Rows

STEPS = 32
"""Starts that are tried at most for a task whose number of nodes depends on its start."""


class Place(NamedTuple):
    """A start, in seconds, and the nodes, ascending."""

    start: float
    end: float
    nodes: NDArray[np.int64]


def earliest(gaps: Gaps, shape: Shape, after: float) -> float:
    """Return when so many nodes are free for so long, not before `after`; inf: never, seconds."""
    if are_open(gaps, shape, after):
        return after
    begin, latest = np.maximum(gaps.begin, after), gaps.end - shape.seconds
    long_enough = latest >= begin
    begin, latest = np.sort(begin[long_enough]), np.sort(latest[long_enough])
    open_then = np.searchsorted(begin, begin, side="right") - np.searchsorted(latest, begin)
    enough = np.flatnonzero(open_then >= shape.nodes)
    return float(begin[enough[0]]) if len(enough) else np.inf


def place_of(gaps: Gaps, row: Rows, now: float) -> Place | None:
    """Return the earliest place of a task in which it meets its deadline; None: there is none.

    Of the nodes that are free for it the lowest are taken.
    """
    start = now
    for _ in range(STEPS):
        shape = shape_of(row, 0, start)
        if not shape.nodes:
            return None
        found = earliest(gaps, shape, start)
        if found == np.inf:
            return None
        if found == start or shape_of(row, 0, found) == shape:
            nodes = gaps.node[(gaps.begin <= found) & (gaps.end - shape.seconds >= found)]
            return Place(found, found + shape.seconds, nodes[: shape.nodes])
        start = found
    return None
