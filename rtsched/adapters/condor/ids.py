"""Numbers of jobs: `12.3` is one number in the models, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROC_BITS = 20
"""Bits of a job's number that hold its proc; a cluster has fewer procs than that."""

_NAME = re.compile(r"(\d{1,10})(?:\.(\d{1,7}))?", re.ASCII)


def job_id(cluster: int, proc: int) -> int:
    """Return the number of a proc, or with proc 0 of a cluster that is one job."""
    return cluster << PROC_BITS | proc


def cluster_of(job: int) -> int:
    """Return the cluster of a job."""
    return job >> PROC_BITS


def proc_of(job: int) -> int:
    """Return the proc of a job."""
    return job & ((1 << PROC_BITS) - 1)


def name_of(job: int) -> str:
    """Return what HTCondor calls a job, such as `12.3`."""
    return f"{cluster_of(job)}.{proc_of(job)}"


def names_of(jobs: NDArray[np.int64]) -> list[str]:
    """Return what HTCondor calls some jobs, such as `12.3`."""
    clusters, procs = (jobs >> PROC_BITS).tolist(), (jobs & ((1 << PROC_BITS) - 1)).tolist()
    return [f"{cluster}.{proc}" for cluster, proc in zip(clusters, procs, strict=True)]


def number_of(name: str) -> int:
    """Return the number of the job `12.3`, or of `12`, its first proc; -1: this is no name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return -1
    cluster, proc = int(found[1]), int(found[2] or 0)
    fits = cluster < 1 << 31 and proc < 1 << PROC_BITS
    return job_id(cluster, proc) if fits else -1
