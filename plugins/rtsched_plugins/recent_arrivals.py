"""The memory that the portfolio plug-in has of recent arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import State
from rtsched_plugins.kernels.portfolio_plan import Arrivals, Reading, read_arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping


class Recent(State, frozen=True):
    """Recent arrivals of jobs with a deadline, in order, and what was decided of each.

    `time` in epoch seconds, the other columns as in `Arrivals`; `above` counts all jobs so far
    that were above their threshold.
    """

    job: NDArray[np.int64]
    time: NDArray[np.float64]
    work: NDArray[np.float64]
    patience: NDArray[np.float64]
    threshold: NDArray[np.float64]
    load: NDArray[np.float64]
    declined: NDArray[np.bool_]
    above: int


NOBODY = Recent(
    np.empty(0, np.int64),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    0,
)
"""Before anybody came."""


def decided(
    recent: Recent,
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> tuple[Arrivals, int]:
    """Return the arrivals remembered and further ones, each decided upon by those before it.

    And how many of all so far were above their threshold.
    """
    n = len(time)
    arrivals = Arrivals(
        np.concatenate([recent.time, time]),
        np.concatenate([recent.work, work]),
        np.concatenate([recent.patience, deadline - time]),
        np.concatenate([recent.threshold, np.empty(n)]),
        np.concatenate([recent.load, np.empty(n)]),
        np.concatenate([recent.declined, np.empty(n, np.bool_)]),
    )
    return arrivals, read_arrivals(arrivals, len(recent.job), recent.above, reading)


def arrived(
    recent: Recent,
    job: NDArray[np.int64],
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> Recent:
    """Return the memory after further arrivals, each decided upon by those before it.

    It holds as many arrivals as a decision looks at, and all those of the last instant: they may
    be judged together. What is forgotten matters to no later decision, so that it does not matter
    either how arrivals are cut into batches.
    """
    arrivals, above = decided(recent, time, work, deadline, reading)
    count = len(arrivals.time)
    first = max(count - reading.arrivals, 0)
    first = min(first, int(np.searchsorted(arrivals.time, arrivals.time[-1])))
    jobs, kept = np.concatenate([recent.job, job]), slice(first, None)
    return Recent(jobs[kept], **_rows(arrivals._asdict(), kept), above=above)


def without(recent: Recent, jobs: NDArray[np.int64]) -> Recent:
    """Return the memory as if some jobs had not come; what was decided of others stays."""
    kept = ~np.isin(recent.job, jobs)
    if kept.all():
        return recent
    columns = {name: getattr(recent, name) for name in Arrivals._fields}
    return Recent(recent.job[kept], **_rows(columns, kept), above=recent.above)


def _rows(columns: Mapping[str, Any], kept: slice | NDArray[np.bool_]) -> dict[str, Any]:
    """Return some rows of each column."""
    return {name: column[kept] for name, column in columns.items()}
