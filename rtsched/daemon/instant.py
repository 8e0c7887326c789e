"""The instant of a submission: what the batch system knows then, and the last poll does not show.

A promise that rests on a node which was taken since the poll would be broken. So the submit filter
sends with its request which nodes are idle, and for how long jobs may run that passed it lately.

* **Whole nodes**: a node that the poll showed free and that is not idle was taken. It counts as
  taken for the longest time that a job may run which may have started there: one that waited at
  the poll and may use the node, or one that passed the filter since. So what is promised beside it
  holds, and what is offered can be taken.
* **Otherwise** (jobs share nodes, or the request does not say what is idle): what is free on a node
  is doubtful, if jobs may have started since the poll. A promise is given only if it could be kept
  also if all of that was taken; else the job is deferred and evaluated on the next poll, which is
  brought forward.

A job all of whose nodes are idle has ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import structlog

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.wire import Tag
from rtsched.core.plan_repair import by_room, free_now, start_delays, with_leeway
from rtsched.logs.hostlist import expand
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.resources import CPU, allowed_nodes, demand_of
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in
from rtsched.model.table import offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.daemon.site import Site
    from rtsched.model.cluster import Nodes
    from rtsched.model.snapshot import Snapshot

T = TypeVar("T")

SOON = 1.0
"""Seconds before its planned start from which on a job counts as started; and by which nodes may
come free after it, since batch systems count whole seconds."""


class StartedBefore:
    """What `with_started` made the last time, used again while the same jobs start.

    It decides how long that takes, never what comes out.
    """

    def __init__(self) -> None:
        self._last: _Started | None = None

    def of(self, snapshot: Snapshot, held: Schedule, jobs: Jobs) -> _Started:
        """Return what runs and is allocated once `jobs` run on the nodes of `held`."""
        last = self._last
        if last is None or not last.holds(snapshot, held, jobs):
            last = self._last = _started(snapshot, held, jobs)
        return last


SEEN = 4
"""Things that are kept of what was found out: the ground of a site, the site without held offers,
and the ground of that; each may hold a copy of the queue."""


class SeenBefore:
    """What was found out about a site while a submission is judged, for all that is asked of it.

    Alternatives to a rejected job are judged on the same site, at the same instant. It decides how
    long that takes, never what comes out.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], tuple[Site, Any]] = {}

    def of(self, site: Site, *key: object, find: Callable[[], T]) -> T:
        """Return what `find` returns, which depends on nothing but the site and the key."""
        found = self._found.get((id(site), *key))
        if found is None:  # the site is kept too, so that no other one gets its id
            found = self._found[id(site), *key] = site, find()
            if len(self._found) > SEEN:
                del self._found[next(iter(self._found))]
        result: T = found[1]
        return result


class _Started(NamedTuple):
    """What ran and was allocated before some jobs started, and what runs and is after it."""

    ran: Jobs
    had: Schedule
    held: Schedule
    jobs: Jobs
    running: Jobs
    allocations: Schedule

    def holds(self, snapshot: Snapshot, held: Schedule, jobs: Jobs) -> bool:
        """Return whether it would come out the same."""
        own = self.held
        return (
            self.ran is snapshot.running
            and self.had is snapshot.allocations
            and own.entries.equals(held.entries)
            and all(
                np.array_equal(getattr(own, name), getattr(held, name))
                for name in ("indptr", "nodes", "fractions", "preemptive")
            )
            and self.jobs.equals(jobs)
        )


def with_imminent_started(
    snapshot: Snapshot,
    leeway: float = 0.0,
    before: StartedBefore | None = None,
    *,
    admissions: bool = False,
) -> tuple[Snapshot, Schedule]:
    """Return the snapshot in which the jobs that are due run as planned, and their entries.

    A job is due that is the first on all its nodes, when these are all free, or its start is not
    farther away than `leeway` seconds (see `Observation`), and nothing keeps its nodes beyond that
    start. Where jobs share nodes, one is due that finds room now beside those planned before it.
    None is due that begins later, or waits for one that does not run; but planners of whole nodes
    know of no job that is not to begin yet, so one counts as due for them. Admissions whose jobs no
    poll has shown yet, and offers, may still be moved; with `admissions` those are due too whose
    planned start has passed.
    """
    plan, entries, now = snapshot.plan, snapshot.plan.entries, snapshot.now
    own = entries.job < FIRST_OWN_ID
    if admissions:
        own |= entries.start <= now
    if not own.any():
        return snapshot, Schedule.empty()
    seen = with_leeway(snapshot, leeway)
    due = own & (free_now(seen, plan, SOON) | (entries.start <= now + leeway + SOON))
    later = own & (snapshot.planned.begin > now) & (not snapshot.cluster.shared)
    if not (due | later).any():
        return snapshot, Schedule.empty()
    late = start_delays(seen, plan, SOON) > SOON
    due &= ~late & ~_may_not_start(snapshot, now + leeway + SOON)
    if due.any() and not snapshot.cluster.shared:
        due &= plan.first_everywhere() | (entries.start <= now + SOON)
    due |= later & ~late
    return with_started(snapshot, due, before) if due.any() else (snapshot, Schedule.empty())


