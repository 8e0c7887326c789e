"""Moves of running jobs: which adapt to their nodes' load, and which one migrates.

`Requests` are those of queued jobs: least and most nodes, which ones, and the order of jobs.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS), section 4; the events of section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import Kind, NodeState, Ragged, Schedule, fitting_sets
from rtsched.kernels.delays import MigrationCost, migration_pause, slowest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Snapshot
    from rtsched_plugins.mapping import Mapping

    Nodes = NDArray[np.int32]

    Mask = NDArray[np.bool_]


class Occasion(NamedTuple):
    """What may move."""

    upgrade: bool
    """Jobs may adapt when the load of their nodes has fallen."""
    away: bool
    """Jobs may leave nodes that were shut down or that have become slower."""
    ahead: bool
    """All jobs may move to faster nodes."""
    cost: MigrationCost | None = None
    """A job moves only if that pays, with this cost; None: wherever it becomes faster."""


def moves(mapping: Mapping, snapshot: Snapshot, occasion: Occasion) -> tuple[Schedule | None, bool]:
    """Return what moves, and whether a job migrates.

    One job migrates at a time: whoever may be next must be asked when that has happened, and before
    it the upgrades. Jobs are tried in the order of their starts, then ids. A job on a node that was
    shut down goes wherever there is room for it.
    """
    gained = mapping.upgrade() if occasion.upgrade else np.empty(0, np.int64)
    adapting = [(row, mapping.nodes_of(row)) for row in gained.tolist()]
    if adapting or not (occasion.away or occasion.ahead):
        return _schedule(adapting, snapshot), False
    migrating = _first_to_migrate(mapping, snapshot, occasion)
    if migrating is None:
        return None, False
    gained = mapping.upgrade() if occasion.upgrade else gained
    others = [(row, mapping.nodes_of(row)) for row in gained.tolist() if row != migrating[0]]
    return _schedule([migrating, *others], snapshot), True


def _first_to_migrate(
    mapping: Mapping, snapshot: Snapshot, occasion: Occasion
) -> tuple[int, Nodes] | None:
    """Move the first job that may move and for which there are better nodes; return both."""
    down = np.equal(snapshot.cluster.nodes.state, NodeState.DOWN)
    present, forced = mapping.present(), np.zeros(len(mapping.delay), np.bool_)
    if down.any():
        forced = slowest(np.where(down, 2.0, 1.0), mapping.indptr, mapping.nodes) > 1.0
    below = np.where(forced, np.inf, np.maximum(mapping.delay, present))
    may = forced | occasion.ahead | (present > mapping.delay)
    if not mapping.field.shared:
        may &= snapshot.running.checkpoints
    may &= below > mapping.field.bounds[:1].min(initial=np.inf)
    if may.any():
        may &= below > mapping.factors[mapping.usable()].min(initial=np.inf)
    rows = np.flatnonzero(may)
    if not len(rows):
        return None
    job, start = snapshot.running.id, snapshot.allocations.entries.start
    requests = Requests(snapshot.running, snapshot.cluster)
    for row in rows[np.lexsort((job[rows], start[rows]))].tolist():
        nodes, slowed = mapping.better(row, requests.allowed(row))
        own = mapping.nodes_of(row)
        if len(nodes) < len(own) or slowed >= below[row] or np.isin(nodes, own).all():
            continue
        if forced[row] or _pays(snapshot, row, own, nodes, slowed / below[row], occasion.cost):
            mapping.move(row, nodes, slowed)
            return row, nodes
    return None


def _pays(
    snapshot: Snapshot, row: int, own: Nodes, nodes: Nodes, ratio: float, cost: MigrationCost | None
) -> bool:
    """Return whether a job ends sooner, by its requested time, if it pauses to move.

    `ratio` is the new delay over the old one.
    """
    if cost is None:
        return True
    rest = float(snapshot.allocations.entries.end[row]) - snapshot.now
    moved = int(np.count_nonzero(~np.isin(nodes, own)))
    pause = migration_pause(cost, moved, int(snapshot.running.process_bytes[row]))
    return rest == np.inf or rest > pause + rest * ratio


def _schedule(moved: list[tuple[int, Nodes]], snapshot: Snapshot) -> Schedule | None:
    """Return moves as a schedule whose entries take effect now."""
    if not moved:
        return None
    rows = np.array([row for row, _ in moved], np.int64)
    now = np.full(len(rows), snapshot.now)
    nodes = Ragged.of([nodes for _, nodes in moved])
    return Schedule.build(snapshot.running.id[rows], now, now, *nodes)


class Requests:
    """The wishes of `n` jobs on `m` nodes.

    Attributes
    ----------
    order : int64[n]
        Rows by (submit, id).
    min_size, max_size : int32[n]
        Fewest and most nodes; `size` for rigid jobs and where nothing else is said.
    group : int64[n]
        Jobs of one group may use the same nodes.
    nodes : tuple of bool[m]
        The nodes of each group: those of its partition, or the one that its jobs are pinned to.
        Where jobs share nodes, those which they may use and that hold what they ask for.
    fits : bool[n]
        Whether the job's group has `min_size` nodes.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster) -> None:
        self.order = np.lexsort((jobs.id, jobs.submit))
        bends = jobs.kind != Kind.RIGID
        self.min_size = np.where(bends & (jobs.size_min > 0), jobs.size_min, jobs.size)
        self.max_size = np.where(bends & (jobs.size_max > 0), jobs.size_max, jobs.size)
        self.max_size = np.maximum(self.max_size, self.min_size)
        self.group, self.nodes = (_by_fit if cluster.shared else _by_partition)(jobs, cluster)
        counts = np.array([mask.sum() for mask in self.nodes], np.int64)
        self.fits = self.min_size <= counts[self.group]

    def allowed(self, row: int) -> Mask:
        """Return bool[m]: the nodes that a job may use."""
        return self.nodes[int(self.group[row])]


def _by_fit(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.int64], tuple[Mask, ...]]:
    """Return each job's group, and the nodes of each on which its jobs fit."""
    group, sets = fitting_sets(jobs, cluster)
    return group.astype(np.int64), tuple(sets)


def _by_partition(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.int64], tuple[Mask, ...]]:
    """Return each job's group, and the nodes of each, whole ones."""
    keys, group = _groups(jobs)
    names = (*jobs.names("partition"), None)
    return group, tuple(_members(cluster, names[partition], pinned) for partition, pinned in keys)


def _groups(jobs: Jobs) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """Return the distinct pairs of partition code and pinned node, and each job's pair."""
    if not ((jobs.partition >= 0).any() or (jobs.pinned >= 0).any()):
        return [(-1, -1)], np.zeros(len(jobs), np.int64)
    pairs = np.stack([jobs.partition, jobs.pinned], axis=1)
    keys, group = np.unique(pairs, axis=0, return_inverse=True)
    return [(int(partition), int(pinned)) for partition, pinned in keys], group.ravel()


def _members(cluster: Cluster, partition: str | None, pinned: int) -> Mask:
    members: Mask = np.ones(len(cluster), np.bool_)
    members = cluster.partitions.get(partition or "", members)
    if pinned >= 0:
        members = np.logical_and(members, np.arange(len(cluster)) == pinned)
    return members
