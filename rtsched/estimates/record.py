"""How good the estimates were: the record that is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.estimates.calibration import MEDIAN
from rtsched.estimates.tables import Accuracy
from rtsched.model.units import PERIODS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.estimates.calibration import Settled

PARTS = 256
"""Additions that are kept apart until they are joined."""

MOST = 300_000
"""Judged estimates that are kept, the latest ones."""

KNOWN_AT, WITHIN_80, WITHIN_90, WITHIN_95, WIDTH, SCORE, MADE_AT, SIZE, JOB, ERROR = range(10)
"""Columns of judged estimates: when the outcome was known, seconds since the epoch; whether it was
within the intervals of 80, 90 and 95 %; width and interval score of that of 90 %, seconds; when it
was made, seconds since the epoch; size and id of the job; error of the median, seconds. Further
columns have the errors of estimates by simple predictors without arrivals, seconds; then, where
these have intervals, the widths of those of 90 % and their interval scores, seconds."""

ERROR_BY_LIMITS = ERROR + 1
"""Column of the first simple predictor: requested times."""

MISSED_90 = 2 / 0.1
"""What a second outside the interval of 90 % adds to its score, seconds."""


def judged(settled: Settled, simple: Sequence[Settled] = ()) -> NDArray[np.float64]:
    """Return float64[n, 10 + p + 2 q], columns as above, of settled estimates.

    A second is forgiven.

    Parameters
    ----------
    settled : Settled
        `n` estimates, with errors by `p` simple predictors.
    simple : sequence of Settled
        The same starts, as estimated by `q` simple predictors with intervals of their own.
    """
    value, bounds, known = settled.value, settled.open.quantiles, settled.open
    within = [
        (value >= bounds[:, place] - 1.0) & (value <= bounds[:, 2 * MEDIAN - place] + 1.0)
        for place in (2, 1, 0)
    ]
    errors = (np.abs(value - bounds[:, MEDIAN]), np.abs(value[:, None] - known.simple))
    made = (known.at, known.size, known.job)
    others = np.transpose([_width_and_score(each) for each in simple], (1, 2, 0)) if simple else ()
    columns = [known.at + value, *within, *_width_and_score(settled), *made, *errors, *others]
    return np.column_stack(columns).astype(np.float64)


def _width_and_score(settled: Settled) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return width and interval score of the intervals of 90 %, seconds.

    The score is that of Gneiting and Raftery, "Strictly proper scoring rules, prediction, and
    estimation", JASA 102, 2007, section 6.2: the lower, the better.
    """
    low, high = settled.open.quantiles[:, 1], settled.open.quantiles[:, 2 * MEDIAN - 1]
    outside = np.maximum(low - settled.value, 0.0) + np.maximum(settled.value - high, 0.0)
    return high - low, high - low + MISSED_90 * outside


class Record:
    """Judged estimates of the last month, or of all time."""

    def __init__(self, *, forever: bool = False) -> None:
        self._forever = forever
        self._parts: list[NDArray[np.float64]] = []

    @property
    def rows(self) -> NDArray[np.float64]:
        """Return float64[n, 10 + p + 2 q], columns as above, in the order of their outcomes."""
        if not self._parts:
            return np.zeros((0, ERROR_BY_LIMITS + 1))
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def add(self, settled: Settled, now: float, simple: Sequence[Settled] = ()) -> None:
        """Add estimates whose outcome has become known, as `judged` takes them."""
        if len(settled.value):
            self._parts.append(judged(settled, simple))
        if not self._forever and len(self._parts) > PARTS:
            rows = self.rows
            self._parts = [rows[rows[:, KNOWN_AT] > now - max(PERIODS)][-MOST:]]

    def accuracy(self, now: float) -> Accuracy:
        """Return coverage and error of the last day, week and month, three rows."""
        parts = [self.rows[self.rows[:, KNOWN_AT] > now - period] for period in PERIODS]
        counts = [len(part) for part in parts]
        none = np.full(self.rows.shape[1], np.nan)
        means = np.array([part.mean(axis=0) if len(part) else none for part in parts])
        return Accuracy.build(
            len(PERIODS),
            seconds=np.array(list(PERIODS)),
            jobs=np.array(counts),
            covered_80=means[:, WITHIN_80],
            covered_90=means[:, WITHIN_90],
            covered_95=means[:, WITHIN_95],
            error=means[:, ERROR],
            error_by_limits=means[:, ERROR_BY_LIMITS],
        )
