"""A place for one more job beside a plan of whole nodes that stays as it is.

A plan that is made anew in an order of the planner's own may put a newcomer before a job that has
no time to spare, and so reject nearly everybody. Beside the plan as it is nobody moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from rtsched_plugins.kernels.admission import LOW, exec_of, least_size

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Rows, Tasks

STEPS = 32
"""Starts that are tried at most for a task whose number of nodes depends on its start."""


class Shape(NamedTuple):
    """On how many nodes a task runs, and for how long, in seconds; no nodes: it would be late."""

    nodes: int
    seconds: float


LATE = Shape(0, 0.0)


@runtime_checkable
class Shaping(Protocol):
    """A planner that takes all nodes as equal, and so can place a task by its shape alone."""

    def shape(self, prepared: Any, new: Tasks, start: float) -> Shape:
        """Return the shape in which the new task, if it starts then, ends by its deadline."""


def shape_of(rows: Rows, i: int, start: float) -> Shape:
    """Return the shape of task i with the fewest nodes that meet its deadline from `start` on."""
    nodes = least_size(rows, i, rows.whole[i, LOW], start)
    return Shape(nodes, exec_of(rows, i, nodes)) if nodes else LATE


class Gaps(NamedTuple):
    """When nodes have nothing to do, in order of the nodes; gaps of a node do not meet."""

    node: NDArray[np.int64]
    """int64[g]."""
    begin: NDArray[np.float64]
    """float64[g], seconds."""
    end: NDArray[np.float64]
    """float64[g], seconds, later than `begin`; inf after the last planned end."""


class Place(NamedTuple):
    """A start, in seconds, and the nodes, ascending."""

    start: float
    end: float
    nodes: NDArray[np.int64]


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
        The node of each part of the plan.
    start, end : float64[k]
        Seconds. A part that should have started lasts as much longer as it is late.
    now : float
        Seconds; gaps begin then at the earliest.
    """
    usable = np.flatnonzero(np.isfinite(free))
    late = np.maximum(now - start, 0.0)
    on_node = np.concatenate([usable, node])
    begin = np.concatenate([np.full(len(usable), -np.inf), start])
    over = np.concatenate([np.maximum(free[usable], now), end + late])
    kept = np.isfinite(free[on_node])
    on_node, begin, over = on_node[kept], begin[kept], over[kept]
    order = np.lexsort((begin, on_node))
    on_node, begin, over = on_node[order], begin[order], over[order]
    by_end = np.argsort(over, kind="stable")  # the latest end so far on each node, exactly
    rank = np.empty(len(over), np.int64)
    rank[by_end] = np.arange(len(over))
    so_far = np.maximum.accumulate(on_node * np.int64(len(over)) + rank) % max(len(over), 1)
    busy_until = over[by_end[so_far]]
    following = np.append(begin[1:], np.inf)
    following[np.append(on_node[1:] != on_node[:-1], True)] = np.inf
    gap = following > busy_until
    return Gaps(on_node[gap], busy_until[gap], following[gap])


def earliest(gaps: Gaps, shape: Shape, after: float) -> float:
    """Return when so many nodes are free for so long, not before `after`; inf: never, seconds."""
    begin, latest = np.maximum(gaps.begin, after), gaps.end - shape.seconds
    long_enough = latest >= begin
    begin, latest = np.sort(begin[long_enough]), np.sort(latest[long_enough])
    open_then = np.searchsorted(begin, begin, side="right") - np.searchsorted(latest, begin)
    enough = np.flatnonzero(open_then >= shape.nodes)
    return float(begin[enough[0]]) if len(enough) else np.inf


def place_of(gaps: Gaps, planner: Shaping, prepared: Any, new: Tasks, now: float) -> Place | None:
    """Return the earliest place of a task in which it meets its deadline; None: there is none.

    Of the nodes that are free for it the lowest are taken.
    """
    start = now
    for _ in range(STEPS):
        shape = planner.shape(prepared, new, start)
        if not shape.nodes:
            return None
        found = earliest(gaps, shape, start)
        if found == np.inf:
            return None
        if found == start or planner.shape(prepared, new, found) == shape:
            nodes = gaps.node[(gaps.begin <= found) & (gaps.end - shape.seconds >= found)]
            return Place(found, found + shape.seconds, nodes[: shape.nodes])
        start = found
    return None
