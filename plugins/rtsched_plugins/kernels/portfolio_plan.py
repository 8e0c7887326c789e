"""The portfolio's admission test: several orders in turn, the first complete plan counts.

About jobs of one workload it is prepared and run in one compiled call (`InTurn`). What recent
arrivals say about the load decides which of the next ones to decline (`read_arrivals`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched_plugins.kernels.admission import (
    DEADLINE,
    HIGH,
    LOW,
    Plan,
    Rows,
    exec_of,
    least_size,
    rejection,
    safe_until,
)
from rtsched_plugins.kernels.admission_events import on_grid, plan_of, release_order
from rtsched_plugins.kernels.admission_fast import queue_order
from rtsched_plugins.kernels.admission_of_rows import Workload, admits_rows
from rtsched_plugins.kernels.portfolio_walk import Prepared, key_of, run_in_turn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


GUESSES: int = 12
"""Deadlines tried on the way to some acceptable one once the budget of a search is used up."""


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


@compiled
def prepared_in_orders(rows: Rows, orders: Integers, generosity: float, free: Floats) -> Prepared:
    """Return the tests of all rows but the last, which is kept for a new task."""
    by_release, release = release_order(free)
    n = len(rows.real) - 1
    key, queue = np.empty((len(orders), n)), np.empty((len(orders), n), np.int64)
    count, until, last = np.empty(n, np.int64), np.empty(n), np.empty(n)
    first_counts(rows, orders, count, until, last, key)
    for which in range(len(orders)):
        queue[which] = queue_order(rows, key[which])
    return Prepared(
        orders,
        generosity,
        free,
        by_release,
        release,
        rows,
        key,
        queue,
        count,
        until,
        last,
        np.argsort(last),
    )


@compiled
def planned_by_orders(question: Prepared, has_new: bool, now: float) -> Plan:
    """Return the first complete plan of the waiting tasks and, if any, the new one, the last.

    Where no order finds one, the first order's failure is told. `now`: nothing starts before.
    """
    failure = rejection(-1, math.nan)
    for which in range(len(question.orders)):
        trace = run_in_turn(question, which, has_new, now)
        if trace.accepted:
            return plan_of(trace, question.free, question.by_release)
        if which == 0:
            failure = rejection(trace.failed, trace.failed_at)
    return failure


class Offer(NamedTuple):
    """A counter-offer."""

    deadline: float
    """Seconds; the test accepts it. +inf: none was found."""
    exact: bool
    """Whether no whole second between the asked deadline and this one is accepted either."""


@compiled
def least_later(question: Prepared, now: float, max_tests: int) -> Offer:
    """Return the least whole second not before the asked deadline with which it is admitted.

    Acceptance is not monotone in the deadline, so there is nothing to bisect. Every rejecting
    test says up to which deadline its outcome cannot change (see `run_in_turn`); the search goes
    on from the least of these over all orders. When `max_tests` deadlines have been tried, a later
    one is looked for in growing steps, and flagged as not exact. The new task is the last of the
    rows; its deadline is written to.
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


class InTurn(NamedTuple):
    """All jobs of a workload, and in which orders they are planned."""

    jobs: Workload
    orders: Integers
    """See `BY_DEADLINE`; tried one after the other."""
    generosity: float
    """Further nodes may cost this fraction of node-seconds more than the fewest do."""


@compiled
def prepared_in_turn(policy: InTurn, rows: Rows, free: Floats) -> Prepared:
    """Return the tests of all rows but the last."""
    return prepared_in_orders(rows, policy.orders, policy.generosity, free)


@compiled
def later_deadline(question: Prepared, now: float, max_tests: int) -> float:
    """Return a deadline with which the last row is admitted; inf: none was found."""
    return float(least_later(question, now, max_tests).deadline)


admits_rows(InTurn, prepared_in_turn, planned_by_orders, later_deadline)


class Reading(NamedTuple):
    """How arrivals are read; see the settings of the portfolio plug-in."""

    nodes: float
    """Nodes of the machine."""
    arrivals: int
    """How many arrivals before a job are looked at."""
    least: int
    """With fewer before it a job is never declined."""
    overbooking: float
    """Recent work may fill this many times what the machine can do until it is due."""
    spared: float
    """No job is declined that is smaller than this fraction of recent ones."""
    heard: float
    """Fraction of the jobs above the threshold that is judged all the same."""


class Arrivals(NamedTuple):
    """Arrivals in order, and what was decided of each; all arrays of length n."""

    time: Floats
    """Seconds."""
    work: Floats
    """Least node-seconds."""
    patience: Floats
    """Seconds from the arrival to the deadline."""
    threshold: Floats
    """Work in node-seconds above which it would be declined; inf: none."""
    load: Floats
    """Work of the arrivals before it over what the machine could do meanwhile; 0: unknown."""
    declined: NDArray[np.bool_]


@compiled
def read_arrivals(arrivals: Arrivals, first: int, above: int, reading: Reading) -> int:
    """Decide on the arrivals from row `first` on, each by those before it; write it down.

    What the machine can do with recent arrivals is nodes x (the time since the first of them + the
    mean time that they have until their deadlines). The threshold is the work of the first job,
    smallest first, with which they come to more than `overbooking` times that. Of the jobs above
    their threshold the k-th is heard if k `heard` passes a whole number.

    Parameters
    ----------
    arrivals : Arrivals
        Ascending in time; the last three columns are written from row `first` on.
    first : int
        First row to decide on.
    above : int
        Jobs above their threshold so far.
    reading : Reading
        How to read.

    Returns
    -------
    int
        Jobs above their threshold, these included.
    """
    for row in range(first, len(arrivals.time)):
        begin = max(0, row - reading.arrivals)
        span = arrivals.time[row] - arrivals.time[begin]
        arrivals.threshold[row], arrivals.load[row] = math.inf, 0.0
        arrivals.declined[row] = False
        if row - begin < reading.least or span <= 0.0:
            continue
        sizes = np.sort(arrivals.work[begin:row])
        patience = arrivals.patience[begin:row].mean()
        room = reading.overbooking * reading.nodes * (span + patience)
        filled, place = 0.0, len(sizes)
        for k in range(len(sizes)):
            filled += sizes[k]
            if filled > room and place == len(sizes):
                place = k
        arrivals.load[row] = filled / (reading.nodes * span)
        place = max(place, int(reading.spared * len(sizes)))
        if place == len(sizes):
            continue
        arrivals.threshold[row] = sizes[place]
        if arrivals.work[row] > sizes[place]:
            above += 1
            heard = math.floor(above * reading.heard + 1e-9)
            before = math.floor((above - 1) * reading.heard + 1e-9)
            arrivals.declined[row] = heard == before
    return above
