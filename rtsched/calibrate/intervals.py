"""Estimates with 95 % intervals, outliers aside; and what requested times say of run times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.wilson import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

CONFIDENCE = 0.95
NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half the width of an interval in standard errors, where many observations stand behind it."""


@dataclass(frozen=True)
class Estimate:
    """A value, and the interval that holds the truth in 95 % of all cases."""

    value: float
    low: float
    high: float

    def within(self, low: float, high: float = math.inf) -> Estimate:
        """Return the estimate cut to the values that are possible."""
        cut = (min(max(number, low), high) for number in (self.value, self.low, self.high))
        return Estimate(*cut)


@dataclass(frozen=True)
class Refused:
    """What the log cannot tell, and why, in one sentence."""

    reason: str


def t_quantile(freedom: float) -> float:
    """Return how many standard errors half a 95 % interval is wide.

    Parameters
    ----------
    freedom : float
        Degrees of freedom, at least 1.

    References
    ----------
    Hill, 1970: Algorithm 396, Student's t-quantiles. Exact for 1 and 2, else good to six digits.
    """
    n, tail = freedom, 1 - CONFIDENCE
    if n < 2:
        return 1 / math.tan(tail * math.pi / 2)
    if n == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * n
    y = (d * tail) ** (2 / n)
    if y > 0.05 + a:
        x = -NORMAL
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = math.expm1(a * y * y)
    else:
        y = (
            (1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1
        ) * (n + 1) / (n + 2) + 1 / y
    return math.sqrt(n * y)


def share(part: float, effective: float) -> Estimate:
    """Return a share of independent draws with Wilson's interval.

    Parameters
    ----------
    part : float
        The share found, 0 to 1.
    effective : float
        Number of independent draws, > 0.

    References
    ----------
    Wilson, 1927: Probable inference, the law of succession, and statistical inference.
    """
    low, high = wilson(part, effective, CONFIDENCE)
    return Estimate(part, float(low), float(high))


def independent(hit: NDArray[np.bool_], owner: NDArray[np.int64]) -> float:
    """Return how many independent draws `n` draws are worth for the share of hits.

    Jobs of one owner are alike. The variance of the share is that between owners, if it is above
    that of independent draws (the design effect of a cluster sample).

    Parameters
    ----------
    hit : bool[n]
        n >= 1.
    owner : int64[n]
        Codes from 0.
    """
    n, part = len(hit), float(hit.mean())
    plain = part * (1 - part) / n
    sums = np.bincount(owner, hit - part)
    owners = np.count_nonzero(np.bincount(owner))
    if plain == 0 or owners < 2:
        return float(n)
    between = float((sums**2).sum()) / n**2 * owners / (owners - 1)
    return n * min(plain / between, 1.0) if between > 0 else float(n)


OUTLIER = 4.0
"""Robust standard deviations beyond which a job is set aside."""

_MAD = 1.4826
_BAND = 0.25


def scatter(off: Floats, fitted: int = 0) -> float:
    """Return the standard deviation of most values: that of a normal sample with their median size.

    `fitted` values, the smallest, are passed over: a fit by medians runs through as many points as
    it has parameters.
    """
    size = np.sort(np.abs(off))
    return _MAD * float(np.median(size[min(fitted, len(size) - 1) :]))


def rounding(log_time: Floats) -> float:
    """Return the scatter that rounding to whole seconds makes of run times of middle length."""
    return float(np.exp(-np.median(log_time)))


def loss(off: Floats) -> float:
    """Return by how much setting aside widens intervals: 1 / (1 - 2 c f(c)), f the density at c.

    Jobs near the limit c on either side come and go with the fit.

    Parameters
    ----------
    off : float64[n]
        Of the jobs kept: distance from the fit in standard deviations, at most `OUTLIER`.

    References
    ----------
    Huber, 1981: Robust Statistics, section 3.2 (variance of an M-estimator that rejects beyond c).
    """
    band = float((off > OUTLIER * (1 - _BAND)).mean())
    return 1 / max(1 - band / _BAND, 0.5)


def medians(values: Floats, group: Codes) -> Floats:
    """Return the median of each group; groups are 0, 1, ... without gaps."""
    ranked = values[np.lexsort((values, group))]
    count = np.bincount(group)
    first = np.cumsum(count) - count
    middle: Floats = (ranked[first + (count - 1) // 2] + ranked[first + count // 2]) / 2
    return middle


FEWEST_JOBS = 20
FEWEST_BEYOND = 5
"""So many jobs must lie on either side of a quantile."""

QUANTILES = (0.05, 0.25, 0.5, 0.75)


@dataclass(frozen=True)
class RequestedTimes:
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
) -> RequestedTimes | Refused:
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
    return RequestedTimes(
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
