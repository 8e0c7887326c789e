"""The portfolio's plan as its rule is stated, everything looked at anew at every instant."""

import numpy as np
from admission_states import State

from rtsched_plugins.kernels.admission import (
    ARRAY,
    HIGH,
    IN_TURN,
    KIND,
    LOW,
    ROUNDS,
    Rows,
    Tasks,
    exec_of,
    least_size,
    rows_of,
)
from rtsched_plugins.kernels.admission_in_orders import key_of, thrifty_count

Placed = dict[int, tuple[float, float, list[int]]]
"""Per task its start, its end and its nodes."""


def size_at(rows: Rows, i: int, open_nodes: int, generosity: float, t: float) -> int:
    """Return how many of the open nodes task i would get, or the fewest it needs if they fail."""
    few = least_size(rows, i, rows.whole[i, LOW], t)
    most = min(int(rows.whole[i, HIGH]), open_nodes)
    if most <= few:
        return few
    if rows.whole[i, ROUNDS] > 1 or rows.whole[i, KIND] == ARRAY:
        n = thrifty_count(rows, i, few, most, generosity)
    else:
        limit = (1.0 + generosity) * few * exec_of(rows, i, few) * (1.0 + 1e-12)
        n = max(k for k in range(few, most + 1) if k * exec_of(rows, i, k) <= limit)
    return n if least_size(rows, i, n, t) == n else few


def plan_in_order(state: State, tasks: Tasks, order: int, generosity: float) -> Placed | None:
    """Return the complete plan in one order, None if some task cannot be kept."""
    ready = np.maximum(state.free, state.now)
    rows = rows_of(tasks, int(np.isfinite(ready).sum()), state.efficiency, state.rounds)
    waiting = sorted(
        range(len(tasks.arrival)),
        key=lambda i: (key_of(rows, i, order), tasks.arrival[i], tasks.rank[i]),
    )
    placed: Placed = {}
    t = float(ready.min(initial=np.inf)) if np.isfinite(ready).any() else state.now
    while waiting:
        if any(least_size(rows, i, rows.whole[i, LOW], t) == 0 for i in waiting):
            return None
        for i in list(waiting):
            open_nodes = np.flatnonzero(ready <= t)
            n = size_at(rows, i, len(open_nodes), generosity, t)
            if n <= len(open_nodes):
                end = t + exec_of(rows, i, n)
                placed[i] = (t, end, open_nodes[:n].tolist())
                ready[open_nodes[:n]] = end
                waiting.remove(i)
            elif order == IN_TURN:
                break
        t = float(ready[ready > t].min(initial=np.inf))
    return placed
