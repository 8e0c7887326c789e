"""Everything that a policy may see at one instant: jobs, nodes, plan, accounts, dependencies."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import NOBODY, Edges, Jobs, Periodic
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.table import Column, Table, Text, read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from rtsched.model.cluster import Cluster


def _no_accounts() -> Accounts:
    return Accounts.build(0)


DENSE = 8
"""Ids are looked up in a table of all numbers between the lowest and the highest, where these are
not more than so many for each id."""

FEW = 16
"""Unless there are less than one in so many ids of one kind, and the others ascend."""


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
    if (ids[1:] >= ids[:-1]).all():
        place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    else:
        order = np.argsort(ids, kind="stable")
        place = order[np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)]
    return place, ids[place] == wanted


def are_in(ids: NDArray[np.int64], others: ArrayLike) -> NDArray[np.bool_]:
    """Return which ids are among others, bool[n].

    As `np.isin`, which sorts both of them where a table of all numbers between would be too long:
    here those of the shorter one are searched for in the longer one, if that ascends.
    """
    known = np.asarray(others)
    if not len(ids) or not len(known):
        return np.zeros(len(ids), np.bool_)
    if len(ids) == len(known) and (ids == known).all():
        return np.ones(len(ids), np.bool_)
    few, both = len(ids) <= len(known), len(ids) + len(known)
    dense = int(known.max()) - int(known.min()) <= DENSE * both
    searches = not dense or FEW * min(len(ids), len(known)) <= both
    if searches and _ascend(known if few else ids):
        return places(known, ids)[1] if few else _marked(ids, known)
    if dense:
        return np.isin(ids, known, kind="table")
    if not few:
        return places(np.sort(known), ids)[1]
    own, row = np.unique(ids, return_inverse=True)
    return _marked(own, known)[row]


def _marked(ids: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which ids, that ascend, are among others, bool[n]."""
    place, there = places(ids, known)
    found = np.zeros(len(ids), np.bool_)
    found[place[there]] = True
    return found


def _ascend(ids: NDArray[np.int64]) -> bool:
    """Return whether ids ascend, and none is there twice."""
    return bool((ids[1:] > ids[:-1]).all())


class Accounts(Table):
    """One row per account or user in it (Slurm: association); a forest by `parent`."""

    name = Text("Name of the account or user.")
    parent = Column(np.int32, -1, "Row of the account above; -1: a top level one.")
    shares = Column(np.float64, 1.0, "Shares against its siblings, > 0.")
    is_user = Column(np.bool_, False, "Whether it is a user's row (a leaf).")
    usage = Column(np.float64, 0.0, "Core-seconds charged so far, decayed as the site says.")

    def share(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return each row's fraction of the whole machine: the product of shares down the tree."""
        parent, shares = self.parent, self.shares
        siblings = np.zeros(len(self) + 1)
        np.add.at(siblings, parent, shares)
        fraction = shares / siblings[parent]
        depth_left = parent.copy()
        while (depth_left >= 0).any():
            above = depth_left >= 0
            fraction[above] *= (shares / siblings[parent])[depth_left[above]]
            depth_left[above] = parent[depth_left[above]]
        return fraction


@dataclass(frozen=True)
class Dependencies:
    """What `n` jobs wait for: jobs that run, `k` times one of their own number, others.

    Attributes
    ----------
    ready : float64[n]
        When the running jobs that it waits for have ended at the latest, seconds since the epoch;
        -inf: it waits for none.
    unknown : int64[n]
        Id of a job that it waits for and of which no end is known; -1: there is none.
    before, after : int64[k]
        Row `after` waits for row `before`.
    lag : float64[k]
        Seconds after that.
    at_start : bool[k]
        Whether for its start only.
    """

    ready: NDArray[np.float64]
    unknown: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    lag: NDArray[np.float64]
    at_start: NDArray[np.bool_]

    def __bool__(self) -> bool:
        """Return whether any job waits for another one."""
        return bool(len(self.after) or (self.unknown >= 0).any() or (self.ready > -np.inf).any())


def dependencies_of(ids: NDArray[np.int64], snapshot: Snapshot) -> Dependencies:
    """Return what jobs wait for.

    Parameters
    ----------
    ids : int64[n]
        Jobs of the plan, or that are being planned.
    snapshot : Snapshot
        Its edges, and what runs.
    """
    edges = snapshot.edges
    if len(edges):
        edges = edges.take(np.flatnonzero(are_in(edges.after, ids)))
    ready, unknown = np.full(len(ids), -np.inf), np.full(len(ids), -1, np.int64)
    after, _ = places(ids, edges.after)
    before, among = places(ids, edges.before)
    entries = snapshot.allocations.entries
    run, runs = places(entries.job, edges.before)
    end = np.full(len(edges), np.inf)
    end[runs] = np.where(edges.at_start[runs], -np.inf, entries.end[run[runs]])
    runs &= end < np.inf
    np.maximum.at(ready, after[runs], end[runs] + edges.message_time[runs])
    lost = ~runs & ~among
    unknown[after[lost]] = edges.before[lost]
    return Dependencies(
        ready,
        unknown,
        before[among],
        after[among],
        edges.message_time[among],
        edges.at_start[among],
    )
