"""When jobs that run may end, by how long jobs like them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.estimates.ends import odds_by
from rtsched.estimates.run_times import draw
from rtsched.estimates.tables import BOUNDS, Estimates
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from rtsched.estimates.run_times import RunTimes
    from rtsched.model.snapshot import Snapshot

DRAWS = 128
"""Run times that are drawn for each job."""


def running_ends(run_times: RunTimes, snapshot: Snapshot, seed: int = 0) -> Estimates:
    """Return estimated ends of the running jobs, one row each, in seconds since the epoch.

    The odds are those that a job ends by its deadline, as `odds_by` has them; nan: it has none. A
    job that has run longer than any before it may take up to its limit. Starts are nan: they are
    known.
    """
    jobs, entries = snapshot.running, snapshot.allocations.entries
    place, there = places(entries.job, jobs.id)
    jobs, place = jobs.take(there), place[there]
    if not len(jobs):
        return Estimates.build(0)
    start, latest = entries.start[place], entries.end[place]
    elapsed = np.maximum(snapshot.now - start, 0.0)
    distribution = run_times.distributions(jobs)
    drawn = draw(distribution, elapsed, jobs.wall_time, jobs.id, jobs.user, DRAWS, seed)
    ends = np.maximum(np.minimum(start + drawn, latest), snapshot.now)
    levels = np.quantile(ends, list(BOUNDS.values()), axis=0)
    columns: dict[str, Any] = {
        f"end{name}": level for name, level in zip(BOUNDS, levels, strict=True)
    }
    odds = odds_by(ends.T, jobs.deadline)
    odds[~np.isfinite(jobs.deadline)] = np.nan
    return Estimates.build(len(jobs), job=jobs.id, odds=odds, **columns)
