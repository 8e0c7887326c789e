"""What the compiled tests of rows share: times in seconds since the epoch, and better plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.row_tests import RowPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


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
def with_new(rows: Integers, new: int) -> Integers:
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
