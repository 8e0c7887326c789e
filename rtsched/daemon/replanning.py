"""Replanning: a new plan where the old one fails or could be better, and who loses by it.

A plan stops holding when a node dies, a job outlives its time, or the batch system started a job
on planned nodes before they were reserved; and where a job may end after the planned start of one
that waits for it. The jobs whose entries fail are judged anew against all the others; where the
planner finds no plan, the one that there was is put off as far as need be. Those for which there is
no place are told at once: their promise is broken. But where a planned node was lost only a moment
ago, and may come back at once, they wait; and so does a job that is late on nodes that are free for
it, as long as it may end in time: the batch system is slow then, and starts it yet. On nodes that
jobs share a job without a place keeps its promise as long as it may end in time: it is planned too
late, and the batch system starts it as soon as there is room.

A job that a limit of its account, QOS or partition keeps from its planned starts is not planned
anew for ever: nodes would stay free for it in vain. After two of them it is moved, once: to when
the jobs have ended that use the limit up. If it cannot end in time then, or misses two starts
again, its promise breaks. The user is informed of the limit in both cases.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.core.decision import judge
from rtsched.core.plan_check import too_early
from rtsched.core.plan_repair import (
    by_room,
    free_now,
    put_off,
    right_shifted,
    start_delays,
    with_leeway,
    without_room,
)
from rtsched.daemon import messages
from rtsched.daemon.instant import with_imminent_started, with_started
from rtsched.daemon.promises import decode_jobs, encode_jobs
from rtsched.daemon.qos_limits import room_from
from rtsched.daemon.site import (
    Step,
    entry_of,
    promised_deadlines,
    with_late_plans_accepted,
)
from rtsched.daemon.used_time import used_up
from rtsched.errors import PlannerError
from rtsched.kernels.overlaps import ROUNDING
from rtsched.model.actions import Notify, Requeue
from rtsched.model.jobs import Kind, array_time
from rtsched.model.resources import allowed_nodes
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.model.units import MINUTE
from rtsched.model.verdicts import Verdict
from rtsched.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.core.chain import Chain
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.verdicts import Verdicts

SLACK = 1.0
"""Seconds by which nodes may come free after a planned start: batch systems count whole seconds.
On nodes that jobs share, the leeway of the batch system if that is more."""

OVERDUE = 20.0
"""Seconds after its planned start at which a job that waits is planned anew, or the leeway of the
batch system (see `Observation`) if that is more and its nodes are free."""

MISSED_STARTS = 2
"""Planned starts that a job may miss for a limit of its account, QOS or partition."""

NO_PLAN = "no plan meets it after changes on the cluster"
"""Why a promise broke, where nothing else is known."""

_NONE: NDArray[np.int64] = np.empty(0, np.int64)


class _Means(NamedTuple):
    """By what jobs get other starts; as the arguments of `replan`."""

    planner: Chain
    wording: messages.Wording
    young: float
    flapping: NDArray[np.int64]


def replan(
    site: Site,
    planner: Chain,
    wording: messages.Wording,
    now: float,
    young: float,
    flapping: NDArray[np.int64] = _NONE,
) -> Step:
    """Return the site with a plan that holds at `now`, seconds since the epoch.

    Where the planner fails, the plan is kept, even if it does not hold, and no promise breaks.

    Parameters
    ----------
    site : Site
        After a poll.
    planner : Chain
        The planner alone.
    wording : Wording
        The batch system's.
    now : float
        Seconds since the epoch.
    young : float
        A best-effort job that has run for less, in seconds, may be requeued where a promise would
        break otherwise; 0: none may.
    flapping : int64[k]
        Nodes that may come back at once. What is planned on them and fits nowhere else stays so.
    """
    held_back = _without_held_back(site, planner, wording, now)
    site = held_back.site
    snapshot = replace(site.snapshot, now=now)
    lost = lost_starts(site, snapshot)
    try:
        less = planned_for_more(site, now)
        if len(less := less[~are_in(less, lost)]):
            site = _with_less(site, snapshot, planner, less)
            snapshot = replace(site.snapshot, now=now)
            lost = lost_starts(site, snapshot)
        if len(lost) and not snapshot.cluster.shared:
            site = _from_their_begins(site, planner, lost, now)
            snapshot = replace(site.snapshot, now=now)
            lost = lost_starts(site, snapshot)
        if len(lost):
            found = _mended(site, snapshot, lost, _Means(planner, wording, young, flapping))
        else:
            not_yet = bool((site.requested.begin > now).any())  # what is better may be too early
            stays = site.delayed or snapshot.cluster.shared or not_yet
            found = Step(site if stays else _improved(site, snapshot, planner))
    except PlannerError as error:
        text = f"{error}; the plan is unchanged, the next cycle tries again"
        if len(lost):
            text = f"{text}: {counted(len(lost), 'promised job')} must be planned again"
        found = Step(site, problems=(text,))
    return held_back.then(found)


def _without_held_back(site: Site, planner: Chain, wording: messages.Wording, now: float) -> Step:
    """Return the site in which jobs that limits kept from too many planned starts are moved.

    Or without their promises, where that cannot be. In it the starts that jobs have missed for
    limits are noted.
    """
    waiting = site.waiting.items()
    missed = {job: one.missed for job, one in waiting if one.missed and job in site.promises}
    limits = site.limits()
    if not limits and not missed:
        return Step(site)
    snapshot, plan = replace(site.snapshot, now=now), site.snapshot.plan
    late = plan.entries.take(np.flatnonzero(plan.entries.start < now - OVERDUE))
    late = late.take(are_in(late.job, lost_starts(site, snapshot)))
    for job, start in zip(late.job.tolist(), late.start.tolist(), strict=True):
        if job in limits and start not in missed.get(job, ()):
            missed[job] = (*missed.get(job, ()), start)
    known = site.waiting_job
    site = site.with_waiting(
        {job: known(job)._replace(missed=starts) for job, starts in missed.items()}
    )
    changed, texts, over = [], dict[int, str](), []
    for job in [job for job, starts in missed.items() if len(starts) >= MISSED_STARTS]:
        moved = _moved(site, planner, job, now)
        if moved is None:
            over.append(job)
            continue
        site, promise = moved
        changed.append(promise)
        start = float(site.snapshot.plan.entries.start[entry_of(site.snapshot.plan, job)])
        texts[job] = messages.moved(promise.why, start, promise.deadline, now)
    found = Step(site, tuple(changed), Notify.of(texts))
    if not over:
        return found
    plan = site.snapshot.plan
    left = plan.take(np.flatnonzero(~are_in(plan.entries.job, over)))
    broken = _broken(with_plan(site, left), np.array(over, np.int64), wording, now)
    return replace(
        broken, changed=found.changed + broken.changed, actions=found.actions + broken.actions
    )


def _moved(site: Site, planner: Chain, job: int, now: float) -> tuple[Site, Promise] | None:
    """Return the site with a job planned from when its limit has room, and its promise.

    None: that is not known, or it cannot end in time then, or has been moved already.
    """
    promise, row = site.promises[job], site.row(job)
    begin = room_from(site, row)
    if promise.why or not np.isfinite(begin) or used_up(site, row, [job]) is not None:
        return None
    snapshot = _without(replace(site.snapshot, now=now), np.array([job], np.int64))
    try:
        plan = planned_from(site, snapshot, planner, job, begin)
    except PlannerError:
        return None
    if plan is None:
        return None
    kept = decode_jobs(promise.job)
    promise = msgspec.structs.replace(
        promise,
        why=messages.did_not_start(site.limits().get(job, ""), len(site.waiting_job(job).missed)),
        changed_at=now,
        job=encode_jobs(kept.replace(begin=np.maximum(kept.begin, begin))),
    )
    site = replace(site.noted(job, missed=()), promises=site.promises.with_new(promise))
    return with_plan(site.with_begin(job, begin), plan), promise


def _from_their_begins(site: Site, planner: Chain, lost: NDArray[np.int64], now: float) -> Site:
    """Return the site with starts for those of the jobs `lost` that are not to begin yet.

    Planners of whole nodes plan no job ahead of its begin.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    rows = site.requested.take(are_in(site.requested.id, lost) & (site.requested.begin > now))
    for job, begin in zip(rows.id.tolist(), rows.begin.tolist(), strict=True):
        snapshot = _without(replace(site.snapshot, now=now), np.array([job], np.int64))
        plan = planned_from(site, snapshot, planner, job, begin)
        site = site if plan is None else with_plan(site, plan)
    return site


