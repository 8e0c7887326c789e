"""Reports of start estimates: of jobs that wait or run, and of one that is not submitted."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtsched.counting import counted
from rtsched.daemon.estimating import LatestEstimates, held_back
from rtsched.daemon.reports import EstimateRecord, StartEstimate
from rtsched.daemon.site import entry_of
from rtsched.daemon.waiting import needs, waits
from rtsched.estimates.tables import BOUNDS
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.daemon.reports import Reason
    from rtsched.daemon.site import Site
    from rtsched.daemon.working import Steered
    from rtsched.estimates.tables import Accuracy, Estimates
    from rtsched.model.jobs import Jobs

MOST = 1000
"""Jobs in one report."""

EXPLAINED = 20
"""Jobs in one report of which it says what they wait for."""

OFF = LatestEstimates(enabled=False)

COLUMNS = tuple(f"{what}{bound}" for what in ("start", "end") for bound in BOUNDS)
"""What estimates and their reports call the same."""


class Starts:
    """Reads what is estimated of the jobs of a site.

    Parameters
    ----------
    site : Site
        The jobs.
    latest : LatestEstimates
        What was estimated last.
    steered : Steered or None
        How plug-ins order the queue.
    name_of : callable
        From a job's id to the batch system's name of it.
    now : float
        Seconds since the epoch.
    """

    def __init__(
        self,
        site: Site,
        latest: LatestEstimates,
        steered: Steered | None,
        name_of: Callable[[int], str],
        now: float,
    ) -> None:
        self._site, self._latest, self._steered = site, latest, steered
        self._name_of, self._now = name_of, now

    @cached_property
    def _held_back(self) -> frozenset[int]:
        return frozenset(held_back(self._site).tolist())

    def of_job(self, job: int) -> StartEstimate | None:
        """Return what is estimated of a job; None: it neither waits nor runs."""
        snapshot = self._site.snapshot
        for table, running in ((snapshot.queued, False), (snapshot.running, True)):
            place, there = places(table.id, np.array([job]))
            if there[0]:
                row = table.take(place)
                return self._running(row) if running else self._waiting(row, explained=True)
        return None

    def of_jobs(self, jobs: Sequence[int]) -> tuple[tuple[StartEstimate, ...], int]:
        """Return what is estimated of waiting jobs, the next start first, and how many are more."""
        queued = self._site.snapshot.queued
        rows = np.flatnonzero(np.isin(queued.id, np.array(jobs, np.int64)))
        place, there = places(self._latest.estimates.job, queued.id[rows])
        start = np.full(len(rows), np.inf)
        if there.any():
            start[there] = self._latest.estimates.start[place[there]]
        plan = self._site.snapshot.plan.entries
        place, there = places(plan.job, queued.id[rows])
        start[there] = plan.start[place[there]]
        ranks = np.argsort(np.where(np.isnan(start), np.inf, start), kind="stable")[:MOST]
        shown = tuple(
            self._waiting(queued.take([row]), explained=rank < EXPLAINED)
            for rank, row in enumerate(rows[ranks].tolist())
        )
        return shown, len(rows) - len(shown)

    def unsubmitted(self, row: Jobs, found: Estimates | None) -> StartEstimate:
        """Return what is estimated of a job that is not submitted, one row."""
        reasons = needs(self._site.snapshot, row, self._now)
        if found is None or not len(found) or math.isnan(found.start_low_80[0]):
            why = self._why_none() or "no estimate was ready in time; try again"
            return _none(row, "", "unsubmitted", why, reasons)
        return StartEstimate(
            "", *_texts(row), "unsubmitted", "estimate", **_times(found), waits=reasons
        )

    def record(self) -> tuple[EstimateRecord, ...]:
        """Return how good the estimates were."""
        return record_of(self._latest.accuracy)

    @property
    def estimated(self) -> float | None:
        """The time of the state that was estimated, seconds since the epoch."""
        return _time(self._latest.at)

    @property
    def past(self) -> int:
        """Ended jobs that were read."""
        return self._latest.past

    @property
    def problem(self) -> str:
        """What is wrong with all estimates, one sentence."""
        latest = self._latest
        if why := self._why_none():
            return why
        if latest.failure:
            return f"there are no newer estimates: {latest.failure}"
        if latest.left_out:
            return (
                f"too many jobs wait: the last {latest.left_out:,} in the queue's order are not "
                "estimated"
            )
        return f"intervals are wide: {latest.problem}" if latest.problem else ""

    def _why_none(self) -> str:
        if not self._latest.enabled:
            return "starts are not estimated here (`enabled` in [estimates] of site.toml)"
        if not math.isfinite(self._latest.at):
            if self._latest.failure:
                return self._latest.failure
            return "the first estimates are not ready yet; try again in some seconds"
        return ""

    def _waiting(self, row: Jobs, *, explained: bool) -> StartEstimate:
        site, job, now = self._site, int(row.id[0]), self._now
        name = self._name_of(job)
        reasons = waits(site, self._steered, job, now) if explained else ()
        if (entry := entry_of(site.snapshot.plan, job)) >= 0:
            entries = site.snapshot.plan.entries
            start, end = _time(float(entries.start[entry])), _time(float(entries.end[entry]))
            return StartEstimate(
                name, *_texts(row), "waiting", "plan", start=start, end=end, waits=reasons
            )
        place, marked = places(site.marks.job, row.id)
        if marked[0] and site.marks.held[place[0]]:
            why = "it is held: nobody knows when it will be released"
            return _none(row, name, "waiting", why, reasons)
        if job in self._held_back:
            why = "it waits for a job that is held"
            return _none(row, name, "waiting", why, reasons)
        found = self._latest.row(job)
        if found is None or math.isnan(found.start_low_80[0]):
            late = "it was submitted after the last estimate; try again in some seconds"
            left_out = (
                f"{counted(self._latest.left_out, 'job')} at the end of the queue are not estimated"
            )
            why = self._why_none() or (left_out if self._latest.left_out else late)
            if found is not None:
                why = "it cannot start as things stand now"
            return _none(row, name, "waiting", why, reasons)
        times = _times(found)
        return StartEstimate(name, *_texts(row), "waiting", "estimate", **times, waits=reasons)

    def _running(self, row: Jobs) -> StartEstimate:
        job = int(row.id[0])
        allocations = self._site.snapshot.allocations
        entry = entry_of(allocations, job)
        start = latest = None
        if entry >= 0:
            start = _time(float(allocations.entries.start[entry]))
            latest = _time(float(allocations.entries.end[entry]))
        found, name = self._latest.row(job), self._name_of(job)
        ends: dict[str, Any] = {}
        if found is not None and not math.isnan(found.end_low_80[0]):
            ends = {key: at for key, at in _times(found).items() if key.startswith("end")}
        return StartEstimate(
            name,
            *_texts(row),
            "running",
            "estimate" if ends else "none",
            start=start,
            latest=latest,
            why="" if ends else "its end is not estimated",
            **ends,
        )


def record_of(accuracy: Accuracy) -> tuple[EstimateRecord, ...]:
    """Return a record as it is reported."""
    columns = (
        accuracy.covered_80,
        accuracy.covered_90,
        accuracy.covered_95,
        accuracy.error,
        accuracy.error_by_limits,
    )
    rows = zip(
        accuracy.seconds.tolist(),
        accuracy.jobs.tolist(),
        *(column.tolist() for column in columns),
        strict=True,
    )
    return tuple(
        EstimateRecord(seconds, jobs, *(_time(value) for value in values))
        for seconds, jobs, *values in rows
    )


def _texts(row: Jobs) -> tuple[str, str]:
    return row.texts("name")[0] or "", row.texts("user")[0] or ""


def _times(found: Estimates) -> dict[str, Any]:
    return {name: _time(float(found.column(name)[0])) for name in COLUMNS}


def _none(
    row: Jobs,
    name: str,
    state: Literal["waiting", "unsubmitted"],
    why: str,
    reasons: tuple[Reason, ...],
) -> StartEstimate:
    return StartEstimate(name, *_texts(row), state, "none", why=why, waits=reasons)


def _time(value: float) -> float | None:
    return value if math.isfinite(value) else None
