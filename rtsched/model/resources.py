"""Resources of nodes that jobs share: which jobs fit where, and which nodes a job may use.

Names and amounts stand in `Nodes.capacity`, `Cluster.licenses` and `Jobs.demand`
(`rtsched.model.table.Amounts`). A job that asks for a resource which no node has, or for more
licences than there are, fits nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs, Periodic


def allowed_nodes(
    jobs: Jobs, cluster: Cluster
) -> tuple[NDArray[np.int32], list[NDArray[np.bool_]]]:
    """Return the code of the nodes that each job may use, and the nodes by their codes.

    Parameters
    ----------
    jobs : Jobs
        With `partition` and `node_request`.
    cluster : Cluster
        With `partitions` and `node_sets`.

    Returns
    -------
    int32[n], list of bool[m]
        -1: any node. A node set counts in place of the partition. `jobs.pinned` does not count.
    """
    masks: list[NDArray[np.bool_]] = []
    code = np.full(len(jobs), -1, np.int32)
    for column, sets in (("partition", cluster.partitions), ("node_request", cluster.node_sets)):
        names = jobs.names(column)
        codes = np.full(len(names) + 1, -2, np.int32)  # the last serves code -1
        few = len(jobs) < len(names)
        for at in np.unique(jobs.column(column)).tolist() if few else range(len(names)):
            mask = sets.get(names[at]) if at >= 0 else None
            if mask is not None:
                codes[at] = -1 if mask.all() else len(masks)
                masks += [] if mask.all() else [mask]
        if names:
            found = codes[jobs.column(column)]
            code = np.where(found > -2, found, code).astype(np.int32)
    return code, masks


def whole_kib(memory: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the memory of some processors, where that of each had to be rounded up.

    Parameters
    ----------
    memory : int64[n]
        Bytes per processor, times processors.

    Returns
    -------
    int64[n]
        Bytes, whole KiB, as batch systems count it: no more than was asked for.
    """
    return memory // 1024 * 1024


CPU, MEMORY, GPU, DISK = "cpu", "mem", "gres/gpu", "fs/disk"
"""Names of the resources that every batch system knows; memory and local disk are in bytes."""
GRES = "gres/"
"""How names of generic resources of nodes begin."""
LICENSE = "license/"
"""How names of licences begin."""
TENANCY = 2**40
"""What a node has of it: more than jobs can ever be on a node."""
NO_END = 2**60
"""More than all jobs together ask for of anything."""
MORE = np.iinfo(np.int64).max
"""More than any node has of anything."""


def room_of(cluster: Cluster) -> NDArray[np.int64]:
    """Return what each empty node has, int64[m, r + l + 1], for a cluster with `l` licences.

    First its capacity, then licences, of which a node has no end, then its tenancy, by which
    exclusive jobs are kept alone. If there are licences, what there is of them is one row more, the
    last (`rtsched.kernels.machine_sharing`).
    """
    capacity, licenses = cluster.nodes.capacity, list(cluster.licenses.values())
    no_end = np.full((len(cluster), len(licenses)), NO_END)
    tenancy = np.full((len(cluster), 1), TENANCY)
    room = np.concatenate([capacity, no_end, tenancy], axis=1)
    if not licenses:
        return room
    of_all = np.concatenate([np.full(capacity.shape[1], NO_END), licenses, [NO_END]])
    return np.concatenate([room, of_all[None, :].astype(np.int64)])


def demand_of(jobs: Jobs | Periodic, cluster: Cluster) -> NDArray[np.int64]:
    """Return what jobs take on each of their nodes, int64[n, r + l + 1], as in `room_of`.

    Licences are taken once, whatever the number of nodes. Resources that the cluster does not have
    are left out: such jobs fit nowhere (`lacking`). Where jobs do not share nodes, each is
    exclusive.
    """
    demand = amounts_of(jobs, "demand", (*cluster.nodes.names("capacity"), *cluster.licenses))
    alone = jobs.exclusive | (not cluster.shared)
    tenancy = np.where(alone, np.int64(TENANCY), np.int64(1))
    return np.concatenate([demand, tenancy[:, None]], axis=1)


def asking_for(jobs: Jobs, resources: Collection[str]) -> NDArray[np.bool_]:
    """Return which jobs ask for one of these resources, bool[n]."""
    columns = [at for at, name in enumerate(jobs.names("demand")) if name in resources]
    return np.asarray((jobs.demand[:, columns] > 0).any(axis=1))


def lacking(jobs: Jobs, cluster: Cluster) -> NDArray[np.bool_]:
    """Return which jobs ask for a resource or licences that the cluster does not have, bool[n]."""
    known = {*cluster.nodes.names("capacity"), *cluster.licenses}
    lacks = asking_for(jobs, set(jobs.names("demand")) - known)
    if cluster.licenses:
        asked = amounts_of(jobs, "demand", tuple(cluster.licenses))
        lacks = lacks | (asked > list(cluster.licenses.values())).any(axis=1)
    return lacks


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
    code, sets = fitting_sets(jobs, cluster)
    counts = [np.count_nonzero(mask if among is None else mask & among) for mask in sets]
    return np.array(counts, np.int32)[code]


def least_room(demand: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return per demand the least amounts that a node has which suffice, int64[n, r].

    Demands that the same nodes can meet become equal; `MORE`: no node has as much.
    """
    least = np.empty_like(demand)
    for resource in range(demand.shape[1]):
        amounts = np.append(np.unique(room[:, resource]), MORE)
        least[:, resource] = amounts[np.searchsorted(amounts, demand[:, resource])]
    return least


def fitting_sets(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.int32], list[NDArray[np.bool_]]]:
    """Return the code of the nodes on which each job fits, and the nodes by their codes.

    They are the nodes that it may use, and that have what it asks for if nobody else is there.

    Parameters
    ----------
    jobs : Jobs
        With `demand`.
    cluster : Cluster
        With `nodes.capacity`.

    Returns
    -------
    int32[n], list of bool[m]
        Each set once; that of a job which fits nowhere is empty.
    """
    code, masks = allowed_nodes(jobs, cluster)
    room_of_each = room_of(cluster)[: len(cluster)]
    least = least_room(demand_of(jobs, cluster), room_of_each)
    keys = np.column_stack([least, code, jobs.pinned, lacking(jobs, cluster)])
    _, first, row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    sets: dict[bytes, tuple[int, NDArray[np.bool_]]] = {}
    place = np.zeros(len(first), np.int32)
    for at, key in enumerate(keys[first]):
        code_of, pinned, never = key[-3:].tolist()
        room = (room_of_each >= key[:-3]).all(axis=1) & (not never)
        if code_of >= 0:
            room &= masks[code_of]
        if pinned >= 0:
            room &= np.arange(len(room)) == pinned
        place[at] = sets.setdefault(room.tobytes(), (len(sets), room))[0]
    return place[row.ravel()], [mask for _, mask in sets.values()]


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
    if CPU not in cluster.nodes.names("capacity"):
        return None
    share = amounts_of(jobs, "demand", (CPU,))[:, 0] / mean_cores(cluster)
    return share * size * seconds


def mean_cores(cluster: Cluster) -> float:
    """Return how many cores a usable node of a cluster with shared nodes has on average, >= 1."""
    cores = amounts_of(cluster.nodes, "capacity", (CPU,))[cluster.usable, 0]
    return max(float(cores.mean()), 1.0) if len(cores) else 1.0
