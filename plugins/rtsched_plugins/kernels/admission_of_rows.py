"""Policies that admit jobs of one workload by their rows: prepared and run in one compiled call.

What does not depend on the instant is worked out once for all jobs of the workload, so that a
question costs the test and no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.api import RowPlan, RowRejection, policy_kernels
from rtsched.kernels.compiling import compiled
from rtsched.kernels.policy import ABSTAIN, ADMIT, REJECT
from rtsched_plugins.kernels.admission import ARRIVAL, DEADLINE, Rows, needed_time, rejection

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Plan
    from rtsched_plugins.kernels.admission_events import Offer

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class WorkloadRows(NamedTuple):
    """All jobs of a workload, and which of them are decided upon here."""

    rows: Rows
    """With arrival and deadline in seconds since the epoch."""
    usable: int
    """For how many nodes in service they are prepared; with others nothing is said."""
    direct: NDArray[np.bool_]
    """bool[n]: those of which something is said."""
    final: NDArray[np.bool_]
    """bool[n]: those to whom, if they are rejected, nothing more is said."""
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


def admits_rows(
    kind: type,
    prepare: Callable[[Any, Rows, Floats], Any],
    plan: Callable[[Any, bool, float], Plan],
    later: Callable[[Any, float, int], Offer],
) -> None:
    """Make the kernels of policies of one type, a tuple with a field `jobs`, a `WorkloadRows`.

    Parameters
    ----------
    kind : type
        That of the policies.
    prepare : callable
        `prepare(policy, rows, free)` returns the test of all rows but the last.
    plan : callable
        `plan(test, has_new, now)` returns the plan of these and, if any, the last; or who fails.
    later : callable
        `later(test, now, max_tests)` returns a counter-offer to the last.
    """

    def admit(
        policy: Any, rows: Integers, begun: Floats, new: int, now: float, held_until: Floats
    ) -> RowPlan:
        """Plan jobs that wait and a new one, or look for a better plan."""
        jobs, origin = policy.jobs, planning_origin(now)
        usable = np.count_nonzero(held_until < np.inf)
        if usable != jobs.usable or (new >= 0 and not jobs.direct[new]):
            return row_plan(rejection(-1, math.nan), begun, new, True, origin)
        free = np.maximum(held_until - origin, 0.0)
        test = prepare(policy, rows_at(jobs.rows, rows, new, origin), free)
        found = plan(test, new >= 0, now - origin)
        return row_plan(found, begun, new, new >= 0 and not jobs.final[new], origin)

    def reject(
        policy: Any, rows: Integers, new: int, now: float, held_until: Floats
    ) -> RowRejection:
        """Return what is said to a new job that `admit` does not admit."""
        jobs, origin = policy.jobs, planning_origin(now)
        free = np.maximum(held_until - origin, 0.0)
        test = prepare(policy, rows_at(jobs.rows, rows, new, origin), free)
        needed, offer = needed_time(test.rows, len(rows), now - origin), math.inf
        if jobs.offer_tests > 0:
            offer = later(test, now - origin, jobs.offer_tests).deadline + origin
        return RowRejection(needed, offer)

    policy_kernels(kind, admit=admit, reject=reject)


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
def row_plan(plan: Plan, begun: Floats, new: int, open_end: bool, origin: float) -> RowPlan:
    """Return the plan of a test of rows, as a replay's loop takes it.

    Parameters
    ----------
    plan : Plan
        Times relative to `origin`.
    begun, new
        As the test was given them.
    open_end : bool
        Whether more is to be said than that it is rejected.
    origin : float
        Seconds since the epoch.
    """
    code = ABSTAIN if open_end else REJECT
    if plan.accepted and (new >= 0 or starts_earlier(plan.start, begun, origin)):
        code = ADMIT
    start, end = plan.start + origin, plan.end + origin
    return RowPlan(code, start, end, plan.indptr, plan.nodes, plan.failed)
