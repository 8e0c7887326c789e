"""Ends of running jobs: by how long their users' jobs ran, and no later than their limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rtsched.daemon.estimating_process import running_ends
from rtsched.estimates.run_times import RunTimes
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot

NOW = 1_800_000_000.0


def jobs(*ids: int) -> Jobs:
    """Return jobs of ann's of an hour."""
    n = len(ids)
    return Jobs.build(n, id=ids, user=["ann"] * n, wall_time=np.full(n, 3600.0))


def state(*elapsed: float) -> Snapshot:
    """Return a state in which a job runs for each of the given times."""
    n = len(elapsed)
    start = NOW - np.array(elapsed)
    nodes = np.arange(n, dtype=np.int32)
    runs = Schedule.build(np.arange(n), start, start + 3600.0, np.arange(n + 1), nodes)
    return Snapshot(NOW, Cluster.uniform(8), running=jobs(*range(n)), allocations=runs)


def test_ends_follow_the_past() -> None:
    """Most end when such jobs did; one that has run longer ends between now and its limit."""
    past = RunTimes()
    past.learn(jobs(*range(50)), np.full(50, 1200.0))
    found = running_ends(past, state(600.0, 3000.0, 4000.0))
    assert found.job.tolist() == [0, 1, 2]
    assert found.end[0] == NOW + 600.0
    assert NOW <= found.end_low_95[1] <= found.end_high_95[1] <= NOW + 600.0
    assert found.end_high_95[2] == NOW  # past its limit: any moment
    assert np.isnan(found.start).all()


def test_odds_are_of_those_with_a_deadline() -> None:
    """The share of the draws that end by then, and never all of them."""
    runs = state(0.0, 0.0, 0.0, 0.0)
    deadline = [np.inf, NOW - 1.0, NOW + 1800.0, NOW + 3600.0]
    found = running_ends(RunTimes(), replace(runs, running=runs.running.replace(deadline=deadline)))
    assert np.isnan(found.odds[0])
    assert found.odds[1] == 0.0
    assert 0.4 < found.odds[2] < 0.6
    assert 0.99 < found.odds[3] < 1.0


def test_without_a_past() -> None:
    """The interval is wide, and ends at the limit."""
    found = running_ends(RunTimes(), state(0.0))
    assert found.end_low_80[0] < NOW + 900.0
    assert NOW + 2700.0 < found.end_high_80[0] <= NOW + 3600.0
    assert len(running_ends(RunTimes(), state())) == 0
