"""Jobs that the batch system may start at any moment, as who plans around them sees them.

Between two polls it may start a job on its planned nodes when its time has come, or on reserved
ones a little before. Who is judged meanwhile must not count on those nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.planned import first_everywhere
from rtsched.core.plan_repair import by_room, free_now, start_delays, with_leeway
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.snapshot import Snapshot

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
        due &= first_everywhere(plan, len(snapshot.cluster)) | (entries.start <= now + SOON)
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
    return bool(free.all() and first_everywhere(plan, len(snapshot.cluster))[row])


def _may_not_start(snapshot: Snapshot, until: float) -> NDArray[np.bool_]:
    """Return which entries of the plan begin after a time, or wait for a job that does not run."""
    edges = snapshot.edges
    behind = edges.after[~np.isin(edges.before, snapshot.running.id)]
    return (snapshot.planned.begin > until) | np.isin(snapshot.plan.entries.job, behind)


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
        queued=snapshot.queued.take(~np.isin(snapshot.queued.id, jobs.id)),
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
