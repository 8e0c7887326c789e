"""Jobs that have ended: whose run times are drawn, and who may be submitted once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.estimates.ahead import lean
from rtsched.estimates.run_times import RunTimes
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.resources import CPU, MEMORY
from rtsched.model.table import Text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Log

MOST = 200_000
"""Jobs that are remembered, those that ended last."""

KEPT = ("id", "submit", "user", "name", "account", "qos", "cores", "memory")
"""What is kept of them beside what the simulation needs."""


class History:
    """The jobs of the past, in order of their submissions."""

    def __init__(self) -> None:
        self.jobs = NOBODY
        self.run_time, self.end = np.zeros(0), np.zeros(0)
        """float64[n]: seconds, and seconds since the epoch."""
        self._full_until = -np.inf
        """Since too many were known, those that ended until then are left out."""
        self._known: set[tuple[str | None, float]] = set()
        self._run_times: RunTimes | None = RunTimes()

    def learn(self, log: Log, since: float) -> None:
        """Add the jobs of a log that have ended; known ones, and those before a time, do not count.

        Jobs without a submission, or that ran for no time or for more than ten times as long as
        they might, are left out: their clock was wrong.
        """
        out, jobs = log.outcomes, log.jobs
        with np.errstate(invalid="ignore"):
            run_time = np.where(np.isfinite(out.run_time), out.run_time, out.end - out.start)
            good = (run_time > 0) & np.isfinite(out.end) & (out.end > since)
            good &= np.isfinite(jobs.submit) & (jobs.submit <= out.end)
            good &= run_time <= 10.0 * np.maximum(jobs.wall_time, 3600.0)
            good &= (jobs.size > 0) & (out.end > self._full_until)
        names = zip(jobs.labels(), out.end.tolist(), strict=True)
        fresh = []
        for row, key in enumerate(names):
            if good[row] and key not in self._known:
                self._known.add(key)
                fresh.append(row)
        if not fresh:
            return
        rows = np.array(fresh)
        rows = rows[np.argsort(out.end[rows], kind="stable")]
        new = lean(jobs.take(rows), *KEPT)
        if self._run_times is not None and out.end[rows[0]] >= self.end.max(initial=-np.inf):
            self._run_times.learn(new, run_time[rows])
        else:  # older jobs came later
            self._run_times = None
        self._add(new, run_time[rows], out.end[rows], since)

    def _add(
        self, jobs: Jobs, run_time: NDArray[np.float64], end: NDArray[np.float64], since: float
    ) -> None:
        whole = Jobs.joined([self.jobs, jobs])
        ran, ends = np.concatenate([self.run_time, run_time]), np.concatenate([self.end, end])
        kept = np.flatnonzero(ends > since)
        if len(kept) > MOST:
            latest = np.argsort(ends[kept], kind="stable")
            self._full_until = float(ends[kept[latest[-MOST - 1]]])
            kept = np.sort(kept[latest[-MOST:]])
        order = kept[np.argsort(whole.submit[kept], kind="stable")]
        if len(order) < len(ends):
            oldest = max(since, self._full_until)
            self._known = {key for key in self._known if key[1] > oldest}
        self.jobs, self.run_time, self.end = whole.take(order).replace(), ran[order], ends[order]

    def forget(self, since: float, until: float) -> None:
        """Drop the jobs that ended before a time, or after another: their clock was wrong.

        Where most ended after it, it is the present clock that is wrong.
        """
        late = self.end > until
        if 2 * late.sum() >= len(late):
            late, until = np.zeros(len(late), np.bool_), np.inf
        kept = (self.end > since) & ~late
        if kept.all():
            return
        if late.any():
            self._run_times, self._full_until = None, -np.inf
        self._known = {key for key in self._known if since < key[1] <= until}
        rows = np.flatnonzero(kept)
        self.jobs = self.jobs.take(rows).replace()
        self.run_time, self.end = self.run_time[rows], self.end[rows]

    @property
    def run_times(self) -> RunTimes:
        """Return the run times, learnt in order of the ends."""
        if self._run_times is None:
            self._run_times = RunTimes()
            order = np.argsort(self.end, kind="stable")
            self._run_times.learn(self.jobs.take(order), self.run_time[order])
        return self._run_times

    def on(self, cluster: Cluster, *more: str) -> Jobs:
        """Return the jobs as they would be submitted to a machine, row by row.

        Where jobs share nodes and the log does not say what they took, they take their cores and
        memory. `more`: further columns.
        """
        jobs = lean(self.jobs, *more)
        resources = cluster.nodes.names("capacity")
        if not cluster.shared or self.jobs.names("demand"):
            return jobs
        amounts = np.zeros((len(jobs), len(resources)), np.int64)
        cores, memory = self.jobs.cores, self.jobs.memory
        for column, name in enumerate(resources):
            if name == CPU:
                amounts[:, column] = -(-np.maximum(cores, 1) // np.maximum(jobs.size, 1))
            elif name == MEMORY:
                amounts[:, column] = np.maximum(memory, 0)
        kept = Jobs.columns()
        named = ("partition", *(name for name in more if isinstance(kept[name], Text)))
        plain = (name for name in more if name not in named)
        texts = {name: jobs.names(name) for name in named}
        columns = ("wall_time", "size", "exclusive", *named, *plain)
        return Jobs.build(
            len(jobs),
            names={"demand": resources, **texts},
            demand=amounts,
            **{name: jobs.column(name) for name in columns},
        )
