"""Whole tasks after a positional scan, and nodes that hold work which must stay.

A task cannot be cut, so it follows its units: to the node that gets most of them, or to the one
that gets its first. Work that must stay takes part as less power: a node gets what its share of
everything leaves room for above what stays.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments. Both rules are our
reading where the source is silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rtsched.api import ShapeError
from rtsched_plugins.kernels.exact import checked, divided, scan
from rtsched_plugins.kernels.scan_balance import balanced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched_plugins.kernels.scan_balance import Leave, Runs

    Ints = NDArray[np.int64]

Whole = Literal["majority", "first"]
"""A task goes where most of its units go (ties: the lowest node), or where its first unit goes."""


def placed(
    shape: Sequence[int],
    owner: Ints,
    units: Ints,
    power: Ints,
    *,
    rule: Whole = "majority",
    leave: Leave = "index",
) -> Ints:
    """Return int64[t]: the node of each task after balancing.

    Parameters
    ----------
    shape : sequence of int
        Sides of the grid.
    owner : int64[t]
        Node that holds each task; the tasks of one node are numbered in the order of their rows.
    units : int64[t]
        Work of each task, at least 1.
    power : int64[n]
        Units per time of each node.
    rule : 'majority' or 'first'
        Where a task goes whose units go to several nodes.
    leave : 'index' or 'proportional'
        Which units of a sender leave. With `proportional` every node gives a little, which whole
        tasks cannot follow well.

    Raises
    ------
    ShapeError
        If a task has no unit or no such node, or `balanced` cannot be computed.
    """
    units = checked("task units", units)
    if len(owner) != len(units) or (units < 1).any():
        raise ShapeError("each task needs an owner and at least one unit of work")
    if len(owner) and (owner.min() < 0 or owner.max() >= len(power)):
        raise ShapeError("a task's owner is no node of the grid")
    load = np.bincount(owner, units, minlength=len(power)).astype(np.int64)  # exact to 2^53
    runs = balanced(shape, load, power, leave)
    if not len(units):
        return np.zeros(0, np.int64)
    order = np.argsort(owner, kind="stable")
    node = np.empty(len(units), np.int64)
    node[order] = _followed(scan(units[order]), *_by_origin(runs, load), rule)
    return node


def _by_origin(runs: Runs, load: Ints) -> tuple[Ints, Ints]:
    """Return where runs begin in the numbering before balancing, ascending, and their nodes."""
    begin = scan(load)[runs.src] + runs.first
    order = np.argsort(begin, kind="stable")
    return np.append(begin[order], load.sum()), runs.dst[order]


def _followed(bounds: Ints, begin: Ints, dst: Ints, rule: Whole) -> Ints:
    """Return each task's node: that of the run where it begins, or of most of its units.

    Parameters
    ----------
    bounds : int64[t + 1]
        Where tasks begin and end, in the numbering before balancing.
    begin : int64[r + 1]
        Where runs begin and end in the same numbering.
    dst : int64[r]
        The runs' nodes.
    """
    row = np.searchsorted(begin, bounds[:-1], "right") - 1
    node = dst[row]
    if rule == "first":
        return node
    count = np.searchsorted(begin, bounds[1:], "left") - row
    two = np.flatnonzero(count == 2)
    other, cut = dst[row[two] + 1], begin[row[two] + 1]
    here, there = cut - bounds[two], bounds[two + 1] - cut
    node[two] = np.where((there > here) | ((there == here) & (other < node[two])), other, node[two])
    many = np.flatnonzero(count > 2)
    if len(many):
        node[many] = _most(bounds, begin, dst, many, row[many], count[many])
    return node


def _most(bounds: Ints, begin: Ints, dst: Ints, task: Ints, row: Ints, count: Ints) -> Ints:
    """Return which node has most of each task's units: `count` runs from `row` on."""
    of = np.repeat(np.arange(len(task)), count)
    run = np.arange(len(of)) - np.repeat(scan(count)[:-1], count) + row[of]
    end, start = bounds[task + 1][of], bounds[task][of]
    part = np.minimum(begin[run + 1], end) - np.maximum(begin[run], start)
    order = np.lexsort((dst[run], of))
    of, at, part = of[order], dst[run][order], part[order]
    firsts = np.flatnonzero(np.append(True, (np.diff(of) != 0) | (np.diff(at) != 0)))
    total, of, at = np.add.reduceat(part, firsts), of[firsts], at[firsts]
    best = np.lexsort((at, -total, of))
    winners: Ints = at[best[np.append(True, np.diff(of[best]) != 0)]]
    return winners


def room(movable: int, fixed: Ints, power: Ints) -> Ints:
    """Return int64[n]: how many of the movable units each node gets beside what must stay.

    Fixed work counts as load and as part of the target. A node that has more of it than its share
    gets nothing, and what it has too much is taken off the shares of the others; so all nodes that
    get something end together. The result serves as powers of a scan over the movable units alone.

    Parameters
    ----------
    movable : int
        Units that may move.
    fixed : int64[n]
        Units that must stay on each node.
    power : int64[n]
        Units per time.

    Raises
    ------
    ShapeError
        If there is work to move, but no power.
    """
    fixed, power = checked("fixed work", fixed), checked("power", power)
    if not power.any():
        if movable:
            raise ShapeError("there is work to move, but no node has any power")
        return np.zeros(len(power), np.int64)
    open_nodes = power > 0
    while True:
        share = np.where(open_nodes, power, 0)
        total = movable + int(fixed[open_nodes].sum())
        checked("work", np.array([total]))
        over = open_nodes & (
            divided(np.full(1, total), share, np.full(1, share.sum()), up=True) < fixed
        )
        if not over.any():
            break
        open_nodes &= ~over
    bounds = divided(np.full(1, total), scan(share), np.full(1, share.sum()), up=True)
    target = np.diff(bounds) - np.where(open_nodes, fixed, 0)
    return _lent(target)


def _lent(target: Ints) -> Ints:
    """Return targets without the -1 that rounding may leave where a node is just full."""
    missing = -int(target[target < 0].sum())
    target = np.maximum(target, 0)
    while missing:
        givers = np.flatnonzero(target)[:missing]
        target[givers] -= 1
        missing -= len(givers)
    return target
