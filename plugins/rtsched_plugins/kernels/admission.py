"""Deadline admission by a complete plan (MCDF and its FIFO and EDF baselines): the reference.

A new task passes if a complete plan of all waiting tasks and the new one can be built in which
none ends late; that plan then replaces the old one. This module holds the data types and the
test as the source states it, recomputing everything at every instant. `admission_fast` gives
the same answers event by event.

Three kinds of task share the test. A *rigid* task runs `wall` seconds on `size` nodes. A
*moldable* one runs wall (size/n)^efficiency seconds on n nodes. A *divisible* one is a load of
`sigma` data units (`rtsched.kernels.dlt`). Times are float64 seconds relative to a common
instant near now: on epoch seconds the tolerance would forgive more than a second.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels import dlt, dlt_variants

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

RIGID, MOLDABLE, DIVISIBLE = 0, 1, 2
"""Kinds of task."""

BY_COST, BY_ARRIVAL, BY_DEADLINE = 0, 1, 2
"""Orders: cost derivative (MCDF, later ones may overtake), FIFO and EDF (nobody overtakes)."""

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
    """RIGID, MOLDABLE or DIVISIBLE."""
    size: NDArray[np.int32]
    """Nodes asked for, n0 (unused where divisible)."""
    size_min: NDArray[np.int32]
    """Fewest nodes (unused where rigid)."""
    size_max: NDArray[np.int32]
    """Most nodes (unused where rigid)."""
    wall: Floats
    """Seconds on `size` nodes (unused where divisible)."""
    sigma: Floats
    """Data units, > 0 where divisible."""
    cms: Floats
    """Seconds to send one unit; cms + cps > 0 where divisible."""
    cps: Floats
    """Seconds to compute one unit."""
    setup_link: Floats
    """Seconds to set up one transmission."""
    setup_node: Floats
    """Seconds to set up one computation."""


KINDS: dict[str, type[np.number[Any]]] = dict.fromkeys(Tasks._fields, np.float64) | {
    "rank": np.int64,
    "kind": np.int8,
    "size": np.int32,
    "size_min": np.int32,
    "size_max": np.int32,
}
"""Element type of each column of `Tasks`."""


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
    """The outcome of one admission test; per-task arrays are empty if it failed."""

    accepted: bool
    failed: int
    """Index of the first task (by arrival, rank) that cannot be kept, -1 if accepted."""
    failed_at: float
    """Seconds: the instant of the plan at which that shows, nan if accepted."""
    start: Floats
    """float64[n], seconds."""
    end: Floats
    """float64[n], seconds, <= deadline but for rounding."""
    size: NDArray[np.int32]
    """int32[n], nodes given."""
    position: Integers
    """int64[n], place of each task in the order in which the test placed them."""
    indptr: Integers
    """int64[n + 1]: task i gets nodes[indptr[i]:indptr[i + 1]]."""
    nodes: NDArray[np.int32]
    """Node indices, ascending within a task; empty if they were not asked for."""
    node_start: Floats = np.empty(0)
    """float64[k], seconds, row by row with `nodes`: since when it is taken; empty: `start`."""


def rejection(failed: int, failed_at: float) -> Plan:
    """Return the plan that says which task cannot be kept, and when that shows."""
    none, counts = np.empty(0), np.empty(0, np.int64)
    few = np.empty(0, np.int32)
    return Plan(False, failed, failed_at, none, none, few, counts, np.zeros(1, np.int64), few)


def task_table(n: int, **columns: ArrayLike) -> Tasks:
    """Return `n` tasks; a column may be a scalar, and one left out says nothing special.

    Defaults: rigid, one node, no work, no deadline, arrived at 0, ranked by index, any size.
    """
    values: dict[str, ArrayLike] = dict.fromkeys(Tasks._fields, 0.0)
    values |= {"rank": np.arange(n), "deadline": np.inf, "sigma": 1.0, "cps": 1.0}
    values |= {"kind": RIGID, "size": 1, "size_min": 1, "size_max": ANY_SIZE}
    values |= columns
    return Tasks(
        *(np.array(np.broadcast_to(values[name], n), KINDS[name]) for name in Tasks._fields)
    )


class _Task(NamedTuple):
    """One row of `Tasks` with the bounds that the cluster and the node rule put on its size."""

    arrival: float
    rank: int
    deadline: float
    kind: int
    size: int
    low: int
    high: int
    wall: float
    load: tuple[float, float, float, float, float]
    rounds: int

    def exec_time(self, n: int, efficiency: float) -> float:
        if self.kind == RIGID:
            return self.wall
        if self.kind == MOLDABLE:
            return float(self.wall * self.size**efficiency / n**efficiency)
        if self.rounds > 1:
            return self._in_rounds(n)[0]
        return dlt.exec_time(n, *self.load)

    def _in_rounds(self, n: int) -> tuple[float, int]:
        return dlt_variants.rounds_time(n, *_chain(*self.load), self.rounds)

    def _may_use(self, n: int) -> bool:
        return self._in_rounds(n)[1] > 1 or dlt_variants.uses_all(n, *_chain(*self.load))

    def cost_derivative(self, n: int, efficiency: float) -> float:
        """Return W(n + 1) - W(n); where the run time is fixed that is the run time."""
        if self.kind == RIGID:
            return self.wall
        if self.kind == MOLDABLE:
            power = 1.0 - efficiency
            scale = self.wall * self.size**efficiency
            return float(scale * (n + 1) ** power - scale * n**power)
        if self.rounds > 1 and self.load[1] > 0.0:
            return (n + 1) * self._in_rounds(n + 1)[0] - n * self._in_rounds(n)[0]
        return dlt.cost_derivative(n, *self.load)

    def least_size(self, t: float, efficiency: float) -> int:
        """Return the fewest nodes that meet the deadline from `t` on, 0 if none do."""
        slack = self.deadline - t
        if self.kind == DIVISIBLE:
            if self.high < self.low or slack <= dlt.slack_floor(*self.load):
                return 0
            if self.rounds > 1:
                counts = range(self.low, self.high + 1)
                meets = (n for n in counts if dlt.at_most(self._in_rounds(n)[0], slack))
                return next((n for n in meets if self._may_use(n)), 0)
            return dlt.least_count(slack, self.high, *self.load, low=self.low)
        for n in range(self.low, self.high + 1):
            if dlt.at_most(self.exec_time(n, efficiency), slack):
                return n
        return 0


def _chain(
    sigma: float, cms: float, cps: float, setup_link: float, setup_node: float
) -> tuple[float, float, float, float, float]:
    """Return a load's numbers as `dlt.chain_time` takes them."""
    return (sigma * (cms + cps), *dlt.split_ratio(cms, cps), setup_link, setup_node)


