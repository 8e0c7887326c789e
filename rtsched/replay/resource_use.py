"""Use of each resource where jobs share nodes, of all nodes and of each partition's.

Hours of a resource are its amount times hours: core-hours, GPU-hours; of memory and disk, GiB times
hours.
Licences belong to no node: they are counted for all jobs, and not by partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.resources import CPU, DISK, GPU, MEMORY
from rtsched.model.table import amounts_of
from rtsched.model.units import HOUR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.replay.results import Results, Workload

    NodeRows = tuple[NDArray[np.int64], NDArray[np.int32]]

GIBIBYTE = 2.0**30
_IN_BYTES = frozenset({MEMORY, DISK})


class Use(NamedTuple):
    """What some jobs used of one resource, and what there was of it."""

    used_h: float
    """Amounts that jobs asked for, while they ran, times hours."""
    available_h: float
    """Amounts that usable nodes have, from the first submission to the last end, times hours."""

    @property
    def utilisation(self) -> float | None:
        """Return which part was used; None where there is none of it."""
        return self.used_h / self.available_h if self.available_h > 0 else None


class PartitionUse(NamedTuple):
    """What the jobs of one partition got."""

    jobs: int
    mean_wait_s: float
    """Mean time from submission to start of the jobs that started, seconds; nan: none did."""
    resources: dict[str, Use]
    """Use per resource of the nodes that the partition may use."""


class ResourceUse(NamedTuple):
    """Use per resource, and per partition that has jobs."""

    resources: dict[str, Use]
    partitions: dict[str, PartitionUse]


def resource_use(workload: Workload, results: Results) -> ResourceUse | None:
    """Return what jobs used of each resource; None where they do not share nodes or none ended.

    Nodes of overlapping partitions count in each of them.
    """
    jobs, cluster = workload.jobs, workload.cluster
    seconds = results.end - results.start
    ended = np.isfinite(seconds)
    if not cluster.shared or not ended.any():
        return None
    run_h = np.where(ended, seconds, 0.0) / HOUR
    hours = run_h * results.size
    span = float(results.end[ended].max() - jobs.submit.min()) / HOUR
    names = cluster.nodes.names("capacity")
    demand = amounts_of(jobs, "demand", names)
    partitions = jobs.names("partition")
    at = np.where(jobs.partition >= 0, jobs.partition, len(partitions))
    used = {}
    for k, name in enumerate(names):
        amount = demand[:, k] / GIBIBYTE if name in _IN_BYTES else demand[:, k]
        used[name] = np.bincount(at, hours * amount, len(partitions) + 1)
    started = np.isfinite(results.start)
    wait = np.where(started, results.start - jobs.submit, 0.0)
    total_wait = np.bincount(at, wait, len(partitions) + 1)
    waited = np.bincount(at, started, len(partitions) + 1)
    count = np.bincount(at, minlength=len(partitions) + 1)
    whole = _available(cluster, cluster.usable, span)
    found = {}
    for code, partition in enumerate(partitions):
        if count[code]:
            there = cluster.usable & cluster.partitions.get(partition, cluster.usable)
            room = _available(cluster, there, span)
            mean = total_wait[code] / waited[code] if waited[code] else np.nan
            found[partition] = PartitionUse(
                int(count[code]),
                float(mean),
                {name: Use(float(used[name][code]), room[name]) for name in names},
            )
    of_all = {name: Use(float(used[name].sum()), whole[name]) for name in names}
    taken_h = run_h @ amounts_of(jobs, "demand", tuple(cluster.licenses))
    for k, (name, number) in enumerate(cluster.licenses.items()):
        of_all[name] = Use(float(taken_h[k]), number * span)
    return ResourceUse(of_all, found)


def _available(cluster: Cluster, nodes: NDArray[np.bool_], hours: float) -> dict[str, float]:
    """Return the amount of each resource of some nodes times hours."""
    names = cluster.nodes.names("capacity")
    amounts = cluster.nodes.capacity[nodes].sum(axis=0).tolist()
    return {
        name: amount * hours / (GIBIBYTE if name in _IN_BYTES else 1.0)
        for name, amount in zip(names, amounts, strict=True)
    }


def stranded_gpu_hours(
    workload: Workload, results: Results, node_rows: NodeRows | None
) -> float | None:
    """Return the stranded GPU-hours: free GPUs that no job can use.

    It is the integral over time, summed over the nodes, of a node's free GPUs while all of its
    cores or all of its memory are taken, or while an exclusive job has the node to itself. Only a
    job's last run counts, and memory only where that of every node is known.

    Parameters
    ----------
    workload : Workload
        With `n` jobs.
    results : Results
        When they ran.
    node_rows : (int64[n + 1], int32[k]) or None
        Nodes of each job, as in `PolicyRun`.

    Returns
    -------
    float or None
        GPU-hours; None where nodes are not shared, have no GPUs, or are not known.

    References
    ----------
    Weng, Yang, Yu, Wang, Tang, Yang and Zhang 2023, Beware of fragmentation: scheduling GPU-sharing
    workloads with fragmentation gradient descent: GPUs that a node cannot give, for want of others.
    """
    cluster = workload.cluster
    if GPU not in cluster.nodes.names("capacity") or node_rows is None or not len(node_rows[1]):
        return None
    scarce = [name for name in (CPU, MEMORY) if name in cluster.nodes.names("capacity")]
    capacity = amounts_of(cluster.nodes, "capacity", (GPU, *scarce))
    job, node = _pairs(results, node_rows)
    with_gpu = capacity[node, 0] > 0
    job, node = job[with_gpu], node[with_gpu]
    time = np.concatenate([results.start[job], results.end[job]])
    order = np.lexsort((time, np.concatenate([node, node])))
    time, node = time[order], np.concatenate([node, node])[order]
    taken = _taken(workload.jobs, (GPU, *scarce), job)
    taken = np.concatenate([taken, -taken])[order].cumsum(axis=0)
    lasts = np.where(node[1:] == node[:-1], np.diff(time), 0.0)
    free = capacity[node] - taken[:, :-1]
    full = (free[:, 1:] <= 0).any(axis=1) | (taken[:, -1] > 0)
    stranded = np.where(full, np.maximum(free[:, 0], 0), 0)
    return float(stranded[:-1] @ lasts) / HOUR


def _pairs(results: Results, node_rows: NodeRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each pair of a job that ended and a node on which it ran, int64[k] twice."""
    offsets, rows = node_rows
    job = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    ended = np.isfinite(results.start[job]) & np.isfinite(results.end[job])
    return job[ended], rows[ended].astype(np.int64)


def _taken(jobs: Jobs, resources: tuple[str, ...], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what jobs take of resources on a node, and whether they want it alone, int64[k, r]."""
    demand = amounts_of(jobs, "demand", resources)[rows]
    return np.column_stack([demand, jobs.exclusive[rows].astype(np.int64)])
