"""Estimates of all waiting jobs, kept up as time goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.estimates.tables import Accuracy, Estimates

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.estimates.settings import EstimateSettings
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log
    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.settings import ExclusiveSettings


class Estimator:
    """Start estimates of one site.

    Parameters
    ----------
    settings : EstimateSettings
        How much work is put into them.
    system : ExclusiveSettings, optional
        The site's own scheduler.
    """

    def __init__(self, settings: EstimateSettings, system: ExclusiveSettings | None = None) -> None:
        self.settings, self.system = settings, system

    def learn(self, log: Log) -> None:
        """Add jobs that have ended to the past; those known already are passed over."""
        raise NotImplementedError

    def refresh(
        self,
        snapshot: Snapshot,
        order: NDArray[np.float64] | None = None,
        between: Callable[[], None] | None = None,
    ) -> Estimates:
        """Return estimates of all waiting jobs, and remember them to judge them later.

        Parameters
        ----------
        snapshot : Snapshot
            The state now.
        order : float64[n], optional
            Of each queued job, its priority; the highest is first. Missing: order of submission.
        between : callable, optional
            Called between two simulations, some milliseconds apart.
        """
        raise NotImplementedError

    def estimate(self, jobs: Jobs) -> Estimates:
        """Return estimates of jobs that are not submitted, each as if it alone were, now."""
        raise NotImplementedError

    def odds(self, jobs: Jobs) -> NDArray[np.float64]:
        """Return the odds that such jobs, submitted now, end by their deadlines, each alone."""
        raise NotImplementedError

    def accuracy(self) -> Accuracy:
        """Return how good the estimates of the last day, week and month were."""
        raise NotImplementedError
