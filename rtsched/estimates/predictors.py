"""Simple predictors of run times, which estimates are compared with.

Each gives one run time per job; a simulation of the queue with these, without jobs yet to come,
gives the start that somebody would expect who knows no more.

References
----------
D. Tsafrir, Y. Etsion and D. Feitelson, "Backfilling using system-generated predictions rather than
user runtime estimates", IEEE TPDS 18(6), 2007: the mean of the last two, and how a prediction is
corrected that a job has outlived (section 4.2).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.units import HOUR, MINUTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

NAMES = ("requested times", "median ratio", "last two")
"""The predictors: what is requested; that times the median share of it that the user's jobs ran;
the mean of what the user's last two jobs ran."""

REMEMBERED = 60
"""Jobs of a user whose shares of the requested time count, the latest ones."""

LAST = 2

CORRECTIONS = (
    *(minutes * MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 5, 10, 20, 50, 100)),
)
"""Seconds that are added to a prediction that a job has outlived: the first that suffice."""


class Predictors:
    """What the simple predictors know."""

    def __init__(self) -> None:
        self._shares: dict[str | None, deque[float]] = {}
        self._last: dict[str | None, deque[float]] = {}

    def learn(self, jobs: Jobs, run_time: NDArray[np.float64]) -> None:
        """Add jobs that have ended, in order of their ends, and what they ran, seconds."""
        users, wall = jobs.texts("user"), jobs.wall_time.tolist()
        for user, limit, seconds in zip(users, wall, run_time.tolist(), strict=True):
            if not 0 < seconds < math.inf:
                continue
            self._last.setdefault(user, deque(maxlen=LAST)).append(seconds)
            if 0 < limit < math.inf:
                share = self._shares.setdefault(user, deque(maxlen=REMEMBERED))
                share.append(seconds / limit)

    def run_times(
        self, jobs: Jobs, elapsed: NDArray[np.float64], longest: float
    ) -> NDArray[np.float64]:
        """Return float64[n, 3]: run times by `NAMES`, seconds, above `elapsed`.

        Parameters
        ----------
        jobs : Jobs
            `n` jobs; one of unknown limit has one of `longest` seconds.
        elapsed : float64[n]
            Seconds for which each has run; 0: it waits.
        """
        wall = np.where(np.isfinite(jobs.wall_time), jobs.wall_time, longest)
        users = jobs.texts("user")
        found = {user: (self._share(user), self._mean(user)) for user in set(users)}
        share, mean = np.array([found[user] for user in users]).reshape(len(jobs), 2).T
        last = np.where(np.isfinite(mean), mean, wall)
        predicted = np.column_stack([wall, np.minimum(wall * share, wall), np.minimum(last, wall)])
        grown = predicted[:, :, None] + np.array([0.0, *CORRECTIONS])
        beyond = grown > elapsed[:, None, None]
        place = np.argmax(beyond, axis=2)
        chosen = np.take_along_axis(grown, place[:, :, None], axis=2)[:, :, 0]
        chosen = np.where(beyond.any(axis=2), chosen, np.inf)
        return np.asarray(np.maximum(np.minimum(chosen, wall[:, None]), elapsed[:, None] + 1.0))

    def _share(self, user: str | None) -> float:
        known = self._shares.get(user)
        return float(np.median(known)) if known else 1.0

    def _mean(self, user: str | None) -> float:
        known = self._last.get(user)
        return sum(known) / len(known) if known else math.nan
