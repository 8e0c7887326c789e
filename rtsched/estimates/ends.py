"""Odds of deadlines by the ends that one job may have, all of which are equally likely."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def odds_by(ends: NDArray[np.float64], deadline: float) -> float:
    """Return the odds, 0 to 1, that a job ends by a deadline.

    The share of its ends that are not later. One more, which is, is added, so the odds are below 1.

    Parameters
    ----------
    ends : float64[k]
        Ascending, seconds since the epoch; inf: later than any deadline.
    deadline : float
        Seconds since the epoch; inf: none.

    Returns
    -------
    float
        nan where no end is known.
    """
    if not len(ends):
        return math.nan
    count = np.searchsorted(ends, min(deadline, sys.float_info.max), "right")
    return float(count) / (len(ends) + 1)


def earliest_with(ends: NDArray[np.float64], odds: float) -> float:
    """Return the earliest deadline that has such odds, 0 to 1, by `odds_by`; inf: none has.

    Parameters
    ----------
    ends : float64[k]
        As in `odds_by`.
    odds : float
        0 to 1.

    Returns
    -------
    float
        Seconds since the epoch.
    """
    count = max(math.ceil(odds * (len(ends) + 1)), 1)
    return float(ends[count - 1]) if count <= len(ends) else math.inf
