"""Offers that are held: they have a place in the plan, and nobody is kept from starting for them.

The batch system never sees them: what it can start, it starts. One that is planned next on nodes
that are free now would keep somebody from starting there, who may ask for a promise too. It is
named as not reserved, and gives way.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.plan_repair import by_room, free_now, with_leeway
from rtsched.daemon.instant import SOON
from rtsched.model.units import MINUTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.daemon.site import Site
    from rtsched.model.schedule import Schedule

STATED = 60.0
"""Seconds for which an offer can be taken where the site holds none."""


def promised_rows(site: Site) -> NDArray[np.int64]:
    """Return the rows of the plan that are no offers: those that the batch system is to keep."""
    return np.flatnonzero(~np.isin(site.snapshot.plan.entries.job, site.promises.offers))


def in_the_way(site: Site, now: float) -> list[int]:
    """Return the offers that would keep a job from starting that could start now.

    `now` in seconds since the epoch. On nodes that jobs share those are meant whose own job could
    start.
    """
    offers = site.promises.offers
    if not len(offers):
        return []
    snapshot, plan = replace(site.snapshot, now=now), site.snapshot.plan
    if by_room(snapshot):
        keeps = free_now(with_leeway(snapshot, site.leeway), plan, SOON)
    else:
        free = snapshot.free_in <= SOON
        if not free.any():
            return []
        first = plan.first_entries(len(snapshot.cluster))
        keeps = np.zeros(len(plan), np.bool_)
        keeps[first[(first >= 0) & free]] = True
    found: list[int] = plan.entries.job[keeps & np.isin(plan.entries.job, offers)].tolist()
    return found


def rounded_up(deadline: float) -> float:
    """Return a deadline on a whole minute, not before it, seconds since the epoch."""
    return math.ceil(deadline / MINUTE) * MINUTE


def too_early_by(plan: Schedule, entry: int, deadline: float, until: float) -> float:
    """Return how much too early a deadline is for a job that is submitted as late as `until`.

    In seconds; 0 or less: it could start then and still end in time. The plan has it now.
    """
    start, end = float(plan.entries.start[entry]), float(plan.entries.end[entry])
    return until - max(start, deadline - (end - start))
