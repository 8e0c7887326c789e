"""How a task fits into nodes that differ: which it takes, and how long it then runs.

Nodes that are alike form a class, so that work goes with the classes and the nodes taken.

References
----------
Bharadwaj, Ghose, Robertazzi, 2003: Divisible Load Theory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.dlt import LEAST_GAIN, at_most
from rtsched.kernels.loads import Load
from rtsched_plugins.kernels.admission import ARRAY, DIVISIBLE, FASTEST_NODES, RIGID, Tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

CMS, CPS, LINK, NODE, SPEED, PACE = range(6)
"""Columns of `Machine.column`."""


class Machine(NamedTuple):
    """Usable nodes by classes of equal ones."""

    members: Integers
    """int64[N], node indices class by class, ascending within a class."""
    first: Integers
    """int64[C + 1]: class c has members[first[c]:first[c + 1]]."""
    column: Floats
    """float64[C, 6]: times per unit and of set-ups, nan: the task's own; the speed; and by what the
    run times of rigid and moldable tasks are divided."""
    staggered: bool


class Demand(NamedTuple):
    """What each task may take, and in which order it takes the classes."""

    low: Integers
    high: Integers
    """Fewest and most nodes."""
    least: Floats
    """Run time on the idle machine, as fast as it gets; inf: it fits no way."""
    preference: Integers
    """int64[n, C]."""


@compiled
def load_on(tasks: Tasks, i: int, column: Floats, c: int) -> Load:
    """Return the load of task i as a node of class c has it; speed divides the task's own cps."""
    own = column[c]
    cms = tasks.cms[i] if np.isnan(own[CMS]) else own[CMS]
    cps = tasks.cps[i] / own[SPEED] if np.isnan(own[CPS]) else own[CPS]
    link = tasks.setup_link[i] if np.isnan(own[LINK]) else own[LINK]
    node = tasks.setup_node[i] if np.isnan(own[NODE]) else own[NODE]
    return Load(tasks.sigma[i], cms, cps, link, node)


@compiled
def _preference(tasks: Tasks, i: int, column: Floats) -> Integers:
    """Return the classes in the order in which task i takes them."""
    n = len(column)
    sending, computing = np.zeros(n), np.zeros(n)
    for c in range(n):
        if tasks.kind[i] == DIVISIBLE:
            load = load_on(tasks, i, column, c)
            sending[c], computing[c] = load.cms, load.cps
        else:
            sending[c] = -column[c, SPEED]
    order = np.argsort(computing, kind="mergesort")
    return order[np.argsort(sending[order], kind="mergesort")]


@compiled
def spread(
    tasks: Tasks,
    i: int,
    column: Floats,
    preference: Integers,
    counts: Integers,
    slack: float,
    low: int,
    high: int,
    taken: Integers,
) -> tuple[int, float, float]:
    """Cut divisible task i over the shortest sufficient prefix of some nodes in sending order.

    Parameters
    ----------
    counts : int64[C]
        Nodes there are in each class.
    slack : float
        Run time to reach with at least `low` nodes; -inf: take up to `high` while that helps.
    taken : int64[C]
        Written: nodes taken of each class.

    Returns
    -------
    n : int
    time : float
        Run time on them, by alpha_j = u_j alpha_1 + v_j (see `dlt_variants.unequal_fractions`).
    more : float
        Run time by formula with one more node, the last one again if there is none.
    """
    taken[:] = 0
    n, last, time = 0, 0, math.inf
    total_u = total_v = u = v = bound = whole_first = shift_first = 0.0
    cps_before = node_before = 0.0
    for k in range(len(preference) + 1):
        again = k == len(preference)
        if again and n == 0:
            break
        c = last if again else preference[k]
        sigma, cms, cps, link, node = load_on(tasks, i, column, c)
        for _ in range(1 if again else counts[c]):
            whole = sigma * (cms + cps)
            if n == 0:
                new_u, new_v = 1.0, 0.0
                whole_first, shift_first = whole, link + node
            else:
                new_u = u * sigma * cps_before / whole
                new_v = (v * sigma * cps_before + node_before - node - link) / whole
            alpha = (1.0 - total_v - new_v) / (total_u + new_u)
            reached = shift_first + alpha * whole_first
            if again or n == high or (n >= low and at_most(time, slack)):
                return n, time, reached
            limit = max(bound, -new_v / new_u) if new_u > 0.0 else math.inf
            helps = n == 0 or reached < time * (1.0 - LEAST_GAIN)
            if n > 0 and (alpha <= limit or (slack == -math.inf and not helps and n >= low)):
                break
            bound, u, v, total_u, total_v = limit, new_u, new_v, total_u + new_u, total_v + new_v
            cps_before, node_before, last, time = cps, node, c, reached
            n += 1
            taken[c] += 1
    return 0, math.inf, math.inf


