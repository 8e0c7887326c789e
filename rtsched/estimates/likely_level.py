"""From which raw odds on a likely promise is given, so that the stated share of them is kept.

Odds of a simulation ahead are not those that turn out, and jobs with at least 95 % have more than
that on average. So each stated odds have a threshold for the raw ones, which follows the outcomes:
a broken promise raises it, a kept one lowers it by as much less as promises are to be broken less
often (adaptive conformal inference). In the long run about the stated share is kept, whatever
the raw odds are worth, as long as a threshold within its bounds reaches it. That holds for all
promises together, not for each job: one that is accepted may have lower raw odds than stated.

References
----------
Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STEP = 0.05
"""By how much a threshold rises after a broken promise to which odds of 100 % were stated."""


@dataclass
class LikelyLevel:
    """The thresholds of all stated odds.

    Attributes
    ----------
    step : float
        By how much a threshold follows an outcome.
    levels : dict of float to float
        By stated odds, 0 to 1, the threshold where outcomes are known.
    """

    step: float = STEP
    levels: dict[float, float] = field(default_factory=dict)

    def threshold(self, stated: float) -> float:
        """Return from which raw odds on, 0 to 1, a promise with these stated odds is given.

        Before the first outcome it is the stated odds themselves, which is on the safe side where
        raw odds are right. It is never above the middle between them and 1: with no promise given
        there would be no outcome to learn from.
        """
        return self.levels.get(stated, stated)

    def learn(self, stated: float, kept: bool) -> None:
        """Add the outcome of a promise, in the order in which they are known.

        Parameters
        ----------
        stated : float
            Odds that were asked for, 0 to 1.
        kept : bool
            Whether its job ended by the deadline.

        Raises
        ------
        ValueError
            If the odds are not within 0 and 1.
        """
        if not 0 <= stated <= 1:
            raise ValueError(f"odds must be within 0 and 1, not {stated}")
        level = self.threshold(stated) + self.step * (stated - kept)
        self.levels[stated] = min(max(level, 0.0), (1.0 + stated) / 2)
