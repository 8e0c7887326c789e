"""The admission test of jobs of one workload by their rows: prepared and run in one compiled call.

What does not depend on the instant is worked out once for all jobs of the workload, so that a
question costs the test and no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.hooks import RowPlan, RowRejection, plans_rows, rejects_rows
from rtsched_plugins.kernels.admission import ARRIVAL, DEADLINE, Plan, Rows, needed_time
from rtsched_plugins.kernels.admission_fast import planned, test_of
from rtsched_plugins.kernels.counter_offer import least_later

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission_events import Prepared

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class ByRule(NamedTuple):
    """All jobs of a workload, and by which rules they are planned."""

    rows: Rows
    """With arrival and deadline in seconds since the epoch."""
    order: int
    """See `rtsched_plugins.kernels.admission.BY_COST`."""
    offer_tests: int
    """Tests that a counter-offer may cost; 0: none is made."""


@compiled
def rows_at(all_rows: Rows, rows: Integers, new: int, origin: float) -> Rows:
    """Return some rows of `all_rows` and behind them row `new`; times relative to `origin`.

    The last one is empty if `new` is -1.
    """
    n = len(rows) + 1
    real, whole, once = np.zeros((n, 8)), np.zeros((n, 5), np.int64), np.zeros(n)
    for k in range(n):
        row = rows[k] if k < n - 1 else new
        if row >= 0:
            real[k], whole[k], once[k] = all_rows.real[row], all_rows.whole[row], all_rows.once[row]
            real[k, DEADLINE] -= origin
            real[k, ARRIVAL] -= origin
    return Rows(real, whole, once, all_rows.efficiency, all_rows.rounds)


@compiled
def question_of(
    prepared: ByRule, rows: Integers, new: int, origin: float, held_until: Floats
) -> Prepared:
    """Return the test of jobs that wait and a new one; -1: there is room for one."""
    some, free = rows_at(prepared.rows, rows, new, origin), np.maximum(held_until - origin, 0.0)
    return test_of(some, prepared.order, free)


@plans_rows(ByRule)
def plan_rows(
    prepared: ByRule, rows: Integers, begun: Floats, new: int, now: float, held_until: Floats
) -> RowPlan:
    """Plan jobs that wait and a new one, or look for a better plan; the kernel of a `RowTest`."""
    origin = planning_origin(now)
    question = question_of(prepared, rows, new, origin, held_until)
    return row_plan(planned(question, new >= 0, now - origin), begun, new, origin)


@rejects_rows(ByRule)
def reject_row(
    prepared: ByRule, rows: Integers, new: int, now: float, held_until: Floats
) -> RowRejection:
    """Return what is said to a new job that `plan_rows` does not accept."""
    origin = planning_origin(now)
    question = question_of(prepared, rows, new, origin, held_until)
    needed, offer = needed_time(question.rows, len(rows), now - origin), math.inf
    if prepared.offer_tests > 0:
        found = least_later(question, now - origin, 0.0, 1.0, prepared.offer_tests)
        offer = found.deadline + origin
    return RowRejection(needed, offer)


@compiled
def planning_origin(now: float) -> float:
    """Return the instant that a planner's times are relative to, seconds since the epoch."""
    return now - now % 1024.0


@compiled
def starts_earlier(start: Floats, begun: Floats, origin: float) -> bool:
    """Return whether jobs start earlier on the whole than before.

    Parameters
    ----------
    start : float64[n]
        New starts, seconds since `origin`.
    begun : float64[n]
        Starts as planned before, seconds since the epoch.
    """
    new, old = 0.0, 0.0
    for i in range(len(start)):
        new += start[i]
        old += begun[i] - origin
    return new < old


@compiled
def row_plan(plan: Plan, begun: Floats, new: int, origin: float) -> RowPlan:
    """Return the plan of a test of rows, as a replay's loop takes it (`RowTest`).

    Parameters
    ----------
    plan : Plan
        Times relative to `origin`.
    begun, new
        As the test was given them.
    origin : float
        Seconds since the epoch.
    """
    accepted = plan.accepted
    if accepted and new < 0:
        accepted = starts_earlier(plan.start, begun, origin)
    start, end = plan.start + origin, plan.end + origin
    return RowPlan(accepted, start, end, plan.indptr, plan.nodes, plan.failed)