@compiled
def _gather(
    tasks: Tasks,
    i: int,
    column: Floats,
    preference: Integers,
    counts: Integers,
    efficiency: float,
    slack: float,
    low: int,
    high: int,
    taken: Integers,
) -> tuple[int, float, float]:
    """As `spread` for another kind of task: it runs as on the slowest node it takes."""
    taken[:] = 0
    n, time, pace, found, best = 0, math.inf, 1.0, 0, math.inf
    for c in preference:
        for _ in range(counts[c]):
            if n == high or (found > 0 and at_most(best, slack)):
                break
            n += 1
            taken[c] += 1
            pace = column[c, PACE]
            time = run_time(tasks, i, n, efficiency) / pace
            if n >= low and time < best:
                found, best = n, time
    left = n - found
    for k in range(len(preference) - 1, -1, -1):
        back = min(left, taken[preference[k]])
        taken[preference[k]] -= back
        left -= back
    more = run_time(tasks, i, found + 1, efficiency) / pace
    return found, best, more


@compiled
def run_time(tasks: Tasks, i: int, n: int, efficiency: float) -> float:
    """Return the run time of a rigid or moldable task or an array on n nodes of speed 1."""
    if tasks.kind[i] == RIGID:
        return float(tasks.wall[i])
    if tasks.kind[i] == ARRAY:
        return float(tasks.wall[i] * math.ceil(tasks.sigma[i] / n))
    return float(tasks.wall[i] * float(tasks.size[i]) ** efficiency / float(n) ** efficiency)


@compiled
def fit(
    tasks: Tasks,
    i: int,
    column: Floats,
    demand: Demand,
    counts: Integers,
    efficiency: float,
    slack: float,
    taken: Integers,
) -> tuple[int, float, float]:
    """Return the nodes that task i takes of `counts`, its run time, and that on one node more."""
    low, high, preference = demand.low[i], demand.high[i], demand.preference[i]
    if tasks.kind[i] == DIVISIBLE:
        return spread(tasks, i, column, preference, counts, slack, low, high, taken)
    return _gather(tasks, i, column, preference, counts, efficiency, slack, low, high, taken)


@compiled
def demands(tasks: Tasks, machine: Machine, node_rule: int, efficiency: float) -> Demand:
    """Return what each task may take of a machine."""
    n, column = len(tasks.arrival), machine.column
    counts, taken = np.diff(machine.first), np.zeros(len(column), np.int64)
    low, high = np.ones(n, np.int64), np.zeros(n, np.int64)
    demand = Demand(low, high, np.full(n, math.inf), np.zeros((n, len(column)), np.int64))
    for i in range(n):
        demand.preference[i] = _preference(tasks, i, column)
        low[i], high[i] = tasks.size_min[i], min(tasks.size_max[i], len(machine.members))
        if tasks.kind[i] == RIGID:
            low[i], high[i] = tasks.size[i], tasks.size[i]
        if low[i] > min(high[i], len(machine.members)):
            continue
        size, time, _ = fit(tasks, i, column, demand, counts, efficiency, -math.inf, taken)
        if size < low[i]:
            continue
        demand.least[i] = time
        if node_rule == FASTEST_NODES and not machine.staggered:
            low[i] = high[i] = size
    return demand
