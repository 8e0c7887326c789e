"""The queue by deadline: jobs with a deadline change places among themselves only.

A place is where a job stands by its submission. A job with a deadline takes the place of the first
that waits for a later one, that job the next such place, and the last of them the newcomer's. Who
starts leaves with the place that it has then. So before a job without a deadline there are never
more jobs than by submission alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.order import stable_order
from rtsched.kernels.policy import policy_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

    Line = NDArray[np.float64]


class DeadlinePlaces(NamedTuple):
    """The places of all jobs: a compiled policy."""

    place: Line
    """float64[n]: the place that each has; changed."""
    due: Line
    """float64[n]: the deadline by which it changes places; nan: it does not."""


def deadline_places(jobs: Jobs) -> DeadlinePlaces | None:
    """Return the policy that orders a queue of these jobs so.

    None where all have a deadline, or none has: places never change then, or deadlines alone tell.
    """
    due = np.isfinite(jobs.deadline)
    if due.all() or not due.any():
        return None
    return DeadlinePlaces(np.arange(float(len(jobs))), np.where(due, jobs.deadline, np.nan))


def priorities(places: DeadlinePlaces, _now: float, rows: NDArray[np.int64], out: Line) -> int:
    """Fill `out` with the priorities of the jobs that wait: less their places; change these."""
    some, count = np.empty(len(rows), np.int64), 0
    for at in range(len(rows)):
        row = rows[at]
        out[at] = -places.place[row]
        if not np.isnan(places.due[row]):
            some[count] = at
            count += 1
    place, due, row_of = np.empty(count), np.empty(count), np.empty(count)
    for k in range(count):
        row = rows[some[k]]
        place[k], due[k], row_of[k] = places.place[row], places.due[row], row
    place = np.sort(place)
    first = stable_order(row_of)
    first = first[stable_order(due[first])]
    for k in range(count):
        at = some[first[k]]
        places.place[rows[at]] = place[k]
        out[at] = -place[k]
    return 0


policy_kernels(DeadlinePlaces, rank=priorities)
