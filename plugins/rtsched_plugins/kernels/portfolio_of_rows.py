"""The portfolio's admission test of jobs of one workload, prepared and run in one compiled call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.row_tests import RowRejection, plans_rows, rejects_rows
from rtsched_plugins.kernels.admission_of_rows import queue_order, rows_at
from rtsched_plugins.kernels.admission_rows import needed_time
from rtsched_plugins.kernels.node_choice import choose_nodes
from rtsched_plugins.kernels.portfolio_plan import first_counts, least_later
from rtsched_plugins.kernels.portfolio_walk import Prepared, run_in_turn
from rtsched_plugins.kernels.row_plans import (
    Outcome,
    planning_origin,
    row_plan,
    with_new,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.row_tests import RowPlan
    from rtsched_plugins.kernels.admission_rows import Rows

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


class InTurn(NamedTuple):
    """All jobs of a workload, and in which orders they are planned."""

    rows: Rows
    """With arrival and deadline in seconds since the epoch."""
    orders: Integers
    """See `rtsched_plugins.kernels.portfolio_plan.prepare`, as `generosity`."""
    generosity: float
    offer_tests: int
    """Tests that a counter-offer may cost; 0: none is made."""


@compiled
def question_in_turn(
    prepared: InTurn, chosen: Integers, has_new: bool, origin: float, free: Floats
) -> Prepared:
    """Return the tests that `admit_rows_in_turn` runs, with room for a new row if there is none."""
    orders = prepared.orders
    n = len(chosen) - 1 if has_new else len(chosen)
    rows = rows_at(prepared.rows, chosen, n + 1, origin)
    by_release = np.argsort(free)
    usable = 0
    for node in range(len(free)):
        usable += free[node] < math.inf
    key, queue = np.empty((len(orders), n)), np.empty((len(orders), n), np.int64)
    count, until, last = np.empty(n, np.int64), np.empty(n), np.empty(n)
    first_counts(rows, orders, count, until, last, key)
    for which in range(len(orders)):
        queue[which] = queue_order(rows, n, key[which])
    return Prepared(
        orders,
        prepared.generosity,
        usable,
        free,
        by_release,
        free[by_release[:usable]],
        rows,
        key,
        queue,
        count,
        until,
        last,
        np.argsort(last),
    )


@compiled
def admit_rows_in_turn(
    prepared: InTurn,
    chosen: Integers,
    has_new: bool,
    origin: float,
    now: float,
    free: Floats,
) -> Outcome:
    """Plan jobs that wait and, if any, a new one, in the first order that keeps all.

    It answers as `portfolio_plan.admit` does. Parameters as those of
    `rtsched_plugins.kernels.admission_of_rows.admit_rows`.
    """
    question = question_in_turn(prepared, chosen, has_new, origin, free)
    failed = -1
    for which in range(len(prepared.orders)):
        trace = run_in_turn(question, which, has_new, now)
        if trace.accepted:
            indptr, nodes = choose_nodes(
                free, question.by_release, trace.start, trace.end, trace.size, trace.order
            )
            return Outcome(True, -1, trace.start, trace.end, indptr, nodes)
        if which == 0:
            failed = trace.failed
    nobody = np.empty(0)
    return Outcome(False, failed, nobody, nobody, np.zeros(1, np.int64), np.empty(0, np.int32))


@compiled
def rejection_in_turn(
    prepared: InTurn, chosen: Integers, origin: float, now: float, free: Floats
) -> RowRejection:
    """Return what is said to the last of the jobs chosen, which no order accepts.

    Parameters as those of `rtsched_plugins.kernels.admission_of_rows.admit_rows`.
    """
    question = question_in_turn(prepared, chosen, True, origin, free)
    needed, offer = needed_time(question.rows, len(question.fewest), now), math.inf
    if prepared.offer_tests > 0:
        offer = least_later(question, now, prepared.offer_tests).deadline + origin
    return RowRejection(needed, offer)


@plans_rows(InTurn)
def plan_rows_in_turn(
    prepared: InTurn, rows: Integers, begun: Floats, new: int, now: float, held_until: Floats
) -> RowPlan:
    """Plan jobs that wait and a new one, or look for a better plan; the kernel of a `RowTest`."""
    origin = planning_origin(now)
    free = np.maximum(held_until - origin, 0.0)
    chosen = with_new(rows, new)
    outcome = admit_rows_in_turn(prepared, chosen, new >= 0, origin, now - origin, free)
    return row_plan(outcome, begun, new, origin)


@rejects_rows(InTurn)
def reject_row_in_turn(
    prepared: InTurn, rows: Integers, new: int, now: float, held_until: Floats
) -> RowRejection:
    """Return what is said to a new job that `plan_rows_in_turn` does not accept."""
    origin = planning_origin(now)
    free = np.maximum(held_until - origin, 0.0)
    return rejection_in_turn(prepared, with_new(rows, new), origin, now - origin, free)
