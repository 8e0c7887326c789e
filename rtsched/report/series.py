"""Series for figures: courses over time and distributions, of a bounded number of points.

Whatever a log's size, a course has `POINTS` values, each the mean over its span of time, so that
no peak is shown where none lasted, and the area under a curve is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.log import FinalState
from rtsched.replay.measures import bounded_slowdown, is_late

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.replay.results import Results, Workload

    Floats = NDArray[np.float64]

POINTS = 360
"""Spans of time in a course."""

QUANTILES = 400
"""Points of a distribution."""


class Hours(NamedTuple):
    """What became of the jobs submitted in each hour of the day; nan where there were none."""

    jobs: NDArray[np.int64]
    """int64[24]."""
    rejected: Floats
    """float64[24], as a fraction of them."""
    missed: Floats
    """float64[24], as a fraction of them."""


def edges(begin: float, end: float, points: int = POINTS) -> Floats:
    """Return the borders of equal spans of time, float64[points + 1]."""
    return np.linspace(begin, max(end, begin + 1.0), points + 1)


def mean_level(begin: Floats, end: Floats, weight: Floats, borders: Floats) -> Floats:
    """Return the mean over each span of time of a level that each row raises while it lasts.

    Parameters
    ----------
    begin, end : float64[n]
        When each row begins and ends; rows with nan are left out.
    weight : float64[n]
        By how much it raises the level.
    borders : float64[m + 1]
        Ascending instants.

    Returns
    -------
    float64[m]
    """
    good = end > begin
    area = _since(begin[good], weight[good], borders) - _since(end[good], weight[good], borders)
    mean: Floats = np.diff(area) / np.diff(borders)
    # What remains of subtracted sums is not a level.
    return np.where(np.abs(mean) < 1e-9 * max(float(np.abs(mean).max()), 1.0), 0.0, mean)


def _since(times: Floats, weight: Floats, borders: Floats) -> Floats:
    """Return at each border the sum of weight times the time since, of what lies before it."""
    origin = borders[0]
    places = np.searchsorted(borders, times, side="left")
    n = len(borders)
    total = np.cumsum(np.bincount(places, weight, n + 1)[:n])
    moment = np.cumsum(np.bincount(places, weight * (times - origin), n + 1)[:n])
    since: Floats = (borders - origin) * total - moment
    return since


def occupancy(workload: Workload, results: Results, borders: Floats) -> Floats:
    """Return the busy fraction of the machine's nodes, per span of time.

    A job that shares nodes counts as far as it was served, evenly from its start to its end.
    """
    serving = results.serving().astype(np.float64)
    busy = mean_level(results.start, results.end, serving, borders)
    return busy / max(len(workload.cluster), 1)


def waiting(workload: Workload, results: Results, borders: Floats) -> Floats:
    """Return the mean number of jobs that wait, per span of time; rejected ones never do."""
    let_in = results.fate != FinalState.REJECTED
    until = np.where(np.isfinite(results.start), results.start, borders[-1])[let_in]
    return mean_level(workload.jobs.submit[let_in], until, np.ones(len(until)), borders)


def waits(workload: Workload, results: Results) -> Floats:
    """Return the waits of all jobs that started, seconds, ascending."""
    wait = results.start - workload.jobs.submit
    return np.sort(wait[np.isfinite(wait)])


def by_hour(workload: Workload, results: Results) -> Hours:
    """Return rejects and misses by the hour of the day (UTC) at which jobs were submitted."""
    jobs = workload.jobs
    hour = (jobs.submit // 3600 % 24).astype(np.int64)
    rejected = results.fate == FinalState.REJECTED
    missed = ~rejected & is_late(results.end, jobs.deadline, jobs.submit)
    total = np.bincount(hour, minlength=24)
    parts = [np.bincount(hour[mask], minlength=24) for mask in (rejected, missed)]
    whole = np.where(total > 0, total, np.nan)
    return Hours(total, parts[0] / whole, parts[1] / whole)


def size_classes(workload: Workload) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each job's class of size, and the classes' names: `1`, `2`, `3-4`, `5-8`, ..."""
    size = np.maximum(workload.jobs.size.astype(np.float64), 1)
    power = np.ceil(np.log2(size)).astype(np.int64)
    present, classes = np.unique(power, return_inverse=True)
    names = tuple(
        str(2**k) if k < 2 else f"{2 ** (k - 1) + 1:,}–{2**k:,}" for k in present.tolist()
    )
    return classes.astype(np.int64), names


def slowdown_by_class(
    workload: Workload, results: Results, classes: NDArray[np.int64], n: int
) -> Floats:
    """Return the mean bounded slowdown of the finished jobs of each class; nan where none is."""
    done = np.isfinite(results.end) & np.isfinite(results.start)
    slowdown = bounded_slowdown(workload.jobs.submit[done], results.start[done], results.end[done])
    count = np.bincount(classes[done], minlength=n)
    total = np.bincount(classes[done], slowdown, n)
    return total / np.where(count > 0, count, np.nan)
