"""What an estimate says of each job, and how good estimates were."""

from __future__ import annotations

import numpy as np

from rtsched.model.table import Column, Table

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
