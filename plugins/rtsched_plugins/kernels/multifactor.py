"""Slurm's multifactor priority of one job: six factors in [0, 1] and their weighted sum.

Fair-share factors come from decayed usage, by Fair Tree or by the classic formula.

References
----------
Slurm manual, priority_multifactor, "Job Priority Factors In General" and the sections on each;
fair_tree, "Level Fairshare Calculation" and "Ties"; classic_fair_share, "The Slurm Fair-Share
Formula".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import EventKind, policy_kernels
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.usage import (
    AHEAD,
    ASSOCIATION,
    AT,
    BELOW,
    BUSY,
    DAMPING,
    DEPTHS,
    FACTOR,
    FAVOR_SMALL,
    FRESH,
    LATER,
    LEAF,
    LEAVES,
    LEVEL_END,
    MAX_AGE,
    NODES,
    NORMAL,
    ORDER,
    PARENT,
    PARTITION,
    PER_TIME,
    PLACE,
    QOS,
    RATE,
    RATIO,
    SHARES,
    SIBLINGS,
    TREE,
    USED,
    WAIT,
    WEIGHTS,
    charge_nodes,
    charged_nodes,
    period_of,
    used,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.policy import JobColumns
    from rtsched_plugins.kernels.usage import Grid, Line

    Rows = NDArray[np.int64]


FACTORS = ("age", "association", "fair_share", "job_size", "partition", "qos")
AGE, OWN, FAIR, SIZE, PART, QUALITY = range(len(FACTORS))
STARTED, ENDED = int(EventKind.STARTED), int(EventKind.ENDED)


@compiled
def ages(
    now: float, rows: Rows, columns: JobColumns, params: Line, tables: Grid, out: Line
) -> None:
    """Fill `out` with the time waited over the time at which age counts fully."""
    longest, later = params[MAX_AGE], params[LATER] != 0.0
    for at in range(len(rows)):
        row = rows[at]
        waited = now - columns.submit[row]
        if later:
            waited -= tables[WAIT, row]
        out[at] = min(waited / longest, 1.0) if waited > 0.0 else 0.0


@compiled
def job_sizes(rows: Rows, columns: JobColumns, params: Line, out: Line) -> None:
    """Fill `out` with the job's part of the machine, or of the machine for a minute.

    Where small jobs are favoured it is what is left; one node then counts 1.
    """
    nodes, small, per_time = params[NODES], params[FAVOR_SMALL] != 0.0, params[PER_TIME] != 0.0
    for at in range(len(rows)):
        size = float(columns.size[rows[at]])
        if per_time:
            size /= max(columns.wall_time[rows[at]] / 60.0, 1.0)
        elif small:
            size -= 1.0
        part = min(size / nodes, 1.0)
        out[at] = 1.0 - part if small else part


@compiled
def fair_shares(
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Line,
) -> None:
    """Fill `out` with the fair-share factor of the job's association, 0 where it has none."""
    period = period_of(now, params)
    for at in range(len(rows)):
        account = columns.association[rows[at]]
        out[at] = factor(account, period, params, tables, state) if account >= 0 else 0.0


@compiled
def fill(
    which: int,
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Line,
) -> None:
    """Fill `out` with one factor of `rows`, the one at place `which` of `FACTORS`."""
    if which == AGE:
        ages(now, rows, columns, params, tables, out)
    elif which == FAIR:
        fair_shares(now, rows, columns, params, tables, state, out)
    elif which == SIZE:
        job_sizes(rows, columns, params, out)
    elif which == OWN:
        for at in range(len(rows)):
            account = columns.association[rows[at]]
            out[at] = tables[ASSOCIATION, account] if account >= 0 else 0.0
    else:
        line = PARTITION if which == PART else QOS
        codes = columns.partition if which == PART else columns.qos
        for at in range(len(rows)):
            out[at] = tables[line, codes[rows[at]] + 1]


@compiled
def factors(
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Grid,
) -> None:
    """Fill the lines of `out` with the factors of `rows`, in the order of `FACTORS`."""
    for which in range(len(out)):
        fill(which, now, rows, columns, params, tables, state, out[which])


class MultifactorCharges(NamedTuple):
    """The jobs of a replay, and what is charged for them: a compiled policy."""

    columns: JobColumns
    params: Line
    tables: Grid
    state: Grid