def planned_for_more(site: Site, now: float) -> NDArray[np.int64]:
    """Return the jobs that are planned later on, for longer or on more nodes than they need.

    Tasks of an array may have been cancelled, and the time limit of a job shortened.
    """
    plan = site.snapshot.plan
    place, known = places(site.requested.id, plan.entries.job)
    rows, entries = site.requested.take(place[known]), plan.entries.take(np.flatnonzero(known))
    array = rows.kind == Kind.ARRAY
    useful = -(-rows.tasks // np.maximum(rows.tasks_per_node, 1))
    needed = np.where(array, array_time(rows, np.maximum(entries.size, 1)), np.inf)
    needed = np.where(rows.kind == Kind.RIGID, rows.wall_time, needed)
    more = entries.end - entries.start > needed + MINUTE
    more |= array & (entries.size > useful)
    return np.asarray(entries.job[more & (entries.start > now)])


def _with_less(site: Site, snapshot: Snapshot, planner: Chain, jobs: NDArray[np.int64]) -> Site:
    """Return the site in which these jobs are planned by what they need now, if all can be.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    plan, failed = _elsewhere(site, snapshot, planner, jobs)
    return site if len(failed) else with_plan(site, plan)


def _improved(site: Site, snapshot: Snapshot, planner: Chain) -> Site:
    """Return the site with a better plan, if the planner knows one."""
    better = _verdicts(snapshot, planner, snapshot.queued.take([])).plan
    return site if better is None else with_plan(site, better)


def _mended(site: Site, snapshot: Snapshot, lost: NDArray[np.int64], means: _Means) -> Step:
    """Return the site with a plan in which the jobs `lost` have other starts, or without them.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    planner, wording, young, flapping = means
    now, offers = snapshot.now, site.promises.offers
    moving = 0.0 if len(offers) else young
    if (found := _restored(site, snapshot, planner, moving)) is not None:
        return found
    plan, failed = _anew(site, snapshot, planner, lost)
    if len(gone := _giving_way(offers, failed)):
        return _without_offers(site, snapshot, gone, means)
    spared = np.intersect1d(failed, _may_be_kept(site, snapshot, flapping))
    if len(spared):
        plan, failed = _around(site, snapshot, planner, _Tried(lost, plan, failed), spared)
    late = _NONE if len(spared) else _late_starters(site, snapshot, failed, young)
    if len(late):
        freed = _freed(snapshot, late)
        moved, still = _anew(site, freed, planner, lost_starts(site, freed))
        if not len(still):
            after = site if moved is snapshot.plan else with_plan(site, moved)
            return Step(after, actions=(Requeue(late),))
    at_risk = _at_risk(site, snapshot, failed, plan)
    plan = Schedule.joined([plan, at_risk])
    failed = np.setdiff1d(failed, at_risk.entries.job)
    return _broken(with_plan(site, plan), failed, wording, now)


def _giving_way(offers: NDArray[np.int64], failed: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offers that lapse where jobs have no place: all, if some are promised theirs."""
    return np.intersect1d(offers, failed) if are_in(failed, offers).all() else offers


def _without_offers(
    site: Site, snapshot: Snapshot, offers: NDArray[np.int64], means: _Means
) -> Step:
    """Return the site with a plan that holds, in which these offers are given up first.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    kept = snapshot.plan.take(np.flatnonzero(~are_in(snapshot.plan.entries.job, offers)))
    given_up = _broken(with_plan(site, kept), offers, means.wording, snapshot.now)
    site = given_up.site
    snapshot = replace(site.snapshot, now=snapshot.now)
    lost = lost_starts(site, snapshot)
    if not len(lost):
        return given_up
    found = _mended(site, snapshot, lost, means)
    return replace(found, changed=given_up.changed + found.changed)


def _at_risk(site: Site, snapshot: Snapshot, failed: NDArray[np.int64], plan: Schedule) -> Schedule:
    """Return late entries of the jobs without a place that might end in time, started now.

    They have their own nodes, after what else is planned there: many jobs end before their limits.
    They are tried again in each cycle, and break when they can no longer end in time. Not of
    offers: nobody is to take one that may not be kept.
    """
    taken = [job for job in failed.tolist() if site.promises[job].state != "offered"]
    rows = np.flatnonzero(are_in(snapshot.plan.entries.job, taken))
    entries = snapshot.plan.entries.take(rows)
    in_time = snapshot.now <= _latest_starts(site, entries.job, entries.end - entries.start)
    inside = np.ones(len(snapshot.plan), np.bool_)
    inside[snapshot.plan.rows()[_outside(site, snapshot.plan)]] = False
    late = snapshot.plan.take(rows[in_time & inside[rows]])
    return put_off(with_leeway(snapshot, site.leeway), late, plan, np.full(len(late), np.inf))


def _restored(site: Site, snapshot: Snapshot, planner: Chain, young: float) -> Step | None:
    """Return the site with a plan for all promises, by a planner that insures them.

    None if there is no such planner or plan. Nodes that it keeps free take best-effort jobs, which
    give way, those that started last first, where they may be requeued.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    name = planner.planner
    if name is None or not planner.member(name).capabilities.spare_nodes:
        return None
    if (found := _whole(site, snapshot, planner)) is not None:
        return Step(found)
    movable = _best_effort(site, snapshot) if young else _NONE
    if not len(movable) or (found := _whole(site, _freed(snapshot, movable), planner)) is None:
        return None
    enough, less = len(movable), 0
    while enough - less > 1:
        middle = (enough + less) // 2
        tried = _whole(site, _freed(snapshot, movable[:middle]), planner)
        enough, less, found = (enough, middle, found) if tried is None else (middle, less, tried)
    return Step(found, actions=(Requeue(movable[:enough]),))


def _whole(site: Site, snapshot: Snapshot, planner: Chain) -> Site | None:
    """Return the site with the plan that the planner has for all promises; None: it has none."""
    none = snapshot.queued.take([])
    fixed, due = with_imminent_started(snapshot, site.leeway)
    for each, first in ((fixed, due), (snapshot, Schedule.empty()))[not len(due) :]:
        plan = _verdicts(each, planner, none).plan
        if plan is None:
            continue
        whole = replace(snapshot, plan=Schedule.joined([first, plan]))
        if not len(lost_starts(site, whole)):
            return with_plan(site, whole.plan)
    return None


def _best_effort(site: Site, snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the best-effort jobs that run and may be requeued, the latest starters first."""
    runs = snapshot.allocations.entries
    place, known = places(site.marks.job, runs.job)
    known[known] = site.marks.requeues[place[known]]
    rows = np.flatnonzero(known & ~are_in(runs.job, snapshot.promises.job))
    return runs.job[rows[np.argsort(-runs.start[rows], kind="stable")]]


class _Tried(NamedTuple):
    """Jobs that lost their starts, a plan without those that have no place, and these."""

    lost: NDArray[np.int64]
    plan: Schedule
    failed: NDArray[np.int64]


def _may_be_kept(site: Site, snapshot: Snapshot, flapping: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the jobs whose promise does not break yet, though nothing can be planned for them.

    Those that are planned on flapping nodes, or have no entry while there are such nodes; and those
    that are late on free nodes: as long as they may end in time by their own limit.
    """
    plan, entries = snapshot.plan, snapshot.plan.entries
    latest = _latest_starts(site, entries.job, entries.end - entries.start)
    kept = _free_and_late(site, snapshot)
    kept[plan.rows()[np.isin(plan.nodes, flapping)]] = True
    found = entries.job[kept & (snapshot.now <= latest)]
    if not len(flapping):
        return np.unique(found)
    waiting = site.requested.take(~are_in(site.requested.id, entries.job))
    least = np.where(waiting.kind == Kind.RIGID, waiting.wall_time, 0.0)
    in_time = snapshot.now <= _latest_starts(site, waiting.id, least)
    return np.unique(np.concatenate([found, waiting.id[in_time]]))


def _latest_starts(
    site: Site, jobs: NDArray[np.int64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return when promised jobs that run for so long must start to end in time, float64[n]."""
    deadline = np.array([site.promises[job].deadline for job in jobs.tolist()])
    return deadline - seconds + site.leeway


def _free_and_late(site: Site, snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return bool[n]: which entries are late on nodes that are free: they may start yet."""
    plan, entries = snapshot.plan, snapshot.plan.entries
    entry = plan.rows()
    late = (entries.start < snapshot.now) & (entries.job < FIRST_OWN_ID)
    late[entry[_outside(site, plan)]] = False
    if not late.any():
        return late
    return late & free_now(with_leeway(snapshot, site.leeway), plan, SLACK)


def _around(
    site: Site, snapshot: Snapshot, planner: Chain, tried: _Tried, spared: NDArray[np.int64]
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return a plan that keeps the entries of `spared` as far as it can, and who has no place.

    What the planner found without them is taken where they fit beside it; else it plans around
    them; and if others have no place then, those that stand in the way lose their entries. They
    are not broken for that, and are tried again in the next cycle.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    stays = _put_off(site, snapshot, spared)
    failed = np.setdiff1d(tried.failed, spared)
    clash = _overlapping(site, snapshot, stays, tried.plan)
    if not clash.any():
        return Schedule.joined([tried.plan, stays]), failed
    others = np.flatnonzero(~are_in(snapshot.plan.entries.job, spared))
    both = replace(snapshot, plan=Schedule.joined([snapshot.plan.take(others), stays]))
    pinned, stays = with_started(both, are_in(both.plan.entries.job, spared))
    lost = np.setdiff1d(np.union1d(tried.lost, lost_starts(site, pinned)), spared)
    plan, still = _anew(site, pinned, planner, lost)
    if are_in(still, failed).all():
        return Schedule.joined([plan, stays]), still
    return Schedule.joined([tried.plan, stays.take(np.flatnonzero(~clash))]), failed


def _put_off(site: Site, snapshot: Snapshot, jobs: NDArray[np.int64]) -> Schedule:
    """Return the entries of some jobs, in order of their rows in the plan, late ones from now on.

    One that is later than its leeway is given its nodes for so much longer, as far as these are not
    planned for others. Of several that are late on one node only the first keeps its entry, and one
    that has no time left on its nodes keeps none.
    """
    plan, start, end = snapshot.plan, snapshot.plan.entries.start, snapshot.plan.entries.end
    late = _free_and_late(site, snapshot)
    ends = snapshot.now + (end - start) - site.leeway
    for row in np.flatnonzero(late & (ends > end)).tolist():
        after = plan.starts() >= max(end[row], snapshot.now) - ROUNDING
        on_them = np.isin(plan.nodes, plan.nodes_of(row)) & after
        ends[row] = max(end[row], plan.starts()[on_them].min(initial=ends[row]))
    start, end = np.where(late, snapshot.now, start), np.where(late, np.maximum(ends, end), end)
    node_start = plan.node_start
    if len(node_start):
        node_start = np.maximum(node_start, plan.per_node(start))
    moved = replace(plan, entries=plan.entries.replace(start=start, end=end), node_start=node_start)
    rows = np.flatnonzero(are_in(plan.entries.job, jobs) & (end > start + ROUNDING))
    kept = _NONE
    for row in rows[np.argsort(plan.entries.start[rows], kind="stable")].tolist():
        if not _overlapping(site, snapshot, moved.take(np.array([row])), moved.take(kept)).any():
            kept = np.sort(np.append(kept, row))
    return moved.take(kept)


def _overlapping(
    site: Site, snapshot: Snapshot, some: Schedule, plan: Schedule
) -> NDArray[np.bool_]:
    """Return bool[n]: which of some entries have a node that the plan gives to others meanwhile."""
    if by_room(snapshot):
        return without_room(with_leeway(snapshot, site.leeway), some, plan)
    of = plan.rows()
    starts, ends = plan.starts(), plan.entries.end[of]
    clash = np.zeros(len(some), np.bool_)
    for row in range(len(some)):
        start, end = some.entries.start[row] + ROUNDING, some.entries.end[row] - ROUNDING
        meanwhile = (starts < end) & (ends > start)
        clash[row] = np.isin(plan.nodes[meanwhile], some.nodes_of(row)).any()
    return clash


def _anew(
    site: Site, snapshot: Snapshot, planner: Chain, lost: NDArray[np.int64]
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return a plan in which the jobs `lost` have starts again, and those without a place in it.

    Planned anew or, if that leaves some without a place, put off. On nodes that jobs share it is
    put off first: there the batch system keeps room for a job on its own nodes only.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    if not len(lost):
        return snapshot.plan, lost
    first, second = (_later, _elsewhere) if snapshot.cluster.shared else (_elsewhere, _later)
    found = first(site, snapshot, planner, lost)
    if not len(found[1]):
        return found
    other = second(site, snapshot, planner, lost)
    return other if len(other[1]) < len(found[1]) else found


def _elsewhere(
    site: Site, snapshot: Snapshot, planner: Chain, lost: NDArray[np.int64]
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return the planner's plan with the jobs `lost` planned anew, and those without a place in it.

    Jobs that may start at any moment stay where they are planned, if all find a place so.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    rest, rows = _without(snapshot, lost), _requested(site, lost)
    fixed, due = with_imminent_started(rest, site.leeway)
    found = _placed(fixed, planner, rows, due)
    if len(found[1]) and len(due):
        second = _placed(rest, planner, rows, Schedule.empty())
        found = second if len(second[1]) < len(found[1]) else found
    return found


def _later(
    site: Site, snapshot: Snapshot, planner: Chain, lost: NDArray[np.int64]
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return the plan with each start put off as far as need be, and the jobs without a place.

    A planner may order all jobs by a rule of its own, and that may fail a little later where the
    plan as it is need only be put off. Those that have no place so are planned anew by it.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    plan, outside = snapshot.plan, _outside(site, snapshot.plan)
    entry = plan.rows()
    inside = plan.take(np.setdiff1d(np.arange(len(plan)), entry[outside]))
    deadline = np.array([site.promises[job].deadline for job in inside.entries.job.tolist()])
    moved = right_shifted(with_leeway(snapshot, site.leeway), inside, deadline, SLACK)
    left = np.setdiff1d(np.union1d(plan.entries.job, lost), moved.entries.job)
    if not len(left):
        return moved, left
    rest = replace(_without(snapshot, left), plan=moved)
    return _placed(rest, planner, _requested(site, left), Schedule.empty())


def planned_from(
    site: Site, snapshot: Snapshot, planner: Chain, job: int, begin: float
) -> Schedule | None:
    """Return a plan in which a job starts at `begin` at the earliest; None: it has no place.

    What is planned before `begin`, in seconds since the epoch, stays as it is.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    fixed, due = with_imminent_started(snapshot, site.leeway)
    fixed, first = with_started(fixed, fixed.plan.entries.start < begin)
    rows = _requested(site, np.array([job], np.int64))
    rows = rows.replace(begin=np.maximum(rows.begin, begin))
    stays = Schedule.joined([due, first])
    plan, failed = _placed(replace(fixed, now=begin), planner, rows, stays)
    return None if len(failed) else plan


def _placed(
    snapshot: Snapshot, planner: Chain, rows: Jobs, due: Schedule
) -> tuple[Schedule, NDArray[np.int64]]:
    """Return a plan in which jobs have a place, the entries `due` among them, and who has none."""
    again = _verdicts(snapshot, planner, rows)
    plan = again.plan if again.plan is not None else snapshot.plan
    left = np.sort(rows.id[again.code != Verdict.ADMIT])
    return Schedule.joined([due, plan]), left


def _verdicts(snapshot: Snapshot, planner: Chain, jobs: Jobs) -> Verdicts:
    """Return the planner's verdicts.

    Raises
    ------
    PlannerError
        If it raised or answered wrongly.
    """
    judgement = judge(with_late_plans_accepted(snapshot), planner, jobs)
    if judgement.planner_error:
        raise PlannerError(judgement.planner_error)
    return judgement.verdicts


def lost_starts(site: Site, snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the jobs that wait for a promised start that is not to be had, or have none."""
    plan, now = snapshot.plan, snapshot.now
    entry = plan.rows()
    slack = max(SLACK, site.leeway) if snapshot.cluster.shared else SLACK
    bad = start_delays(with_leeway(snapshot, site.leeway), plan, slack) > slack
    allowed = np.where(_free_and_late(site, snapshot), max(OVERDUE, site.leeway), OVERDUE)
    bad |= plan.entries.start < now - allowed
    bad[entry[_outside(site, plan)]] = True
    early = snapshot.edges.after[too_early(plan, snapshot) > slack]
    bad |= are_in(plan.entries.job, early)
    bad |= plan.entries.end > promised_deadlines(site, plan.entries.job) + SLACK
    waits = site.requested.id[are_in(site.requested.id, snapshot.queued.id)]
    homeless = waits[~are_in(waits, plan.entries.job)]
    return np.union1d(plan.entries.job[bad], homeless)


def _outside(site: Site, plan: Schedule) -> NDArray[np.bool_]:
    """Return bool[k]: which nodes of the entries their jobs may not use any more."""
    outside = np.zeros(len(plan.nodes), np.bool_)
    place, known = places(site.requested.id, plan.entries.job)
    codes, masks = allowed_nodes(site.requested, site.snapshot.cluster)
    code = np.full(len(plan), -1, np.int64)
    code[known] = codes[place[known]]
    per_node = plan.per_node(code)
    for at, mask in enumerate(masks):
        outside |= (per_node == at) & ~mask[plan.nodes]
    return outside


def _without(snapshot: Snapshot, lost: NDArray[np.int64]) -> Snapshot:
    """Return the snapshot as if some jobs were not there; that they are promised something stays.

    So the planner knows that they are to be planned anew.
    """
    return replace(
        snapshot,
        queued=snapshot.queued.take(~are_in(snapshot.queued.id, lost)),
        plan=snapshot.plan.take(np.flatnonzero(~are_in(snapshot.plan.entries.job, lost))),
    )


def _requested(site: Site, lost: NDArray[np.int64]) -> Jobs:
    """Return what the jobs asked for, with the deadlines that they were promised."""
    rows = site.requested.take(are_in(site.requested.id, lost))
    deadline = [site.promises[job].deadline for job in rows.id.tolist()]
    return rows.with_column("deadline", np.array(deadline))


def with_plan(site: Site, plan: Schedule) -> Site:
    """Return the site with another plan."""
    snapshot = replace(site.snapshot, plan=plan, version=site.snapshot.version + 1)
    return replace(site, snapshot=snapshot)


def _late_starters(
    site: Site, snapshot: Snapshot, failed: NDArray[np.int64], young: float
) -> NDArray[np.int64]:
    """Return best-effort jobs that have just started in the way of planned starts that fail."""
    runs, entries = snapshot.allocations, snapshot.allocations.entries
    plan = snapshot.plan.take(np.flatnonzero(are_in(snapshot.plan.entries.job, failed)))
    wanted = np.full(len(snapshot.cluster), np.inf)
    np.minimum.at(wanted, plan.nodes, np.maximum(plan.starts(), snapshot.now))
    on = runs.rows()
    in_the_way = np.zeros(len(runs), np.bool_)
    in_the_way[on[entries.end[on] > wanted[runs.nodes] + SLACK]] = True
    new = (entries.start > snapshot.now - young) & ~are_in(entries.job, snapshot.promises.job)
    place, known = places(site.marks.job, entries.job)
    may = np.zeros(len(runs), np.bool_)
    may[known] = site.marks.requeues[place[known]]
    return entries.job[new & in_the_way & may]


def _freed(snapshot: Snapshot, jobs: NDArray[np.int64]) -> Snapshot:
    """Return the snapshot as if some running jobs did not run."""
    kept = np.flatnonzero(~are_in(snapshot.allocations.entries.job, jobs))
    running = snapshot.running.take(kept)
    return replace(snapshot, running=running, allocations=snapshot.allocations.take(kept))


def _broken(site: Site, failed: NDArray[np.int64], wording: messages.Wording, now: float) -> Step:
    """Return the site without the promises that cannot be kept; their users are told."""
    if not len(failed):
        return Step(site)
    texts, changed, unnotified = dict[int, str](), [], dict(site.unnotified)
    limits = site.limits()
    for job in failed.tolist():
        promise = site.promises[job]
        state = "lapsed" if promise.state == "offered" else "broken"
        limit = limits.get(job)
        starts = len(site.waiting_job(job).missed)
        why, text = NO_PLAN, messages.broken(wording, limit)
        if limit is not None and starts >= MISSED_STARTS:
            why = messages.did_not_start(limit, starts)
            text = messages.given_up(wording, limit, starts)
        elif limit is not None:
            why = messages.kept_waiting(limit)
        changed.append(msgspec.structs.replace(promise, state=state, why=why, changed_at=now))
        if promise.state == "firm":
            texts[job] = text
        elif promise.state == "provisional":
            unnotified[promise.token] = promise
    promises = site.promises.without(failed.tolist())
    requested = site.requested.take(~are_in(site.requested.id, failed))
    ours = [r.id for r in changed if r.id not in site.marks.job]
    queued = site.snapshot.queued
    queued = queued.take(~are_in(queued.id, np.array(ours, np.int64))) if ours else queued
    snapshot = replace(site.snapshot, queued=queued, promises=promises.ledger)
    after = replace(
        site, snapshot=snapshot, promises=promises, requested=requested, unnotified=unnotified
    )
    return Step(after, tuple(changed), Notify.of(texts))
