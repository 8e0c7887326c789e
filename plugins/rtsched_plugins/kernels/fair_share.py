"""Fair-share factors from decayed usage: Slurm's Fair Tree, and its classic formula.

References
----------
Slurm manual, fair_tree, "Level Fairshare Calculation" and "Ties"; classic_fair_share, "The Slurm
Fair-Share Formula".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.usage import (
    AHEAD,
    AT,
    BELOW,
    BUSY,
    DAMPING,
    DEPTHS,
    FACTOR,
    FRESH,
    LEAF,
    LEAVES,
    LEVEL_END,
    NORMAL,
    ORDER,
    PARENT,
    PLACE,
    RATE,
    RATIO,
    SHARES,
    SIBLINGS,
    TREE,
    USED,
    used,
)

if TYPE_CHECKING:
    from rtsched_plugins.kernels.usage import Grid, Line


@compiled
def factor(account: int, period: float, params: Line, tables: Grid, state: Grid) -> float:
    """Return an account's fair-share factor in `period`, worked out once and remembered."""
    row = account + 1
    if params[TREE] != 0.0:
        if state[FRESH, 0] != period:
            rank(period, params, tables, state)
        return float((tables[LEAVES, 0] - state[AHEAD, row]) / tables[LEAVES, 0])
    if state[FRESH, row] != period:
        state[FACTOR, row] = classic(row, period, params, tables, state)
        state[FRESH, row] = period
    return float(state[FACTOR, row])


@compiled
def classic(row: int, period: float, params: Line, tables: Grid, state: Grid) -> float:
    """Return 2 ** (-U / S / d), U a row's effective usage, S its share of the machine.

    A row's own usage U_A and its parent's effective usage are mixed by its share s among its
    siblings: U = U_A + (U_parent - U_A) s. A row of the top tier counts by its own usage.
    """
    whole = used(0, period, params, tables, state)
    if tables[NORMAL, row] <= 0.0:
        return 0.0
    if whole <= 0.0:
        return 1.0
    effective, mixed, at = 0.0, 1.0, row
    while True:
        own = used(at, period, params, tables, state) / whole
        parent = int(tables[PARENT, at])
        if parent == 0:
            effective += mixed * own
            break
        share = tables[SHARES, at] / tables[SIBLINGS, at]
        effective += mixed * (1.0 - share) * own
        mixed *= share
        at = parent
    return float(2.0 ** (-effective / tables[NORMAL, row] / params[DAMPING]))


@compiled
def precedes(row: int, other: int, tables: Grid, state: Grid) -> bool:
    """Return whether `row` stands before `other`, a row of the same depth.

    The greater level fair share comes first: the part of the siblings' shares over the part of
    the siblings' usage. Between siblings the least `RATIO` of usage to shares says the same.
    """
    parent, others = int(tables[PARENT, row]), int(tables[PARENT, other])
    mine, theirs = state[RATIO, row], state[RATIO, other]
    if parent == others:
        return bool(mine < theirs)
    if state[PLACE, parent] != state[PLACE, others]:
        return bool(state[PLACE, parent] < state[PLACE, others])
    if mine > 0.0:
        mine = mine * tables[SIBLINGS, row] / state[USED, parent]
    if theirs > 0.0:
        theirs = theirs * tables[SIBLINGS, other] / state[USED, others]
    return bool(mine < theirs)


@compiled
def sort_depth(begin: int, end: int, tables: Grid, state: Grid) -> None:
    """Sort the rows of one depth; little work where the last period's order nearly holds."""
    order, ratio, parent = state[ORDER], state[RATIO], tables[PARENT]
    for at in range(begin + 1, end):
        row, other = int(order[at]), int(order[at - 1])
        siblings = parent[row] == parent[other]
        if siblings and ratio[row] >= ratio[other]:
            continue
        if not siblings and not precedes(row, other, tables, state):
            continue
        high, step = at - 1, 1
        while high - step >= begin and precedes(row, int(order[high - step]), tables, state):
            high -= step
            step *= 2
        low = max(high - step + 1, begin)
        while low < high:
            middle = (low + high) // 2
            if precedes(row, int(order[middle]), tables, state):
                high = middle
            else:
                low = middle + 1
        for place in range(at, low, -1):
            order[place] = order[place - 1]
        order[low] = row


