"""Promised jobs that the batch system has forgotten: how they ended, from who keeps the records.

A batch system remembers jobs that ended for some minutes, or not at all. After a longer absence of
the daemon a promise that was missed must not count as one that its user withdrew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.adapters.live import FIRST_OWN_ID, Ended
from rtsched.daemon.merging import overlooked
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rtsched.adapters.live import Sight
    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)


def forgotten(site: Site, sight: Sight) -> tuple[int, ...]:
    """Return the jobs of promises that a look does not show, neither alive nor ended."""
    known = [job for job in site.records if job < FIRST_OWN_ID]
    jobs = np.array([*known, *overlooked(site, sight).values()], np.int64)
    shown = np.concatenate([sight.queued.id, sight.running.id, sight.ended.job])
    return tuple(jobs[~np.isin(jobs, shown)].tolist())


def _since(site: Site, sight: Sight, jobs: Sequence[int]) -> float:
    """Return when the first of the promises to these jobs was made: none had ended by then."""
    numbers, asked = overlooked(site, sight), set(jobs)
    return min(r.made_at for r in site.records.values() if numbers.get(r.id, r.id) in asked)


async def recalled(
    site: Site, sight: Sight, ended: Callable[[Sequence[int], float], Awaitable[Ended]]
) -> Sight:
    """Return a look with the ends of jobs that it does not show, as far as `ended` knows them."""
    jobs = forgotten(site, sight)
    if not jobs:
        return sight
    try:
        found = await ended(jobs, _since(site, sight, jobs))
    except AdapterError as error:
        log.warning("ends_not_known", jobs=jobs[:20], count=len(jobs), error=str(error))
        return replace(sight, unknown=jobs)
    return replace(sight, ended=Ended.joined([sight.ended, found]))
