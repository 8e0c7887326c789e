"""Ended jobs, for the adapters' readers: a log of those that ended in a span of time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rtsched.model.jobs import NOBODY, Edges, Jobs
from rtsched.model.log import Ending, Log, Outcomes

NO_JOBS = Log(NOBODY, Outcomes.build(0), (), "past")
"""A log without jobs."""

_ALIVE = (Ending.RUNNING, Ending.PENDING)


def ended_between(log: Log, since: float, until: float) -> Log:
    """Return the jobs of a log that ran and ended in [since, until], seconds since the epoch."""
    start, end = log.outcomes.start, log.outcomes.end
    with np.errstate(invalid="ignore"):
        over = np.isfinite(start) & (end >= since) & (end <= until) & (end >= start)
    over &= ~np.isin(log.outcomes.ending, _ALIVE)
    rows = np.flatnonzero(over)
    return replace(
        log, jobs=log.jobs.take(rows), outcomes=log.outcomes.take(rows), edges=Edges.build(0)
    )


def joined_logs(logs: list[Log]) -> Log:
    """Return the jobs of several logs, one after the other."""
    logs = [log for log in logs if len(log.jobs)]
    if not logs:
        return NO_JOBS
    return Log(
        Jobs.joined([log.jobs for log in logs]),
        Outcomes.joined([log.outcomes for log in logs]),
        tuple(source for log in logs for source in log.sources),
        logs[0].format,
    )
