"""Positional-scan balancing of work units, or of whole tasks, over a hyper-grid of unequal nodes.

Units are numbered in node order. On a line, unit k of W goes to the node j whose λ_j <= k/W is the
greatest, λ being the scan of the normalised powers; nodes without power get nothing. On a grid the
slices of axis 0 first even out their totals: senders give their excess, receivers take blocks of
what is on its way; then each slice balances what it holds, one axis less.

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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAJORITY, FIRST = 0, 1
"""A task goes where most of its units go (ties: the lowest node), or where its first unit goes."""
INDEX, PROPORTIONAL = 0, 1
"""Which units of a sender leave: those with outlying numbers, or the same fraction of each node."""
MOST = 1 << 51
"""Totals up to this are exact: the guess is then off by less than 4, its remainder below 2^54."""


class Runs(NamedTuple):
    """Runs of neighbouring units, `r` rows in the order of their present numbers."""

    src: Ints
    """int64[r]: the node that held the units at the start."""
    first: Ints
    """int64[r]: number of the run's first unit among the units of `src`."""
    units: Ints
    """int64[r]: how many they are, at least 1."""
    dst: Ints
    """int64[r]: the node that holds them now."""


def scan(values: Ints) -> Ints:
    """Return the exclusive prefix sums, the total at the end: int64[n + 1]."""
    return np.append(0, np.cumsum(values))


@compiled
def quotient(a: int, b: int, c: int, up: bool) -> int:
    """Return floor(a·b/c), or ceil(a·b/c) with `up`; 0 where c is 0.

    None is negative or above `MOST`, and neither is the result.
    """
    a, b, c = int(a), int(b), int(c)
    if c == 0:
        return 0
    guess = int(float(a) * float(b) / float(c))
    left = a * b - guess * c
    whole = guess + left // c
    if up and left % c != 0:
        whole += 1
    return whole


@compiled
def edges(total: int, power: Ints) -> Ints:
    """Return ceil(W λ_j) for j = 0..m: node j gets the units from edge j to edge j + 1.

    Parameters
    ----------
    total : int
        Units of all nodes (paper: W).
    power : int64[m]
        Powers (paper: τ). A node without power gets nothing.
    """
    bounds, strength, sums = np.zeros(len(power) + 1, np.int64), power.sum(), 0
    for node in range(len(power)):
        sums += power[node]
        bounds[node + 1] = quotient(total, sums, strength, True)
    return bounds


@compiled
def room(movable: int, fixed: Ints, power: Ints) -> Ints:
    """Return int64[n]: how many of the movable units each node gets beside what must stay.

    Fixed work counts as load and as part of the target. A node that has more of it than its share
    gets nothing, and what it has too much is taken off the shares of the others; so all nodes that
    get something end together. The result serves as powers of a scan over the movable units alone.

    Parameters
    ----------
    movable : int
        Units that may move.
    fixed, power : int64[n]
        Units that must stay on each node, and units per time; some power is above 0.
    """
    share = power.copy()
    while True:
        total, strength, full = movable + fixed[share > 0].sum(), share.sum(), 0
        for node in range(len(share)):
            if share[node] > 0 and quotient(total, share[node], strength, True) < fixed[node]:
                share[node] = 0
                full += 1
        if full == 0:
            break
    target = np.diff(edges(total, share)) - fixed * (share > 0)
    missing = -target[target < 0].sum()  # where a node is just full rounding may leave -1
    target = np.maximum(target, 0)
    while missing > 0:
        for node in range(len(target)):
            if missing > 0 and target[node] > 0:
                target[node] -= 1
                missing -= 1
    return target


@compiled
def at_home(load: Ints) -> Runs:
    """Return the units where they are: one run per node that has any."""
    nodes = np.flatnonzero(load)
    return Runs(nodes, np.zeros(len(nodes), np.int64), load[nodes], nodes)


@compiled
def loads(runs: Runs, nodes: int) -> Ints:
    """Return int64[nodes]: the units that each node holds."""
    load = np.zeros(nodes, np.int64)
    for i in range(len(runs.units)):
        load[runs.dst[i]] += runs.units[i]
    return load


