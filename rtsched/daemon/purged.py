"""Promised jobs that the batch system has forgotten: how they ended, from who keeps the records.

A batch system remembers jobs that ended for some minutes, or not at all. After a longer absence of
the daemon a promise that was missed must not count as one that its user withdrew. So whoever keeps
the records (Slurm's accounting, the schedd's history) is asked; while it does not answer, and for
a while after it answered without knowing the job, the promise stays open.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.adapters.live import FIRST_OWN_ID, Completions, CompletionStatus
from rtsched.daemon.reconcile import overlooked
from rtsched.errors import AdapterError
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from rtsched.adapters.live import Observation
    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 10.0, 300.0
"""Seconds until records that did not answer are asked again: at first, and at the most; the time
doubles with each failure."""

SILENT_S = 86400.0
"""Seconds for which records that do not answer are asked about a job."""

REPEAT_S = 30.0
"""Seconds until records that did not know a job are asked about it again."""

LATE_S = 600.0
"""Seconds for which records that answer are asked about a job they do not know: slurmctld hands
its records over late after slurmdbd was away."""


def purged_jobs(site: Site, observation: Observation) -> tuple[int, ...]:
    """Return the jobs of promises that a poll does not show, neither alive nor ended."""
    known = [promise.id for promise in site.all_promises() if promise.id < FIRST_OWN_ID]
    jobs = np.array([*known, *overlooked(site, observation).values()], np.int64)
    shown = np.concatenate(
        [observation.queued.id, observation.running.id, observation.completions.job]
    )
    return tuple(jobs[~are_in(jobs, shown)].tolist())


def _since(numbers: Mapping[int, int], site: Site, jobs: Sequence[int]) -> float:
    """Return when the first of the promises to these jobs was made: none had ended by then."""
    asked = set(jobs)
    return min(r.made_at for r in site.all_promises() if numbers.get(r.id, r.id) in asked)


@dataclass
class _Purged:
    """A job that no poll shows; by the clock of `CompletionLookup`, in seconds.

    Attributes
    ----------
    first : float
        When it was missed.
    answered : float
        When the records first answered without it; inf: never.
    again : float
        When they are asked about it again.
    """

    first: float
    answered: float = math.inf
    again: float = -math.inf

    def open(self, now: float) -> bool:
        """Return whether the records may still come to know the job."""
        return now < min(self.first + SILENT_S, self.answered + LATE_S)


class CompletionLookup:
    """Asks the records about forgotten jobs, and remembers which of them it asked about.

    Parameters
    ----------
    find : callable
        `LiveSystem.find_completions` in the process that talks to the batch system; raises
        AdapterError.
    failed : callable
        Called when the records did not answer.
    clock : callable
        Seconds from any start.
    """

    def __init__(
        self,
        find: Callable[[Sequence[int], float], Awaitable[Completions]],
        failed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._failed, self._clock = find, failed, clock
        self._missing: dict[int, _Purged] = {}
        self._pause, self._resume = FIRST_RETRY_S, -math.inf
        self._error = ""

    async def __call__(self, site: Site, observation: Observation) -> Observation:
        """Return an observation with the known ends of jobs that it did not show.

        Those that may become known yet are its `unknown` ones.
        """
        jobs, now = purged_jobs(site, observation), self._clock()
        if not jobs:
            self._missing = {}
            return observation
        self._missing = {job: self._missing.get(job, _Purged(now)) for job in jobs}
        found = Completions.build(0)
        due = [job for job, missing in self._missing.items() if missing.again <= now]
        if due and now >= self._resume:
            found = await self._ask(site, observation, due, now)
        numbers = set(overlooked(site, observation).values())
        unknown = self._missing.keys() - set(found.job.tolist())
        if not self._error:  # whom the records do not know the batch system did not take
            unknown -= numbers
        unknown = {job for job in unknown if self._missing[job].open(now)}
        problems = observation.problems
        if self._error and unknown:
            count = f"{len(unknown)} promised job" + "s" * (len(unknown) > 1)
            problems = (*problems, f"the end of {count} is not known yet: {self._error}")
        completions = observation.completions
        if len(found):
            completions = Completions.joined([completions, found])
        return replace(
            observation, completions=completions, unknown=tuple(sorted(unknown)), problems=problems
        )

    async def _ask(
        self, site: Site, observation: Observation, jobs: Sequence[int], now: float
    ) -> Completions:
        """Return what the records know of some jobs, and remember when to ask again."""
        try:
            found = await self._find(jobs, _since(overlooked(site, observation), site, jobs))
        except AdapterError as error:
            self._error, self._resume = str(error), now + self._pause
            self._pause = min(2 * self._pause, LAST_RETRY_S)
            self._failed()
            log.warning("ends_not_known", jobs=jobs[:20], count=len(jobs), error=self._error)
            return Completions.build(0)
        self._error, self._pause = "", FIRST_RETRY_S
        unanswered = found.status == CompletionStatus.UNANSWERED
        if unanswered.any():
            self._error = "a schedd does not answer"
            self._failed()
        for job in found.job[unanswered].tolist():
            self._missing[job].again = now + REPEAT_S
        for job in set(jobs) - set(found.job.tolist()):
            missing = self._missing[job]
            missing.answered, missing.again = min(missing.answered, now), now + REPEAT_S
        return found.take(~unanswered)
