"""Deadline admission by a complete plan (MCDF and its FIFO and EDF baselines): tasks and plans.

A new task passes if a complete plan of all waiting tasks and the new one can be built in which
none ends late; that plan then replaces the old one. This module holds the data types and what the
compiled test knows of each task (`Rows`: everything that does not depend on t); the test itself,
event by event, is in `admission_by_cost` and `admission_in_orders`. Tests compare it with the test
as the source states it, which recomputes everything at every instant.

Four kinds of task share the test. A *rigid* task runs `wall` seconds on `size` nodes. A
*moldable* one runs wall (size/n)^efficiency seconds on n nodes. A *divisible* one is a load of
`sigma` data units (`rtsched.kernels.dlt`). An *array* runs ceil(sigma/n) rounds of `wall` seconds
on n nodes. Times are float64 seconds relative to a common instant near now: on epoch seconds the
tolerance would forgive more than a second.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched.kernels.dlt import (
    TOLERANCE,
    at_most,
    chain_derivative,
    chain_of,
    chain_time,
    fastest_in_rounds,
    fastest_of,
    rounds_reach,
    rounds_time,
    slack_floor,
    uses_all,
)
from rtsched.kernels.loads import Load, LoadChain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


RIGID, MOLDABLE, DIVISIBLE, ARRAY = 0, 1, 2, 3
"""Kinds of task."""

BY_COST, BY_ARRIVAL, BY_DEADLINE, BY_LAXITY, IN_TURN = range(5)
"""Orders: greatest cost derivative (MCDF), first arrival (FIFO), earliest deadline (EDF), or the
earliest last start on the fastest count first; earliest deadline first, and nobody overtakes."""

LEAST_NODES, FASTEST_NODES = 0, 1
"""Node rules: MN, the fewest nodes that meet the deadline; AN, the count that is fastest."""

ANY_SIZE: int = 2**31 - 1
"""A `size_max` that sets no bound."""


class Tasks(NamedTuple):
    """Waiting and new tasks as a structure of arrays, all of length n."""

    arrival: Floats
    """Seconds; <= 0 for those that wait."""
    rank: Integers
    """Breaks ties after `arrival`: the order of the job ids."""
    deadline: Floats
    """Seconds, +inf where there is none."""
    kind: NDArray[np.int8]
    """RIGID, MOLDABLE, DIVISIBLE or ARRAY."""
    size: NDArray[np.int32]
    """Nodes asked for, n0 (of rigid and moldable tasks)."""
    size_min: NDArray[np.int32]
    """Fewest nodes (unused where rigid)."""
    size_max: NDArray[np.int32]
    """Most nodes (unused where rigid)."""
    wall: Floats
    """Seconds on `size` nodes, of an array seconds of one round (unused where divisible)."""
    sigma: Floats
    """Data units, > 0 where divisible; of an array its rounds on one node, > 0."""
    cms: Floats
    """Seconds to send one unit; cms + cps > 0 where divisible."""
    cps: Floats
    """Seconds to compute one unit."""
    setup_link: Floats
    """Seconds to set up one transmission."""
    setup_node: Floats
    """Seconds to set up one computation."""
    rounds: NDArray[np.int32]
    """Most rounds in which it takes its load, >= 1 (unused unless divisible)."""
    setup_once: Floats
    """Seconds of `setup_node` that pass once, whatever the number of rounds."""


KINDS: dict[str, type[np.number[Any]]] = dict.fromkeys(Tasks._fields, np.float64) | {
    "rank": np.int64,
    "kind": np.int8,
    "size": np.int32,
    "size_min": np.int32,
    "size_max": np.int32,
    "rounds": np.int32,
}
"""Element type of each column of `Tasks`."""


@compiled
def load_at(tasks: Tasks, i: int) -> Load:
    """Return the load of divisible task i."""
    link, node = tasks.setup_link[i], tasks.setup_node[i]
    return Load(tasks.sigma[i], tasks.cms[i], tasks.cps[i], link, node)


def joined(first: Tasks, second: Tasks) -> Tasks:
    """Return the tasks of both, the first ones first."""
    pairs: zip[tuple[Any, Any]] = zip(first, second, strict=True)
    columns: list[NDArray[Any]] = [np.concatenate(pair) for pair in pairs]
    return Tasks(*columns)


def uniform(tasks: Tasks) -> Tasks:
    """Return `tasks` as contiguous, writable arrays: numba compiles for each other mixture anew."""
    columns: list[NDArray[Any]] = list(tasks)
    for k, kind in enumerate(KINDS.values()):
        if columns[k].dtype != kind or not columns[k].flags.carray:
            columns[k] = np.require(columns[k], kind, ("C", "W"))
    return Tasks(*columns)


class Plan(NamedTuple):
    """The outcome of one admission test; the arrays are empty if it failed."""

    accepted: bool
    failed: int
    """Index of the first task (by arrival, rank) that cannot be kept, -1 if accepted."""
    failed_at: float
    """Seconds: the instant of the plan at which that shows, nan if accepted."""
    start: Floats
    """float64[n], seconds."""
    end: Floats
    """float64[n], seconds, <= deadline but for rounding."""
    order: Integers
    """int64[n], the tasks in the order in which the test placed them."""
    indptr: Integers
    """int64[n + 1]: task i gets nodes[indptr[i]:indptr[i + 1]]."""
    nodes: NDArray[np.int32]
    """Node indices, ascending within a task."""
    node_start: Floats
    """float64[k], seconds, row by row with `nodes`: since when it is taken; empty: `start`."""


@compiled
def rejection(failed: int, failed_at: float) -> Plan:
    """Return the plan that says which task cannot be kept, and when that shows."""
    none, counts = np.empty(0), np.empty(0, np.int64)
    first, nodes = np.zeros(1, np.int64), np.empty(0, np.int32)
    return Plan(False, failed, failed_at, none, none, counts, first, nodes, none)


def task_table(n: int, **columns: ArrayLike) -> Tasks:
    """Return `n` tasks; a column may be a scalar, and one left out says nothing special.

    Defaults: rigid, one node, no work, no deadline, arrived at 0, ranked by index, any size, as
    many rounds as the test allows.
    """
    values: dict[str, ArrayLike] = dict.fromkeys(Tasks._fields, 0.0)
    values |= {"rank": np.arange(n), "deadline": np.inf, "sigma": 1.0, "cps": 1.0}
    values |= {"kind": RIGID, "size": 1, "size_min": 1, "size_max": ANY_SIZE}
    values["rounds"] = ANY_SIZE
    values |= columns
    return Tasks(
        *(np.array(np.broadcast_to(values[name], n), KINDS[name]) for name in Tasks._fields)
    )


DEADLINE, ARRIVAL, FLOOR, SCALE, RATIO, LOG_BETA, SETUP_LINK, SETUP_NODE = range(8)
"""Columns of `Rows.real`: the slack must exceed FLOOR; SCALE is the work or wall time."""

ON_ONE: int = RATIO
"""Column of `Rows.real`, of an array: its rounds on one node."""

KIND, LOW, HIGH, RANK, ROUNDS = range(5)
"""Columns of `Rows.whole`: sizes LOW..HIGH are allowed, none if HIGH < LOW; ROUNDS is the most
rounds of a divisible task, 1 of others."""


class Rows(NamedTuple):
    """Tasks as rows."""

    real: Floats
    """float64[n, 8]."""
    whole: Integers
    """int64[n, 5]."""
    once: Floats
    """float64[n], seconds of SETUP_NODE that pass once; of those with ROUNDS > 1."""
    efficiency: float
    rounds: int = 1
    """Most rounds in which any divisible task is sent."""


@no_refcount
def fill_rows(rows: Rows, first: int, tasks: Tasks, usable: int, node_rule: int) -> None:
    """Write `tasks` into `rows` from row `first` on, for a cluster of `usable` nodes."""
    for k in range(len(tasks.arrival)):
        real, whole = rows.real[first + k], rows.whole[first + k]
        kind = int(tasks.kind[k])
        low, high = int(tasks.size_min[k]), min(int(tasks.size_max[k]), usable)
        rounds = 1
        real[DEADLINE] = tasks.deadline[k]
        real[ARRIVAL] = tasks.arrival[k]
        real[FLOOR] = -math.inf
        real[SCALE] = tasks.wall[k]
        if kind == RIGID:
            low, high = int(tasks.size[k]), min(int(tasks.size[k]), usable)
        elif kind == MOLDABLE:
            real[SCALE] = tasks.wall[k] * float(tasks.size[k]) ** rows.efficiency
        elif kind == ARRAY:
            real[ON_ONE] = tasks.sigma[k]
            high = _useful(int(tasks.sigma[k]), low, high)
        else:
            link, node = tasks.setup_link[k], tasks.setup_node[k]
            load = Load(tasks.sigma[k], tasks.cms[k], tasks.cps[k], link, node)
            chain = chain_of(load)
            real[FLOOR] = slack_floor(load)
            real[SCALE] = chain.work
            real[RATIO], real[LOG_BETA] = chain.q, chain.log_beta
            real[SETUP_LINK], real[SETUP_NODE] = link, node
            rounds = min(int(tasks.rounds[k]), rows.rounds)
            if rounds > 1 and high >= 1:
                rows.once[first + k] = tasks.setup_once[k]
                high = fastest_in_rounds(low, high, chain, rounds, tasks.setup_once[k])
            elif high >= 1:
                high = fastest_of(high, chain)
        if node_rule == FASTEST_NODES:
            low = max(low, high)
        whole[KIND], whole[LOW], whole[HIGH], whole[RANK] = kind, low, high, tasks.rank[k]
        whole[ROUNDS] = rounds


def rows_of(
    tasks: Tasks,
    usable: int,
    efficiency: float,
    rounds: int = 1,
    node_rule: int = LEAST_NODES,
    spare: int = 0,
) -> Rows:
    """Return tasks as rows for a cluster of `usable` nodes, with room for `spare` more."""
    n = len(tasks.arrival) + spare
    real, whole = np.zeros((n, 8)), np.zeros((n, 5), np.int64)
    rows = Rows(real, whole, np.zeros(n), float(efficiency), rounds)
    fill_rows(rows, 0, uniform(tasks), usable, node_rule)
    return rows


def with_last(rows: Rows, task: Tasks, usable: int, node_rule: int) -> Rows:
    """Return the rows with the one task in the last of them; the given ones stay as they are."""
    real, whole, once = rows.real.copy(), rows.whole.copy(), rows.once.copy()
    rows = rows._replace(real=real, whole=whole, once=once)
    fill_rows(rows, len(real) - 1, uniform(task), usable, node_rule)
    return rows


@no_refcount
def _rounds(on_one: int, n: int) -> int:
    """Return in how many rounds an array runs on n nodes that has so many on one node."""
    return (on_one + n - 1) // n


@no_refcount
def _useful(on_one: int, low: int, high: int) -> int:
    """Return the fewest nodes, at least `low`, on which an array is as fast as on `high`."""
    if high < max(low, 1):
        return high
    return max(low, _rounds(on_one, _rounds(on_one, high)))


@no_refcount
def _chain(rows: Rows, i: int) -> LoadChain:
    """Return the chain of divisible task i."""
    real = rows.real
    return LoadChain(
        real[i, SCALE],
        real[i, RATIO],
        real[i, LOG_BETA],
        real[i, SETUP_LINK],
        real[i, SETUP_NODE],
    )


@no_refcount
def exec_of(rows: Rows, i: int, n: int) -> float:
    """Return E(n) of task i, seconds."""
    real = rows.real
    kind = rows.whole[i, KIND]
    if kind == RIGID:
        return float(real[i, SCALE])
    if kind == MOLDABLE:
        if rows.efficiency == 1.0:
            return float(real[i, SCALE] / n)
        return float(real[i, SCALE] / float(n) ** rows.efficiency)
    if kind == ARRAY:
        return float(real[i, SCALE] * _rounds(int(real[i, ON_ONE]), n))
    if rows.whole[i, ROUNDS] > 1:
        return rounds_time(n, _chain(rows, i), rows.whole[i, ROUNDS], rows.once[i])[0]
    return chain_time(n, _chain(rows, i))


@no_refcount
def _usable_time(rows: Rows, i: int, n: int) -> float:
    """Return E(n) of divisible task i, +inf if a node would get nothing to do."""
    chain = _chain(rows, i)
    time, count = rounds_time(n, chain, rows.whole[i, ROUNDS], rows.once[i])
    if count == 1 and not uses_all(n, chain):
        return math.inf
    return time


@no_refcount
def _reach(rows: Rows, i: int, n: int) -> int:
    """Return up to how many nodes, at most n, task i can be sent in several rounds."""
    if rows.whole[i, ROUNDS] == 1:
        return 0
    return rounds_reach(n, _chain(rows, i), rows.once[i])


@no_refcount
def least_time(rows: Rows, i: int, n: int) -> float:
    """Return the least run time of task i on LOW..n nodes: E(n), unless fewer need less time."""
    best = exec_of(rows, i, n)
    for k in range(_reach(rows, i, n), rows.whole[i, LOW] - 1, -1):
        if rows.real[i, SCALE] * (1.0 - rows.real[i, RATIO]) / k > best:
            break
        best = min(best, _usable_time(rows, i, k))
    return best


@no_refcount
def shortest_time(rows: Rows, i: int) -> float:
    """Return the least run time of task i on as many nodes as it may take; inf: it fits none."""
    low, high = int(rows.whole[i, LOW]), int(rows.whole[i, HIGH])
    if low > high:
        return math.inf
    return min(exec_of(rows, i, low), least_time(rows, i, high))


@no_refcount
def derivative_of(rows: Rows, i: int, n: int) -> float:
    """Return W(n + 1) - W(n) of task i, node-seconds; the run time where that is fixed."""
    kind = rows.whole[i, KIND]
    if kind == RIGID:
        return float(rows.real[i, SCALE])
    if kind == MOLDABLE:
        power = 1.0 - rows.efficiency
        if power == 0.0:
            return 0.0
        scale = rows.real[i, SCALE]
        return float(scale * float(n + 1) ** power - scale * float(n) ** power)
    if kind == ARRAY or (rows.whole[i, ROUNDS] > 1 and rows.real[i, RATIO] > 0.0):
        return (n + 1) * exec_of(rows, i, n + 1) - n * exec_of(rows, i, n)
    return chain_derivative(n, _chain(rows, i))


@no_refcount
def meets(rows: Rows, i: int, n: int, t: float) -> bool:
    """Return whether task i, started at t on n nodes, ends by its deadline."""
    slack = rows.real[i, DEADLINE] - t
    return slack > rows.real[i, FLOOR] and at_most(exec_of(rows, i, n), slack)


@no_refcount
def _surely_too_few(rows: Rows, i: int, slack: float) -> int:
    """Return n so that no fewer than n nodes can do, from E(n) without its set-up term."""
    scale, q = rows.real[i, SCALE], rows.real[i, RATIO]
    slack += 2.0 * TOLERANCE * max(1.0, slack)
    bound = 0.0
    if rows.whole[i, KIND] == MOLDABLE:
        if rows.efficiency == 1.0:
            bound = scale / slack
    elif rows.whole[i, KIND] == ARRAY:
        bound = scale * rows.real[i, ON_ONE] / slack
    else:
        slack -= rows.real[i, SETUP_LINK] + rows.real[i, SETUP_NODE]
        if q == 0.0:
            bound = scale / max(slack, TOLERANCE)
        elif slack > scale * q * 1.000001:
            bound = math.log1p(-scale * q / slack) / rows.real[i, LOG_BETA]
    return int(bound * (1.0 - 1e-9))


@no_refcount
def _least_in_rounds(rows: Rows, i: int, low: int, high: int, slack: float) -> int:
    """Return the fewest nodes in low..high on which divisible task i takes at most `slack`, or 0.

    Where several rounds are possible, the run time need not fall in n, so counts are tried one by
    one, but for those on which computing alone takes too long; above, one round is bisected.
    """
    real = rows.real
    if slack <= real[i, FLOOR] or not at_most(exec_of(rows, i, high), slack):
        return 0
    left = slack + 2.0 * TOLERANCE * max(1.0, slack) - real[i, SETUP_LINK] - real[i, SETUP_NODE]
    if left > 0.0:
        low = max(low, int(real[i, SCALE] * (1.0 - real[i, RATIO]) / left * (1.0 - 1e-9)))
    reach = _reach(rows, i, high)
    while low <= reach:
        if at_most(_usable_time(rows, i, low), slack):
            return low
        low += 1
    while low < high:
        middle = (low + high) // 2
        if at_most(exec_of(rows, i, middle), slack):
            high = middle
        else:
            low = middle + 1
    return high


@no_refcount
def least_size(rows: Rows, i: int, low: int, t: float) -> int:
    """Return the fewest nodes >= `low` with which task i meets its deadline from t on, or 0.

    From a lower bound that is mostly one too few, doubling steps up and then bisection.
    """
    high = int(rows.whole[i, HIGH])
    if low > high:
        return 0
    if rows.whole[i, ROUNDS] > 1:
        return _least_in_rounds(rows, i, low, high, rows.real[i, DEADLINE] - t)
    if meets(rows, i, low, t):
        return low
    if low == high or not meets(rows, i, high, t):
        return 0
    few = min(_surely_too_few(rows, i, rows.real[i, DEADLINE] - t), high)
    if few > low:
        low = few
        if meets(rows, i, low, t):
            return low
    step = 1  # low does not do, high does
    while low + step < high:
        if meets(rows, i, low + step, t):
            high = low + step
            break
        low += step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if meets(rows, i, middle, t):
            high = middle
        else:
            low = middle
    return high


@no_refcount
def needed_time(rows: Rows, i: int, now: float) -> float:
    """Return the least run time of task i if it would be late on an idle cluster; else nan."""
    if least_size(rows, i, rows.whole[i, LOW], now) > 0:
        return math.nan
    return shortest_time(rows, i)


@no_refcount
def safe_until(rows: Rows, i: int, n: int) -> float:
    """Return an instant up to which n nodes surely do for task i, at most rounding too early."""
    deadline = rows.real[i, DEADLINE]
    if deadline == math.inf:
        return math.inf
    time = exec_of(rows, i, n)
    if time == math.inf:
        return -math.inf
    need = max(time - TOLERANCE * max(1.0, time), rows.real[i, FLOOR])
    return float(deadline - need - 1e-12 * max(1.0, abs(deadline), time))


ROUNDINGS = 64
"""Floats next to an instant that are tried for it; it takes two or three where t is not before
0."""


@no_refcount
def least_deadline(rows: Rows, i: int, n: int, t: float) -> float:
    """Return the least float deadline that task i meets when started at t on LOW..n nodes."""
    time = least_time(rows, i, n)
    if time == math.inf:
        return math.inf
    floor = rows.real[i, FLOOR]
    deadline = t + max(time - TOLERANCE * max(1.0, time), floor)
    for _ in range(ROUNDINGS):
        if not (deadline - t > floor and at_most(time, deadline - t)):
            break
        deadline = np.nextafter(deadline, -math.inf)
    for _ in range(ROUNDINGS):
        if deadline - t > floor and at_most(time, deadline - t):
            return float(deadline)
        deadline = np.nextafter(deadline, math.inf)
    return math.inf


@no_refcount
def earlier(rows: Rows, i: int, j: int) -> bool:
    """Return whether task i comes before task j by (arrival, rank)."""
    if rows.real[i, ARRIVAL] != rows.real[j, ARRIVAL]:
        return bool(rows.real[i, ARRIVAL] < rows.real[j, ARRIVAL])
    return bool(rows.whole[i, RANK] < rows.whole[j, RANK])