@compiled
def _cut(runs: Runs, points: Ints) -> tuple[Runs, Ints]:
    """Return the runs cut at unit numbers, and for each piece the last point not after it.

    `points` ascend from 0; of equal ones the last counts.
    """
    most = len(runs.units) + len(points)
    src, first = np.empty(most, np.int64), np.empty(most, np.int64)
    units, dst = np.empty(most, np.int64), np.empty(most, np.int64)
    interval = np.empty(most, np.int64)
    count, passed, at = 0, 0, 0
    for i in range(len(runs.units)):
        begin, end = at, at + runs.units[i]
        while at < end:
            while passed < len(points) and points[passed] <= at:
                passed += 1
            stop = end
            if passed < len(points):
                stop = min(stop, points[passed])
            src[count], dst[count] = runs.src[i], runs.dst[i]
            first[count], units[count] = runs.first[i] + at - begin, stop - at
            interval[count] = passed - 1
            count += 1
            at = stop
    pieces = Runs(src[:count], first[:count], units[:count], dst[:count])
    return pieces, interval[:count]


@compiled
def _chosen(runs: Runs, rows: NDArray[np.bool_]) -> Runs:
    """Return some of the runs."""
    return Runs(runs.src[rows], runs.first[rows], runs.units[rows], runs.dst[rows])


@compiled
def _in_order(stay: Runs, landed: Runs, n: int) -> Runs:
    """Return the runs of both, by their nodes; of one node those that stayed first."""
    begin = np.zeros(n + 1, np.int64)
    for i in range(len(stay.dst)):
        begin[stay.dst[i] + 1] += 1
    for i in range(len(landed.dst)):
        begin[landed.dst[i] + 1] += 1
    begin = np.cumsum(begin)
    most = begin[n]
    src, first = np.empty(most, np.int64), np.empty(most, np.int64)
    units, dst = np.empty(most, np.int64), np.empty(most, np.int64)
    for runs in (stay, landed):
        for i in range(len(runs.dst)):
            at = begin[runs.dst[i]]
            begin[runs.dst[i]] += 1
            src[at], first[at] = runs.src[i], runs.first[i]
            units[at], dst[at] = runs.units[i], runs.dst[i]
    return Runs(src, first, units, dst)


