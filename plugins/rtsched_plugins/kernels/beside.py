"""A place for one more job beside a plan of whole nodes that stays as it is.

A plan that is made anew in an order of the planner's own may put a newcomer before a job that has
no time to spare, and so reject nearly everybody. Beside the plan as it is nobody moves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import LOW, exec_of, least_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Rows


class Shape(NamedTuple):
    """On how many nodes a task runs, and for how long, in seconds; no nodes: it would be late."""

    nodes: int
    seconds: float


class Gaps(NamedTuple):
    """When nodes have nothing to do, in order of the nodes; gaps of a node do not meet."""

    node: NDArray[np.int64]
    """int64[g]."""
    begin: NDArray[np.float64]
    """float64[g], seconds."""
    end: NDArray[np.float64]
    """float64[g], seconds, later than `begin`; inf after the last planned end."""


@compiled
def shape_of(rows: Rows, i: int, start: float) -> Shape:
    """Return the shape of task i with the fewest nodes that meet its deadline from `start` on."""
    nodes = least_size(rows, i, rows.whole[i, LOW], start)
    return Shape(nodes, exec_of(rows, i, nodes) if nodes else 0.0)


@compiled
def gaps_of(
    free: NDArray[np.float64],
    node: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    now: float,
) -> Gaps:
    """Return the gaps of nodes beside what is planned.

    Parameters
    ----------
    free : float64[m]
        When each node is free of running jobs, seconds; inf: it is unusable.
    node : int64[k]
        The node of each part of the plan; -1: none of these.
    start, end : float64[k]
        Seconds. A part that should have started lasts as much longer as it is late.
    now : float
        Seconds; gaps begin then at the earliest.
    """
    following = np.full(len(node), -1)
    first, last = np.full(len(free), -1), np.full(len(free), -1)
    for part in range(len(node)):  # the parts of each node in order of their starts
        which = node[part]
        if which < 0:
            continue
        before, at = last[which], -1
        if before >= 0 and start[before] > start[part]:
            before, at = -1, first[which]
            while start[at] <= start[part]:
                before, at = at, following[at]
        following[part] = at
        if at < 0:
            last[which] = part
        if before < 0:
            first[which] = part
        else:
            following[before] = part
    most = len(free) + len(node)
    gap_node, begin, over = np.empty(most, np.int64), np.empty(most), np.empty(most)
    count = 0
    for which in range(len(free)):
        busy_until, at = max(free[which], now), first[which]
        while busy_until < math.inf:
            gap_end = start[at] if at >= 0 else math.inf
            if gap_end > busy_until:
                gap_node[count], begin[count], over[count] = which, busy_until, gap_end
                count += 1
            if at < 0:
                break
            busy_until = max(busy_until, end[at] + max(now - start[at], 0.0))
            at = following[at]
    return Gaps(gap_node[:count], begin[:count], over[:count])


@compiled
def are_open(gaps: Gaps, shape: Shape, start: float) -> bool:
    """Return whether so many nodes have nothing to do for so long from `start` on."""
    count = 0
    for i in range(len(gaps.node)):
        count += gaps.begin[i] <= start and gaps.end[i] - shape.seconds >= start
    return count >= shape.nodes


@compiled
def earliest(gaps: Gaps, shape: Shape, after: float) -> float:
    """Return when so many nodes are free for so long, not before `after`; inf: never, seconds."""
    if are_open(gaps, shape, after):
        return after
    begin, latest = np.maximum(gaps.begin, after), gaps.end - shape.seconds
    long_enough = latest >= begin
    begin, latest = np.sort(begin[long_enough]), np.sort(latest[long_enough])
    begun, over = 0, 0
    for at in range(len(begin)):
        while begun < len(begin) and begin[begun] <= begin[at]:
            begun += 1
        while over < len(latest) and latest[over] < begin[at]:
            over += 1
        if begun - over >= shape.nodes:
            return float(begin[at])
    return math.inf


STEPS: int = 32
"""Starts that are tried at most for a task whose number of nodes depends on its start."""


class PlaceBeside(NamedTuple):
    """A start and an end, in seconds, and the nodes, ascending; no nodes: there is no place."""

    start: float
    end: float
    nodes: NDArray[np.int64]


@compiled
def place_of(gaps: Gaps, row: Rows, now: float) -> PlaceBeside:
    """Return the earliest place of a task in which it meets its deadline.

    Of the nodes that are free for it the lowest are taken.
    """
    start, nodes = now, np.empty(0, np.int64)
    for _ in range(STEPS):
        shape = shape_of(row, 0, start)
        if shape.nodes == 0:
            break
        found = earliest(gaps, shape, start)
        if found == math.inf:
            break
        if found == start or shape_of(row, 0, found) == shape:
            nodes = gaps.node[(gaps.begin <= found) & (gaps.end - shape.seconds >= found)]
            return PlaceBeside(found, found + shape.seconds, nodes[: shape.nodes])
        start = found
    return PlaceBeside(math.inf, math.inf, nodes)
