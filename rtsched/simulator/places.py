"""The queue by deadline: jobs with a deadline change places among themselves only.

A place is where a job stands by its submission. A job with a deadline takes the place of the first
that waits for a later one, that job the next such place, and the last of them the newcomer's. Who
starts leaves with the place that it has then. So before a job without a deadline there are never
more jobs than by submission alone.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.hooks import FAIR_SHARE, CompiledHook, compiled_hook
from rtsched.kernels.order import stable_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import JobColumns
    from rtsched.model.jobs import Jobs

    Line = NDArray[np.float64]
    Grid = NDArray[np.float64]

PLACE, DUE = 0, 1
"""Columns of the hook's state, a row for each job: the place that it has, and the deadline by which
it changes places, nan: it does not."""


def deadline_places(jobs: Jobs) -> CompiledHook | None:
    """Return the hook `fair_share` that orders a queue of these jobs so.

    None where all have a deadline, or none has: places never change then, or deadlines alone tell.
    """
    due = np.isfinite(jobs.deadline)
    if due.all() or not due.any():
        return None
    state = np.empty((len(jobs), 2))
    state[:, PLACE] = np.arange(len(jobs))
    state[:, DUE] = np.where(due, jobs.deadline, np.nan)
    return CompiledHook(_compiled(), np.zeros(1), np.zeros((1, 1)), state)


def priorities(
    _now: float,
    rows: NDArray[np.int64],
    _columns: JobColumns,
    _params: Line,
    _tables: Grid,
    state: Grid,
    out: Line,
) -> int:
    """Fill `out` with the priorities of the jobs that wait: less their places; change these."""
    some, count = np.empty(len(rows), np.int64), 0
    for at in range(len(rows)):
        row = rows[at]
        out[at] = -state[row, PLACE]
        if not np.isnan(state[row, DUE]):
            some[count] = at
            count += 1
    place, due, row_of = np.empty(count), np.empty(count), np.empty(count)
    for k in range(count):
        row = rows[some[k]]
        place[k], due[k], row_of[k] = state[row, PLACE], state[row, DUE], row
    place = np.sort(place)
    first = stable_order(row_of)
    first = first[stable_order(due[first])]
    for k in range(count):
        at = some[first[k]]
        state[rows[at], PLACE] = place[k]
        out[at] = -place[k]
    return 0


@cache
def _compiled() -> Callable[..., Any]:
    """Return the kernel, compiled when first needed."""
    return compiled_hook(FAIR_SHARE)(priorities)