@compiled
def exchanged(groups: int, side: int, runs: Runs, power: Ints, leave: int) -> Runs:
    """Let the `side` slices of one axis even out their totals, in each of `groups` groups.

    All is in row-major order. With `INDEX` what lies outside a sender's interval leaves; one whose
    units all lie outside keeps those that are nearest to it. With `PROPORTIONAL` node c gives
    floor(X C_{c+1}/L) - floor(X C_c/L) of its last units, C the scan of the loads, X the excess and
    L the total of its slice. A migrating unit lands in its receiver where its place in the
    receiver's block is in the receiver's own λ, over all of the receiver's nodes.
    """
    n, slices = len(power), groups * side
    below = n // slices
    load = loads(runs, n)
    total, strength = np.zeros(slices, np.int64), np.zeros(slices, np.int64)
    for node in range(n):
        total[node // below] += load[node]
        strength[node // below] += power[node]
    points = np.empty(2 * n if leave == PROPORTIONAL else 3 * slices, np.int64)
    blocks, start, landing = np.empty(n, np.int64), 0, 0
    for group in range(groups):
        mine, before = total[group * side : (group + 1) * side], 0
        bound = edges(mine.sum(), strength[group * side : (group + 1) * side])
        for at in range(side):
            place, target = group * side + at, bound[at + 1] - bound[at]
            begin, end = place * below, place * below + below
            excess, deficit = max(mine[at] - target, 0), max(target - mine[at], 0)
            blocks[begin:end] = landing + edges(deficit, power[begin:end])[:-1]
            landing += deficit
            if leave == PROPORTIONAL:
                held, given = 0, 0
                for node in range(begin, end):
                    held += load[node]
                    goes = quotient(excess, held, mine[at], False)
                    points[2 * node] = start
                    start += load[node]
                    points[2 * node + 1] = start - (goes - given)
                    given = goes
            else:
                lower = min(max(bound[at] - before, 0), excess)
                points[3 * place] = start
                points[3 * place + 1] = start + lower
                points[3 * place + 2] = start + lower + mine[at] - excess
                start += mine[at]
            before += mine[at]
    pieces, interval = _cut(runs, points)
    goes_away = interval % 2 == 1 if leave == PROPORTIONAL else interval % 3 != 1
    landed, owner = _cut(_chosen(pieces, goes_away), blocks)
    moved = Runs(landed.src, landed.first, landed.units, owner)
    return _in_order(_chosen(pieces, ~goes_away), moved, n)


@compiled
def balanced(shape: Ints, load: Ints, power: Ints, leave: int) -> Runs:
    """Return where every unit goes.

    Parameters
    ----------
    shape : int64[d]
        Sides of the grid; axis 0 is balanced first, the last one is the line.
    load, power : int64[n]
        Units per node, row-major, at most `MOST` in all, and their units per time; 0 for a virtual
        one. Some power is above 0.
    leave : int
        `INDEX` or `PROPORTIONAL`.
    """
    runs, groups = at_home(load), 1
    for side in shape[:-1]:
        runs = exchanged(groups, side, runs, power, leave)
        groups *= side
    held, line, start = loads(runs, len(power)), shape[-1], 0
    points = np.empty(len(power), np.int64)
    for begin in range(0, len(power), line):
        total = held[begin : begin + line].sum()
        points[begin : begin + line] = start + edges(total, power[begin : begin + line])[:-1]
        start += total
    pieces, owner = _cut(runs, points)
    return Runs(pieces.src, pieces.first, pieces.units, owner)


@compiled
def placed(shape: Ints, owner: Ints, units: Ints, power: Ints, rule: int, leave: int) -> Ints:
    """Return int64[t]: the node of each task after balancing.

    Parameters
    ----------
    shape : int64[d]
        Sides of the grid.
    owner, units : int64[t]
        Node that holds each task, and its work, at least 1; the tasks of one node are numbered in
        the order of their rows.
    power : int64[n]
        Units per time of each node.
    rule : int
        `MAJORITY` or `FIRST`.
    leave : int
        `INDEX` or `PROPORTIONAL`. With the latter every node gives a little, which whole tasks
        cannot follow well.
    """
    n, tasks = len(power), len(units)
    load = np.zeros(n, np.int64)
    for task in range(tasks):
        load[owner[task]] += units[task]
    runs = balanced(shape, load, power, leave)
    numbered = np.cumsum(load) - load
    begin = numbered[runs.src] + runs.first
    order = np.argsort(begin)
    begin, dst = begin[order], runs.dst[order]
    node_of, share, total = np.empty(tasks, np.int64), np.zeros(n, np.int64), load.sum()
    for task in range(tasks):
        first = numbered[owner[task]]
        end = first + units[task]
        numbered[owner[task]] = end
        run = np.searchsorted(begin, first, side="right") - 1
        best = dst[run]
        if rule == MAJORITY:
            best = _most(begin, dst, run, first, end, total, share)
        node_of[task] = best
    return node_of


@compiled
def _most(begin: Ints, dst: Ints, run: int, first: int, end: int, total: int, share: Ints) -> int:
    """Return which node has most of the units from `first` to `end`, of equal ones the lowest.

    `run` is the run with the first of them; `share` is int64[n] of zeros, left so.
    """
    best, last = dst[run], run
    while last < len(begin) and begin[last] < end:
        stop = begin[last + 1] if last + 1 < len(begin) else total
        share[dst[last]] += min(stop, end) - max(begin[last], first)
        last += 1
    for at in range(run, last):
        node = dst[at]
        if share[node] > share[best] or (share[node] == share[best] and node < best):
            best = node
    for at in range(run, last):
        share[dst[at]] = 0
    return int(best)
