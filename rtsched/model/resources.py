"""Resources of nodes that jobs share: which jobs fit where.

Names and amounts stand in `Nodes.capacity` and `Jobs.demand` (`rtsched.model.table.Amounts`). A job
that asks for a resource which no node has fits nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.allowed_nodes import allowed_nodes
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs

CPU, MEMORY, GPU = "cpu", "mem", "gres/gpu"
"""Names of the resources that every batch system knows."""


def fitting_nodes(
    jobs: Jobs, cluster: Cluster, among: NDArray[np.bool_] | None = None
) -> NDArray[np.int32]:
    """Return on how many nodes that it may use each job fits if nobody else is there, int32[n].

    Parameters
    ----------
    jobs : Jobs
        With `demand`.
    cluster : Cluster
        With `nodes.capacity`.
    among : bool[m], optional
        Nodes that count, such as those that take new jobs now; all of them if None.
    """
    allowed = np.ones(len(cluster), np.bool_) if among is None else among
    resources = cluster.nodes.names("capacity")
    unknown = [name for name in jobs.names("demand") if name not in resources]
    asked = amounts_of(jobs, "demand", (*resources, *unknown))
    code, masks = allowed_nodes(jobs, cluster)
    keys = np.column_stack([asked, code, jobs.pinned]).astype(np.int64)
    distinct, row = np.unique(keys, axis=0, return_inverse=True)
    count = np.zeros(len(distinct), np.int32)
    for at, key in enumerate(distinct):
        demand, code_of, pinned = key[:-2], int(key[-2]), int(key[-1])
        if demand[len(resources) :].any():
            continue
        room = allowed & (cluster.nodes.capacity >= demand[: len(resources)]).all(axis=1)
        if code_of >= 0:
            room = room & masks[code_of]
        count[at] = room[pinned] if pinned >= 0 else room.sum()
    return count[row.ravel()]


def served(
    jobs: Jobs, cluster: Cluster, size: NDArray[np.int32], seconds: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return the node-seconds that jobs are served, by their share of the nodes' cores, float64[n].

    A node counts as one with the mean number of cores, so that on a full machine the jobs are
    served by all its nodes. None: jobs have whole nodes.

    Parameters
    ----------
    jobs, cluster
        `n` jobs and the machine.
    size : int32[n]
        Nodes of each job ...
    seconds : float64[n]
        ... and for how long.
    """
    resources = cluster.nodes.names("capacity")
    if CPU not in resources:
        return None
    cores = cluster.nodes.capacity[:, resources.index(CPU)]
    mean = float(cores[cluster.usable].mean()) if cluster.usable.any() else 1.0
    share = amounts_of(jobs, "demand", (CPU,))[:, 0] / max(mean, 1.0)
    return share * size * seconds
