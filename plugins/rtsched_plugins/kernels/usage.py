"""Usage with half-life decay, charged to a job's account and to every account above it.

Row 0 is the whole machine, row `a + 1` is row `a` of `Accounts`; each line of `state` and
`tables` holds one thing of all rows. Time is cut into
periods (Slurm: PriorityCalcPeriod). What a row had used when period k began is

    U_k = W_(k-1) + D U_(k-1)        D = 2 ** (-period / half-life)

where `W_j` are the node-seconds spent in period j. Only ratios of usage are ever needed, so rows
keep `V = U_k G_k` with `G_k = D ** (r - k)` for a reference period `r`: V of an idle row never
changes, and a row is brought up to date only when a job of its starts or ends. The reference
moves on before `G` grows out of bounds.

References
----------
Slurm manual, classic_fair_share, "Normalized Usage".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Line = NDArray[np.float64]

    Grid = NDArray[np.float64]


# Lines of `state`: what must be remembered (`REFERENCE` in row 0 only),
CLOSED, SPENT, RATE, SINCE, AT, REFERENCE = range(6)
KEPT = 6
"""V when period AT began; V of what was spent in it so far; nodes held; up to when; r."""
# and what is worked out from it once a period.
FRESH, FACTOR, USED, RATIO, PLACE, BELOW, AHEAD, ORDER, BUSY = range(KEPT, KEPT + 9)
LINES = KEPT + 9
"""BUSY links the rows that hold nodes or did so lately, from row 0 on; -1: not one of them."""

# Entries of `params`.
PERIOD, PHASE, DECAY, MAX_AGE, NODES, FAVOR_SMALL, PER_TIME = range(7)
DAMPING, TREE, DEPTHS, LATER, WEIGHTS = range(7, 12)

# Lines of `tables`: G and sums of powers of D; the tree of accounts; factors by code; waits.
GROWTH, SERIES, PARENT, SHARES, SIBLINGS, NORMAL, LEAVES, LEAF, LEVEL_END = range(9)
ASSOCIATION, PARTITION, QOS, WAIT = range(9, 13)

PERIODS = 2048
"""Numbers of periods that are looked up (a week of Slurm's default period)."""
FURTHEST, MOST = 300.0, 600.0
"""ln G at which the reference moves on, and the greatest ln G that is told apart."""


@compiled
def growth(m: float, params: Line, tables: Grid) -> float:
    """Return D ** -m, the weight of usage `m` periods after the reference."""
    if 0.0 <= m < PERIODS:
        return float(tables[GROWTH, int(m)])
    return float(math.exp(min(params[DECAY] * m, MOST)))


@compiled
def series(m: float, params: Line, tables: Grid) -> float:
    """Return 1 + D + ... + D ** (m - 1), what a constant rate leaves after `m` periods."""
    if m < PERIODS:
        return float(tables[SERIES, int(m)])
    if params[DECAY] == 0.0:
        return float(m)
    return float(math.expm1(-params[DECAY] * m) / math.expm1(-params[DECAY]))


@compiled
def period_of(instant: float, params: Line) -> float:
    """Return the number of the period that `instant` falls into."""
    return float((instant + params[PHASE]) // params[PERIOD])


@compiled
def used(row: int, period: float, params: Line, tables: Grid, state: Grid) -> float:
    """Return V of a row when `period` began."""
    at, rate = state[AT, row], state[RATE, row]
    if not at < period:  # nan: nothing was ever charged
        return float(state[CLOSED, row])
    total = state[CLOSED, row] + state[SPENT, row]
    if rate > 0.0:
        reference = state[REFERENCE, 0]
        left = (at + 1.0) * params[PERIOD] - params[PHASE] - state[SINCE, row]
        total += rate * left * growth(at + 1.0 - reference, params, tables)
        whole = period - at - 1.0
        if whole > 0.0:
            weight = growth(period - reference, params, tables) * series(whole, params, tables)
            total += rate * params[PERIOD] * weight
    return float(total)


@compiled
def advance(row: int, instant: float, params: Line, tables: Grid, state: Grid) -> None:
    """Bring a row up to date."""
    period, begins = period_of(instant, params), state[SINCE, row]
    if state[AT, row] < period:
        state[CLOSED, row] = used(row, period, params, tables, state)
        state[SPENT, row] = 0.0
        state[AT, row] = period
        begins = period * params[PERIOD] - params[PHASE]
    weight = growth(period + 1.0 - state[REFERENCE, 0], params, tables)
    state[SPENT, row] += state[RATE, row] * (instant - begins) * weight
    state[SINCE, row] = instant


@compiled
def refer(period: float, params: Line, state: Grid) -> None:
    """Begin with the first charge, and move the reference on when it is far behind."""
    if math.isnan(state[REFERENCE, 0]):
        state[REFERENCE, 0] = period
        state[AT, :] = period
    ahead = params[DECAY] * (period - state[REFERENCE, 0])
    if ahead > FURTHEST:
        state[CLOSED, :] *= math.exp(-ahead)
        state[SPENT, :] *= math.exp(-ahead)
        state[REFERENCE, 0] = period
        state[FRESH, :] = math.nan


@compiled
def charge_nodes(
    account: int, instant: float, nodes: float, params: Line, tables: Grid, state: Grid
) -> None:
    """Charge an account for `nodes` more (or, if negative, fewer) nodes from `instant` on.

    Parameters
    ----------
    account : int
        Row of `Accounts`.
    instant : float
        Seconds, not before that of any earlier call.
    nodes : float
        Change of the number of nodes that its jobs hold.
    params, tables, state
        As laid out by this module's constants; `state` is written to.
    """
    refer(period_of(instant, params), params, state)
    row = account + 1
    while True:
        advance(row, instant, params, tables, state)
        state[RATE, row] = max(0.0, state[RATE, row] + nodes)
        if row == 0:
            return
        if state[BUSY, row] < 0.0:
            state[BUSY, row] = state[BUSY, 0]
            state[BUSY, 0] = row
        row = int(tables[PARENT, row])


@compiled
def charged_nodes(size: float, asked: float, billed: float) -> float:
    """Return the nodes that a job is charged for while it holds `size` of them.

    Parameters
    ----------
    size, asked : float
        Nodes that it holds, and those that it asks for.
    billed : float
        `Jobs.billed`: what it is billed for on as many nodes as it asks for; nan: its nodes count.
    """
    if billed != billed:
        return float(size)
    return float(billed * (size / asked))