def can_start_now(snapshot: Snapshot, row: int) -> bool:
    """Return whether an entry of the plan is due, on nodes that are free, before all others there.

    A running job that is past its limit is expected to end at any moment; its nodes are not free.
    """
    plan = snapshot.plan
    if plan.entries.start[row] > snapshot.now + SOON:
        return False
    if by_room(snapshot):
        return bool(free_now(snapshot, plan, SOON)[row])
    nodes = plan.nodes_of(row)
    free = snapshot.cluster.usable[nodes] & ~np.isin(nodes, snapshot.allocations.nodes)
    return bool(free.all() and plan.first_everywhere()[row])


def _may_not_start(snapshot: Snapshot, until: float) -> NDArray[np.bool_]:
    """Return which entries of the plan begin after a time, or wait for a job that does not run."""
    edges = snapshot.edges
    behind = edges.after[~are_in(edges.before, snapshot.running.id)]
    return (snapshot.planned.begin > until) | are_in(snapshot.plan.entries.job, behind)


def with_started(
    snapshot: Snapshot, rows: NDArray[np.bool_], before: StartedBefore | None = None
) -> tuple[Snapshot, Schedule]:
    """Return the snapshot in which some entries of the plan run, and these entries.

    They have their nodes from now until their planned ends: when they start is not known.
    """
    started = snapshot.plan.take(np.flatnonzero(rows))
    jobs = snapshot.planned.take(rows)
    jobs = jobs.with_column("size", started.entries.size)
    jobs = jobs.with_column("kind", np.full(len(jobs), Kind.RIGID, np.int8))
    start = np.minimum(started.entries.start, snapshot.now)
    held = replace(started, entries=started.entries.replace(start=start), node_start=np.empty(0))
    made = (before or StartedBefore()).of(snapshot, held, jobs)
    after = replace(
        snapshot,
        queued=snapshot.queued.take(~are_in(snapshot.queued.id, jobs.id)),
        running=made.running,
        allocations=made.allocations,
        plan=snapshot.plan.take(np.flatnonzero(~rows)),
    )
    return after, started


def _started(snapshot: Snapshot, held: Schedule, jobs: Jobs) -> _Started:
    """Return what runs and is allocated once `jobs` run on the nodes of `held`."""
    running = Jobs.joined([snapshot.running, jobs])
    allocations = Schedule.joined([snapshot.allocations, held])
    order = np.lexsort((running.id, running.submit))
    return _Started(
        ran=snapshot.running,
        had=snapshot.allocations,
        held=held,
        jobs=jobs,
        running=running.take(order),
        allocations=allocations.take(order),
    )


log = structlog.get_logger(__name__)

MARGIN = 2.0
"""Seconds by which the poll, the filter and whole seconds may disagree about what came first."""

TAKEN_IDS = 3 << 61
"""Jobs that are not known, and hold taken nodes, have ids from here on, in one evaluation only."""


@dataclass(frozen=True)
class Instant:
    """What the batch system knew when a request was made.

    Attributes
    ----------
    idle : bool[m] or None
        Which nodes of the last poll's cluster run nothing and take jobs; None: not known.
    changed : float
        When a node changed last, seconds since the epoch; inf: not known.
    longest : float
        Seconds for which a job may run that passed the filter since the poll; 0: none passed, inf:
        one without limit, or not known.
    """

    idle: NDArray[np.bool_] | None = None
    changed: float = math.inf
    longest: float = math.inf

    def may_have_started(self, site: Site) -> bool:
        """Return whether jobs may have started since the last poll."""
        if math.isfinite(self.changed):
            return self.changed >= math.floor(site.seen)
        if self.longest > 0.0:
            return True
        waits = ~are_in(site.marks.job, site.requested.id) & ~site.marks.held
        return bool(are_in(site.snapshot.queued.id, site.marks.job[waits]).any())

    def is_certain(self, site: Site) -> bool:
        """Return whether it is known of each node what is free there."""
        whole = self.idle is not None and not site.snapshot.cluster.shared
        return whole or not self.may_have_started(site)

    def doubtful(self, snapshot: Snapshot, site: Site) -> NDArray[np.bool_]:
        """Return bool[m]: on which nodes jobs may have started that nobody sees."""
        cluster = snapshot.cluster
        if self.is_certain(site):
            return np.zeros(len(cluster), np.bool_)
        found = cluster.usable & ~_full(snapshot)
        return found if self.idle is None else found & ~self.idle


