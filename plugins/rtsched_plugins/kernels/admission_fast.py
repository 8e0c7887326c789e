"""The fast admission test: prepare a cluster and its waiting tasks once, then test new ones.

`plan` does both and suits a single call. Preparing costs about as much as one test, so a caller
that judges several new tasks against the same state keeps what `prepare` returned: it holds
until a task is admitted, dispatched or withdrawn or a node's state changes, and `now` may pass.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import (
    BY_COST,
    BY_DEADLINE,
    LEAST_NODES,
    Plan,
    Tasks,
    rejection,
    uniform,
)
from rtsched_plugins.kernels.admission_by_cost import note_keys, run_by_cost
from rtsched_plugins.kernels.admission_events import DeadlineSearch, Prepared, Trace
from rtsched_plugins.kernels.admission_in_queue import run_in_queue
from rtsched_plugins.kernels.admission_rows import (
    HIGH,
    LOW,
    Rows,
    copied,
    empty_rows,
    fill_rows,
    least_size,
    safe_until,
)
from rtsched_plugins.kernels.no_refcount import no_refcount
from rtsched_plugins.kernels.node_choice import choose_nodes
from rtsched_plugins.kernels.order_tree import DERIVATIVE, OrderTree, build, empty_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

NO_SEARCH = DeadlineSearch(False, 0.0, 0.0, 1)


@compiled
def first_sizes(rows: Rows, due: Floats) -> OrderTree:
    """Write how long the node counts at 0 do; return an empty tree that knows the keys."""
    tree = empty_tree(len(rows.real))
    for i in range(len(due)):
        n = least_size(rows, i, rows.whole[i, LOW], 0.0)
        due[i] = safe_until(rows, i, n) if n else -math.inf
        note_keys(rows, tree, i, n if n else rows.whole[i, LOW])
    return tree


@no_refcount
def last_starts(rows: Rows, queue: Integers, latest: Floats) -> None:
    """Write until when every task from each place of the queue on can surely start."""
    latest[len(queue)] = math.inf
    for place in range(len(queue) - 1, -1, -1):
        i = queue[place]
        last = -math.inf
        if rows.whole[i, LOW] <= rows.whole[i, HIGH]:
            last = safe_until(rows, i, rows.whole[i, HIGH])
        latest[place] = min(last, latest[place + 1])


def prepare(
    free: Floats,
    waiting: Tasks,
    order: int = BY_COST,
    node_rule: int = LEAST_NODES,
    *,
    efficiency: float = 1.0,
    rounds: int = 1,
) -> Prepared:
    """Return what the tests of new tasks against the same cluster and waiting tasks share.

    Parameters
    ----------
    free : float64[N]
        When the dispatched work leaves each node, seconds; +inf: the node is unusable.
    waiting : Tasks
        Those admitted and not dispatched, n of them.
    order, node_rule : int
        See `BY_COST` and `LEAST_NODES`.
    efficiency : float
        Exponent of a moldable task's speed-up, > 0.
    rounds : int
        A divisible task is sent in at most so many rounds (`dlt_variants.rounds_time`).
    """
    n = len(waiting.arrival)
    free = np.require(free, np.float64, ("C", "W"))
    by_release = np.argsort(free).astype(np.int64, copy=False)
    usable = int(np.isfinite(free).sum())
    rows = empty_rows(n + 1, efficiency, rounds)
    fill_rows(rows, 0, uniform(waiting), usable, node_rule)
    due, latest = np.empty(n), np.empty(n + 1)
    queue = due_order = np.arange(n)
    tree = empty_tree(0)
    if order == BY_COST:
        tree = first_sizes(rows, due)
        build(tree, np.lexsort((waiting.rank, waiting.arrival, -tree.key[:n, DERIVATIVE])))
        due_order = np.argsort(due)
    else:
        keys = (waiting.rank, waiting.arrival, waiting.deadline)
        queue = np.lexsort(keys[: 3 if order == BY_DEADLINE else 2])
        last_starts(rows, queue, latest)
    release = free[by_release[:usable]]
    return Prepared(
        order,
        node_rule,
        usable,
        free,
        by_release,
        release,
        rows,
        tree,
        due,
        due_order,
        queue,
        latest,
    )


def with_new(prepared: Prepared, new: Tasks) -> Prepared:
    """Return `prepared` with the one task of `new` in its last row; `prepared` stays as it is."""
    n = len(prepared.queue)
    rows = prepared.rows
    rows = copied(rows)
    fill_rows(rows, n, uniform(new), prepared.usable, prepared.node_rule)
    return prepared._replace(rows=rows)


@compiled
def run(prepared: Prepared, has_new: bool, now: float, search: DeadlineSearch) -> Trace:
    """Run one test in the order that was prepared for."""
    if prepared.order == BY_COST:
        return run_by_cost(prepared, has_new, now, search)
    return run_in_queue(prepared, has_new, now, search)


def admit(
    prepared: Prepared, new: Tasks | None = None, *, now: float = 0.0, with_nodes: bool = True
) -> Plan:
    """Return the plan of the waiting tasks and the one new task, which is its last row.

    Parameters
    ----------
    prepared : Prepared
        From `prepare`.
    new : Tasks or None
        One task; None tests the waiting ones alone.
    now : float
        Seconds, >= 0: nothing starts before.
    with_nodes : bool
        Whether to choose nodes too. A rejected test never pays for it.

    Returns
    -------
    Plan
        Equal to `plan` of the waiting tasks followed by the new one.
    """
    state = prepared if new is None else with_new(prepared, new)
    trace = run(state, new is not None, float(now), NO_SEARCH)
    if not trace.accepted:
        return rejection(trace.failed, trace.failed_at)
    position = np.empty(len(trace.order), np.int64)
    position[trace.order] = np.arange(len(position))
    indptr, nodes = np.zeros(1, np.int64), np.empty(0, np.int32)
    if with_nodes:
        indptr, nodes = choose_nodes(
            state.free, state.by_release, trace.start, trace.end, trace.size, trace.order
        )
    else:
        indptr = np.concatenate([indptr, np.cumsum(trace.size)])
    size = trace.size.astype(np.int32)
    return Plan(True, -1, math.nan, trace.start, trace.end, size, position, indptr, nodes)


def plan(
    free: Floats,
    tasks: Tasks,
    order: int = BY_COST,
    node_rule: int = LEAST_NODES,
    *,
    efficiency: float = 1.0,
    rounds: int = 1,
    now: float = 0.0,
    with_nodes: bool = True,
) -> Plan:
    """Return the complete plan of `tasks`, or the first that cannot be kept; see `admit`."""
    prepared = prepare(free, tasks, order, node_rule, efficiency=efficiency, rounds=rounds)
    return admit(prepared, now=now, with_nodes=with_nodes)