def priorities(charged: MultifactorCharges, now: float, rows: Rows, out: Line) -> int:
    """Fill `out` with the priorities of `rows`.

    Factors are finite and not negative, so one of weight 0 adds nothing and is not worked out.
    """
    columns, params, tables, state = charged
    value = np.empty(len(rows))
    out[:] = 0.0
    for which in range(len(FACTORS)):
        weight = params[WEIGHTS + which]
        if weight != 0.0:
            fill(which, now, rows, columns, params, tables, state, value)
            for at in range(len(rows)):
                out[at] += weight * value[at]
    for at in range(len(rows)):
        out[at] -= columns.nice[rows[at]]
    return 0


@compiled
def charge_event(
    instant: float, kind: int, account: int, nodes: float, params: Line, tables: Grid, state: Grid
) -> None:
    """Charge an account from a job's start to its end; nothing else is charged."""
    if account >= 0:
        if kind == STARTED:
            charge_nodes(account, instant, nodes, params, tables, state)
        elif kind == ENDED:
            charge_nodes(account, instant, -nodes, params, tables, state)


@compiled
def charge_events(
    instant: Line,
    kind: NDArray[np.int8],
    account: NDArray[np.int32],
    size: NDArray[np.int32],
    asked: NDArray[np.int32],
    billed: Line,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Charge a batch of events, in order."""
    for at in range(len(instant)):
        nodes = charged_nodes(float(size[at]), float(asked[at]), billed[at])
        charge_event(instant[at], kind[at], account[at], nodes, params, tables, state)


def observed(
    charged: MultifactorCharges,
    instant: float,
    kind: int,
    row: int,
    size: int,
    _nodes: NDArray[np.int32],
) -> None:
    """Charge one event."""
    columns, params, tables, state = charged
    nodes = charged_nodes(float(size), float(columns.size[row]), columns.billed[row])
    charge_event(instant, kind, columns.association[row], nodes, params, tables, state)


policy_kernels(MultifactorCharges, rank=priorities, observe=observed)


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
def trade(at: int, tables: Grid, state: Grid) -> bool:
    """Let the rows at places `at` and `at + 1` change places; return whether that could be done.

    It can for two users of one account, if they are unequal and each is alone in its class. (A row
    that passes the first of a class meets the second next, which does not stand at its own place.)
    """
    order, place, ahead = state[ORDER], state[PLACE], state[AHEAD]
    left, right = int(order[at]), int(order[at + 1])
    users = tables[LEAF, left] != 0.0 and tables[LEAF, right] != 0.0
    alone = place[left] == at and place[right] == at + 1
    if not (users and alone) or state[RATIO, left] == state[RATIO, right]:
        return False
    order[at], order[at + 1] = right, left
    place[right], place[left] = at, at + 1
    ahead[right] = ahead[left]
    ahead[left] += 1.0
    return True


@compiled
def settle(row: int, tables: Grid, state: Grid) -> int:
    """Move a row to its place among its siblings; return how far, -1 if `trade` cannot do it."""
    order, ratio, place, parent = state[ORDER], state[RATIO], state[PLACE], tables[PARENT]
    at, last, moved = int(place[row]), len(order) - 2, 0
    if order[at] != row or (at < last and place[int(order[at + 1])] == at):
        return -1
    for step in (-1, 1):
        while 0 <= at + step <= last:
            other = int(order[at + step])
            ordered = ratio[other] < ratio[row] if step < 0 else ratio[row] < ratio[other]
            if parent[other] != parent[row] or ordered:
                break
            if not trade(min(at, at + step), tables, state):
                return -1
            at += step
            moved += 1
    return moved


@compiled
def mend(tables: Grid, state: Grid) -> bool:
    """Move busy users to their new places; return whether all ranks are right then.

    Only busy rows can have moved. If each stands between its neighbours, equal to neither, all
    other ranks are as they were: where a row is busy, so is every row above it, and none of
    these has an equal whose children would be compared with it.
    """
    moved = 1
    while moved > 0:
        moved = 0
        row = int(state[BUSY, 0])
        while row > 0:
            steps = settle(row, tables, state)
            if steps < 0:
                return False
            moved += steps
            row = int(state[BUSY, row])
    return True


@compiled
def rank(period: float, params: Line, tables: Grid, state: Grid) -> None:
    """Rank all rows by Fair Tree: the factor is (users - users ahead) / users.

    A row that is no user stands where the first user below it stands.
    """
    first = math.isnan(state[FRESH, 0])
    use(period, params, tables, state)
    if not first and mend(tables, state):
        return
    state[PLACE, 0] = state[BELOW, 0] = state[AHEAD, 0] = 0.0
    begin = 0
    for depth in range(int(params[DEPTHS])):
        end = int(tables[LEVEL_END, depth])
        sort_depth(begin, end, tables, state)
        rank_depth(begin, end, tables, state)
        begin = end