class NodeLists:
    """The nodes that lists name, as rows of a cluster; what was read last is kept."""

    def __init__(self) -> None:
        self._nodes: Nodes | None = None
        self._rows: dict[str, int] = {}
        self._read: dict[str, NDArray[np.bool_]] = {}

    def mask(self, nodes: Nodes, text: str) -> NDArray[np.bool_] | None:
        """Return bool[m]: which nodes a list names; None: it is no list of nodes."""
        if self._nodes is not nodes:
            self._nodes, self._read = nodes, {}
            self._rows = {name or "": row for row, name in enumerate(nodes.texts("name"))}
        if (known := self._read.get(text)) is not None:
            return known
        try:
            names = expand(text)
        except ValueError as error:
            log.warning("node_list_not_read", error=str(error))
            return None
        rows = [row for name in names if (row := self._rows.get(name)) is not None]
        found = np.zeros(len(nodes), np.bool_)
        found[rows] = True
        if len(self._read) > 7:  # the idle and the available nodes of some requests
            self._read.clear()
        self._read[text] = found
        return found


def instant_of(
    fields: Mapping[int, int | str], site: Site, lists: NodeLists, unstated: float = math.inf
) -> Instant:
    """Return what a request to submit a job says about its instant.

    An older filter sends nothing: all is unknown then.
    `unstated`: for how long a job may run that names no limit, seconds; inf: not known.
    """
    nodes = site.snapshot.cluster.nodes
    parts = [fields.get(tag) for tag in (Tag.IDLE_NODES, Tag.AVAIL_NODES)]
    masks = [lists.mask(nodes, part) if isinstance(part, str) else None for part in parts]
    idle = None if masks[0] is None or masks[1] is None else masks[0] & masks[1]
    changed = fields.get(Tag.LAST_NODE_UPDATE, math.inf)
    passed = fields.get(Tag.PASSED)
    longest = math.inf
    if isinstance(passed, str):
        longest = _longest(passed, site.seen - MARGIN, unstated)
    return Instant(idle, float(changed), longest)


def filter_problem(fields: Mapping[int, int | str]) -> str:
    """Return what a request to submit a job should say of its instant, and does not, in words."""
    if not fields.keys().isdisjoint({Tag.IDLE_NODES, Tag.LAST_NODE_UPDATE}):
        return ""
    if Tag.PASSED in fields and Tag.AD in fields:
        return ""
    if Tag.PASSED in fields:
        return (
            "slurmctld does not show the submit filter which nodes are idle: jobs without time to "
            "spare wait for a poll before they are promised anything"
        )
    what, restart = "submit filter", "slurmctld"
    if Tag.AD in fields:
        what, restart = "ClassAd library", "HTCondor"
    return (
        f"the {what} is of an earlier release and does not tell what passed it: jobs without time "
        "to spare wait for a poll before they are promised anything; rebuild it, and restart "
        f"{restart}"
    )


def _longest(passed: str, since: float, unstated: float) -> float:
    """Return for how long a job may run that passed since then, seconds; 0: none did."""
    found = 0.0
    for part in filter(None, passed.split(",")):
        second, _, minutes = part.partition(":")
        try:
            at, limit = int(second), int(minutes)
        except ValueError:
            return math.inf
        if at >= since:
            seconds = {-1: math.inf, -2: unstated}.get(limit, limit * 60.0)
            found = max(found, seconds, 1.0)
    return found


@dataclass(frozen=True)
class Present:
    """A poll's snapshot, brought to the instant of a submission.

    Attributes
    ----------
    snapshot : Snapshot
        In it.
    started : Schedule
        The entries of its plan that have started, which it has no more.
    taken : bool[m]
        Nodes that unknown jobs have taken since the poll.
    unclear : bool
        Whether a promised job may have taken some of them, on other nodes than it was planned on.
    """

    snapshot: Snapshot
    started: Schedule
    taken: NDArray[np.bool_]
    unclear: bool = False


def present(snapshot: Snapshot, site: Site, instant: Instant, *, worst: bool = False) -> Present:
    """Return the snapshot of the last poll as the batch system is now.

    `worst`: as it is if all that may have been taken was.
    """
    nothing = np.zeros(len(snapshot.cluster), np.bool_)
    found = Present(snapshot, Schedule.empty(), nothing)
    if instant.idle is not None:
        found = replace(found, snapshot=_without_ended(snapshot, site, instant.idle))
        if not snapshot.cluster.shared:
            found = _with_taken(found.snapshot, site, instant, instant.idle)
    if worst:
        taken = instant.doubtful(found.snapshot, site)
        held = _held(found.snapshot, site, instant, taken)
        return replace(found, snapshot=held, taken=found.taken | taken)
    return found


