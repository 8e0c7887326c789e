"""Waiting jobs: why they wait, when they will probably start, and what would help."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtsched.core.plan_repair import by_room, without_room
from rtsched.daemon.estimating import LatestEstimates, held_back
from rtsched.daemon.messages import unless_earlier
from rtsched.daemon.questions import EstimateRecord, Reason, StartEstimate
from rtsched.daemon.site import entry_of, late_by_reservation
from rtsched.estimates.tables import BOUNDS
from rtsched.model.blocked import NOTHING_BLOCKED
from rtsched.model.resources import allowed_nodes
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.text import counted, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rtsched.daemon.cycle import Steered
    from rtsched.daemon.site import Site
    from rtsched.estimates.tables import Accuracy, Estimates
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot


def waits(site: Site, steered: Steered | None, job: int, now: float) -> tuple[Reason, ...]:
    """Return why a job waits, the strongest reason first."""
    snapshot = site.snapshot
    place, marked = places(site.marks.job, np.array([job]))
    if marked[0] and site.marks.held[place[0]]:
        deferred = bool(site.marks.deferred[place[0]])
        text = "it is held until it has been evaluated" if deferred else "it is held"
        return (Reason("wait.held", text),)
    found = []
    (limit,) = site.marks.take(place).texts("limit") if marked[0] else (None,)
    if limit:
        text = f"it waits for a limit of its account, QOS or partition ({limit})"
        found.append(Reason("wait.limit", text))
    if (entry := entry_of(snapshot.plan, job)) >= 0:
        start = float(snapshot.plan.entries.start[entry])
        nodes = counted(int(snapshot.plan.entries.size[entry]), "node")
        text = f"it is planned to start at {moment(start, now)} on {nodes} reserved for it"
        if job in site.promises and snapshot.plan.entries.end[entry] > site.promises[job].deadline:
            unless = unless_earlier(reserved=late_by_reservation(site, job, now))
            text += f", too late for its deadline {unless}"
        return (*found, Reason("wait.planned", text))
    row = snapshot.queued.take(snapshot.queued.id == job)
    found += [*_after_others(snapshot, job), *_begins(row, now)]
    free, kept = _free_and_kept(snapshot, row, now)
    found.append(_nodes(row, free))
    if len(snapshot.blocked.node):
        unreserved, _ = _free_and_kept(replace(snapshot, blocked=NOTHING_BLOCKED), row, now)
        if reserved := int((unreserved & ~free).sum()):
            nodes = counted(reserved, "node is", "nodes are")
            text = f"{nodes} in a reservation of the site before it would end"
            found.append(Reason("wait.reservation", text))
    if kept.any():
        nodes = counted(int(kept.sum()), "free node is", "free nodes are")
        text = f"{nodes} reserved for promised jobs that start before it would end"
        found.append(Reason("wait.kept", text))
    ahead = _ahead(steered, job)
    if ahead is not None:
        jobs = counted(ahead, "waiting job has", "waiting jobs have")
        found.append(Reason("wait.order", f"{jobs} a higher priority from rtsched"))
    return tuple(found)


def needs(snapshot: Snapshot, row: Jobs, now: float) -> tuple[Reason, ...]:
    """Return what a job that is not submitted would wait for now."""
    free, _ = _free_and_kept(snapshot, row, now)
    return (*_begins(row, now), _nodes(row, free))


def _nodes(row: Jobs, free: NDArray[np.bool_]) -> Reason:
    nodes = counted(int(row.size[0]), "node")
    return Reason("wait.nodes", f"it needs {nodes}, {int(free.sum())} free")


def _begins(row: Jobs, now: float) -> tuple[Reason, ...]:
    begin = float(row.begin[0])
    if not now < begin < np.inf:
        return ()
    return (Reason("wait.begin", f"it may not start before {moment(begin, now)}"),)


def _after_others(snapshot: Snapshot, job: int) -> tuple[Reason, ...]:
    first = np.unique(snapshot.edges.before[snapshot.edges.after == job])
    if not len(first):
        return ()
    jobs = counted(len(first), "other job")
    return (Reason("wait.dependency", f"it waits for {jobs}"),)


def _free_and_kept(
    snapshot: Snapshot, row: Jobs, now: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which nodes are free for a job that waits, and which of them promised jobs need.

    Both bool[m]. Where jobs share nodes, those are free that have room for it.
    """
    end, allowed = now + float(row.wall_time[0]), _allowed(snapshot, row)
    if not by_room(snapshot):
        free = (snapshot.free_in <= 0) & allowed
        return free, free & (_next_start(snapshot) < end)
    nodes = np.arange(len(snapshot.cluster), dtype=np.int32)
    offsets = np.arange(len(nodes) + 1, dtype=np.int64)
    alone = Schedule.build(np.full(len(nodes), row.id[0]), now, end, offsets, nodes)
    free = allowed & snapshot.cluster.usable & ~without_room(snapshot, alone, Schedule.empty())
    return free, free & without_room(snapshot, alone, snapshot.plan)


