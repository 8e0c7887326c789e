"""Jobs that wait held until somebody has judged them: the filter could not ask, or they came early.

What was decided is asked of the batch system with every poll until it is so: a release that failed
once, or that a daemon did not live to see, is asked for again.

Other jobs may start on free nodes between a poll and the moment at which they are kept for a
promise. So a job that needs these nodes gets its promise in two steps, where the batch system can
keep nodes for a job that is held: they are secured first, and if the next poll still shows them
free, the job is promised its deadline.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import structlog

from rtsched.daemon import messages
from rtsched.daemon.promises import JournalEntry
from rtsched.daemon.site import Secured, Step, entry_of
from rtsched.errors import PlannerError
from rtsched.model.actions import Action, Admit, Cancel, DropDeadline, Notify, Release
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import are_in, places
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Done
    from rtsched.daemon.admission import AdmissionController, AdmissionResult
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.model.schedule import Schedule

log = structlog.get_logger(__name__)

AT_A_TIME = 500
"""Deferred jobs judged in one cycle, at the most."""

UNPROMISED = "rtsched: no deadline can be promised; the job runs as best effort"

RESERVE = "reserve"
"""Kind of the changes that keep nodes for jobs."""

FEW = 8
"""Jobs without a promise evaluated again in one cycle, at the most."""

AGAIN = 60.0
"""Seconds after which a job is judged again that the planner, or rtsched, failed to judge."""


def judge_deferred(
    site: Site,
    admission: AdmissionController,
    now: float,
    most: int = AT_A_TIME,
    everything: bool = False,
    keeps_after: float = math.inf,
) -> tuple[Step, Schedule]:
    """Judge the first `most` jobs that are deferred: of each user the first, then the second ones.

    Returned beside what that came to is where jobs would be planned that are to be judged again
    once these nodes are kept for them.

    `everything`: all jobs with a deadline are judged, deferred or not, as in a dry-run.
    `keeps_after`: as of an `Observation`; promises that need the nodes that are free now are given
    only where these have been kept for so long.
    """
    whole, unsecured = Step(site), list[int]()
    again = _unpromised(site, admission.settings.rejected, now)[: min(FEW, most)]
    for job in [*_waiting(site, everything)[:most].tolist(), *again.tolist()]:
        one = _tried(whole.site, admission, job, now)
        if math.isfinite(keeps_after) and not _is_kept(
            whole.site, one.site, admission, job, now, keeps_after
        ):
            unsecured.append(job)
            one = Step(one.site, tuple(promise for promise in one.changed if promise.id != job))
        whole = whole.then(one)
    if problems := whole.problems:
        many = f"{counted(len(problems), 'held job')} could not be evaluated: {problems[0]}"
        whole = replace(whole, problems=(many,))
    return _to_be_secured(whole, unsecured)


def _is_kept(
    before: Site,
    after: Site,
    admission: AdmissionController,
    job: int,
    now: float,
    keeps_after: float,
) -> bool:
    """Return whether nothing can come between a promise to a job and its nodes; no promise: true.

    `before` and `after`: the site on which the job was judged, and the one that this came to.
    """
    if job not in after.promises or before.waiting_job(job).orphan:
        return True
    kept = before.waiting_job(job).secured
    if (
        kept is not None
        and _nodes_of(after, job) <= kept.nodes
        and kept.since + keeps_after <= before.seen
    ):
        return True
    try:
        return admission.holds_anyway(before, job, now)
    except PlannerError:
        return False


def _nodes_of(site: Site, job: int) -> frozenset[str]:
    """Return the names of the nodes on which a job is planned."""
    plan, names = site.snapshot.plan, site.snapshot.cluster.nodes.texts("name")
    nodes = plan.nodes_of(entry_of(plan, job)).tolist()
    return frozenset(names[node] or "" for node in nodes)


def with_kept(site: Site, dones: Sequence[Done], now: float) -> Site:
    """Return the site after the batch system was asked to keep nodes for jobs that are held.

    They count as kept from `now` on, seconds since the epoch, or from when they were before; where
    one of `dones` shows that this failed, for the job or for all, not until it is done.
    """
    failed = {
        each.change.job for each in dones if each.change.kind == RESERVE and each.outcome != "done"
    }
    for job, one in site.secured.items():
        since = math.inf if failed & {job, -1} else min(one.since, now)
        if since != one.since:
            site = site.noted(job, secured=one._replace(since=since))
    return site


def _to_be_secured(step: Step, jobs: Sequence[int]) -> tuple[Step, Schedule]:
    """Return a step in which some jobs are promised nothing yet, and where they would be planned.

    Their nodes are secured.
    """
    site = before = step.site
    plan = site.snapshot.plan
    waiting = {job: one._replace(secured=None) for job, one in before.waiting.items()}
    for job in jobs:
        nodes, known = _nodes_of(before, job), before.waiting_job(job)
        kept = known.secured
        since = kept.since if kept is not None and nodes <= kept.nodes else math.inf
        waiting[job] = known._replace(secured=Secured(nodes, since))
        site = site.released(job)
    site = replace(site, waiting=waiting, freed=before.freed)
    secures = plan.take(np.flatnonzero(are_in(plan.entries.job, jobs)))
    return replace(step, site=site), secures


def _waiting(site: Site, everything: bool) -> NDArray[np.int64]:
    queued = site.snapshot.queued
    waits = _is_deferred(site)
    if everything:
        waits |= np.isfinite(queued.deadline)
    waits |= are_in(queued.id, site.orphans)
    known = site.waiting.items()
    done = [job for job, one in known if one.declined is not None or one.put_off > -math.inf]
    waits &= ~are_in(queued.id, site.requested.id) & ~are_in(queued.id, done)
    waits &= ~are_in(queued.id, site.marks.job[site.marks.unpromised])
    ids = queued.id[waits]
    place, _ = places(site.marks.job, ids)
    uid = site.marks.uid[place] if len(site.marks) else np.zeros(len(ids), np.int64)
    by_user = np.argsort(uid, kind="stable")
    first = np.searchsorted(uid[by_user], uid[by_user])
    turn = np.empty(len(ids), np.int64)
    turn[by_user] = np.arange(len(ids)) - first
    return ids[np.argsort(turn, kind="stable")]


def _unpromised(site: Site, by_default: str, now: float) -> NDArray[np.int64]:
    """Return the jobs that run without a promise and may be promised one now.

    They are those that were not evaluated since room was freed, or for which nodes were secured: by
    their deadlines, behind the others those that were evaluated less than `AGAIN` seconds ago.
    `by_default`: what the site does with jobs whose users do not say it.
    """
    marks, queued = site.marks, site.snapshot.queued
    ids = marks.job[marks.unpromised & _runs_anyway(site, by_default)]
    ids = ids[~are_in(ids, site.requested.id)]
    place, there = places(queued.id, ids)
    ids, rows = ids[there], queued.take(place[there])
    last = np.array([site.waiting_job(job).tried for job in ids.tolist()], np.float64)
    due = np.isneginf(last) | (last < site.freed) | are_in(ids, list(site.secured))
    least = np.where(rows.kind == Kind.RIGID, rows.wall_time, 0.0)
    due &= now + least < rows.deadline
    known = site.waiting.items()
    due &= ~are_in(
        ids, [job for job, one in known if one.declined is not None and not one.unpromised]
    )
    order = np.lexsort((rows.deadline[due], last[due] + AGAIN > now))
    return np.asarray(ids[due][order], np.int64)


def _runs_anyway(site: Site, by_default: str) -> NDArray[np.bool_]:
    """Return for each job whether it is to run where it is promised nothing, by users or site."""
    marks = site.marks
    return marks.where("otherwise", lambda each: (by_default if each is None else each) == "run")


def _tried(site: Site, admission: AdmissionController, job: int, now: float) -> Step:
    """Judge one job; one that cannot be judged must keep no cycle from its end."""
    try:
        result = admission.judge_queued(site, job, now)
        if site.waiting_job(job).orphan:
            return _adopted(site, job, result, now)
        if _is_unpromised(site, job):
            return _tried_again(site, job, result, now)
        return _judged(site, job, result, now)
    except PlannerError as error:
        return _unjudged(site, job, str(error), now)
    except Exception as error:
        log.exception("job_not_judged", job=job)
        return _unjudged(site, job, f"{type(error).__name__}: {error}", now)


def _judged(site: Site, job: int, result: AdmissionResult, now: float) -> Step:
    """Return what the verdict on a job means for it.

    Raises
    ------
    PlannerError
        If the planner failed: who defers jobs for that has them judged again.
    """
    after, text = result.site, result.reply.text
    match result.verdict:
        case "defer":
            return _put_off(after, job, result, now)
        case "reject":
            notice, after = "", after.noted(job, declined=text)
        case "pass":
            notice = text = UNPROMISED
            after = after.noted(job, declined="")
        case "run":
            notice, after = text, after.noted(job, declined="", unpromised=True)
        case _:
            notice = text
    journal = (_entry(site, job, result, text, now),)
    return Step(after, result.changed, _notice(job, notice), journal)


def _is_unpromised(site: Site, job: int) -> bool:
    """Return whether a job runs without a promise, and does not wait for a verdict."""
    return bool((site.marks.job[site.marks.unpromised] == job).any())


def _tried_again(site: Site, job: int, result: AdmissionResult, now: float) -> Step:
    """Return a job that runs without a promise with one, if it can be given now."""
    if result.verdict != "admit":
        at = math.inf if result.verdict == "pass" else now
        return Step(site.noted(job, tried=at))
    text, after = result.reply.text, result.site
    if (site.snapshot.edges.before == job).any():  # what waits for it can be planned now
        after = replace(after, freed=math.inf)
    journal = (_entry(site, job, result, text, now),)
    return Step(after, result.changed, _notice(job, text), journal)


def _adopted(site: Site, job: int, result: AdmissionResult, now: float) -> Step:
    """Return a job of whose promise the record was lost with it again, or as best effort."""
    if result.verdict == "defer":
        return _put_off(result.site, job, result, now)
    token, after = site.waiting_job(job).orphan, result.site.noted(job, orphan="")
    changed: tuple[Promise, ...] = ()
    if result.verdict == "admit":
        (promise,) = result.changed
        promise = msgspec.structs.replace(promise, token=token)
        after = replace(after, promises=after.promises.with_new(promise))
        changed, text = (promise,), messages.promised_again(promise.deadline, now)
    else:
        after = site.noted(job, declined="", orphan="")
        text = messages.lost_promise()
    journal = (_entry(site, job, result, text, now),)
    return Step(after, changed, _notice(job, text), journal)


def _put_off(site: Site, job: int, result: AdmissionResult, now: float) -> Step:
    """Judge a job again when its time has come.

    Raises
    ------
    PlannerError
        If it is put off since the planner failed.
    """
    if result.judgement is not None and result.judgement.planner_error:
        raise PlannerError(result.judgement.planner_error)
    if now < result.retry_at < math.inf:
        site = site.noted(job, put_off=result.retry_at)
    # What plug-ins put off was told when it was submitted.
    notice = "" if result.judgement is not None else result.reply.text
    return Step(site, actions=_notice(job, notice))


def _unjudged(site: Site, job: int, problem: str, now: float) -> Step:
    """Leave a job held that could not be judged, by no fault of its own; it is judged again."""
    if _is_unpromised(site, job):
        return Step(site.noted(job, tried=now), problems=(problem,))
    text = messages.put_off("rtsched could not evaluate it; its log says why", math.inf, now)
    later = site.noted(job, put_off=now + AGAIN)
    return Step(later, actions=_notice(job, text), problems=(problem,))


def _notice(job: int, text: str) -> tuple[Action, ...]:
    return Notify.of({job: text}) if text else ()


def running_unpromised(site: Site, by_default: str) -> frozenset[int]:
    """Return the jobs that run as best effort, although their users wanted a promise.

    `by_default`: what the site does with jobs whose users do not say it.
    """
    marks = site.marks
    promised = {promise.id for promise in site.all_promises()}
    passed = marks.job[marks.unpromised & _runs_anyway(site, by_default)]
    return (_not_ended(site) | frozenset(passed.tolist())) - promised


def _not_ended(site: Site) -> frozenset[int]:
    """Return the jobs that are not to be ended at their deadlines, as they run without a promise.

    Deferred ones, and those whose users say so, that nobody could judge, or whose promises are
    over.
    """
    marks, queued = site.marks, site.snapshot.queued
    judged = marks.token >= 0  # what passed unpromised has no token
    jobs = marks.job[_runs_anyway(site, "") & judged]
    jobs = jobs[are_in(jobs, queued.id)]
    jobs = jobs[~are_in(jobs, [*queued.id[_is_deferred(site)].tolist(), *site.orphans])]
    found = frozenset(job for job, one in site.waiting.items() if one.unpromised)
    found = found.union(jobs.tolist())
    return found - {promise.id for promise in site.all_promises()}


def settled_deferred(site: Site) -> tuple[Action, ...]:
    """Return what deferred jobs that have been judged still wait for: a release, or their end.

    And that jobs are not ended at their deadlines that run without a promise.
    """
    deferred = site.snapshot.queued.id[_is_deferred(site)]
    waiting = {*deferred.tolist(), *site.marks.job[site.marks.unpromised].tolist()}
    promised = [job for job in sorted(waiting) if job in site.promises]
    declined = {job: site.waiting_job(job).declined for job in deferred.tolist()}
    free = [job for job, text in declined.items() if text == ""]
    over = {job: text for job, text in declined.items() if text}
    actions: list[Action] = []
    if promised:
        deadline = np.array([site.promises[job].deadline for job in promised])
        actions.append(Admit(np.array(promised, np.int64), deadline))
    if not_ended := _not_ended(site):
        actions.append(DropDeadline(np.array(sorted(not_ended), np.int64)))
    if free:
        actions.append(Release(np.array(free, np.int64)))
    if over:
        actions.append(Cancel(np.array(list(over), np.int64), tuple(over.values())))
    return tuple(actions)


def _is_deferred(site: Site) -> NDArray[np.bool_]:
    """Return which queued jobs are held until they have been judged."""
    marks = site.marks
    return are_in(site.snapshot.queued.id, marks.job[marks.deferred & marks.held])


def _entry(site: Site, job: int, result: AdmissionResult, text: str, now: float) -> JournalEntry:
    """Return what is noted of a verdict on one job."""
    row = site.snapshot.queued.take(site.snapshot.queued.id == job)
    place, _ = places(site.marks.job, row.id)
    return JournalEntry(
        now,
        int(site.marks.uid[place[0]]),
        row.labels()[0],
        row.texts("name")[0] or "",
        result.verdict,
        result.codes,
        text,
        result.offer,
        result.reply.token,
    )