def _without_ended(snapshot: Snapshot, site: Site, idle: NDArray[np.bool_]) -> Snapshot:
    """Return the snapshot without jobs that ran at the poll and all of whose nodes are idle now."""
    runs = snapshot.allocations
    busy = np.bincount(runs.rows()[~idle[runs.nodes]], minlength=len(runs)) > 0
    kept = busy | (runs.ragged.lengths == 0) | (runs.entries.start > site.seen - MARGIN)
    if kept.all():
        return snapshot
    rows = np.flatnonzero(kept)
    return replace(snapshot, running=snapshot.running.take(rows), allocations=runs.take(rows))


def _with_taken(
    snapshot: Snapshot, site: Site, instant: Instant, idle: NDArray[np.bool_]
) -> Present:
    """Return the snapshot with jobs on the nodes that were free, and are not idle."""
    plan, now = snapshot.plan, snapshot.now
    gone = snapshot.cluster.usable & ~idle
    gone[snapshot.allocations.nodes] = False
    started = Schedule.empty()
    if not gone.any():
        return Present(snapshot, started, gone)
    due = plan.entries.start <= now + site.leeway + SOON
    for row in np.flatnonzero(due).tolist():
        promise = site.promises.get(int(plan.entries.job[row]))
        due[row] = promise is not None and promise.state != "offered"
    taken_of = np.bincount(plan.rows()[gone[plan.nodes]], minlength=len(plan))
    runs = due & (taken_of == plan.ragged.lengths) & (plan.ragged.lengths > 0)
    unclear = bool((due & ~runs).any())
    if runs.any():
        snapshot, started = with_started(snapshot, runs)
        gone[started.nodes] = False
    return Present(_held(snapshot, site, instant, gone), started, gone, unclear)


def _held(snapshot: Snapshot, site: Site, instant: Instant, taken: NDArray[np.bool_]) -> Snapshot:
    """Return the snapshot in which unknown jobs have some nodes for as long as they may."""
    rows = np.flatnonzero(taken)
    if not len(rows):
        return snapshot
    now, until = snapshot.now, _until(snapshot, site, instant)[rows]
    if snapshot.cluster.shared:
        whole = np.full(len(rows), WHOLE, np.int64)
        spans = Blocked(rows, np.full(len(rows), now), until, whole)
        return replace(snapshot, blocked=Blocked.joined([snapshot.blocked.cut(spans)[0], spans]))
    ends, group = np.unique(until, return_inverse=True)
    order = np.argsort(group, kind="stable")
    size, count = np.bincount(group), len(ends)
    ids = TAKEN_IDS + np.arange(count)
    jobs = Jobs.build(
        count,
        id=ids,
        submit=np.full(count, now),
        size=size,
        wall_time=ends - now,
        kind=np.full(count, Kind.RIGID, np.int8),
    )
    start = np.full(count, now)
    runs = Schedule.build(ids, start, ends, offsets_of(size), rows[order].astype(np.int32))
    return replace(
        snapshot,
        running=snapshot.running.with_rows(jobs),
        allocations=Schedule.joined([snapshot.allocations, runs]),
    )


def _until(snapshot: Snapshot, site: Site, instant: Instant) -> NDArray[np.float64]:
    """Return float64[m]: when each node is free again at the latest, if a job started there."""
    plan, now, cluster = snapshot.plan, snapshot.now, snapshot.cluster
    due = plan.entries.start <= now + site.leeway + SOON
    spans = plan.entries.end[due] - plan.entries.start[due]
    passed = instant.longest + site.leeway  # by which jobs outlive their limits; spans contain it
    longest = np.full(len(cluster), max(passed, float(spans.max(initial=0.0))))
    jobs = snapshot.queued
    codes, masks = allowed_nodes(jobs, cluster)
    most = np.zeros(len(masks) + 1)  # the last serves code -1: any node
    others = ~are_in(jobs.id, site.requested.id)
    np.maximum.at(most, codes[others], jobs.wall_time[others])
    longest = np.maximum(longest, most[-1])
    for mask, least in zip(masks, most.tolist(), strict=False):
        longest[mask] = np.maximum(longest[mask], least)
    return np.asarray(now + longest)


def _full(snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return bool[m]: which nodes have no room for one job more."""
    cluster, runs = snapshot.cluster, snapshot.allocations
    full = np.zeros(len(cluster), np.bool_)
    names = cluster.nodes.names("capacity")
    if CPU not in names:
        full[runs.nodes] = True
        return full
    at = names.index(CPU)
    used = np.zeros(len(cluster), np.int64)
    np.add.at(used, runs.nodes, runs.per_node(demand_of(snapshot.running, cluster)[:, at]))
    return np.asarray(used >= cluster.nodes.capacity[:, at])
