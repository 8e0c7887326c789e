"""Simple predictors of run times, by hand."""

from __future__ import annotations

import numpy as np

from rtsched.estimates.run_times import NAMES, Predictors
from rtsched.testing import make_jobs

LONGEST = 1e6


def known() -> Predictors:
    """Return what is known after five jobs of ann and one of bob."""
    found = Predictors()
    users = ["ann", "ann", "bob", "ann", "ann", "ann"]
    jobs = make_jobs(6, wall_time=[1000.0, 1000.0, 1000.0, 400.0, 1000.0, np.inf])
    jobs = jobs.replace_text("user", [users.index(user) for user in users], users)
    found.learn(jobs, np.array([100.0, 200.0, 900.0, 160.0, np.nan, 60.0]))
    return found


def predicted(user: str, wall: float, elapsed: float = 0.0) -> list[float]:
    """Return what is predicted of a job."""
    job = make_jobs(1, wall_time=[wall]).replace_text("user", [0], [user])
    return known().run_times(job, np.array([elapsed]), LONGEST)[0].tolist()


def test_of_a_job_that_waits() -> None:
    """The median of 0.1, 0.2 and 0.4; the mean of 160 and 60. What did not run does not count."""
    assert len(NAMES) == 3
    assert predicted("ann", 1000.0) == [1000.0, 200.0, 110.0]
    assert predicted("ann", 90.0) == [90.0, 18.0, 90.0]
    assert predicted("ann", np.inf) == [LONGEST, 0.2 * LONGEST, 110.0]


def test_of_a_user_who_is_not_known() -> None:
    """All that is known is what is requested."""
    assert predicted("eve", 1000.0) == [1000.0] * 3


def test_of_a_job_that_runs_longer() -> None:
    """A prediction that has passed grows in steps, up to what is requested, and beyond now."""
    assert predicted("ann", 1000.0, 150.0) == [1000.0, 200.0, 110.0 + 60.0]
    assert predicted("ann", 1000.0, 230.0) == [1000.0, 200.0 + 60.0, 110.0 + 300.0]
    assert predicted("ann", 1000.0, 995.0) == [1000.0, 1000.0, 1000.0]
    assert predicted("ann", 1000.0, 2000.0) == [2001.0] * 3
