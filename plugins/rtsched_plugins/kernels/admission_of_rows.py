"""The admission test of jobs of one workload: prepared and run in one compiled call.

It answers as `admission_fast` does. What does not depend on the instant is worked out once for all
jobs of the workload, so that a question costs the test and no more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.hooks import RowPlan, RowRejection, plans_rows, rejects_rows
from rtsched_plugins.kernels.admission import ARRIVAL, DEADLINE, Rows, needed_time
from rtsched_plugins.kernels.admission_events import Prepared, choose_nodes
from rtsched_plugins.kernels.admission_fast import NO_SEARCH, run, test_of
from rtsched_plugins.kernels.counter_offer import least_later

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class ByRule(NamedTuple):
    """All jobs of a workload, and by which rules they are planned."""

    rows: Rows
    """With arrival and deadline in seconds since the epoch."""
    order: int
    """See `rtsched_plugins.kernels.admission`, as `node_rule`."""
    node_rule: int
    offer_tests: int
    """Tests that a counter-offer may cost; 0: none is made."""


@compiled
def rows_at(all_rows: Rows, chosen: Integers, room: int, origin: float) -> Rows:
    """Return some rows of `all_rows`, then empty ones up to `room`; times relative to `origin`."""
    real, whole = np.zeros((room, 8)), np.zeros((room, 5), np.int64)
    once = np.zeros(room)
    for k in range(len(chosen)):
        real[k], whole[k] = all_rows.real[chosen[k]], all_rows.whole[chosen[k]]
        once[k] = all_rows.once[chosen[k]]
        real[k, DEADLINE] -= origin
        real[k, ARRIVAL] -= origin
    return Rows(real, whole, once, all_rows.efficiency, all_rows.rounds)


@compiled
def question_of(
    prepared: ByRule, chosen: Integers, has_new: bool, origin: float, free: Floats
) -> Prepared:
    """Return the test that `admit_rows` runs, with room for a new row if there is none."""
    n = len(chosen) - 1 if has_new else len(chosen)
    rows = rows_at(prepared.rows, chosen, n + 1, origin)
    return test_of(rows, n, prepared.order, prepared.node_rule, free)


@compiled
def admit_rows(
    prepared: ByRule,
    chosen: Integers,
    has_new: bool,
    origin: float,
    now: float,
    free: Floats,
) -> Outcome:
    """Plan jobs that wait and, if any, a new one: the last of those chosen.

    Parameters
    ----------
    prepared : ByRule
        All jobs of the workload.
    chosen : int64[n]
        Which of them.
    has_new : bool
        Whether the last is new.
    origin : float
        What times are relative to, seconds since the epoch.
    now : float
        Seconds since `origin`, >= 0: nothing starts before.
    free : float64[N]
        When running jobs leave each node, seconds since `origin`; +inf: it is unusable.
    """
    question = question_of(prepared, chosen, has_new, origin, free)
    trace = run(question, has_new, now, NO_SEARCH)
    indptr, nodes = np.zeros(1, np.int64), np.empty(0, np.int32)
    if trace.accepted:
        indptr, nodes = choose_nodes(
            free, question.by_release, trace.start, trace.end, trace.size, trace.order
        )
    return Outcome(trace.accepted, trace.failed, trace.start, trace.end, indptr, nodes)


@compiled
def rejection(
    prepared: ByRule, chosen: Integers, origin: float, now: float, free: Floats
) -> RowRejection:
    """Return what is said to the last of the jobs chosen; parameters as those of `admit_rows`."""
    question = question_of(prepared, chosen, True, origin, free)
    needed, offer = needed_time(question.rows, len(question.queue), now), math.inf
    if prepared.offer_tests > 0:
        offer = least_later(question, now, 0.0, 1.0, prepared.offer_tests).deadline + origin
    return RowRejection(needed, offer)


@plans_rows(ByRule)
def plan_rows(
    prepared: ByRule, rows: Integers, begun: Floats, new: int, now: float, held_until: Floats
) -> RowPlan:
    """Plan jobs that wait and a new one, or look for a better plan; the kernel of a `RowTest`."""
    origin = planning_origin(now)
    free = np.maximum(held_until - origin, 0.0)
    chosen = rows_with_new(rows, new)
    outcome = admit_rows(prepared, chosen, new >= 0, origin, now - origin, free)
    return row_plan(outcome, begun, new, origin)


@rejects_rows(ByRule)
def reject_row(
    prepared: ByRule, rows: Integers, new: int, now: float, held_until: Floats
) -> RowRejection:
    """Return what is said to a new job that `plan_rows` does not accept."""
    origin = planning_origin(now)
    free = np.maximum(held_until - origin, 0.0)
    return rejection(prepared, rows_with_new(rows, new), origin, now - origin, free)


class Outcome(NamedTuple):
    """The outcome of one test, as in `rtsched_plugins.kernels.admission.Plan`."""

    accepted: bool
    failed: int
    """The first of the tasks (by arrival, rank) that cannot be kept, -1 if accepted."""
    start: Floats
    """float64[n], seconds; meaningless if it was not accepted, as all below."""
    end: Floats
    """float64[n], seconds."""
    indptr: Integers
    """int64[n + 1]: task i gets nodes[indptr[i]:indptr[i + 1]]."""
    nodes: NDArray[np.int32]
    """Node indices, ascending within a task."""


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
def rows_with_new(rows: Integers, new: int) -> Integers:
    """Return rows and a new one behind them, unless that is -1."""
    return np.append(rows, new) if new >= 0 else rows


@compiled
def row_plan(outcome: Outcome, begun: Floats, new: int, origin: float) -> RowPlan:
    """Return the outcome of a test of rows, as a replay's loop takes it (`RowTest`).

    Parameters
    ----------
    outcome : Outcome
        Times relative to `origin`.
    begun, new
        As the test was given them.
    origin : float
        Seconds since the epoch.
    """
    accepted = outcome.accepted
    if accepted and new < 0:
        accepted = starts_earlier(outcome.start, begun, origin)
    start, end = outcome.start + origin, outcome.end + origin
    return RowPlan(accepted, start, end, outcome.indptr, outcome.nodes, outcome.failed)
