"""Turn away jobs that are wider or longer than the site allows, or that can never start.

A job that can shrink is judged by the fewest nodes it can use. What a partition limits replaces
the site's limit for the jobs that name it; what it leaves open is as the site says.

References
----------
Slurm has the same limits as `MaxNodes` and `MaxTime` of a partition (slurm.conf) and turns away
with EnforcePartLimits what exceeds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.api import Finding, Kind, Reason, Verdict, Verdicts, hookimpl

if TYPE_CHECKING:
    from rtsched.api import Cluster, Jobs


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one job may ask for."""

    size: Annotated[int, Meta(gt=0)] | None = None
    """Maximum nodes per job; not set: no limit."""
    wall_time: Annotated[float, Meta(gt=0)] | None = None
    """Maximum run time that a job may request, seconds; not set: no limit."""


class Limits:
    """Turn away jobs that ask for more than the site allows or has."""

    class Config(Limit, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        fit: bool = True
        """Whether jobs that need more nodes than are available are rejected."""
        partition: dict[str, Limit] = {}
        """Limits per partition, in place of the site's."""

    too_wide = Reason("limits.too-wide", "requests {asked:node}, the limit is {limit}")
    too_long = Reason(
        "limits.too-long", "requests {asked:time up} of run time, the limit is {limit:time}"
    )
    endless = Reason("limits.no-time-limit", "states no run time, the limit is {limit:time}")
    never_fits = Reason(
        "limits.never-fits", "needs {asked:node}, its partition has {usable} available"
    )

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def rtsched_admit(self, jobs: Jobs, cluster: Cluster) -> Verdicts | None:
        """Reject what exceeds a limit; no opinion on the rest."""
        if not len(jobs):
            return None
        partitions = (*jobs.names("partition"), None)
        width, longest, usable = (
            np.array(values)[jobs.partition]
            for values in zip(*(self._limits(name, cluster) for name in partitions), strict=True)
        )
        shrinks = (jobs.kind != Kind.RIGID) & (jobs.size_min > 0)
        asked = np.where(shrinks, jobs.size_min, jobs.size)
        endless = np.isinf(jobs.wall_time)
        wide, long = asked > width, jobs.wall_time > longest
        misfit = asked > usable
        findings = (
            Finding.where(wide, self.too_wide, asked=asked, limit=width),
            Finding.where(long & ~endless, self.too_long, asked=jobs.wall_time, limit=longest),
            Finding.where(long & endless, self.endless, limit=longest),
            Finding.where(misfit, self.never_fits, asked=asked, usable=usable),
        )
        code = np.where(wide | long | misfit, Verdict.REJECT, Verdict.ABSTAIN)
        return Verdicts.build(code, findings=findings)

    def _limits(self, partition: str | None, cluster: Cluster) -> tuple[float, float, float]:
        """Return most nodes, longest run time and usable nodes of a partition."""
        own = self.config.partition.get(partition or "", self.config)
        size, wall_time = own.size or self.config.size, own.wall_time or self.config.wall_time
        members = cluster.partitions.get(partition or "", cluster.usable)
        return (
            float(size or np.inf),
            float(wall_time or np.inf),
            float(np.count_nonzero(cluster.usable & members)) if self.config.fit else np.inf,
        )
