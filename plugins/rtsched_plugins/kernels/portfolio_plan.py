"""The portfolio's admission test: several orders in turn, the first complete plan counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import LEAST_NODES, Plan, Tasks, rejection, uniform
from rtsched_plugins.kernels.admission_events import Trace, on_grid
from rtsched_plugins.kernels.admission_rows import (
    DEADLINE,
    HIGH,
    LOW,
    Rows,
    copied,
    empty_rows,
    exec_of,
    fill_rows,
    least_size,
    safe_until,
    shortest_time,
)
from rtsched_plugins.kernels.no_refcount import no_refcount
from rtsched_plugins.kernels.node_choice import choose_nodes
from rtsched_plugins.kernels.portfolio_walk import Prepared, key_of, run_in_turn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

GUESSES: int = 12
"""Deadlines tried on the way to some acceptable one once the budget of a search is used up."""


def rows_of(tasks: Tasks, usable: int, efficiency: float, rounds: int, spare: int = 0) -> Rows:
    """Return tasks as rows for a cluster of `usable` nodes, with room for `spare` more."""
    n = len(tasks.arrival) + spare
    rows = empty_rows(n, efficiency, rounds)
    fill_rows(rows, 0, uniform(tasks), usable, LEAST_NODES)
    return rows


@compiled
def least_work(rows: Rows) -> Floats:
    """Return float64[n]: the node-seconds of each task on the fewest nodes that it may use."""
    work = np.empty(len(rows.real))
    for i in range(len(work)):
        work[i] = rows.whole[i, LOW] * exec_of(rows, i, rows.whole[i, LOW])
    return work


@no_refcount
def first_counts(
    rows: Rows, orders: Integers, count: Integers, until: Floats, last: Floats, key: Floats
) -> None:
    """Write what `Prepared` says of each waiting task."""
    for i in range(len(count)):
        low, high = rows.whole[i, LOW], rows.whole[i, HIGH]
        count[i] = least_size(rows, i, low, 0.0)
        until[i] = safe_until(rows, i, count[i]) if count[i] else -math.inf
        count[i] = max(count[i], low)
        last[i] = safe_until(rows, i, high) if low <= high else -math.inf
        for which in range(len(orders)):
            key[which, i] = key_of(rows, i, orders[which])


def prepare(
    free: Floats,
    waiting: Tasks,
    orders: tuple[int, ...],
    generosity: float,
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
    orders : tuple of int
        See `BY_DEADLINE`; tried one after the other.
    generosity : float
        Further nodes may cost this fraction of node-seconds more than the fewest do.
    efficiency : float
        Exponent of a moldable task's speed-up, > 0.
    rounds : int
        A divisible task is sent in at most so many rounds.
    """
    n = len(waiting.arrival)
    free = np.require(free, np.float64, ("C", "W"))
    by_release = np.argsort(free).astype(np.int64, copy=False)
    usable = int(np.isfinite(free).sum())
    rows = rows_of(waiting, usable, efficiency, rounds, spare=1)
    codes, key = np.array(orders, np.int64), np.empty((len(orders), n))
    count, until, last = np.empty(n, np.int64), np.empty(n), np.empty(n)
    first_counts(rows, codes, count, until, last, key)
    ties = (waiting.rank, waiting.arrival)
    queue = np.array([np.lexsort((*ties, keys)) for keys in key]).reshape(len(orders), n)
    return Prepared(
        codes,
        float(generosity),
        usable,
        free,
        by_release,
        free[by_release[:usable]],
        rows,
        key,
        queue.astype(np.int64, copy=False),
        count,
        until,
        last,
        np.argsort(last),
    )


def with_new(prepared: Prepared, new: Tasks) -> Prepared:
    """Return `prepared` with the one task of `new` in its last row; `prepared` stays as it is."""
    rows = copied(prepared.rows)
    fill_rows(rows, len(prepared.fewest), uniform(new), prepared.usable, LEAST_NODES)
    return prepared._replace(rows=rows)