def _allowed(snapshot: Snapshot, row: Jobs) -> NDArray[np.bool_]:
    """Return bool[m]: the nodes that a job may use."""
    (code,), masks = allowed_nodes(row, snapshot.cluster)
    return masks[code] if code >= 0 else np.ones(len(snapshot.cluster), np.bool_)


def helps(site: Site, job: int, now: float) -> tuple[str, ...]:
    """Return what its user could do so that a job starts sooner."""
    snapshot = site.snapshot
    if entry_of(snapshot.plan, job) >= 0 or not len(snapshot.plan) or snapshot.cluster.shared:
        return ()
    row = snapshot.queued.take(snapshot.queued.id == job)
    size = int(row.size[0])
    free = (snapshot.free_in <= 0) & _allowed(snapshot, row)
    room = np.sort((_next_start(snapshot) - now)[free])[::-1]
    if len(room) < size or not np.isfinite(room[size - 1]):
        return ()
    minutes = int(room[size - 1] // 60.0)
    if minutes < 1 or room[size - 1] >= row.wall_time[0]:
        return ()
    return (f"with a time limit of {minutes} min it would fit before the next promised start",)


def terms(steered: Steered | None, job: int) -> dict[str, float]:
    """Return what each plug-in's terms add to a waiting job's priority."""
    found: dict[str, float] = {}
    for ids, order in steered.orders if steered is not None else ():
        rows = np.flatnonzero(ids == job)
        for answer in order.answers if len(rows) else ():
            if answer.value is None or answer.value.per_account:
                continue
            for name, values in answer.value.values.items():
                weight = answer.value.weights.get(name, 1.0)
                found[f"{answer.plugin}.{name}"] = float(weight * values[rows[0]])
    return found


def _next_start(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return float64[m]: the next planned start on each node, seconds since the epoch."""
    first = np.full(len(snapshot.cluster), np.inf)
    np.minimum.at(first, snapshot.plan.nodes, snapshot.plan.starts())
    return first


def _ahead(steered: Steered | None, job: int) -> int | None:
    """Return how many jobs rtsched puts before this one; None where it orders nothing."""
    for ids, order in steered.orders if steered is not None else ():
        rows = np.flatnonzero(ids == job)
        if len(rows):
            return int(np.count_nonzero(order.value > order.value[rows[0]]))
    return None


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
        rows = np.flatnonzero(are_in(queued.id, np.array(jobs, np.int64)))
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
        return finite(self._latest.at)

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
            start, end = finite(float(entries.start[entry])), finite(float(entries.end[entry]))
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
                why = "it cannot start as things are now"
            return _none(row, name, "waiting", why, reasons)
        times = _times(found)
        return StartEstimate(name, *_texts(row), "waiting", "estimate", **times, waits=reasons)

    def _running(self, row: Jobs) -> StartEstimate:
        job = int(row.id[0])
        allocations = self._site.snapshot.allocations
        entry = entry_of(allocations, job)
        start = latest = None
        if entry >= 0:
            start = finite(float(allocations.entries.start[entry]))
            latest = finite(float(allocations.entries.end[entry]))
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
        EstimateRecord(seconds, jobs, *(finite(value) for value in values))
        for seconds, jobs, *values in rows
    )


def _texts(row: Jobs) -> tuple[str, str]:
    return row.texts("name")[0] or "", row.texts("user")[0] or ""


def _times(found: Estimates) -> dict[str, Any]:
    return {name: finite(float(found.column(name)[0])) for name in COLUMNS}


def _none(
    row: Jobs,
    name: str,
    state: Literal["waiting", "unsubmitted"],
    why: str,
    reasons: tuple[Reason, ...],
) -> StartEstimate:
    return StartEstimate(name, *_texts(row), state, "none", why=why, waits=reasons)


def finite(value: float) -> float | None:
    """Return a time, None where it is not known."""
    return value if math.isfinite(value) else None
