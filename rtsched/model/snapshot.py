"""Everything that a policy may see at one instant."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.accounts import Accounts
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import NOBODY, Edges, Jobs, Periodic
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.table import read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster


def _no_accounts() -> Accounts:
    return Accounts.build(0)


@dataclass(frozen=True)
class Snapshot:
    """The state of a batch system, live or simulated, at `now`.

    Attributes
    ----------
    now : float
        Seconds since the epoch. Kernels get times relative to it.
    cluster : Cluster
        The machine.
    queued : Jobs
        Jobs that wait, promised ones included, in order of (submit, id).
    running : Jobs
        Jobs that run, row by row with `allocations`.
    allocations : Schedule
        Nodes, start and latest end of every running job.
    accounts : Accounts
        Who is charged with which share.
    promises : Promises
        The ledger: promises not yet fulfilled.
    plan : Schedule
        How promised jobs that have not started will be kept.
    edges : Edges
        Dependencies between jobs that were submitted and have not ended.
    periodic : Periodic
        Reserved recurring work.
    blocked : Blocked
        When nodes are set aside by reservations, past times included. Live systems show none:
        there, nodes of a reservation are out of service.
    states : mapping of plug-in name to State
        What each plug-in remembers.
    version : int
        Version of the ledger, for compare-and-swap.
    promised : Jobs
        Those of the jobs that were promised something, in any order, where they are known apart
        from the others: `planned` finds its jobs there without a look at the whole queue.
    """

    now: float
    cluster: Cluster
    queued: Jobs = NOBODY
    running: Jobs = NOBODY
    allocations: Schedule = field(default_factory=Schedule.empty)
    accounts: Accounts = field(default_factory=_no_accounts)
    promises: Promises = field(default_factory=lambda: Promises.build(0))
    plan: Schedule = field(default_factory=Schedule.empty)
    edges: Edges = field(default_factory=lambda: Edges.build(0))
    periodic: Periodic = field(default_factory=lambda: Periodic.build(0))
    blocked: Blocked = NOTHING_BLOCKED
    states: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0
    promised: Jobs = NOBODY

    @cached_property
    def planned(self) -> Jobs:
        """Return the queued jobs whose start the plan owns, row by row with the plan.

        Their deadline is the promised one, where a promise was given.

        Raises
        ------
        ShapeError
            If the plan names a job that does not wait.
        """
        wanted, jobs = self.plan.entries.job, self.promised
        place, known = places(jobs.id, wanted)
        if not known.all():
            jobs = self.queued
            place, known = places(jobs.id, wanted)
        if not known.all():
            raise ShapeError("the plan names a job that does not wait")
        jobs = jobs.take(place)
        promise, promised = places(self.promises.job, wanted)
        deadline = jobs.deadline.copy()
        deadline[promised] = self.promises.deadline[promise[promised]]
        return jobs.with_column("deadline", deadline)

    @cached_property
    def free_in(self) -> NDArray[np.float64]:
        """Return float64[m]: seconds from now until each node is free of running jobs.

        0 where it is free, inf where it takes no new job. A job past its requested end counts as
        ending now.
        """
        return read_only(self.free_after(self.now))

    def free_after(self, origin: float) -> NDArray[np.float64]:
        """Return float64[m]: seconds after `origin` at which each node is free of running jobs.

        As `free_in`, but counted from another instant, at or before now.
        """
        free = np.where(self.cluster.nodes.state == NodeState.UP, 0.0, np.inf)
        ends = self.allocations.last_ends
        used = free[: len(ends)]
        np.maximum(used, ends - origin, out=used)
        return free


def places(
    ids: NDArray[np.int64], wanted: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where in `ids` each wanted one stands, and whether it is there at all."""
    if not len(ids):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    if (ids[1:] > ids[:-1]).all():
        place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    else:
        order = np.argsort(ids, kind="stable")
        place = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return place, ids[place] == wanted
