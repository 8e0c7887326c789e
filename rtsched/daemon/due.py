"""Jobs whose planned start has come, as a submission sees them.

Between two looks the batch system may start them on their planned nodes at any moment, so a
submission that is judged meanwhile must not count on those nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from rtsched.model.snapshot import Snapshot

SOON = 1.0
"""Seconds before its planned start from which on a job counts as started."""


def with_due_started(snapshot: Snapshot) -> tuple[Snapshot, Schedule]:
    """Return the snapshot in which the jobs that are due run as planned, and their entries.

    Those whose nodes are not free, and admissions whose jobs no look has shown yet, may still be
    moved.
    """
    plan, entries = snapshot.plan, snapshot.plan.entries
    entry = np.repeat(np.arange(len(plan)), np.diff(plan.indptr))
    due = (entries.start <= snapshot.now + SOON) & (entries.job < FIRST_OWN_ID)
    due[entry[snapshot.free_in[plan.nodes] > SOON]] = False
    if not due.any():
        return snapshot, Schedule.empty()
    started = plan.take(np.flatnonzero(due))
    jobs = snapshot.planned.take(due)
    jobs = jobs.replace(kind=np.full(len(jobs), Kind.RIGID, np.int8), size=started.entries.size)
    running = Jobs.joined([snapshot.running, jobs])
    allocations = Schedule.joined([snapshot.allocations, started])
    order = np.lexsort((running.id, running.submit))
    after = replace(
        snapshot,
        queued=snapshot.queued.take(~np.isin(snapshot.queued.id, jobs.id)),
        running=running.take(order),
        allocations=allocations.take(order),
        plan=plan.take(np.flatnonzero(~due)),
    )
    return after, started
