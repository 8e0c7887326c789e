"""What both fits do about jobs that are far off: set them aside, and allow for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

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
