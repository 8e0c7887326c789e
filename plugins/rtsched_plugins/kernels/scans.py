"""Positional-scan balancing of work units, or of whole tasks, over a hyper-grid of unequal nodes.

Units are numbered in node order. On a line, unit k of W goes to the node j whose λ_j <= k/W is the
greatest, λ being the scan of the normalised powers; nodes without power get nothing. On a grid the
slices of axis 0 first even out their totals: senders give their excess, receivers take blocks of
what is on its way; then each slice balances what it holds, one axis less. All slices of an axis are
worked on together.

Work is kept as runs of neighbouring units, so the effort depends on nodes, not on units. All
arithmetic is exact, also of a·b/c where a·b does not fit 64 bits: a quotient is guessed in floating
point and put right by its remainder, which is small and therefore exact in arithmetic modulo 2^64.

A task cannot be cut, so it follows its units: to the node that gets most of them, or to the one
that gets its first. Work that must stay takes part as less power: a node gets what its share of
everything leaves room for above what stays.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments (PSTS). Both rules for
tasks are our reading where the source is silent.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from rtsched.api import ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


Leave = Literal["proportional", "index"]
"""Which units of a sender leave: the same fraction of each node, or those with outlying numbers."""


class Runs(NamedTuple):
    """Runs of neighbouring units, `r` rows in the order of their present numbers.

    Attributes
    ----------
    src : int64[r]
        Node that held the units at the start.
    first : int64[r]
        Number of the run's first unit among the units of `src`.
    units : int64[r]
        How many they are, at least 1.
    dst : int64[r]
        Node that holds them now.
    """

    src: Ints
    first: Ints
    units: Ints
    dst: Ints

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Runs:
        """Return some of the runs."""
        return Runs(*(column[rows] for column in self))

    def moved(self) -> Runs:
        """Return what changed its node, added up by both nodes and ordered by them."""
        away = self.take(self.src != self.dst)
        order = np.lexsort((away.first, away.dst, away.src))
        away = away.take(order)
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(away.src) != 0) | (np.diff(away.dst) != 0)
        starts = np.flatnonzero(new)
        units = np.add.reduceat(away.units, starts) if len(starts) else away.units
        return Runs(away.src[starts], away.first[starts], units, away.dst[starts])


class Level(NamedTuple):
    """One axis at work: `g` groups of `m` slices of `c` nodes, all in row-major order.

    Attributes
    ----------
    total, power, target : int64[g, m]
        Load, power and load to reach of each slice. A positive excess (total less target) makes
        a sender, a negative one a receiver.
    leaving : int64[g, m, c]
        Units that leave each node.
    runs : Runs
        All units after the exchange, before the slices balance what they hold.
    """

    total: Ints
    power: Ints
    target: Ints
    leaving: Ints
    runs: Runs


def edges(total: Ints, power: Ints) -> Ints:
    """Return ceil(W λ_j) for j = 0..m: node j gets the units from edge j to edge j + 1.

    Parameters
    ----------
    total : int64[g]
        Units of each group (paper: W).
    power : int64[g, m]
        Powers in each group (paper: τ). A node without power gets nothing.
    """
    sums = scan(power)
    return divided(total[:, None], sums, sums[:, -1:], up=True)


def ideal(shape: Sequence[int], total: int, power: Ints) -> Ints:
    """Return the exact load of each node after balancing, by the recursion of the one-line rule."""
    held = np.array([total], np.int64)
    for axis, side in enumerate(shape):
        powers = power.reshape(len(held), side, prod(shape[axis + 1 :])).sum(2)
        held = np.diff(edges(held, powers), axis=1).ravel()
    return held


def at_home(load: Ints) -> Runs:
    """Return the units where they are: one run per node that has any."""
    nodes = np.flatnonzero(load)
    return Runs(nodes, np.zeros(len(nodes), np.int64), load[nodes], nodes)


def balanced(shape: Sequence[int], load: Ints, power: Ints, leave: Leave = "proportional") -> Runs:
    """Return where every unit goes.

    Parameters
    ----------
    shape : sequence of int
        Sides of the grid; axis 0 is balanced first, the last one is the line.
    load : int64[n]
        Units per node, row-major.
    power : int64[n]
        Units per time of each node; 0 for a virtual one.
    leave : 'proportional' or 'index'
        Which units of a sender leave.

    Raises
    ------
    ShapeError
        If the arrays do not fit the grid, there is work but no power, or totals are too large.
    """
    load, power = checked("load", load), checked("power", power)
    if not (prod(shape) == len(load) == len(power)) or min(shape, default=0) < 1:
        raise ShapeError(f"{len(load)} loads and {len(power)} powers on a grid {tuple(shape)}")
    runs = at_home(load)
    if not len(runs.src):
        return runs
    if not power.any():
        raise ShapeError("there is work, but no node with power to do it")
    for axis in range(len(shape) - 1):
        runs = exchanged(shape, axis, runs, power, leave).runs
    return _along_lines(runs, power.reshape(-1, shape[-1]))


def exchanged(
    shape: Sequence[int], axis: int, runs: Runs, power: Ints, leave: Leave = "proportional"
) -> Level:
    """Let the slices of one axis even out their totals, in each slice of the axes before it.

    `runs` are in order of their nodes. A migrating unit lands in its receiver where its place in
    the receiver's block is in the receiver's own λ, over all of the receiver's nodes.
    """
    powers = power.reshape(prod(shape[:axis]), shape[axis], -1)
    load = loads(runs, len(power)).reshape(powers.shape)
    total, strength = load.sum(2), powers.sum(2)
    bound = edges(total.sum(1), strength)
    target = np.diff(bound, axis=1)
    if leave == "proportional":
        points, goes = _each_node(load, total, target)
    else:
        points, goes = _ends(total, target, bound)
    pieces, interval = _cut(runs, points)
    away = goes[interval]
    deficit = np.maximum(target - total, 0).ravel()
    blocks = edges(deficit, powers.reshape(len(deficit), -1))[:, :-1]
    landed = _moved_to(pieces.take(away), (scan(deficit)[:-1, None] + blocks).ravel())
    both = Runs(*map(np.concatenate, zip(pieces.take(~away), landed, strict=True)))
    leaving = loads(pieces.take(away), len(power)).reshape(powers.shape)
    after = both.take(np.argsort(both.dst, kind="stable"))
    return Level(total, strength, target, leaving, after)


def loads(runs: Runs, nodes: int) -> Ints:
    """Return int64[nodes]: the units that each node holds."""
    return np.bincount(runs.dst, runs.units, minlength=nodes).astype(np.int64)  # exact to 2^53


def _each_node(load: Ints, total: Ints, target: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the numbers at which units stay or leave: each node gives the same fraction.

    Node c gives floor(X C_{c+1}/L) - floor(X C_c/L) of its last units, C the scan of the loads,
    X the excess and L the total of its slice.
    """
    excess = np.maximum(total - target, 0)[..., None]
    given = np.diff(divided(excess, scan(load), total[..., None]), axis=2)
    start = scan(load.ravel())[:-1]
    points = np.stack([start, start + (load - given).ravel()], axis=1).ravel()
    return points, np.arange(len(points)) % 2 == 1


