"""Estimates judged on a log whose jobs keep to limits of accounts and users."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rtsched.estimates import EstimateSettings
from rtsched.estimates.check import Course, _PastLimits, check, replayed
from rtsched.kernels.machine_limits import HELD, USED
from rtsched.model.limits import Association, Limits, LimitSet, SiteLimits
from rtsched.model.table import Ragged
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import WorkloadOptions, prepare
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.testing import make_jobs, make_snapshot

if TYPE_CHECKING:
    from rtsched.replay.results import Workload

HALF_LIFE = 1000.0
DAY = 86400.0
SYSTEM = ExclusiveSettings()


def workload(limits: LimitSet) -> Workload:
    """Return a log of four users of one account, each of whom has these limits."""
    log = Lublin(jobs=200, nodes=32, load=0.6, seed=5, users=4).log()
    jobs = log.jobs.replace_text("account", np.zeros(len(log.jobs), np.int32), ["physics"])
    users = [Association("physics", user, limits=limits) for user in jobs.names("user")]
    site = SiteLimits(None, (Association("physics"), *users), half_life=2 * DAY)
    options = WorkloadOptions(unit="node", deadline_rule="none")
    return prepare(replace(log, jobs=jobs), options, None, site)


def mean_error(of: Workload, course: Course) -> float:
    """Return by how much the medians of starts are wrong, seconds."""
    settings = EstimateSettings(draws=8, longest=np.inf)
    return float(check(of, course, settings, SYSTEM, step=14400.0).rows[:, 4].mean())


@pytest.mark.parametrize(
    "limits",
    [
        LimitSet(user={"jobs": 1}),
        LimitSet(seconds={"GrpTRESMins": {"node": int(4 * DAY)}}),
    ],
    ids=["jobs", "used time"],
)
def test_limits_are_simulated_ahead(limits: LimitSet) -> None:
    """Who knows them is far less wrong than who does not: jobs wait for them, not for nodes."""
    limited = workload(limits)
    course = replayed(limited, SYSTEM)
    assert mean_error(limited, course) < 0.7 * mean_error(replace(limited, limits=None), course)


def past(half_life: float) -> _PastLimits:
    """Return a job of 3 cores from 0 to 1,000, one of 5 from 1,500 on, and one still to start.

    The first two count in group 0, the last one in both.
    """
    limits = Limits(
        things=("cpu", "cpu"),
        basis=np.array([USED, HELD]),
        asked=np.array([[3, 3], [5, 5], [7, 7]]),
        kind=np.array([0, 0, 1]),
        groups=Ragged.of([[0], [0, 1]], np.int64),
        most=np.full((3, 2), 1e9),
        half_life=np.full(2, half_life),
        names=("account physics", "user ann"),
    )
    start, end = np.array([0.0, 1500.0, 3000.0]), np.array([1000.0, 2500.0, 4000.0])
    return _PastLimits(limits, Course(start, end, np.zeros(4, np.int64), np.zeros(0, np.int32)))


@pytest.mark.parametrize(
    ("half_life", "used"),
    [
        (np.inf, 3 * 1000.0 + 5 * 500.0),
        # a core that runs for ever has used HALF_LIFE / log(2) in the end
        (HALF_LIFE, (3 * (0.5 - 0.25) + 5 * (1 - 0.5**0.5)) * HALF_LIFE / np.log(2.0)),
    ],
)
def test_what_was_used_at_an_instant(half_life: float, used: float) -> None:
    """Amounts times seconds until then, at 2,000; rows are found by the jobs' ids."""
    asked = make_jobs(2, id=[2, 0], submit=0.0)
    found = past(half_life).of(asked, make_snapshot(None, None, 2000.0))
    assert found.kind.tolist() == [1, 0]
    assert found.asked[:, 0].tolist() == [7, 3]
    assert found.used is not None
    assert found.used[:, 0] == pytest.approx([used, 0.0])
