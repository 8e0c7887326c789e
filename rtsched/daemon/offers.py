"""Offers that are held: they have a place in the plan, and nobody is kept from starting for them.

The batch system never sees them: what it can start, it starts. One that is planned next on nodes
that are free now would keep somebody from starting there, who may ask for a promise too. It is
named as not reserved, and gives way. A user takes an offer by submitting the job that it was made
for, or one that asks for no more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.core.plan_repair import by_room, free_now, with_leeway
from rtsched.daemon.instant import SOON
from rtsched.daemon.qos_limits import without_limits
from rtsched.daemon.site import entry_of
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in
from rtsched.model.table import no_more, same_amounts
from rtsched.model.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Submission
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Edges, Jobs

STATED = 60.0
"""Seconds for which an offer can be taken where the site holds none."""

REQUIREMENTS = (
    *("kind", "size", "size_min", "size_max", "wall_time", "begin", "dag", "pinned", "exclusive"),
    *("sigma", "cms", "cps", "setup_link", "setup_node", "rounds"),
)
CHARGED = ("partition", "node_request", "account", "qos")
"""What must be equal for a submission to be the one that an offer was made for."""

Covers: TypeAlias = "Callable[[Site, Promise, Jobs], bool]"
"""Whether a job may take an offer."""

GAVE_WAY = "gave way to another job"
"""Why an offer lapsed that was in the way."""


def promised_rows(site: Site) -> NDArray[np.int64]:
    """Return the rows of the plan that are no offers: those that the batch system is to keep."""
    return np.flatnonzero(~are_in(site.snapshot.plan.entries.job, site.promises.offers))


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
    found: list[int] = plan.entries.job[keeps & are_in(plan.entries.job, offers)].tolist()
    return found


def rounded_up(deadline: float) -> float:
    """Return a deadline on a whole minute, not before it, seconds since the epoch."""
    return math.ceil(deadline / MINUTE) * MINUTE


def too_early_by(plan: Schedule, entry: int, deadline: float, until: float) -> float:
    """Return how much too early a deadline is for a job that is submitted as late as `until`.

    In seconds; 0 or less: it could start then and still end in time. The plan has it now.
    """
    start, end = plan.span_of(entry)
    return until - max(start, deadline - (end - start))


def unended(site: Site, links: Edges) -> NDArray[np.bool_]:
    """Return which links are to jobs that wait or run."""
    snapshot = site.snapshot
    return are_in(links.before, snapshot.queued.id) | are_in(links.before, snapshot.running.id)


def redeemable(site: Site, job: Submission, now: float, covers: Covers) -> list[Promise]:
    """Return a user's offers that cover a job and end by the deadline that it asks for.

    The job waits for the same jobs, of those that have not ended.
    """
    return [
        promise
        for promise in site.of_user(job.uid, "offered")
        if now < promise.expires
        and covers(site, promise, job.jobs)
        and _waits(site, job.edges) == _waits(site, site.links.take(site.links.after == promise.id))
    ]


def same(site: Site, offer: Promise, job: Jobs) -> bool:
    """Return whether an offer was made for a job, and by its deadline or an earlier one."""
    return bool(job.deadline[0] >= offer.deadline) and same_request(site.row(offer.id), job)


def room_for(site: Site, offer: Promise, job: Jobs) -> bool:
    """Return whether a job that asks for no more ends in time in the place of an offer."""
    row, entry = site.row(offer.id), entry_of(site.snapshot.plan, offer.id)
    if entry < 0 or row.kind[0] != Kind.RIGID:
        return False
    less = job.size[0] <= row.size[0] and job.wall_time[0] <= row.wall_time[0]
    less = less and no_more(without_limits(job), without_limits(row), "demand")
    alike = _alike(row, job, besides=("size", "size_min", "size_max", "wall_time"))
    return bool(less and alike and _ends(site, offer, job) <= job.deadline[0])


def _ends(site: Site, offer: Promise, job: Jobs) -> float:
    """Return when a job ends that starts in the place of an offer, seconds since the epoch."""
    plan = site.snapshot.plan
    less = site.row(offer.id).wall_time[0] - job.wall_time[0]
    return float(plan.entries.end[entry_of(plan, offer.id)] - less)


def narrowed(site: Site, offer: Promise, job: Jobs) -> Schedule:
    """Return the plan in which an offer has as many nodes, for as long, as a job needs."""
    plan, row = site.snapshot.plan, site.row(offer.id)
    if row.kind[0] != Kind.RIGID or same_request(row, job):
        return plan
    entry, size = entry_of(plan, offer.id), int(job.size[0])
    start, end = plan.entries.start[entry], _ends(site, offer, job)
    nodes = plan.nodes_of(entry)[:size]
    part = Schedule.build([offer.id], [start], [end], np.array([0, size]), nodes)
    return Schedule.joined([plan.take(np.flatnonzero(plan.entries.job != offer.id)), part])


def same_request(one: Jobs, other: Jobs) -> bool:
    """Return whether two jobs, of one row each, ask for the same, whatever their deadlines."""
    same_demand = same_amounts(without_limits(one), without_limits(other), "demand")
    return same_demand and _alike(one, other)


def _alike(one: Jobs, other: Jobs, besides: Sequence[str] = ()) -> bool:
    """Return whether two jobs ask for the same besides their demand, deadlines, and these."""
    alike = all(_equal(one, other, name) for name in REQUIREMENTS if name not in besides)
    return alike and all(one.texts(name) == other.texts(name) for name in CHARGED)


def _waits(site: Site, links: Edges) -> set[tuple[int, float]]:
    """Return which jobs that have not ended are waited for, and how long their messages travel."""
    open_ = links.take(unended(site, links) | (links.before >= FIRST_OWN_ID))
    return set(zip(open_.before.tolist(), open_.message_time.tolist(), strict=True))


def _equal(one: Jobs, other: Jobs, name: str) -> bool:
    return bool(np.array_equal(one.column(name), other.column(name), equal_nan=True))


def dropped(before: Site, after: Site, now: float, why: str) -> tuple[Promise, ...]:
    """Return the offers of `before` that `after` no longer holds, as lapsed."""
    gone = sorted(job for job in before.promises.offers.tolist() if job not in after.promises)
    return tuple(lapsed(before.promises[job], why, now) for job in gone)


def lapsed(offer: Promise, why: str, now: float) -> Promise:
    """Return an offer that is held no longer."""
    return msgspec.structs.replace(offer, state="lapsed", why=why, changed_at=now)
