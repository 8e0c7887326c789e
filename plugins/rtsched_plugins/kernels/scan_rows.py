"""The positional scan of whole tasks as loops, for a replay that makes many small ones.

The same as `scans.placed` and `scans.room`, which take arrays of any size at a time and
check what they are given; here totals are known to be at most `scans.MOST`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAJORITY, FIRST = 0, 1
"""Where a task goes whose units go to several nodes: see `scans.Whole`."""
INDEX, PROPORTIONAL = 0, 1
"""Which units of a sender leave: see `scans.Leave`."""


class Pieces(NamedTuple):
    """Runs of neighbouring units as `scans.Runs`, all int64[r]."""

    src: Ints
    first: Ints
    units: Ints
    dst: Ints


@compiled
def quotient(a: int, b: int, c: int, up: bool) -> int:
    """Return floor(a·b/c), or ceil(a·b/c) with `up`; 0 where c is 0.

    None is negative or above `scans.MOST`, and neither is the result.
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
def room_beside(movable: int, fixed: Ints, power: Ints) -> Ints:
    """Return int64[n]: how many of the movable units each node gets beside what must stay.

    Parameters
    ----------
    movable : int
        Units that may move.
    fixed, power : int64[n]
        Units that must stay on each node, and units per time; some power is above 0.
    """
    n = len(power)
    share = power.copy()
    while True:
        total, strength = movable, 0
        for i in range(n):
            if share[i] > 0:
                total += fixed[i]
                strength += share[i]
        over = 0
        for i in range(n):
            if share[i] > 0 and quotient(total, share[i], strength, True) < fixed[i]:
                over += 1
                share[i] = -share[i]  # closed when all have been looked at
        if over == 0:
            break
        for i in range(n):
            share[i] = max(share[i], 0)
    target, missing = np.zeros(n, np.int64), 0
    sums, bound = 0, 0
    for i in range(n):
        sums += share[i]
        after = quotient(total, sums, strength, True)
        target[i] = after - bound - (fixed[i] if share[i] > 0 else 0)
        bound = after
        if target[i] < 0:
            missing -= target[i]
            target[i] = 0
    while missing > 0:
        for i in range(n):
            if missing > 0 and target[i] > 0:
                target[i] -= 1
                missing -= 1
    return target


@compiled
def cut(runs: Pieces, points: Ints) -> tuple[Pieces, Ints]:
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
    pieces = Pieces(src[:count], first[:count], units[:count], dst[:count])
    return pieces, interval[:count]


@compiled
def _chosen(runs: Pieces, rows: NDArray[np.bool_]) -> Pieces:
    """Return some of the runs."""
    return Pieces(runs.src[rows], runs.first[rows], runs.units[rows], runs.dst[rows])


@compiled
def _held(runs: Pieces, n: int) -> Ints:
    """Return int64[n]: the units that each node holds."""
    load = np.zeros(n, np.int64)
    for i in range(len(runs.units)):
        load[runs.dst[i]] += runs.units[i]
    return load


@compiled
def _in_order(stay: Pieces, landed: Pieces, n: int) -> Pieces:
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
    return Pieces(src, first, units, dst)


