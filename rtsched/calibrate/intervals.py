"""Estimates with 95 % intervals: quantiles of the normal and t distributions, shares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.wilson import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
