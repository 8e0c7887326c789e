"""Thresholds of odds by simulation, so that the stated share of promises is kept.

Odds of a simulation ahead are not those that turn out, and jobs with at least 95 % have more than
that on average. So each stated odds have a threshold for the raw ones, which follows the outcomes:
a broken promise raises it, a kept one lowers it by as much less as promises are to be broken less
often (adaptive conformal inference). It moves by its log-odds, so that it is as steady near 0 and 1
as between them. It aims at somewhat fewer broken promises than stated, since they come in bursts,
and the share is to hold in each block of some hundreds too. In the long run about that share is
kept, whatever the raw odds are worth, as long as a threshold within its bounds reaches it. That
holds for all promises together, not for each job: one that is accepted may have lower raw odds than
stated.

References
----------
Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STEP = 0.5
"""By how much the log-odds of a threshold rise after a broken promise to which odds of 100 % were
stated."""

RESERVE = 0.2
"""Share of the broken promises that stated odds allow which the threshold does not aim at."""

HIGHEST = 0.1
"""The threshold leaves this share of what is between the stated odds and 1."""

LEAST = 1e-4
"""Odds this near to 0 and 1 are taken for these."""


@dataclass(frozen=True)
class LikelyLevel:
    """The thresholds of all stated odds.

    Attributes
    ----------
    step : float
        By how much a threshold follows an outcome.
    shifts : mapping of float to float
        By stated odds, 0 to 1, rounded to 0.001: by how much the log-odds of their threshold are
        above their own.
    """

    step: float = STEP
    shifts: Mapping[float, float] = field(default_factory=dict)

    def threshold(self, stated: float) -> float:
        """Return from which raw odds on, 0 to 1, a promise with these stated odds is given.

        Before the first outcome it is the stated odds themselves, which is on the safe side where
        raw odds are right. It stays below 1, for with no promise given there would be no outcome
        to learn from; and above half of what stated odds leave to 1, unless they are lower.
        """
        shift = self.shifts.get(round(stated, 3), 0.0)
        return _odds(_log_odds(stated) + shift) if shift else stated

    def calibrated(self, raw: float, stated: float) -> float:
        """Return raw odds, shifted as the threshold is: at it they are the stated odds."""
        shift = self.shifts.get(round(stated, 3), 0.0)
        return _odds(_log_odds(raw) - shift) if shift else raw

    def learnt(self, outcomes: Iterable[tuple[float, bool]]) -> LikelyLevel:
        """Return this with more outcomes, in the order in which they became known.

        Parameters
        ----------
        outcomes : iterable of (float, bool)
            Odds, 0 to 1, that were stated, and whether the job ended by its deadline.

        Raises
        ------
        ValueError
            If odds are not within 0 and 1.
        """
        shifts = dict(self.shifts)
        for stated, kept in outcomes:
            if not 0 <= stated <= 1:
                raise ValueError(f"odds must be within 0 and 1, not {stated}")
            key, own, left = round(stated, 3), _log_odds(stated), 1.0 - stated
            lowest, highest = _log_odds(left / 2), _log_odds(1.0 - HIGHEST * left)
            shift = shifts.get(key, 0.0) + self.step * (1.0 - (1.0 - RESERVE) * left - kept)
            shifts[key] = min(max(shift, min(lowest - own, 0.0)), highest - own)
        return replace(self, shifts=shifts) if shifts else self


def _log_odds(odds: float) -> float:
    within = min(max(odds, LEAST), 1.0 - LEAST)
    return math.log(within / (1.0 - within))


def _odds(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))
