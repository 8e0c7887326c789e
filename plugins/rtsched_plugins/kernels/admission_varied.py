"""The admission test where nodes differ, or where a load may start on them one after the other.

The steps are those of `admission_by_cost` and `admission_in_orders`; what differs is how a task is
fitted in:

*Unequal nodes.* Each node has its own times to send and to compute a unit, and its own speed. A
divisible task takes the shortest prefix of the free nodes in sending order (fast links first) that
meets its deadline; a node with which some fraction would not be positive is passed over. Other
tasks take the fastest free nodes and run as long as on the slowest of these. A task is lost when
not even all usable nodes would do.

*Staggered starts* (inserted idle times used). A divisible task takes the nodes that come free
first, each from when it is free: as few as meet the deadline. It never waits for a node, so one
that cannot meet its deadline that way is lost at once.

Nodes that are alike form a class, so that work goes with the classes and the nodes taken.

References
----------
Bharadwaj, Ghose, Robertazzi, 2003: Divisible Load Theory; Lin, Lu, Deogun, Goddard, 2007
(inserted idle times).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.dlt import LEAST_GAIN, TOLERANCE, at_most, earliest_end, fewest_until
from rtsched.kernels.loads import Load
from rtsched_plugins.kernels.admission import (
    ARRAY,
    BY_ARRIVAL,
    BY_COST,
    DIVISIBLE,
    FASTEST_NODES,
    RIGID,
    Tasks,
    load_at,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class VariedTrace(NamedTuple):
    """What one test did; rows of tasks that were not placed hold garbage."""

    failed: int
    """The first task by (arrival, rank) that is lost, -1 if all were placed."""
    failed_at: float
    start: Floats
    end: Floats
    size: Integers
    order: Integers
    """Tasks in placement order; their nodes stand in that order, too."""
    nodes: NDArray[np.int32]
    node_start: Floats


@compiled
def lost(tasks: Tasks, demand: Demand, placed: NDArray[np.bool_], t: float) -> int:
    """Return the first task by (arrival, rank) that would be late on the idle machine, or -1."""
    found = -1
    for i in range(len(placed)):
        slack = tasks.deadline[i] - t
        if placed[i] or (slack > 0.0 and at_most(demand.least[i], slack)):
            continue
        if found < 0 or (tasks.arrival[i], tasks.rank[i]) < (
            tasks.arrival[found],
            tasks.rank[found],
        ):
            found = i
    return found


@compiled
def _sorted(
    tasks: Tasks,
    machine: NodeClasses,
    demand: Demand,
    left: Integers,
    order: int,
    efficiency: float,
    t: float,
) -> Integers:
    """Return the tasks in the order of the walk at t; `left` is in order of (arrival, rank)."""
    if order == BY_ARRIVAL:
        return left
    if order != BY_COST:
        return left[np.argsort(tasks.deadline[left], kind="mergesort")]
    counts, taken = np.diff(machine.first), np.zeros(len(machine.column), np.int64)
    key = np.zeros(len(left))
    for k in range(len(left)):
        i = left[k]
        n, time, more = fit(
            tasks, i, machine.column, demand, counts, efficiency, tasks.deadline[i] - t, taken
        )
        key[k] = n * time - (n + 1) * more if tasks.kind[i] != RIGID else -time
    return left[np.argsort(key, kind="mergesort")]


@compiled
def _by_release(machine: NodeClasses, ready: Floats, t: float) -> Integers:
    """Return the usable nodes as they come free from t on, those of one time by index."""
    members = np.sort(machine.members)
    return members[np.argsort(np.maximum(ready[members], t), kind="mergesort")]


@compiled
def _stagger(
    tasks: Tasks, i: int, demand: Demand, release: Floats, node_rule: int
) -> tuple[int, float]:
    """Return how many of the nodes free at `release` task i takes, and when it ends; 0: none do."""
    low, high = demand.low[i], min(demand.high[i], len(release))
    load = load_at(tasks, i)
    end, n = math.inf, 0
    if node_rule == FASTEST_NODES:
        end, n = earliest_end(release[:high], load)
    else:
        until = tasks.deadline[i]
        n = fewest_until(until + TOLERANCE * max(1.0, abs(until)), release[:high], load)
        if n > 0:
            end, n = earliest_end(release[: max(n, low)], load)
    return (n, end) if n >= low and at_most(end, tasks.deadline[i]) else (0, math.inf)


@compiled
def _free_counts(machine: NodeClasses, ready: Floats, t: float) -> Integers:
    """Return int64[C]: how many nodes of each class are free at t."""
    counts = np.zeros(len(machine.column), np.int64)
    for c in range(len(counts)):
        counts[c] = (ready[machine.members[machine.first[c] : machine.first[c + 1]]] <= t).sum()
    return counts


@compiled
def _lowest(
    machine: NodeClasses, preference: Integers, taken: Integers, ready: Floats, t: float
) -> Integers:
    """Return the free nodes of lowest index, as many of each class as `taken` says."""
    chosen, at = np.zeros(taken.sum(), np.int64), 0
    for c in preference:
        want = taken[c]
        for node in machine.members[machine.first[c] : machine.first[c + 1]]:
            if want > 0 and ready[node] <= t:
                chosen[at] = node
                at, want = at + 1, want - 1
    return chosen


@compiled
def _chosen(
    tasks: Tasks,
    i: int,
    machine: NodeClasses,
    demand: Demand,
    ready: Floats,
    node_rule: int,
    efficiency: float,
    t: float,
) -> tuple[Integers, float]:
    """Return the nodes that task i takes at t, in sending order, and when it ends; none: no fit."""
    if machine.staggered and tasks.kind[i] == DIVISIBLE:
        by_release = _by_release(machine, ready, t)
        n, end = _stagger(tasks, i, demand, np.maximum(ready[by_release], t), node_rule)
        return by_release[:n], end
    slack, taken = tasks.deadline[i] - t, np.zeros(len(machine.column), np.int64)
    counts = _free_counts(machine, ready, t)
    n, time, _ = fit(tasks, i, machine.column, demand, counts, efficiency, slack, taken)
    if n < demand.low[i] or not at_most(time, slack):
        return taken[:0], math.inf
    return _lowest(machine, demand.preference[i], taken, ready, t), t + time


@compiled
def run_varied(
    free: Floats,
    machine: NodeClasses,
    tasks: Tasks,
    order: int,
    node_rule: int,
    efficiency: float,
    now: float,
) -> VariedTrace:
    """Run the test over all tasks: those that wait and those that are new.

    Parameters
    ----------
    free : float64[N]
        When the dispatched work leaves each node, seconds; +inf: the node is unusable.
    order, node_rule : int
        See `BY_COST` and `LEAST_NODES`.
    efficiency : float
        Exponent of a moldable task's speed-up, > 0.
    now : float
        Seconds, >= 0: nothing starts before.
    """
    n, members, ready = len(tasks.arrival), machine.members, np.maximum(free, now)
    demand = demands(tasks, machine, node_rule, efficiency)
    placed, start, end = np.zeros(n, np.bool_), np.zeros(n), np.zeros(n)
    size, sequence = np.zeros(n, np.int64), np.zeros(n, np.int64)
    nodes, node_start = np.zeros(len(free) + 1, np.int32), np.zeros(len(free) + 1)
    by_rank = np.argsort(tasks.rank, kind="mergesort")
    by_rank = by_rank[np.argsort(tasks.arrival[by_rank], kind="mergesort")]
    done = used = 0
    t = max(now, ready[members].min()) if len(members) else now
    while done < n:
        failed = lost(tasks, demand, placed, t)
        if failed >= 0:
            return VariedTrace(failed, t, start, end, size, sequence, nodes, node_start)
        left = by_rank[~placed[by_rank]]
        for i in _sorted(tasks, machine, demand, left, order, efficiency, t):
            if not (ready[members] <= t).any():
                break
            chosen, finish = _chosen(tasks, i, machine, demand, ready, node_rule, efficiency, t)
            if len(chosen) == 0 and machine.staggered and tasks.kind[i] == DIVISIBLE:
                return VariedTrace(i, t, start, end, size, sequence, nodes, node_start)
            if len(chosen) == 0 and order != BY_COST:
                break
            if used + len(chosen) > len(nodes):
                more = len(nodes) + len(chosen)
                nodes = np.concatenate((nodes, np.zeros(more, np.int32)))
                node_start = np.concatenate((node_start, np.zeros(more)))
            for node in chosen:
                nodes[used], node_start[used], ready[node] = node, max(ready[node], t), finish
                used += 1
            if len(chosen) > 0:
                start[i], end[i], size[i], placed[i] = t, finish, len(chosen), True
                sequence[done] = i
                done += 1
        later = ready[members][ready[members] > t]
        t = later.min() if len(later) else math.inf
    return VariedTrace(-1, math.nan, start, end, size, sequence, nodes[:used], node_start[:used])


CMS, CPS, LINK, NODE, SPEED, PACE = range(6)
"""Columns of `NodeClasses.column`."""


class NodeClasses(NamedTuple):
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
        Run time on them, by alpha_j = u_j alpha_1 + v_j (see `dlt.unequal_fractions`).
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
def demands(tasks: Tasks, machine: NodeClasses, node_rule: int, efficiency: float) -> Demand:
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