@compiled
def rank_depth(begin: int, end: int, tables: Grid, state: Grid) -> None:
    """Give the sorted rows of one depth their ranks.

    Rows of equal level below equally placed parents form one class. Its users come first and
    share one rank; the accounts among them are merged. The first class below a class takes over
    the rank of the users beside it.
    """
    order, ratio, parent = state[ORDER], state[RATIO], tables[PARENT]
    places, below, aheads = state[PLACE], state[BELOW], state[AHEAD]
    leaf, leaves = tables[LEAF], tables[LEAVES]
    at, placed, group = begin, 0.0, -1.0
    while at < end:
        first, last, users = int(order[at]), at, 0.0
        above = int(parent[first])
        begins = ahead = placed
        if places[above] != group:
            group, begins, ahead = places[above], below[above], aheads[above]
        placed = begins
        while last < end:
            row = int(order[last])
            if parent[row] == parent[first]:
                if ratio[row] != ratio[first]:
                    break
            elif precedes(first, row, tables, state):
                break
            users += leaf[row]
            placed += leaves[row]
            last += 1
        for place in range(at, last):
            row = int(order[place])
            places[row] = at
            below[row] = begins + users
            aheads[row] = ahead
        at = last


@compiled
def use(period: float, params: Line, tables: Grid, state: Grid) -> None:
    """Work out what the busy rows had used when `period` began; nothing else has changed.

    A row that holds no nodes and whose last charge has been counted is busy no more.
    """
    busy, last = state[BUSY], state[FRESH, 0]
    if math.isnan(last):
        for row in range(len(busy)):
            busy[row] = row - 1 if row > 0 else len(busy) - 1
    before, row = 0, int(busy[0])
    while row > 0:
        after = int(busy[row])
        if state[RATE, row] > 0.0 or not state[AT, row] < last:
            state[USED, row] = used(row, period, params, tables, state)
            if tables[SHARES, row] > 0.0:
                state[RATIO, row] = state[USED, row] / tables[SHARES, row]
            else:
                state[RATIO, row] = math.inf
            before = row
        else:
            busy[before], busy[row] = after, -1.0
        row = after
    state[FRESH, 0] = period


@compiled
def still_ranked(tables: Grid, state: Grid) -> bool:
    """Return whether each busy row stands between the same two rows, equal to neither.

    Then all ranks are as they were. Where a row is busy, so is every row above it; so none of
    these has an equal whose children it would be compared with.
    """
    order, ratio, place, parent = state[ORDER], state[RATIO], state[PLACE], tables[PARENT]
    last = len(order) - 2
    row = int(state[BUSY, 0])
    while row > 0:
        at = int(place[row])
        if order[at] != row:
            return False
        if at > 0:
            other = int(order[at - 1])
            if parent[other] == parent[row] and not ratio[other] < ratio[row]:
                return False
        if at < last:
            other = int(order[at + 1])
            if place[other] == at:
                return False
            if parent[other] == parent[row] and not ratio[row] < ratio[other]:
                return False
        row = int(state[BUSY, row])
    return True


@compiled
def rank(period: float, params: Line, tables: Grid, state: Grid) -> None:
    """Rank all rows by Fair Tree: the factor is (users - users ahead) / users.

    A row that is no user stands where the first user below it stands.
    """
    first = math.isnan(state[FRESH, 0])
    use(period, params, tables, state)
    if not first and still_ranked(tables, state):
        return
    state[PLACE, 0] = state[BELOW, 0] = state[AHEAD, 0] = 0.0
    begin = 0
    for depth in range(int(params[DEPTHS])):
        end = int(tables[LEVEL_END, depth])
        sort_depth(begin, end, tables, state)
        rank_depth(begin, end, tables, state)
        begin = end
