"""Requests of queued jobs: least and most nodes, which ones, and the order of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Kind, fitting_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs

    Mask = NDArray[np.bool_]


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
