"""The site as the daemon knows it: the last poll, the promises, and the plan that keeps them.

A `Site` is never changed; every occasion makes a new one: a submission (`admission`), a poll of the
batch system (`reconcile`), a plan that no longer holds (`replanning`). So a submission that is
judged while a cycle is being worked out shows by identity, and the cycle is worked out again. A
`Step` is the new site with what follows from the change.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, Marks
from rtsched.daemon.promises import AT_RISK, OpenPromises
from rtsched.estimates.calibration import LikelyLevel
from rtsched.model.jobs import NOBODY, Edges, Jobs
from rtsched.model.snapshot import are_in, places
from rtsched.model.state import NO_EVENTS, Events, joined
from rtsched.model.units import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from rtsched.daemon.promises import JournalEntry, Promise, PromiseState
    from rtsched.model.actions import Action
    from rtsched.model.cluster import Cluster
    from rtsched.model.limits import LimitRules, UsedTime
    from rtsched.model.schedule import Schedule
    from rtsched.model.snapshot import Snapshot


@dataclass(frozen=True)
class LikelyPromises:
    """Open likely promises, and what was learnt from those that are over.

    Attributes
    ----------
    promises : OpenPromises
        By job id.
    requested : Jobs
        What their jobs asked for, one row each, in any order.
    level : LikelyLevel
        From which odds on one is given.
    """

    promises: OpenPromises = field(default_factory=OpenPromises)
    requested: Jobs = NOBODY
    level: LikelyLevel = field(default_factory=LikelyLevel)

    def __len__(self) -> int:
        return len(self.promises)

    def given_since(self, at: float) -> Jobs:
        """Return what was asked for by those made at `at`, seconds since the epoch, or later."""
        made = [self.promises[job].made_at >= at for job in self.requested.id.tolist()]
        return self.requested.take(np.flatnonzero(made))

    def with_new(self, promise: Promise, row: Jobs) -> LikelyPromises:
        """Return these and one more; `row` is what its job asked for."""
        row = row.replace(id=np.array([promise.id]))
        promises, requested = self.promises.with_new(promise), self.requested.with_rows(row)
        return replace(self, promises=promises, requested=requested)

    def without(self, jobs: Iterable[int]) -> LikelyPromises:
        """Return these without those of some jobs."""
        left = self.promises.without(jobs)
        if left is self.promises:
            return self
        rows = are_in(self.requested.id, left.ids)
        return replace(self, promises=left, requested=self.requested.take(rows))

    def changed(self, promises: Iterable[Promise], numbers: Mapping[int, int]) -> LikelyPromises:
        """Return these with other open promises, whose jobs may have other numbers than before.

        `numbers` are the new ones by the old ones.
        """
        ids = renumbered(self.requested.id, numbers)
        new = OpenPromises({promise.id: promise for promise in promises})
        kept = are_in(ids, new.ids)
        return replace(self, promises=new, requested=self.requested.replace(id=ids).take(kept))

    def learnt(self, outcomes: Iterable[tuple[float, bool]]) -> LikelyPromises:
        """Return these with outcomes more: stated odds, and whether they were kept."""
        return replace(self, level=self.level.learnt(outcomes))


LATE = 1.0
"""Seconds by which a job may end after its deadline and count as in time: the batch system tells
ends in whole seconds."""


class Secured(NamedTuple):
    """Nodes, by name, that the batch system was asked to keep for a job that is held.

    `since` is when it had done so, seconds since the epoch; inf: it has not yet, or could not.
    """

    nodes: frozenset[str]
    since: float


class WaitingJob(NamedTuple):
    """What the daemon remembers of a job that waits, beside its promise.

    Attributes
    ----------
    declined : str or None
        What a deferred job that was judged and promised nothing is cancelled with; empty: it is let
        go; None: it was not judged.
    unpromised : bool
        Whether it was judged and runs without a promise, also after its deadline.
    tried : float
        When a job that waits without a promise was evaluated last, seconds since the epoch; -inf:
        never; inf: it is not evaluated again.
    put_off : float
        It is not judged again before that time, seconds since the epoch; -inf: it is at once.
    secured : Secured or None
        The nodes that the batch system is asked to keep free for it. It is judged again when a poll
        shows that nobody else has come there.
    orphan : str
        The token that it carries, if the database did not know its promise when the daemon started.
    restarting : int
        It ended, has its promise and a new start, and is to be queued again: so many polls have not
        shown it in the queue yet; 0: it is none of these.
    missed : tuple of float
        The planned starts at which a limit of its account, QOS or partition kept it from starting,
        seconds since the epoch.
    """

    declined: str | None = None
    unpromised: bool = False
    tried: float = -math.inf
    put_off: float = -math.inf
    secured: Secured | None = None
    orphan: str = ""
    restarting: int = 0
    missed: tuple[float, ...] = ()


NOTHING_KNOWN = WaitingJob()
"""What is remembered of most jobs."""


@dataclass(frozen=True)
class Site:
    """The daemon's memory at one instant.

    Attributes
    ----------
    snapshot : Snapshot
        As policies see it: promised jobs stand in `queued` as they were submitted, with those that
        the batch system has not shown yet. Its version counts the changes of promises and plan.
    promises : OpenPromises
        Open promises and held counter-offers, by job id.
    requested : Jobs
        What the promised jobs asked for, one row each, in any order.
    links : Edges
        What promised jobs wait for that the batch system has not shown yet.
    marks : Marks
        Of the last poll.
    facts : object
        The adapter's, of the last poll.
    seen : float
        When that was, seconds since the epoch; -inf: never.
    next_id : int
        The next job id of our own.
    numbers : mapping of int to int
        By our own id, what the batch system numbers jobs of admissions that no poll has shown yet,
        where it told.
    newest : int
        The highest job id that a poll has shown; 0: none has.
    waiting : mapping of int to WaitingJob
        What is remembered of waiting jobs, where that is something.
    freed : float
        When a poll showed last that room was freed, seconds since the epoch; inf: since that poll.
    unused : mapping of (int, str) to tuple of float
        By uid and state, when offers and admissions lapsed that users did not take, seconds
        since the epoch.
    unnotified : mapping of str to Promise
        By token, promises that broke before their jobs had appeared: whom to tell is not known yet.
    leeway : float
        As in `Observation`.
    limit_rules : LimitRules or None
        As in `Observation`.
    held : mapping of str to int
        What the jobs that ran at the last poll count to limits, by the limits' names.
    used_time : UsedTime or None
        As in `Observation`.
    delayed : bool
        Whether the batch system puts off a promised job that it queues again: no other plan is
        sought meanwhile that could have it start before.
    likely : LikelyPromises
        Open promises with odds; what is planned knows nothing of them.
    """

    snapshot: Snapshot
    promises: OpenPromises = field(default_factory=OpenPromises)
    requested: Jobs = NOBODY
    links: Edges = field(default_factory=lambda: Edges.build(0))
    marks: Marks = field(default_factory=lambda: Marks.build(0))
    facts: Any = None
    seen: float = -np.inf
    next_id: int = FIRST_OWN_ID
    numbers: Mapping[int, int] = field(default_factory=dict)
    newest: int = 0
    waiting: Mapping[int, WaitingJob] = field(default_factory=dict)
    freed: float = -math.inf
    unused: Mapping[tuple[int, PromiseState], tuple[float, ...]] = field(default_factory=dict)
    unnotified: Mapping[str, Promise] = field(default_factory=dict)
    leeway: float = 0.0
    limit_rules: LimitRules | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    used_time: UsedTime | None = None
    delayed: bool = False
    likely: LikelyPromises = field(default_factory=LikelyPromises)

    @cached_property
    def at_risk(self) -> Mapping[int, float]:
        """The promised jobs that may end late, by id, and until when, seconds since the epoch.

        They run, and may do so for longer than until their deadlines, or are suspended; or they
        wait, and are planned too late, as there was no better place, or not at all. inf: nobody
        knows.
        """
        unknown = [*suspended(self), *_unplanned(self)]
        return _late_runs(self) | _late_plans(self) | dict.fromkeys(unknown, math.inf)

    def waiting_job(self, job: int) -> WaitingJob:
        """Return what is remembered of a waiting job."""
        return self.waiting.get(job, NOTHING_KNOWN)

    def noted(self, job: int, **changes: Any) -> Site:
        """Return the site in which fields of what is remembered of a waiting job are others."""
        return self.with_waiting({job: self.waiting_job(job)._replace(**changes)})

    def with_waiting(self, jobs: Mapping[int, WaitingJob]) -> Site:
        """Return the site in which this is remembered of some waiting jobs, and nothing else."""
        waiting = {**self.waiting, **jobs}
        for job in [job for job, one in jobs.items() if one == NOTHING_KNOWN]:
            del waiting[job]
        return replace(self, waiting=waiting)

    @property
    def secured(self) -> dict[int, Secured]:
        """The nodes that are kept for waiting jobs, by job."""
        return {job: one.secured for job, one in self.waiting.items() if one.secured is not None}

    @property
    def restarting(self) -> list[int]:
        """The jobs that ended and are to be queued again."""
        return [job for job, one in self.waiting.items() if one.restarting]

    @property
    def orphans(self) -> list[int]:
        """The waiting jobs whose promises the database did not know."""
        return [job for job, one in self.waiting.items() if one.orphan]

    def promise_of(self, job: int) -> Promise | None:
        """Return a job's open promise or offer, guaranteed or likely; None: it has none."""
        return self.promises.get(job) or self.likely.promises.get(job)

    def all_promises(self) -> list[Promise]:
        """Return all open promises and offers, guaranteed and likely ones."""
        return [*self.promises.values(), *self.likely.promises.values()]

    def of_user(self, uid: int, *states: PromiseState) -> list[Promise]:
        """Return a user's promises in some states, the oldest first."""
        return [each for each in self.promises.of_users.get(uid, ()) if each.state in states]

    def open_promises(self, uid: int) -> list[Promise]:
        """Return a user's open promises, guaranteed ones and those with odds."""
        guaranteed = self.of_user(uid, "provisional", "firm")
        return [*guaranteed, *self.likely.promises.of_users.get(uid, ())]

    def left_unused(self, promises: Iterable[Promise], now: float) -> Site:
        """Return the site, in which it is remembered that these offers or promises were not used.

        They are given as they stood before. Offers that were made at one instant are one.
        """
        kept = [(uid, state) for uid, state, _ in dict.fromkeys(map(_counted, promises))]
        return self._unused_too(dict(Counter(kept)), now)

    def cancelled(self, counts: Mapping[int, int], now: float) -> Site:
        """Return the site, in which cancelled promises of users count as so many unused ones."""
        return self._unused_too({(uid, "firm"): count for uid, count in counts.items()}, now)

    def _unused_too(self, more: Mapping[tuple[int, PromiseState], int], now: float) -> Site:
        recent = {
            key: tuple(at for at in times if at > now - HOUR) for key, times in self.unused.items()
        }
        for key, count in more.items():
            recent[key] = (*recent.get(key, ()), *[now] * count)
        return replace(self, unused={key: times for key, times in recent.items() if times})

    def unused_by(self, uid: int, now: float, *states: PromiseState) -> list[float]:
        """Return when, in the last hour, what a user did not take lapsed, the first one first."""
        whole = (at for state in states for at in self.unused.get((uid, state), ()))
        return sorted(at for at in whole if at > now - HOUR)

    def limits(self) -> dict[int, str]:
        """Return for which limits of accounts, QOS and partitions jobs wait, by job."""
        marks = self.marks.take(self.marks.limit >= 0)
        pairs = zip(marks.job.tolist(), marks.texts("limit"), strict=True)
        return {job: limit for job, limit in pairs if limit}

    def whole(self, job: int) -> int:
        """Return the id of the job that a job is a part of; its own, if it is none."""
        inside = np.flatnonzero((self.marks.job < job) & (job <= self.marks.last))
        return int(self.marks.job[inside[0]]) if len(inside) else job

    def has_components(self, job: int) -> bool:
        """Return whether other jobs are parts of a job."""
        return bool((self.marks.last[self.marks.job == job] >= 0).any())

    def row(self, job: int) -> Jobs:
        """Return what a promised job asked for, one row."""
        return self.requested.take(np.flatnonzero(self.requested.id == job)[:1])

    def with_begin(self, job: int, begin: float) -> Site:
        """Return the site in which a promised job does not begin before, seconds since the epoch.

        So it is not planned earlier again.
        """

        def later(jobs: Jobs) -> Jobs:
            at_least = np.where(jobs.id == job, begin, -np.inf)
            return jobs.replace(begin=np.maximum(jobs.begin, at_least))

        snapshot = replace(self.snapshot, queued=later(self.snapshot.queued))
        return replace(self, snapshot=snapshot, requested=later(self.requested))

    def with_promise(self, promise: Promise, row: Jobs, links: Edges, plan: Schedule) -> Site:
        """Return the site with one more promise or offer, and a new plan.

        A job that the batch system does not show yet is put into the queue, with what it waits for.
        """
        old, promises = self.snapshot, self.promises.with_new(promise)
        queued, edges, known = old.queued, old.edges, self.links
        if promise.id >= FIRST_OWN_ID:  # the highest id
            queued, edges = _with_row(queued, row), edges.with_rows(links)
            known = known.with_rows(links)
        elif queued.names("demand") != row.names("demand"):  # it counts to limits from now on
            queued = _with_row(queued.take(queued.id != promise.id), row)
        snapshot = replace(
            old,
            promises=promises.ledger,
            plan=plan,
            queued=queued,
            edges=edges,
            version=old.version + 1,
        )
        return replace(
            self,
            snapshot=snapshot,
            promises=promises,
            requested=self.requested.with_rows(row),
            links=known,
            next_id=max(self.next_id, promise.id + 1),
        )

    def without(self, jobs: Iterable[int]) -> Site:
        """Return the site without some promises that the batch system knows no job of."""
        lost = set(jobs)
        if not lost:
            return self
        gone = np.array(sorted(lost), np.int64)
        old, promises = self.snapshot, self.promises.without(lost)
        snapshot = replace(
            old,
            queued=_left(old.queued, old.queued.id, gone),
            promises=promises.ledger,
            plan=old.plan.take(np.flatnonzero(~are_in(old.plan.entries.job, gone))),
            edges=_left(old.edges, old.edges.after, gone),
            version=old.version + 1,
        )
        requested = _left(self.requested, self.requested.id, gone)
        links = _left(self.links, self.links.after, gone)
        return replace(self, snapshot=snapshot, promises=promises, requested=requested, links=links)

    def released(self, job: int) -> Site:
        """Return the site in which a job that the batch system shows goes on without its promise.

        It is not judged again.
        """
        old, promises = self.snapshot, self.promises.without([job])
        gone = np.array([job], np.int64)
        snapshot = replace(
            old,
            promises=promises.ledger,
            plan=old.plan.take(np.flatnonzero(old.plan.entries.job != job)),
            version=old.version + 1,
        )
        after = replace(
            self,
            snapshot=snapshot,
            promises=promises,
            requested=_left(self.requested, self.requested.id, gone),
            links=_left(self.links, self.links.after, gone),
            freed=math.inf,
        )
        return after.noted(job, declined="", unpromised=False, restarting=0, missed=())


