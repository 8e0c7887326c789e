"""Numbers of jobs: `12.3` of an access point is one number in the models, and back.

A cluster's number is unique within its schedd only. In the models the bits above it hold the
schedd's place in the settings, so that jobs of several schedds have different numbers: `job_id`,
`cluster_of` and every `clusterid` of a record that `schedd.Schedd` hands over have it.

Source: HTCondor's manual, "Job ClassAd Attributes", GlobalJobId.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROC_BITS = 20
"""Bits of a job's number that hold its proc; a cluster has fewer procs than that."""

CLUSTER_BITS = 31
"""Bits that hold the cluster, as its schedd numbers it."""

SCHEDDS = 1 << 11
"""So many schedds one daemon can serve: the numbers above are not the batch system's."""

CLUSTERS = SCHEDDS << CLUSTER_BITS
"""Numbers of clusters, with their schedds, are below."""

_PROC = (1 << PROC_BITS) - 1
_CLUSTER = (1 << CLUSTER_BITS) - 1
_NAME = re.compile(r"(?:([^#\s]{1,255})#)?(\d{1,10})(?:\.(\d{1,7}))?(?:#\d+)?", re.ASCII)


def job_id(cluster: int, proc: int) -> int:
    """Return the number of a proc, or with proc 0 of a cluster that is one job."""
    return cluster << PROC_BITS | proc


def cluster_of(job: int) -> int:
    """Return the cluster of a job, with its schedd."""
    return job >> PROC_BITS


def proc_of(job: int) -> int:
    """Return the proc of a job."""
    return job & _PROC


def cluster_at(schedd: int, cluster: int) -> int:
    """Return the number in the models of a cluster of the schedd at this place in the settings."""
    return schedd << CLUSTER_BITS | cluster


def own_cluster(cluster: int) -> int:
    """Return how its schedd numbers a cluster."""
    return cluster & _CLUSTER


def schedd_of(job: int) -> int:
    """Return the schedd of a job: its place in the settings."""
    return job >> PROC_BITS + CLUSTER_BITS


def name_of(job: int) -> str:
    """Return what its schedd calls a job, such as `12.3`."""
    return f"{own_cluster(cluster_of(job))}.{proc_of(job)}"


@dataclass(frozen=True)
class JobNames:
    """What HTCondor calls jobs.

    Attributes
    ----------
    schedds : tuple of str
        The schedds whose jobs are evaluated, if they are several; in the order of the settings.
    """

    schedds: tuple[str, ...] = ()

    def of(self, job: int) -> str:
        """Return what a job is called: `12.3`, in a pool with several schedds `SCHEDD#12.3`.

        The latter is how its GlobalJobId begins.
        """
        name, schedd = name_of(job), schedd_of(job)
        return f"{self.schedds[schedd]}#{name}" if schedd < len(self.schedds) else name

    def all_of(self, jobs: NDArray[np.int64]) -> list[str]:
        """Return what some jobs are called."""
        if self.schedds:
            return list(map(self.of, jobs.tolist()))
        clusters, procs = ((jobs >> PROC_BITS) & _CLUSTER).tolist(), (jobs & _PROC).tolist()
        return [f"{cluster}.{proc}" for cluster, proc in zip(clusters, procs, strict=True)]

    def number(self, name: str, schedd: int = -1) -> int:
        """Return the number of the job `12.3`, or of `12`, its first proc; -1: this is no name.

        Parameters
        ----------
        name : str
            In a pool with several schedds `SCHEDD#12.3`, or a GlobalJobId.
        schedd : int
            Of a name that says none; -1: such a name tells nothing where there are several.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            return -1
        if self.schedds and found[1] is not None:
            schedd = self.place(found[1])
        elif not self.schedds and found[1] is None:
            schedd = max(schedd, 0)
        cluster, proc = int(found[2]), int(found[3] or 0)
        fits = schedd >= 0 and cluster <= _CLUSTER and proc <= _PROC
        return job_id(cluster_at(schedd, cluster), proc) if fits else -1

    def place(self, schedd: str) -> int:
        """Return the place of a schedd in the settings; -1: it has none."""
        known = [name.lower() for name in self.schedds]
        return known.index(schedd.lower()) if schedd.lower() in known else -1
