"""Odds of deadlines by the ends that a job may have, all of which are equally likely."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def odds_by(
    ends: NDArray[np.float64], deadline: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the odds, 0 to 1, that jobs end by their deadlines.

    The share of a job's ends that are not later. One more, which is, is added, so the odds are
    below 1.

    Parameters
    ----------
    ends : float64[..., k]
        Seconds since the epoch; inf: later than any deadline.
    deadline : float or float64[...]
        Seconds since the epoch; inf: none.

    Returns
    -------
    float64[...]
        nan where no end is known.
    """
    known = ends.shape[-1]
    if not known:
        return np.full(ends.shape[:-1], np.nan)
    latest = np.minimum(deadline, sys.float_info.max)[..., None]
    return np.asarray((ends <= latest).sum(axis=-1) / (known + 1))


def earliest_with(ends: NDArray[np.float64], odds: float) -> float:
    """Return the earliest deadline that has such odds, 0 to 1, by `odds_by`; inf: none has.

    Parameters
    ----------
    ends : float64[k]
        As in `odds_by`, of one job, ascending.
    odds : float
        0 to 1.

    Returns
    -------
    float
        Seconds since the epoch.
    """
    count = max(math.ceil(odds * (len(ends) + 1)), 1)
    return float(ends[count - 1]) if count <= len(ends) else math.inf
