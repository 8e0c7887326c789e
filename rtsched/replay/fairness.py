"""Fairness: the service-time error of users and accounts, and its course."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.service_error import ServiceError, service_error
from rtsched.replay.results import Fate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.replay.results import Results, Workload

LEVELS = ("user", "account")


class Course(NamedTuple):
    """The error of some users or accounts over time."""

    time: NDArray[np.float64]
    """float64[g], seconds since the epoch."""
    error: NDArray[np.float64]
    """float64[g, k], node-seconds; positive: more than the share."""
    names: tuple[str, ...]
    """The `k` users or accounts, the ones with the most service first."""


class Errors(NamedTuple):
    """The errors of all users or accounts of one level."""

    names: tuple[str, ...]
    error: ServiceError


def errors(
    workload: Workload, results: Results, level: str, grid: NDArray[np.float64] | None = None
) -> Errors | None:
    """Return the service-time errors at a level, `user` or `account`; None without such names.

    Users of the same name in several accounts count apart, as their shares do.
    """
    accounts, jobs = workload.accounts, workload.jobs
    fraction = accounts.share()
    if level == "user":
        rows, group = np.flatnonzero(accounts.is_user), jobs.association
    else:
        rows = np.flatnonzero((accounts.parent < 0) & ~accounts.is_user)
        group = jobs.account
    if not len(rows) or not len(jobs):
        return None
    place = np.full(len(accounts) + 1, -1, np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    whose = place[group]
    counted = (results.fate != Fate.REJECTED) & (whose >= 0)
    some = np.flatnonzero(counted)
    if not len(some):
        return None
    origin = float(jobs.submit[some[0]])
    start = np.nan_to_num(results.start[some] - origin, nan=np.inf)
    end = np.nan_to_num(results.end[some] - origin, nan=np.inf)
    error = service_error(
        jobs.submit[some] - origin,
        start,
        end,
        np.argsort(start, kind="stable"),
        np.argsort(end, kind="stable"),
        results.size[some],
        whose[some],
        fraction[rows],
        float(len(workload.cluster)),
        np.empty(0) if grid is None else grid - origin,
    )
    names = accounts.texts("name")
    return Errors(tuple(names[row] or "?" for row in rows.tolist()), error)


def fairness(workload: Workload, results: Results) -> dict[str, float | int | None]:
    """Return min, max and RMS of the errors of users and accounts, node-seconds."""
    found: dict[str, float | int | None] = {}
    for level in LEVELS:
        some = errors(workload, results, level)
        values: tuple[float | None, float | None, float | None] = (None, None, None)
        if some is not None:
            error = some.error
            seen = error.instants > 0
            rms = float(np.sqrt(error.squares.sum() / error.instants.sum()))
            values = float(error.least[seen].min()), float(error.most[seen].max()), rms
        for what, value in zip(("min", "max", "rms"), values, strict=True):
            found[f"{level}_error_{what}_node_s"] = value
    return found


def fairness_course(
    workload: Workload, results: Results, level: str = "user", most: int = 8, points: int = 300
) -> Course | None:
    """Return the errors over time of the `most` users or accounts whose errors are largest."""
    ended = results.end[np.isfinite(results.end)]
    if not len(ended):
        return None
    grid = np.linspace(float(workload.jobs.submit[0]), float(ended.max()), points)
    found = errors(workload, results, level, grid)
    if found is None:
        return None
    error = found.error
    extent = np.where(error.instants > 0, np.maximum(-error.least, error.most), -1.0)
    chosen = np.argsort(-extent, kind="stable")[:most]
    return Course(grid, error.course[:, chosen], tuple(found.names[k] for k in chosen.tolist()))
