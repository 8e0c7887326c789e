"""How well requested times predict run times: quantiles of run time over requested time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.calibrate.intervals import Estimate, Refused, independent, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

FEWEST_JOBS = 20
FEWEST_BEYOND = 5
"""So many jobs must lie on either side of a quantile."""

QUANTILES = (0.05, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Requests:
    """What requested times say of run times.

    Attributes
    ----------
    at_limit : Estimate
        Share of the jobs that were killed at their requested time.
    quantiles : dict of float to Estimate or Refused
        Run time over requested time that this share of the jobs does not exceed. An upper end of
        inf: jobs that were killed might have run for any time.
    jobs, users : int
        Jobs used, and how many users they are of.
    """

    at_limit: Estimate
    quantiles: dict[float, Estimate | Refused]
    jobs: int
    users: int


def requested_times(
    run_time: Floats,
    requested: Floats,
    killed: NDArray[np.bool_],
    user: Codes,
    within: Sequence[float],
) -> Requests | Refused:
    """Return how run times compare with requested times, or why the log cannot tell.

    Intervals allow for jobs of one user being alike. A killed job would have run for longer, by
    how much is not known.

    Parameters
    ----------
    run_time, requested : float64[n]
        Seconds, > 0; jobs without a requested time are left out before.
    killed : bool[n]
        Jobs that were ended at their limit.
    user : int64[n]
        Codes from 0.
    within : sequence of float
        Shares of jobs, 0 to 1, for which a quantile is wanted beside the usual ones.
    """
    n = len(run_time)
    if n < FEWEST_JOBS:
        return Refused(
            f"only {n} jobs that ended by themselves or at their limit have a requested time"
            if n
            else "the log has no requested times"
        )
    ratio = np.where(killed, np.inf, run_time / requested)
    ranked = np.sort(ratio)
    wanted = sorted({*QUANTILES, *within})
    return Requests(
        share(float(killed.mean()), independent(killed, user)),
        {part: _quantile(ratio, ranked, user, part) for part in wanted},
        n,
        len(np.unique(user)),
    )


def _quantile(ratio: Floats, ranked: Floats, user: Codes, part: float) -> Estimate | Refused:
    """Return a quantile; its interval inverts that of the share of jobs below it (Woodruff, 1952).

    The jobs that were killed count as longer than all others.
    """
    n = len(ratio)
    value = _at(ranked, part)
    if not math.isfinite(value):
        killed = float(np.isinf(ranked).mean())
        return Refused(
            f"{killed:.1%} of the jobs were killed at their limit, and how long they would have "
            "run is not known"
        )
    effective = independent(ratio <= value, user)
    if effective * min(part, 1 - part) < FEWEST_BEYOND:
        return Refused(
            f"{n:,} jobs of {len(np.unique(user)):,} users are too few: at least {FEWEST_BEYOND} "
            "independent ones must lie on either side"
        )
    level = share(part, effective)
    return Estimate(value, _at(ranked, level.low), _at(ranked, level.high))


def _at(ranked: Floats, part: float) -> float:
    """Return the least value that a share of the values does not exceed."""
    return float(ranked[min(max(math.ceil(part * len(ranked) - 1e-9), 1), len(ranked)) - 1])