def _ends(total: Ints, target: Ints, bound: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the numbers at which units stay or leave: what lies outside a sender's interval.

    A sender whose units all lie outside keeps those that are nearest to its interval.
    """
    excess = np.maximum(total - target, 0)
    before = np.clip(bound[:, :-1] - scan(total)[:, :-1], 0, excess).ravel()
    start = scan(total.ravel())[:-1]
    stay = (total - excess).ravel()
    points = np.stack([start, start + before, start + before + stay], axis=1).ravel()
    return points, np.arange(len(points)) % 3 != 1


def _cut(runs: Runs, points: Ints) -> tuple[Runs, Ints]:
    """Return the runs cut at unit numbers, and for each piece the last point not after it.

    `points` ascend from 0; of equal ones the last counts.
    """
    starts = scan(runs.units)
    inner = points[points < starts[-1]]
    inner = inner[np.append(True, inner[1:] != inner[:-1])[: len(inner)]]
    within = np.searchsorted(starts, inner, "right") - 1
    cuts = inner > starts[within]
    count = 1 + np.bincount(within[cuts], minlength=len(runs.units))
    row = np.repeat(np.arange(len(count)), count)
    at = starts[row]
    is_cut = np.ones(len(row), np.bool_)
    is_cut[scan(count)[:-1]] = False
    at[is_cut] = inner[cuts]
    passed = np.bincount(np.searchsorted(at, points), minlength=len(at))[: len(at)]
    units = np.diff(at, append=starts[-1])
    first = runs.first[row] + at - starts[row]
    return Runs(runs.src[row], first, units, runs.dst[row]), np.cumsum(passed) - 1


def _moved_to(runs: Runs, points: Ints) -> Runs:
    """Return runs cut at each node's first unit number and handed to the nodes."""
    pieces, node = _cut(runs, points)
    return pieces._replace(dst=node)


def _along_lines(runs: Runs, power: Ints) -> Runs:
    """Return the units after each line of the last axis has balanced what it holds."""
    held = loads(runs, power.size).reshape(power.shape).sum(1)
    points = scan(held)[:-1, None] + edges(held, power)[:, :-1]
    return joined(_moved_to(runs, points.ravel()))


def joined(runs: Runs) -> Runs:
    """Return the runs with neighbours of one origin and one node made into one."""
    if not len(runs.src):
        return runs
    new = np.ones(len(runs.src), np.bool_)
    new[1:] = (
        (runs.src[1:] != runs.src[:-1])
        | (runs.dst[1:] != runs.dst[:-1])
        | (runs.first[1:] != runs.first[:-1] + runs.units[:-1])
    )
    starts = np.flatnonzero(new)
    return runs.take(starts)._replace(units=np.add.reduceat(runs.units, starts))


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


MOST = 1 << 51
"""Totals up to this are exact: the guess is then off by less than 4, its remainder below 2^54."""


def checked(name: str, values: Ints) -> Ints:
    """Return `values` as int64, none of them negative, their sum at most `MOST`.

    Raises
    ------
    ShapeError
        Where one is negative or no whole number, or the sum is too large to be exact.
    """
    given = np.asarray(values)
    whole = given.astype(np.int64)
    if (whole != given).any() or (whole < 0).any():
        raise ShapeError(f"{name} contains a negative or non-integer value")
    if float(whole.sum(dtype=np.float64)) > MOST:
        raise ShapeError(f"{name} adds up to more than 2^51; use larger units")
    return whole


def divided(a: Ints, b: Ints, c: Ints, *, up: bool = False) -> Ints:
    """Return floor(a·b/c), or ceil(a·b/c) with `up`; 0 where c is 0.

    Parameters
    ----------
    a, b, c : int64[...]
        Not negative, at most `MOST`, and so is the result.
    """
    by = np.maximum(c, 1)
    guess = (a.astype(np.float64) * b / by).astype(np.int64)
    with np.errstate(over="ignore"):
        left = a * b - guess * by
    quotient = guess + left // by
    if up:
        quotient += left % by != 0
    return np.where(c == 0, 0, quotient)


def scan(values: Ints) -> Ints:
    """Return the exclusive prefix sums along the last axis, the total at the end: [..., n + 1]."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.int64)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
