"""The admission test of `mcdf` written down plainly: what its kernels are compared with."""

import math
from typing import NamedTuple, TypeAlias

import dlt_reference
import numpy as np
from numpy.typing import NDArray

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load
from rtsched_plugins.kernels.admission import (
    ARRAY,
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    DIVISIBLE,
    FASTEST_NODES,
    LEAST_NODES,
    MOLDABLE,
    RIGID,
    Plan,
    Tasks,
    rejection,
)

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


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
    load: Load
    rounds: int
    once: float

    def exec_time(self, n: int, efficiency: float) -> float:
        if self.kind == RIGID:
            return self.wall
        if self.kind == MOLDABLE:
            return float(self.wall * self.size**efficiency / n**efficiency)
        if self.kind == ARRAY:
            return self.wall * math.ceil(self.load.sigma / n)
        if self.rounds > 1:
            return self._in_rounds(n)[0]
        return dlt.exec_time(n, self.load)

    def _in_rounds(self, n: int) -> tuple[float, int]:
        return dlt.rounds_time(n, dlt.chain_of(self.load), self.rounds, self.once)

    def _may_use(self, n: int) -> bool:
        return self._in_rounds(n)[1] > 1 or dlt.uses_all(n, dlt.chain_of(self.load))

    def cost_derivative(self, n: int, efficiency: float) -> float:
        """Return W(n + 1) - W(n); where the run time is fixed that is the run time."""
        if self.kind == RIGID:
            return self.wall
        if self.kind == MOLDABLE:
            power = 1.0 - efficiency
            scale = self.wall * self.size**efficiency
            return float(scale * (n + 1) ** power - scale * n**power)
        if self.kind == ARRAY:
            both = [self.exec_time(k, efficiency) for k in (n, n + 1)]
            return (n + 1) * both[1] - n * both[0]
        if self.rounds > 1 and self.load.cms > 0.0:
            return (n + 1) * self._in_rounds(n + 1)[0] - n * self._in_rounds(n)[0]
        return dlt.chain_derivative(n, dlt.chain_of(self.load))

    def least_size(self, t: float, efficiency: float) -> int:
        """Return the fewest nodes that meet the deadline from `t` on, 0 if none do."""
        slack = self.deadline - t
        if self.kind == DIVISIBLE:
            if self.high < self.low or slack <= dlt.slack_floor(self.load):
                return 0
            if self.rounds > 1:
                counts = range(self.low, self.high + 1)
                meets = (n for n in counts if dlt.at_most(self._in_rounds(n)[0], slack))
                return next((n for n in meets if self._may_use(n)), 0)
            return dlt_reference.least_count(slack, self.high, self.load, low=self.low)
        for n in range(self.low, self.high + 1):
            if dlt.at_most(self.exec_time(n, efficiency), slack):
                return n
        return 0


def _task(tasks: Tasks, i: int, usable: int, node_rule: int, rounds: int) -> _Task:
    kind, size = int(tasks.kind[i]), int(tasks.size[i])
    low, high = int(tasks.size_min[i]), min(int(tasks.size_max[i]), usable)
    load = Load(*(float(getattr(tasks, name)[i]) for name in Load._fields))
    rounds, once = min(rounds, int(tasks.rounds[i])), float(tasks.setup_once[i])
    if kind == RIGID:
        low, high = size, min(size, usable)
    elif kind == ARRAY and high >= low:
        rounds_then = math.ceil(load.sigma / high)
        high = next(n for n in range(low, high + 1) if math.ceil(load.sigma / n) == rounds_then)
    elif kind == DIVISIBLE and high >= 1 and rounds > 1:
        high = dlt.fastest_in_rounds(low, high, dlt.chain_of(load), rounds, once)
    elif kind == DIVISIBLE and high >= 1:
        high = dlt.fastest_count(high, load)
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
        once,
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
        A divisible task is sent in at most so many rounds (`dlt.rounds_time`).
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
    size = [len(row[2]) for row in rows]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(size, dtype=np.int64)])
    chosen = [row[2] for row in rows] or [np.empty(0, np.int64)]
    return Plan(
        True,
        -1,
        np.nan,
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        np.array(list(placed), np.int64),
        indptr,
        np.concatenate(chosen).astype(np.int32),
        np.empty(0),
    )