@compiled
def _exchanged(groups: int, side: int, below: int, runs: Pieces, power: Ints, leave: int) -> Pieces:
    """Let the `side` slices of one axis even out their totals, in each of `groups` groups.

    A slice has `below` nodes; all is in row-major order.
    """
    n = len(power)
    load, slices = _held(runs, n), groups * side
    total, strength = np.zeros(slices, np.int64), np.zeros(slices, np.int64)
    for node in range(n):
        total[node // below] += load[node]
        strength[node // below] += power[node]
    width = 2 * n if leave == PROPORTIONAL else 3 * slices
    points, deficit = np.empty(width, np.int64), np.zeros(slices, np.int64)
    start = 0
    for group in range(groups):
        work, powers = 0, 0
        for place in range(group * side, group * side + side):
            work += total[place]
            powers += strength[place]
        sums, bound, before_slice = 0, 0, 0
        for place in range(group * side, group * side + side):
            sums += strength[place]
            after = quotient(work, sums, powers, True)
            target = after - bound
            excess = max(total[place] - target, 0)
            deficit[place] = max(target - total[place], 0)
            if leave == PROPORTIONAL:
                held, given = 0, 0
                for node in range(place * below, place * below + below):
                    held += load[node]
                    goes = quotient(excess, held, total[place], False)
                    points[2 * node] = start
                    start += load[node]
                    points[2 * node + 1] = start - (goes - given)
                    given = goes
            else:
                lower = min(max(bound - before_slice, 0), excess)
                points[3 * place] = start
                points[3 * place + 1] = start + lower
                points[3 * place + 2] = start + lower + total[place] - excess
                start += total[place]
            before_slice += total[place]
            bound = after
    pieces, interval = cut(runs, points)
    goes_away = interval % 2 == 1 if leave == PROPORTIONAL else interval % 3 != 1
    blocks, begin = np.empty(n, np.int64), 0
    for place in range(slices):
        sums = 0
        for node in range(place * below, place * below + below):
            blocks[node] = begin + quotient(deficit[place], sums, strength[place], True)
            sums += power[node]
        begin += deficit[place]
    landed, owner = cut(_chosen(pieces, goes_away), blocks)
    moved = Pieces(landed.src, landed.first, landed.units, owner)
    return _in_order(_chosen(pieces, ~goes_away), moved, n)


@compiled
def _along_lines(runs: Pieces, power: Ints, side: int) -> Pieces:
    """Return the units after each line of `side` nodes has balanced what it holds."""
    n = len(power)
    load, points, begin = _held(runs, n), np.empty(n, np.int64), 0
    for line in range(n // side):
        held, strength, sums = 0, 0, 0
        for node in range(line * side, line * side + side):
            held += load[node]
            strength += power[node]
        for node in range(line * side, line * side + side):
            points[node] = begin + quotient(held, sums, strength, True)
            sums += power[node]
        begin += held
    pieces, owner = cut(runs, points)
    return Pieces(pieces.src, pieces.first, pieces.units, owner)


@compiled
def tasks_placed(shape: Ints, owner: Ints, units: Ints, power: Ints, rule: int, leave: int) -> Ints:
    """Return int64[t]: the node of each task after balancing.

    Parameters
    ----------
    shape : int64[d]
        Sides of the grid.
    owner, units : int64[t]
        Node that holds each task, and its work, at least 1.
    power : int64[n]
        Units per time of each node.
    rule : int
        `MAJORITY` or `FIRST`.
    leave : int
        `INDEX` or `PROPORTIONAL`.
    """
    n, tasks = len(power), len(units)
    load, count = np.zeros(n, np.int64), 0
    for task in range(tasks):
        load[owner[task]] += units[task]
    starts = np.zeros(n + 1, np.int64)
    for node in range(n):
        starts[node + 1] = starts[node] + load[node]
        count += load[node] > 0
    home, at = np.empty(count, np.int64), 0
    for node in range(n):
        if load[node] > 0:
            home[at] = node
            at += 1
    runs = Pieces(home, np.zeros(count, np.int64), load[home], home)
    groups, below = 1, n
    for axis in range(len(shape) - 1):
        below //= shape[axis]
        runs = _exchanged(groups, shape[axis], below, runs, power, leave)
        groups *= shape[axis]
    runs = _along_lines(runs, power, shape[-1])
    begin = starts[runs.src] + runs.first
    order = np.argsort(begin)
    begin, dst = begin[order], runs.dst[order]
    node_of, share = np.empty(tasks, np.int64), np.zeros(n, np.int64)
    numbered = starts.copy()
    for task in range(tasks):
        first = numbered[owner[task]]
        end = first + units[task]
        numbered[owner[task]] = end
        run = np.searchsorted(begin, first, side="right") - 1
        best = dst[run]
        if rule == MAJORITY:
            best = _most(begin, dst, run, first, end, starts[n], share)
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
