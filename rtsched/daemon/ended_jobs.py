"""Jobs that polls have shown to end, for sites without accounting.

What starts and ends between two polls is not seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.past import NO_JOBS, joined_logs
from rtsched.model.jobs import Jobs
from rtsched.model.log import Ending, Log, Outcomes
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.adapters.live import Completions
    from rtsched.model.snapshot import Snapshot

MOST = 100_000
"""Ended jobs that are kept until somebody takes them."""


class EndedJobs:
    """Finds, poll by poll, which jobs have ended, and how long they ran."""

    def __init__(self) -> None:
        self._jobs = Jobs.build(0)
        self._runs: dict[int, float] = {}
        self._found: list[Log] = []

    def poll(self, snapshot: Snapshot, completions: Completions, at: float) -> None:
        """Take in a poll that began at this time, seconds since the epoch."""
        jobs = Jobs.joined([snapshot.queued, snapshot.running])
        gone = self._jobs.take(~np.isin(self._jobs.id, jobs.id))
        if len(gone):
            found = self._ended(gone, completions, at)
            if len(found.jobs):
                self._found.append(found)
        if sum(len(log.jobs) for log in self._found) > MOST:
            self._found = self._found[-1:]
        entries = snapshot.allocations.entries
        self._runs = dict(zip(entries.job.tolist(), entries.start.tolist(), strict=True))
        self._jobs = jobs

    def taken(self) -> Log | None:
        """Return what has been found since this was last asked; None: nothing."""
        found, self._found = joined_logs(self._found), []
        return found if len(found.jobs) else None

    def _ended(self, gone: Jobs, completions: Completions, at: float) -> Log:
        """Return jobs that are not shown any more, of those that ran."""
        start = np.array([self._runs.get(job, np.nan) for job in gone.id.tolist()], np.float64)
        end = np.where(np.isfinite(start), at, np.nan)
        place, known = places(completions.job, gone.id)
        if known.any():
            start[known] = completions.start[place[known]]
            end[known] = completions.end[place[known]]
        with np.errstate(invalid="ignore"):
            ran: NDArray[np.bool_] = np.isfinite(start) & (end >= start)
        if not ran.any():
            return NO_JOBS
        outcomes = Outcomes.build(
            len(gone),
            start=start,
            end=end,
            run_time=end - start,
            size=gone.size,
            ending=np.full(len(gone), Ending.UNKNOWN, np.int8),
        )
        return Log(gone.take(ran), outcomes.take(ran), (), "polls")