def admit(prepared: Prepared, new: Tasks | None = None, *, now: float = 0.0) -> Plan:
    """Return the first complete plan of the waiting tasks and the one new task, the last.

    Where no order finds one, the first order's failure is told. `now`: nothing starts before.
    """
    state = prepared if new is None else with_new(prepared, new)
    failure = rejection(-1, math.nan)
    for which in range(len(state.orders)):
        trace = run_in_turn(state, which, new is not None, float(now))
        if trace.accepted:
            return _plan(state, trace)
        if which == 0:
            failure = rejection(trace.failed, trace.failed_at)
    return failure


def _plan(state: Prepared, trace: Trace) -> Plan:
    """Return an accepted trace as a plan, with nodes."""
    position = np.empty(len(trace.order), np.int64)
    position[trace.order] = np.arange(len(position))
    indptr, nodes = choose_nodes(
        state.free, state.by_release, trace.start, trace.end, trace.size, trace.order
    )
    size = trace.size.astype(np.int32)
    return Plan(True, -1, math.nan, trace.start, trace.end, size, position, indptr, nodes)


def hopeless(prepared: Prepared, new: Tasks, now: float) -> bool:
    """Return whether the new task would be late even if it had the cluster to itself."""
    rows, last = with_new(prepared, new).rows, len(prepared.fewest)
    return least_size(rows, last, rows.whole[last, LOW], now) == 0


def shortest(prepared: Prepared, new: Tasks) -> float:
    """Return the new task's least run time on an idle cluster, seconds; inf: it never fits."""
    return shortest_time(with_new(prepared, new).rows, len(prepared.fewest))


class Offer(NamedTuple):
    """A counter-offer."""

    deadline: float
    """Seconds; the test accepts it. +inf: none was found."""
    exact: bool
    """Whether no whole second between the asked deadline and this one is accepted either."""


def counter_offer(prepared: Prepared, new: Tasks, *, now: float, max_tests: int) -> Offer:
    """Return the least whole second not before the asked deadline with which `new` is admitted.

    Acceptance is not monotone in the deadline, so there is nothing to bisect. Every rejecting
    test says up to which deadline its outcome cannot change (see `run_in_turn`); the search goes
    on from the least of these over all orders. When `max_tests` deadlines have been tried, a later
    one is looked for in growing steps, and flagged as not exact.
    """
    return least_later(with_new(prepared, new), float(now), max_tests)


@compiled
def least_later(question: Prepared, now: float, max_tests: int) -> Offer:
    """Return the counter-offer to the new task, the last of the rows; see `counter_offer`.

    The deadline of that row is written to.
    """
    last = len(question.fewest)
    if question.rows.whole[last, LOW] > question.rows.whole[last, HIGH]:
        return Offer(math.inf, True)
    asked = question.rows.real[last, DEADLINE]
    deadline = on_grid(asked, 0.0, 1.0)
    for _ in range(max_tests):
        fits, following = _with_deadline(question, deadline, now)
        if fits or following == math.inf:
            return Offer(deadline if fits else math.inf, True)
        deadline = max(on_grid(following, 0.0, 1.0), deadline + 1.0)
    step = max(1.0, deadline - asked)
    for _ in range(GUESSES):
        deadline, step = deadline + step, 2.0 * step
        if _with_deadline(question, deadline, now)[0]:
            return Offer(deadline, False)
    return Offer(math.inf, False)


@compiled
def _with_deadline(question: Prepared, deadline: float, now: float) -> tuple[bool, float]:
    """Return whether some order admits the new task with this deadline, and the next to try."""
    question.rows.real[len(question.fewest), DEADLINE] = deadline
    following = math.inf
    for which in range(len(question.orders)):
        trace = run_in_turn(question, which, True, now)
        if trace.accepted:
            return True, deadline
        following = min(following, trace.next_deadline)
    return False, following
