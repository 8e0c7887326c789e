"""Tables of estimates, odds of deadlines, and how good estimates were."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.table import Column, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUNDS = {"_low_95": 0.025, "_low_80": 0.1, "": 0.5, "_high_80": 0.9, "_high_95": 0.975}
"""How columns of starts and ends are called behind `start` and `end`, and which quantile each is:
the median, and the bounds of the intervals of 80 and 95 %."""


class Estimates(Table):
    """One row per job. Times are seconds since the epoch; inf: beyond what was simulated."""

    job = Column(np.int64, -1, "Job id.")
    start = Column(np.float64, np.nan, "Median of its start; nan: no estimate.")
    start_low_80 = Column(np.float64, np.nan, "It starts from then on with odds of 90 %.")
    start_high_80 = Column(np.float64, np.nan, "It has started by then with odds of 90 %.")
    start_low_95 = Column(np.float64, np.nan, "It starts from then on with odds of 97.5 %.")
    start_high_95 = Column(np.float64, np.nan, "It has started by then with odds of 97.5 %.")
    end = Column(np.float64, np.nan, "Median of its end.")
    end_low_80 = Column(np.float64, np.nan, "It ends from then on with odds of 90 %.")
    end_high_80 = Column(np.float64, np.nan, "It has ended by then with odds of 90 %.")
    end_low_95 = Column(np.float64, np.nan, "It ends from then on with odds of 97.5 %.")
    end_high_95 = Column(np.float64, np.nan, "It has ended by then with odds of 97.5 %.")
    odds = Column(np.float64, np.nan, "Odds that it ends by its deadline; nan: it has none.")


class Accuracy(Table):
    """One row per period of the past: how good the estimates of its starts were."""

    seconds = Column(np.float64, np.nan, "Length of the period before now.")
    jobs = Column(np.int64, 0, "Estimates whose jobs have started since.")
    covered_80 = Column(np.float64, np.nan, "Share of them within their 80 % interval.")
    covered_90 = Column(np.float64, np.nan, "Share of them within their 90 % interval.")
    covered_95 = Column(np.float64, np.nan, "Share of them within their 95 % interval.")
    error = Column(np.float64, np.nan, "Mean absolute error of the median, seconds.")
    error_by_limits = Column(
        np.float64, np.nan, "That of requested times without arrivals, seconds."
    )


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
