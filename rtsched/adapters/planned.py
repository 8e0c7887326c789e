"""Planned jobs, as every batch system needs to know them; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule


def waiting(plan: Schedule, queued: NDArray[np.int64]) -> Schedule:
    """Return the entries whose jobs are among the `queued` ones, int64[n], or are not there yet."""
    jobs = plan.entries.job
    keep = np.isin(jobs, queued) | (jobs >= FIRST_OWN_ID)
    return plan if keep.all() else plan.take(np.flatnonzero(keep))


def first_entries(plan: Schedule, nodes: int) -> NDArray[np.int64]:
    """Return int64[nodes]: the entry that is first on each node, by (start, job); -1: none."""
    first, place = np.full(nodes, -1, np.int64), _first_places(plan, nodes)
    first[plan.nodes[place]] = plan.rows()[place]
    return first


def first_starts(plan: Schedule, nodes: int) -> NDArray[np.float64]:
    """Return float64[nodes]: the first planned start on each node, s since the epoch; inf: none."""
    first, place = np.full(nodes, np.inf), _first_places(plan, nodes)
    first[plan.nodes[place]] = plan.starts()[place]
    return first


def first_everywhere(plan: Schedule, nodes: int) -> NDArray[np.bool_]:
    """Return bool[n]: which entries are first on all of their nodes."""
    first = first_entries(plan, nodes)
    count = np.bincount(first[first >= 0], minlength=len(plan))
    return np.equal(count, np.diff(plan.indptr))


def rounds_of(plan: Schedule, entry: int, jobs: Jobs, row: int) -> list[float]:
    """Return the share of its part that each node of an entry takes in each round.

    Empty if it takes all at once. The entry is of the job in that row of `jobs`.
    """
    # It imports numba: only where there are loads.
    from rtsched.kernels.dlt import round_shares

    rounds, size = int(plan.entries.rounds[entry]), int(plan.entries.size[entry])
    return round_shares(rounds, size, jobs.load(row), float(jobs.setup_once[row]))


def _first_places(plan: Schedule, nodes: int) -> NDArray[np.int64]:
    """Return where in `plan.nodes` each node that occurs there stands with its first entry."""
    job, start = plan.entries.job, plan.entries.start
    if len(plan.node_start):
        latest_first = np.lexsort((job[plan.rows()], plan.starts()))[::-1]
    else:
        latest_first = plan.ragged.places(np.lexsort((job, start))[::-1]).values
    first = np.full(nodes, -1, np.int64)
    first[plan.nodes[latest_first]] = latest_first  # of several values for a node the last stays
    return first[first >= 0]
