"""Fairness: the service-time error of users and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.service_error import ServiceError, service_error
from rtsched.model.final_state import FinalState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.accounts import Accounts
    from rtsched.replay.results import Results, Workload

LEVELS = ("user", "account")

_NO_TIMES, _NOBODY = np.empty(0), np.empty(0, np.int64)


class Errors(NamedTuple):
    """The errors of all users or accounts of one level."""

    rows: NDArray[np.int64]
    """int64[u], their rows in `Accounts`."""
    names: tuple[str, ...]
    error: ServiceError


class Order(NamedTuple):
    """Jobs in order of submission, of start and of end; those that have no such time left out."""

    submit: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def in_order(workload: Workload, results: Results) -> Order:
    """Return the jobs that were let in, in order of their times."""
    let_in = np.not_equal(results.fate, FinalState.REJECTED)
    started = let_in & np.isfinite(results.start)
    ended = started & np.isfinite(results.end)
    return Order(
        _sorted(workload.jobs.submit, let_in),
        _sorted(results.start, started),
        _sorted(results.end, ended),
    )


def _sorted(time: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the counted rows in order of time; those already in order are not sorted again."""
    rows = np.flatnonzero(counted)
    known = time if len(rows) == len(time) else time[rows]
    if (known[1:] >= known[:-1]).all():
        return rows
    order = np.argsort(known, kind="stable")
    return order if len(rows) == len(time) else rows[order]


def errors(
    workload: Workload,
    results: Results,
    level: str,
    order: Order | None = None,
    grid: NDArray[np.float64] = _NO_TIMES,
    watched: NDArray[np.int64] = _NOBODY,
) -> Errors | None:
    """Return the service-time errors at a level; None where no job has such a name.

    Users of the same name in several accounts count apart, as their shares do. An account is the
    one that a job is charged to, whatever stands above it.

    Parameters
    ----------
    workload, results
        What was to be done, and what was.
    level : str
        `user` or `account`.
    order : Order, optional
        See `in_order`, if the caller has it.
    grid : float64[g]
        Seconds since the epoch, ascending, at which the course is wanted ...
    watched : int64[k]
        ... and whose: places in what is returned.
    """
    accounts = workload.accounts
    group = _groups(accounts, level)
    known = np.flatnonzero(group >= 0)
    rows, place = np.unique(group[known], return_inverse=True)
    place_of = np.full(len(accounts) + 1, -1, np.int32)
    place_of[known] = place
    whose = place_of[workload.jobs.association]
    if not (whose >= 0).any():
        return None
    error = service_error(
        workload.jobs.submit,
        results.start,
        results.end,
        *(order or in_order(workload, results)),
        charged(workload, results),
        whose,
        accounts.share()[rows],
        grid,
        watched,
    )
    names = accounts.texts("name")
    return Errors(rows, tuple(names[row] or "?" for row in rows.tolist()), error)


def charged(workload: Workload, results: Results) -> NDArray[np.int32] | NDArray[np.float64]:
    """Return [n]: nodes that each job is charged for, on average from its start to its end."""
    jobs = workload.jobs
    if not np.isfinite(jobs.billed[:1]).any():  # of all jobs, or of none
        return results.serving()
    return np.asarray(jobs.billed * (results.size / np.maximum(jobs.size, 1)))


def _groups(accounts: Accounts, level: str) -> NDArray[np.int64]:
    """Return for each row of the accounts the row that stands for it at a level; -1: none."""
    row = np.arange(len(accounts))
    if level == "user":
        return np.where(accounts.is_user, row, -1)
    return np.where(accounts.is_user, accounts.parent, row)


def fairness(workload: Workload, results: Results) -> dict[str, float | int | None]:
    """Return min, max and RMS of the errors of users and accounts, node-seconds."""
    found: dict[str, float | int | None] = {}
    order = in_order(workload, results) if len(workload.accounts) else None
    for level in LEVELS:
        some = errors(workload, results, level, order=order)
        values: tuple[float | None, ...] = (None, None, None)
        if some is not None and some.error.instants.any():
            error = some.error
            rms = np.sqrt(error.squares.sum() / error.instants.sum())
            values = float(error.least.min()), float(error.most.max()), float(rms)
        for what, value in zip(("min", "max", "rms"), values, strict=True):
            found[f"{level}_error_{what}_node_s"] = value
    return found