@dataclass(frozen=True)
class Step:
    """A change of the site by a poll, a verdict or a new plan.

    Attributes
    ----------
    site : Site
        After it.
    changed : tuple of Promise
        Promises that were given, kept or broken, to be written down.
    actions : tuple of Action
        What is asked of the batch system for it, and what users are notified of.
    journal : tuple of JournalEntry
        Verdicts, for `rtsched explain`.
    events : Events
        What happened since the poll before, for plug-ins.
    problems : tuple of str
        What could not be judged or planned, one sentence each. The site is then as it was, and the
        next cycle tries again.
    """

    site: Site
    changed: tuple[Promise, ...] = ()
    actions: tuple[Action, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    events: Events = NO_EVENTS
    problems: tuple[str, ...] = ()

    def then(self, later: Step) -> Step:
        """Return this step and one from the site after it as one."""
        return Step(
            later.site,
            self.changed + later.changed,
            self.actions + later.actions,
            self.journal + later.journal,
            joined([self.events, later.events]) if len(later.events) else self.events,
            self.problems + later.problems,
        )


def _counted(promise: Promise) -> tuple[int, PromiseState, float]:
    """Return what is the same of promises that count as one: the offers of a menu."""
    at = promise.made_at if promise.state == "offered" else float(promise.id)
    return promise.uid, promise.state, at


def _left(table: Any, key: NDArray[np.int64], gone: NDArray[np.int64]) -> Any:
    kept = ~are_in(key, gone)
    return table if kept.all() else table.take(kept)


def in_order(jobs: Jobs) -> Jobs:
    """Return jobs in order of (submit, id)."""
    submit, number = jobs.submit, jobs.id
    later = (submit[1:] > submit[:-1]) | ((submit[1:] == submit[:-1]) & (number[1:] > number[:-1]))
    if later.all():
        return jobs
    order = np.lexsort((jobs.id, jobs.submit))
    return jobs.take(order)


def _with_row(jobs: Jobs, row: Jobs) -> Jobs:
    """Return jobs in order of (submit, id) with one more of them."""
    more, last = jobs.with_rows(row), jobs.take([len(jobs) - 1] if len(jobs) else [])
    behind = not len(last) or (last.submit[0], last.id[0]) < (row.submit[0], row.id[0])
    return more if behind else in_order(more)


def _unplanned(site: Site) -> list[int]:
    """Return the ids of promised jobs that wait and have no place, or one on nodes that are lost.

    Such as one whose node was lost a moment ago, and may come back at once.
    """
    plan, usable = site.snapshot.plan, site.snapshot.cluster.usable
    on_lost = plan.entries.job[np.unique(plan.rows()[~usable[plan.nodes]])]
    waits = site.requested.id[are_in(site.requested.id, site.snapshot.queued.id)]
    homeless = {*waits[~are_in(waits, plan.entries.job)].tolist(), *on_lost.tolist()}
    found = homeless.difference(site.restarting).intersection(site.promises)
    return sorted(job for job in found if site.promises[job].state != "offered")


def suspended(site: Site) -> list[int]:
    """Return the ids of promised jobs that are suspended: nobody knows when they end."""
    jobs = site.marks.job[site.marks.suspended]
    return [job for job in jobs.tolist() if job in site.promises]


def _late_plans(site: Site) -> dict[int, float]:
    """Return by id the jobs of promises that are planned too late, and until when."""
    entries, promises = site.snapshot.plan.entries, site.promises
    late = entries.end > promised_deadlines(site, entries.job) + LATE
    ends = zip(entries.job[late].tolist(), entries.end[late].tolist(), strict=True)
    return {job: end for job, end in ends if job in promises and promises[job].state != "offered"}


def late_by_reservation(site: Site, job: int, now: float) -> bool:
    """Return whether a planned job ends late whatever runs, as the site reserved a node of it."""
    plan, blocked = site.snapshot.plan, site.snapshot.blocked
    if (entry := entry_of(plan, job)) < 0:
        return False
    seconds = float(plan.entries.end[entry] - plan.entries.start[entry])
    latest = site.promises[job].deadline + LATE - seconds
    of_job = np.isin(blocked.node, plan.nodes_of(entry))
    never = (blocked.start < now + seconds) & (blocked.end > latest)
    return bool((of_job & never).any())


def promised_deadlines(site: Site, jobs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the deadlines promised to jobs, seconds since the epoch; inf: none is."""
    promises = site.snapshot.promises
    place, promised = places(promises.job, jobs)
    deadline = np.full(len(jobs), np.inf)
    deadline[promised] = promises.deadline[place[promised]]
    return deadline


def with_late_plans_accepted(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with deadlines no earlier than the planned ends of their jobs.

    For planners: a promise that is at risk does not keep others from being promised what delays it
    no further.
    """
    promises, entries = snapshot.promises, snapshot.plan.entries
    place, promised = places(promises.job, entries.job)
    row, end = place[promised], entries.end[promised]
    late = end > promises.deadline[row]
    if not late.any():
        return snapshot
    deadline = promises.deadline.copy()
    deadline[row[late]] = end[late]
    return replace(snapshot, promises=promises.with_column("deadline", deadline))


def states(site: Site) -> Counter[str]:
    """Return how many open promises and offers are in each state, those at risk apart."""
    return Counter(
        AT_RISK if job in site.at_risk else promise.state for job, promise in site.promises.items()
    )


def _late_runs(site: Site) -> dict[int, float]:
    """Return by id the jobs that run and may end after their promise, and until when."""
    runs = site.snapshot.allocations.entries
    end = runs.end - site.leeway
    late = end > promised_deadlines(site, runs.job) + LATE
    return dict(zip(runs.job[late].tolist(), end[late].tolist(), strict=True))


def renumbered(jobs: NDArray[np.int64], numbers: Mapping[int, int]) -> NDArray[np.int64]:
    """Return ids of jobs, of which some have new ones."""
    if not numbers:
        return jobs
    return np.array([numbers.get(job, job) for job in jobs.tolist()], np.int64)


def renamed(plan: Schedule, names: Mapping[int, int]) -> Schedule:
    """Return a plan in which some jobs have other ids."""
    if not names:
        return plan
    return replace(plan, entries=plan.entries.replace(job=renumbered(plan.entries.job, names)))


def entry_of(plan: Schedule, job: int) -> int:
    """Return the row of a job's entry in a plan, -1 if there is none."""
    place, there = places(plan.entries.job, np.array([job]))
    return int(place[0]) if there[0] else -1


def on_nodes(plan: Schedule, before: Cluster, after: Cluster) -> Schedule:
    """Return a plan by the rows of another list of nodes; entries on nodes that are gone fall out.

    Parameters
    ----------
    plan : Schedule
        Its nodes are rows of `before`.
    before, after : Cluster
        Matched by the nodes' names.
    """
    old, new = before.nodes.texts("name"), after.nodes.texts("name")
    if old == new or not len(plan):
        return plan
    row_of = {name: row for row, name in enumerate(new)}
    rows = np.array([row_of.get(name, -1) for name in old], np.int32)[plan.nodes]
    entry = plan.rows()
    whole = np.ones(len(plan), np.bool_)
    whole[entry[rows < 0]] = False
    return replace(plan, nodes=np.maximum(rows, 0)).take(np.flatnonzero(whole))
