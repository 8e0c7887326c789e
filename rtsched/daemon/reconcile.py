"""After a poll of the batch system: which admissions became jobs, which jobs ended, what is new."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, UNJUDGED, Completions, CompletionStatus
from rtsched.daemon import messages
from rtsched.daemon.drift import STUCK, are_held, changed_by_users, with_present
from rtsched.daemon.promises import OPEN, OpenPromises
from rtsched.daemon.qos_limits import with_limits
from rtsched.daemon.restarting import NEVER
from rtsched.daemon.site import (
    LATE,
    NOTHING_KNOWN,
    Site,
    Step,
    in_order,
    on_nodes,
    renamed,
    renumbered,
)
from rtsched.daemon.user_limits import kept_for_nothing
from rtsched.model.actions import Action, Notify
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.snapshot import are_in, places
from rtsched.model.state import EventKind, EventRows, Events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation
    from rtsched.daemon.promises import Promise, PromiseState
    from rtsched.daemon.restarting import RestartPolicy
    from rtsched.daemon.site import WaitingJob
    from rtsched.model.cluster import Cluster


RENUMBERED = "the batch system lost the job and reused its number"
LOST = "the batch system lost the job"
GONE = "the batch system no longer knows the job and has no record of its end"
NO_END = "the batch system's record of the job has no end time"
NOT_KEPT = "the job failed or was cancelled before its deadline"
SUSPENDED = "the job was suspended at its deadline"
NOT_TAKEN = "the batch system did not accept the job, or its user removed it at once"

NEVER_APPEARED = "the job never appeared"

REMEMBERED = 3600.0
"""Seconds for which the user of an admission that lapsed is told, should its job appear yet."""

SETTLED = 2.0
"""Seconds after an admission at which a poll shows its job, if there is one."""


def reconcile(
    site: Site,
    observation: Observation,
    wording: messages.Wording,
    now: float,
    restart_policy: RestartPolicy = NEVER,
) -> tuple[Step, Completions]:
    """Return what a poll at `now`, in seconds since the epoch, means for promises and the queue.

    Returned beside it are promised jobs that failed and may begin again; their promises stand.
    """
    lost = _renumbered(site, observation, now)
    site = site.without(promise.id for promise in lost)
    names = _recognised(site, observation)
    shown = _Observed.of(site, observation, names, restart_policy)
    new = _changed(site.promises, names, shown, now)
    promises = site.promises
    if new:
        own_ids = {job: own for own, job in names.items()}
        gone = {own_ids.get(promise.id, promise.id) for promise in new}
        open_ = {promise.id: promise for promise in new if promise.state in OPEN}
        promises = OpenPromises(promises.without(gone) | open_)
    requested = _of_records(site.requested, names, promises)
    requested = with_present(requested, observation, site.snapshot.running.id)
    failed = observation.completions.take(
        are_in(observation.completions.job, list(shown.restartable & promises.keys()))
    )
    after = _with_observation(site, observation, names, promises, requested, now, failed.job)
    over = {r.token for r in new if r.state == "lapsed"}
    # What comes to nothing together was submitted together: that counts as one.
    over |= set({(r.uid, r.why): r.token for r in new if r.why in {NOT_TAKEN, STUCK}}.values())
    lapsed = [promise for promise in site.promises.values() if promise.token in over]
    after = after.left_unused(lapsed, now) if lapsed else after
    never_ran = _cancelled(site, new, names, observation)
    after = after.cancelled(kept_for_nothing(site, never_ran), now) if never_ran else after
    notices, unnotified = _notices(site, observation, new, wording, now)
    after = replace(after, unnotified=unnotified)
    events = _events(site, observation, failed.job, promises)
    return Step(after, (*lost, *new), notices, events=events), failed


def _cancelled(
    site: Site,
    changed: Sequence[Promise],
    names: Mapping[int, int],
    observation: Observation,
) -> list[Promise]:
    """Return, as they were, the promises of jobs that ended before they had ever run."""
    tokens = {r.token for r in changed if r.state == "withdrawn" and r.why == NOT_KEPT}
    over = observation.completions  # Slurm has one that never started start at its end
    ran = over.take(over.start < over.end)
    began = {*ran.job.tolist(), *site.snapshot.running.id.tolist()}
    return [
        promise
        for promise in site.promises.values()
        if promise.token in tokens and names.get(promise.id, promise.id) not in began
    ]


def closed_by_poll(
    site: Site, observation: Observation, now: float
) -> tuple[dict[int, int], list[Promise]]:
    """Return the new numbers of jobs by our own ids, and the promises that a poll changed.

    Nothing is planned anew for them, and nothing begins again. `now` in seconds since the epoch.
    """
    lost = _renumbered(site, observation, now)
    gone = {promise.id for promise in lost}
    left = site.promises.without(gone)
    site = replace(site, promises=left)
    names = _recognised(site, observation)
    shown = _Observed.of(site, observation, names, NEVER)
    return names, [*lost, *_changed(left, names, shown, now)]


def _renumbered(site: Site, observation: Observation, now: float) -> list[Promise]:
    """Return the promises, closed, of jobs whose numbers other jobs have now.

    A controller that is killed loses what it took in since it last saved its state, the last job
    number too.
    """
    marks = observation.marks.take(are_in(observation.marks.job, site.promises.ids))
    others = {UNJUDGED, *(promise.token for promise in site.promises.values())}
    rows = zip(marks.job.tolist(), marks.uid.tolist(), marks.texts("token"), strict=True)
    shown = ((site.promises[job], uid, token) for job, uid, token in rows)
    return [
        msgspec.structs.replace(
            promise, state="unknown", why=RENUMBERED, changed_at=now, expires=np.inf
        )
        for promise, uid, token in shown
        if uid not in (promise.uid, -1) or (token != promise.token and token in others)
    ]


def overlooked(site: Site, observation: Observation) -> dict[int, int]:
    """Return the numbers of admitted jobs, by our own ids, that a poll should have shown.

    The batch system asks about a job within the transaction that brings it in, and shows its queue
    only after that. So one that a later poll does not show was not taken, or is over already.
    """
    made = {r.id: r.made_at for r in site.promises.values() if r.state == "provisional"}
    return {
        own: job
        for own, job in site.numbers.items()
        if own in made and observation.time >= made[own] + SETTLED
    }


def _notices(
    site: Site,
    observation: Observation,
    changed: Sequence[Promise],
    wording: messages.Wording,
    now: float,
) -> tuple[tuple[Action, ...], Mapping[str, Promise]]:
    """Return what users are told of promises that are no more, and whom nobody could tell yet."""
    void = {promise.id: promise.why for promise in changed if promise.state == "void"}
    held = are_held(observation, np.array(list(void), np.int64)).tolist()
    pairs = zip(void.items(), held, strict=True)
    texts = {job: messages.voided(why, held=of_job) for (job, why), of_job in pairs}
    texts |= {r.id: messages.broken(wording) for r in changed if r.why == SUSPENDED}
    until = now + REMEMBERED
    unnotified = {token: r for token, r in site.unnotified.items() if now < r.expires}
    unnotified |= {
        r.token: msgspec.structs.replace(r, expires=until)
        for r in changed
        if r.why == NEVER_APPEARED
    }
    marks = observation.marks.take(observation.marks.token >= 0 if unnotified else [])
    rows = zip(marks.texts("token"), marks.job.tolist(), marks.uid.tolist(), strict=True)
    for token, job, uid in rows:
        if token in unnotified and unnotified[token].uid == uid:
            del unnotified[token]
            texts[job] = messages.broken(wording)
    return Notify.of(texts), unnotified


def _recognised(site: Site, observation: Observation) -> dict[int, int]:
    """Return the job ids, by our own ids, of admissions whose jobs have appeared."""
    waiting = {r.token: r for r in site.promises.values() if r.state == "provisional"}
    if not waiting:
        return {}
    marks = observation.marks.take(observation.marks.token >= 0)
    ended = observation.completions.take(observation.completions.token >= 0)
    uids: list[int] = [*marks.uid.tolist(), *[-1] * len(ended)]
    jobs = [*marks.job.tolist(), *ended.job.tolist()]
    tokens = [*marks.texts("token"), *ended.texts("token")]
    names: dict[int, int] = {}
    for token, job, uid in zip(tokens, jobs, uids, strict=True):
        promise = waiting.get(token) if token else None
        if promise is not None and uid in {promise.uid, -1}:
            names.setdefault(promise.id, job)
    return names


@dataclass(frozen=True)
class _Observed:
    """What a poll shows of the jobs with promises.

    Attributes
    ----------
    time : float
        Of the poll.
    completions : Completions
        All that ended; `row` says where a job stands there.
    there : set of int
        Jobs that wait or run.
    missing : set of int
        Our own ids of admissions whose jobs ought to be there.
    changed : dict of int to str
        Waiting jobs that are no longer as they were promised, and what changed.
    unknown : set of int
        Jobs of which nobody could tell yet how they ended.
    restartable : set of int
        Jobs that ended and may begin again.
    suspended : set of int
        Jobs that run and are suspended.
    """

    time: float
    completions: Completions
    row: dict[int, int]
    there: set[int]
    missing: set[int]
    changed: dict[int, str]
    unknown: set[int]
    restartable: set[int]
    suspended: set[int]

    @classmethod
    def of(
        cls,
        site: Site,
        observation: Observation,
        names: Mapping[int, int],
        restart_policy: RestartPolicy,
    ) -> _Observed:
        jobs = renumbered(site.promises.ids, names)
        place, over = places(observation.completions.job, jobs)
        alive = are_in(jobs, np.concatenate([observation.queued.id, observation.running.id]))
        ended, rows = jobs[over].tolist(), place[over].tolist()
        changed = changed_by_users(site, observation, names)
        numbers = overlooked(site, observation)
        missing = {
            own for own, job in numbers.items() if job not in observation.unknown
        } - names.keys()
        there = set(jobs[alive].tolist())
        promises = compress(site.promises.values(), over)
        restart = {
            job
            for job, row, promise in zip(ended, rows, promises, strict=True)
            if restart_policy.may_begin(observation.completions, row, promise.deadline)
        }
        unknown = set(observation.unknown)
        return cls(
            observation.time,
            observation.completions,
            dict(zip(ended, rows, strict=True)),
            there,
            missing,
            changed,
            unknown,
            restart,
            set(observation.marks.job[observation.marks.suspended].tolist()),
        )


def _changed(
    promises: OpenPromises, names: Mapping[int, int], shown: _Observed, now: float
) -> list[Promise]:
    """Return the promises that a poll changed, as they have become.

    Nothing has happened to most: they are firm, and their jobs are there as they were promised.
    """
    usual = shown.there - shown.row.keys() - shown.changed.keys() - shown.suspended
    looked_at = (r for r in promises.values() if r.state != "firm" or r.id not in usual)
    changed = (_closed(promise, names, shown, now) for promise in looked_at)
    return [promise for promise in changed if promise is not None]


def _closed(
    promise: Promise, names: Mapping[int, int], shown: _Observed, now: float
) -> Promise | None:
    """Return a promise as it has become, None if nothing changed."""

    def became(state: PromiseState, why: str, job: int = promise.id) -> Promise:
        return msgspec.structs.replace(
            promise, id=job, state=state, why=why, changed_at=now, expires=np.inf
        )

    if promise.state == "offered":
        return became("lapsed", "the offer was not accepted") if now >= promise.expires else None
    job = names.get(promise.id, promise.id)
    if job in shown.missing:
        return became("withdrawn", NOT_TAKEN)
    if job >= FIRST_OWN_ID:
        gone = min(shown.time, now) >= promise.expires
        return became("lapsed", NEVER_APPEARED) if gone else None
    if job in shown.restartable:
        return became("firm", "", job) if promise.state == "provisional" else None
    if job in shown.row:
        state, why = _ending(shown.completions, shown.row[job], promise.deadline)
        return became(state, why, job)
    if job in shown.there:
        if problem := shown.changed.get(job):
            return became("void", problem, job)
        if job in shown.suspended and min(shown.time, now) > promise.deadline + LATE:
            return became("broken", SUSPENDED, job)
        return became("firm", "", job) if promise.state == "provisional" else None
    return None if job in shown.unknown else became("unknown", GONE, job)


def _ending(completions: Completions, row: int, deadline: float) -> tuple[PromiseState, str]:
    """Return what became of a promise whose job ended."""
    ending, end = CompletionStatus(int(completions.status[row])), float(completions.end[row])
    if ending == CompletionStatus.OWN_LIMIT:
        return "own-limit", "the job was killed at its own time limit"
    if ending == CompletionStatus.NODE_LOST:
        return "missed", "a node failed while the job ran"
    if ending == CompletionStatus.PARTITION_GONE:
        return "missed", "the job was ended as its partition was removed"
    if ending == CompletionStatus.DEADLINE:
        return "missed", "the batch system cancelled the job at its deadline"
    if ending == CompletionStatus.FORGOTTEN:
        return "unknown", LOST
    if math.isnan(end):
        return "unknown", NO_END
    if end > deadline + LATE:
        return "missed", f"the job ended {end - deadline:.0f} s late"
    if ending == CompletionStatus.FAILED:
        return "withdrawn", NOT_KEPT
    return "kept", ""


def _of_records(requested: Jobs, names: Mapping[int, int], promises: OpenPromises) -> Jobs:
    """Return the rows of jobs with open promises, under their present ids."""
    ids = renumbered(requested.id, names)
    kept = are_in(ids, promises.ids)
    if not names and kept.all():
        return requested
    return requested.replace(id=ids).take(kept)


def _with_observation(
    site: Site,
    observation: Observation,
    names: Mapping[int, int],
    promises: OpenPromises,
    requested: Jobs,
    now: float,
    failed: NDArray[np.int64],
) -> Site:
    """Return the site with what the poll showed; tables that did not change stay the same ones.

    Of the jobs `failed`, those that are to be queued again wait already.
    """
    old, rules = site.snapshot, observation.limits
    cluster, running, requested, held = with_limits(observation, requested)
    waiting = _still_waiting(site, observation, promises, failed, now)
    restarting = [job for job, one in waiting.items() if one.restarting]
    waits = are_in(requested.id, observation.queued.id) | (requested.id >= FIRST_OWN_ID)
    waits |= are_in(requested.id, restarting)
    others = observation.queued.take(~are_in(observation.queued.id, requested.id))
    queued = in_order(Jobs.joined([others, requested.take(waits)]))
    plan = on_nodes(renamed(old.plan, names), old.cluster, observation.cluster)
    kept = are_in(plan.entries.job, requested.id[waits])
    plan = plan if kept.all() else plan.take(np.flatnonzero(kept))
    links = _links(site.links, names, promises, observation)
    moved = plan is not old.plan or not promises.ledger.equals(old.promises)
    same = _same(old.cluster, cluster)
    snapshot = replace(
        old,
        now=now,
        cluster=old.cluster if same and site.seen > -np.inf else cluster,
        queued=old.queued if queued.equals(old.queued) else queued,
        running=running,
        allocations=observation.allocations,
        accounts=old.accounts
        if observation.accounts.equals(old.accounts)
        else observation.accounts,
        promises=promises.ledger,
        plan=plan,
        edges=Edges.joined([observation.edges, links]),
        periodic=old.periodic
        if observation.periodic.equals(old.periodic)
        else observation.periodic,
        blocked=old.blocked if observation.blocked.equals(old.blocked) else observation.blocked,
        version=old.version + moved,
    )
    return replace(
        site,
        snapshot=snapshot,
        promises=promises,
        requested=requested,
        links=links,
        marks=observation.marks,
        facts=observation.facts,
        numbers={
            own: job
            for own, job in site.numbers.items()
            if own in promises or own in site.likely.promises
        },
        seen=observation.time,
        newest=max(site.newest, *(ids.max(initial=0) for ids in _shown_jobs(observation))),
        waiting=waiting,
        freed=observation.time if _frees(site, observation, promises) else site.freed,
        leeway=observation.leeway,
        limit_rules=rules,
        held=held,
        used_time=observation.used_time,
        delayed=bool(restarting) or _delayed(requested, observation),
    )


def _delayed(requested: Jobs, observation: Observation) -> bool:
    """Return whether a promised job that might begin by its own wish is put off."""
    place, there = places(observation.queued.id, requested.id)
    later = observation.queued.begin[place[there]] > observation.time
    return bool((later & (requested.begin[there] <= observation.time)).any())


def _same(one: Cluster, other: Cluster) -> bool:
    """Return whether two machines have the same nodes, states, sets of nodes and licences."""
    if one is other:
        return True
    mine, theirs = one.partitions, other.partitions
    same = one.nodes.equals(other.nodes) and mine.keys() == theirs.keys()
    same &= one.licenses == other.licenses and one.node_sets == other.node_sets
    return same and all(np.array_equal(mine[name], theirs[name]) for name in mine)


def _frees(site: Site, observation: Observation, promises: OpenPromises) -> bool:
    """Return whether jobs ended since the last poll, promises did, or nodes came back."""
    before = site.snapshot
    ended = not are_in(before.running.id, observation.running.id).all()
    more = int(observation.cluster.usable.sum()) > int(before.cluster.usable.sum())
    return ended or more or _closes(site.promises, promises) or site.freed == math.inf


def _closes(before: OpenPromises, after: OpenPromises) -> bool:
    """Return whether some promises are open no more."""
    if before is after:
        return False
    open_ = {promise.token for promise in after.values()}
    return any(promise.token not in open_ for promise in before.values())


def _still_waiting(
    site: Site,
    observation: Observation,
    promises: OpenPromises,
    failed: NDArray[np.int64],
    now: float,
) -> dict[int, WaitingJob]:
    """Return what is remembered of waiting jobs that still holds after a poll."""
    there = set(observation.queued.id.tolist()) if site.waiting else set()
    again = set(failed.tolist())
    kept = {}
    for job, one in site.waiting.items():
        known = (
            one if job in there else one._replace(declined=None, unpromised=False, tried=-np.inf)
        )
        kept[job] = known._replace(
            put_off=known.put_off if known.put_off > now else -np.inf,
            restarting=known.restarting if job in again else 0,
            missed=known.missed if job in promises else (),
        )
    return {job: one for job, one in kept.items() if one != NOTHING_KNOWN}


def _shown_jobs(observation: Observation) -> tuple[NDArray[np.int64], ...]:
    shown = observation.queued.id, observation.running.id, observation.completions.job
    return *shown, observation.marks.last


def _links(
    links: Edges,
    names: Mapping[int, int],
    promises: Mapping[int, Promise],
    observation: Observation,
) -> Edges:
    """Return the edges of promised jobs that the batch system has not shown yet.

    Those between two of them follow the first one to its new id; all go when the first one does.
    """
    if not len(links):
        return links
    before = [names.get(job, job) for job in links.before.tolist()]
    open_ = {*observation.queued.id.tolist(), *observation.running.id.tolist(), *promises}
    hidden = [
        after in promises and after not in names and first in open_
        for first, after in zip(before, links.after.tolist(), strict=True)
    ]
    if all(hidden) and before == links.before.tolist():
        return links
    return links.replace(before=np.array(before, np.int64)).take(np.array(hidden))


def _events(
    site: Site,
    observation: Observation,
    failed: NDArray[np.int64],
    promises: OpenPromises,
) -> Events:
    """Return what happened between two polls, in order of time.

    A job arrives with its deadline only if that is promised (`promises`): what got into the queue
    without a verdict is best effort, and one request may be thousands of such jobs. A job that left
    the queue without having run is withdrawn if it was promised its deadline, else rejected: it
    will not run. Not one that `failed`, and may be queued again.
    """
    before, first = site.snapshot, site.seen == -np.inf
    parts: list[tuple[EventKind, Jobs, np.ndarray[tuple[int], np.dtype[np.float64]]]] = []
    known = np.concatenate([before.queued.id, before.running.id])
    known = known[known < FIRST_OWN_ID]
    came_queued = observation.queued.take(~are_in(observation.queued.id, before.queued.id))
    came_running = observation.running.take(~are_in(observation.running.id, known))
    for came in (came_queued, came_running):
        promised = are_in(came.id, promises.ids)
        due = came.replace(deadline=np.where(promised, came.deadline, np.inf))
        parts.append((EventKind.ARRIVED, due, came.submit))
    starts = ~are_in(observation.running.id, before.running.id)
    parts.append(
        (
            EventKind.STARTED,
            observation.running.take(starts),
            observation.allocations.entries.start[starts],
        )
    )
    over = before.running.take(~are_in(before.running.id, observation.running.id))
    parts.append((EventKind.ENDED, over, _ends(observation, over)))
    shown = before.queued.id < FIRST_OWN_ID
    left = before.queued.take(shown & ~are_in(before.queued.id, observation.queued.id))
    left = left.take(~are_in(left.id, np.concatenate([observation.running.id, failed])))
    had = are_in(left.id, site.promises.ids)
    for kind, gone in (
        (EventKind.REJECTED, left.take(~had)),
        (EventKind.WITHDRAWN, left.take(had)),
    ):
        parts.append((kind, gone, np.full(len(gone), observation.time)))
    rows = [_rows(kind, jobs, time) for kind, jobs, time in parts]
    jobs = [each for _, each, _ in parts]
    if not first:
        rows.append(_node_rows(site, observation))
        jobs.append(Jobs.build(len(rows[-1])))
    whole, about = EventRows.joined(rows), Jobs.joined(jobs)
    order = np.lexsort((about.id, whole.kind, whole.time)) if len(whole) else np.empty(0, np.int64)
    return Events(whole.take(order), about.take(order))


def _ends(observation: Observation, over: Jobs) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    place, known = places(observation.completions.job, over.id)
    ends = np.full(len(over), observation.time)
    ends[known] = observation.completions.end[place[known]]
    return np.where(np.isfinite(ends), ends, observation.time)


def _rows(
    kind: EventKind, jobs: Jobs, time: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> EventRows:
    runs = kind in {EventKind.STARTED, EventKind.ENDED}
    size = jobs.size if runs else np.zeros(len(jobs), np.int32)
    return EventRows.build(len(jobs), time=time, kind=np.full(len(jobs), kind, np.int8), size=size)


def _node_rows(site: Site, observation: Observation) -> EventRows:
    """Return an event for each node whose state changed; none where nodes came or went."""
    old, new = site.snapshot.cluster.nodes.state, observation.cluster.nodes.state
    nodes = np.flatnonzero(old != new) if len(old) == len(new) else np.empty(0, np.int64)
    return EventRows.build(
        len(nodes),
        time=np.full(len(nodes), observation.time),
        kind=np.full(len(nodes), EventKind.NODE_CHANGED, np.int8),
        node=nodes.astype(np.int32),
    )