def _task(tasks: Tasks, i: int, usable: int, node_rule: int, rounds: int) -> _Task:
    kind, size = int(tasks.kind[i]), int(tasks.size[i])
    low, high = int(tasks.size_min[i]), min(int(tasks.size_max[i]), usable)
    load = (
        float(tasks.sigma[i]),
        float(tasks.cms[i]),
        float(tasks.cps[i]),
        float(tasks.setup_link[i]),
        float(tasks.setup_node[i]),
    )
    if kind == RIGID:
        low, high = size, min(size, usable)
    elif kind == DIVISIBLE and high >= 1 and rounds > 1:
        high = dlt_variants.fastest_in_rounds(low, high, *_chain(*load), rounds)
    elif kind == DIVISIBLE and high >= 1:
        high = dlt.fastest_count(high, *load)
    if node_rule == FASTEST_NODES:
        low = max(low, high)
    return _Task(
        float(tasks.arrival[i]),
        int(tasks.rank[i]),
        float(tasks.deadline[i]),
        kind,
        size,
        low,
        high,
        float(tasks.wall[i]),
        load,
        rounds,
    )


def plan_reference(
    free: Floats,
    tasks: Tasks,
    order: int = BY_COST,
    node_rule: int = LEAST_NODES,
    *,
    efficiency: float = 1.0,
    rounds: int = 1,
    now: float = 0.0,
) -> Plan:
    """Return the complete plan of `tasks`, or the first of them that it could not keep.

    Parameters
    ----------
    free : float64[N]
        When the dispatched work leaves each node, seconds; +inf: the node is unusable.
    tasks : Tasks
        Those that wait and those that are new: the test makes no difference.
    order, node_rule : int
        See `BY_COST` and `LEAST_NODES`.
    efficiency : float
        Exponent of a moldable task's speed-up, > 0.
    rounds : int
        A divisible task is sent in at most so many rounds (`dlt_variants.rounds_time`).
    now : float
        Seconds: nothing starts before.

    Notes
    -----
    By cost the walk of step 4 skips a task that does not fit; in the other orders it stops.
    Ties are broken by arrival, then rank; nodes are chosen by lowest index. The cost derivative
    is taken at the node count that the node rule gives.

    References
    ----------
    Admission test and baselines of the source.
    """
    ready = np.maximum(free, now)
    usable = int(np.isfinite(ready).sum())
    left = [_task(tasks, i, usable, node_rule, rounds) for i in range(len(tasks.arrival))]
    waiting = dict(enumerate(left))
    placed: dict[int, tuple[float, float, Integers]] = {}
    t = float(ready.min(initial=np.inf)) if usable else now
    while waiting:
        sizes = {i: task.least_size(t, efficiency) for i, task in waiting.items()}
        lost = [i for i in waiting if sizes[i] == 0]
        if lost:
            return rejection(min(lost, key=lambda i: (left[i].arrival, left[i].rank)), t)
        for i in sorted(waiting, key=lambda i: _key(left[i], sizes[i], order, efficiency)):
            open_nodes = np.flatnonzero(ready <= t)
            if sizes[i] > len(open_nodes):
                if order == BY_COST and len(open_nodes):
                    continue
                break
            end = t + left[i].exec_time(sizes[i], efficiency)
            chosen = open_nodes[: sizes[i]]
            ready[chosen] = end
            placed[i] = (t, end, chosen)
            del waiting[i]
        t = float(ready[ready > t].min(initial=np.inf))
    return _assembled(placed)


def _key(task: _Task, n: int, order: int, efficiency: float) -> tuple[float, float, int]:
    first = {BY_COST: 0.0, BY_ARRIVAL: 0.0, BY_DEADLINE: task.deadline}[order]
    if order == BY_COST:
        first = -task.cost_derivative(n, efficiency)
    return first, task.arrival, task.rank


def _assembled(placed: dict[int, tuple[float, float, Integers]]) -> Plan:
    """Return the plan of placements given in placement order."""
    rows = [placed[i] for i in range(len(placed))]
    size = np.array([len(row[2]) for row in rows], np.int32)
    position = np.empty(len(rows), np.int64)
    position[list(placed)] = np.arange(len(rows))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(size, dtype=np.int64)])
    chosen = [row[2] for row in rows] or [np.empty(0, np.int64)]
    return Plan(
        True,
        -1,
        np.nan,
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        size,
        position,
        indptr,
        np.concatenate(chosen).astype(np.int32),
    )
