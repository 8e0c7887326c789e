"""Promisable jobs: those of a form that planners can promise a deadline to.

The form is what a job asks for, not what became of it: jobs that were cancelled before they started
count too. Each task of an array is counted, and a heterogeneous job whose components start together
as one job.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.log import Skipped
from rtsched.model.resources import CPU, DISK, GRES, MEMORY, asking_for
from rtsched.replay.arrays import are_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log


class Obstacle(IntEnum):
    """Why no deadline can be promised to a job, if anything; the first that applies counts."""

    NONE = 0
    NO_SIZE = 1
    HETEROGENEOUS = 2
    LICENSES = 3
    GENERIC_RESOURCE = 4
    UNKNOWN_RESOURCE = 5
    TOO_LARGE = 6
    NO_TIME_LIMIT = 7
    ARRAY = 8


REASONS = {
    Obstacle.NO_SIZE: "the log does not say how many processors it asks for",
    Obstacle.HETEROGENEOUS: "it is a component of a heterogeneous job whose components ask for "
    "different nodes, or in all for more than there are",
    Obstacle.LICENSES: "it asks for licences or burst buffers, which are not taken into account",
    Obstacle.GENERIC_RESOURCE: "it asks for GPUs or other generic resources, which only --unit "
    "resources takes into account",
    Obstacle.UNKNOWN_RESOURCE: "it asks for a generic resource that no node has",
    Obstacle.TOO_LARGE: "too few nodes have what it asks for",
    Obstacle.NO_TIME_LIMIT: "it has no time limit",
    Obstacle.ARRAY: "it is a task of an array whose tasks need several nodes or licences",
}
"""Each obstacle in words."""


class PromisableJobs(NamedTuple):
    """How many jobs can be promised a deadline, and why others cannot."""

    jobs: int
    """Jobs of the log, those that cannot be replayed included."""
    others: Skipped
    """Those that cannot, by reason, each with its first job."""

    @property
    def promisable(self) -> int:
        """Return how many can."""
        return self.jobs - self.others.count.total()

    @property
    def share(self) -> float | None:
        """Return which part of them can; None where there are none."""
        return self.promisable / self.jobs if self.jobs else None


def obstacles(
    log: Log,
    size: NDArray[np.int32],
    room: int | NDArray[np.int32],
    cluster: Cluster,
    *,
    whole_arrays: bool = True,
) -> NDArray[np.int8]:
    """Return per job why no deadline can be promised to it, an `Obstacle`, int8[n].

    Parameters
    ----------
    log : Log
        As read, with `demand` where the log says what jobs ask for; components of heterogeneous
        jobs that start together are one job.
    size : int32[n]
        Rows of the cluster (nodes, processors) that each job asks for; 0 or less: not known.
    room : int or int32[n]
        On how many rows of the cluster each job fits.
    cluster : Cluster
        The machine.
    whole_arrays : bool
        Whether an array gets one promise for all of its tasks.
    """
    jobs = log.jobs
    generic = Obstacle.UNKNOWN_RESOURCE if cluster.shared else Obstacle.GENERIC_RESOURCE
    nowhere = [name for name in jobs.names("demand") if not _known(name, cluster)]
    holds = {
        Obstacle.NO_SIZE: size <= 0,
        Obstacle.HETEROGENEOUS: jobs.het_job >= 0,
        Obstacle.LICENSES: asking_for(jobs, [n for n in nowhere if not n.startswith(GRES)]),
        generic: asking_for(jobs, [name for name in nowhere if name.startswith(GRES)]),
        Obstacle.TOO_LARGE: size > room,
        Obstacle.NO_TIME_LIMIT: ~(np.isfinite(jobs.wall_time) & (jobs.wall_time > 0)),
        Obstacle.ARRAY: _of_wide_array(jobs, list(cluster.licenses)) & whole_arrays,
    }
    return np.select(list(holds.values()), [np.int8(code) for code in holds], np.int8(0))


def promisable_jobs(log: Log, obstacle: NDArray[np.int8]) -> PromisableJobs:
    """Return how many jobs can be promised a deadline, and why others cannot.

    Parameters
    ----------
    log : Log
        With `n` jobs.
    obstacle : int8[n]
        From `obstacles`.
    """
    others = Skipped()
    count = np.bincount(obstacle, minlength=len(Obstacle))
    for code in np.argsort(-count, kind="stable").tolist():
        if code != Obstacle.NONE and count[code]:
            first = log.jobs.take(np.flatnonzero(obstacle == code)[:1])
            others.add(REASONS[Obstacle(code)], f"job {first.labels()[0]}", int(count[code]))
    return PromisableJobs(len(log.jobs), others)


def _known(resource: str, cluster: Cluster) -> bool:
    """Return whether a resource is taken into account where jobs are given nodes."""
    counts = (CPU, MEMORY, DISK, *cluster.nodes.names("capacity"), *cluster.licenses)
    return resource in counts


def _of_wide_array(jobs: Jobs, licenses: list[str]) -> NDArray[np.bool_]:
    """Return which jobs are tasks of arrays whose tasks need several nodes or licences."""
    if not (jobs.array >= 0).any():
        return np.zeros(len(jobs), np.bool_)
    return are_tasks(jobs) & ((jobs.node_count > 1) | asking_for(jobs, licenses))
