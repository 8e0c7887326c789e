"""Limits of accounts, users and QOS in the queue that is simulated ahead.

What the jobs that run, wait or may be submitted count for, and which limits the simulated scheduler
keeps to. Jobs count as where promises are planned (`rtsched.daemon.limits`): where they have whole
nodes, with processors, nodes and jobs; where they share nodes, with all resources, but with nodes
in limits of time only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.daemon.limits import billed, countable, most_taken
from rtsched.kernels.machine_limits import HELD, REMAINING
from rtsched.model.billing import BILLING, whole_units
from rtsched.model.limit_rules import NODE, kinds_of
from rtsched.model.resources import CPU
from rtsched.replay.limits import limits_of_kinds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.limit_rules import LimitRules
    from rtsched.model.limits import Limits, UsedTime
    from rtsched.model.snapshot import Snapshot


class LimitsNow(NamedTuple):
    """The limits of a site, and what is used of them; a `LimitSource`."""

    rules: LimitRules
    used: UsedTime | None
    """What was used of limits that count it; None: not known, or there are none."""

    def of(self, jobs: Jobs, snapshot: Snapshot) -> Limits | None:
        """Return the limits of jobs, first the running ones of the snapshot, then the waiting."""
        names, kind = kinds_of(jobs)
        found = [self.rules.applied_to(each) for each in names]
        running = len(snapshot.running)
        waits = np.zeros(len(jobs), np.bool_)
        waits[running : running + len(snapshot.queued)] = True
        amounts = _Amounts(jobs, waits, snapshot.cluster)
        limits = limits_of_kinds(amounts, found, kind, self.rules.safe, self.rules.half_life)
        return limits if limits is None else limits._replace(used=self._used(limits, snapshot))

    def _used(self, limits: Limits, snapshot: Snapshot) -> NDArray[np.float64]:
        """Return what groups have used, float64[g, r]: what running jobs may yet use is apart."""
        found = np.zeros((len(limits.names), len(limits.things)))
        if self.used is None:
            return found
        entries = snapshot.allocations.entries
        left = np.maximum(entries.end - snapshot.now, 0.0)
        left[self.used.lacks(entries.start) | ~np.isfinite(left)] = 0.0
        yet = limits.asked[: len(left)] * left[:, None]
        for row, kind in enumerate(limits.kind[: len(left)].tolist()):
            found[limits.groups.row(kind)] -= yet[row]
        for group, name in enumerate(limits.names):
            for at, thing in enumerate(limits.things):
                found[group, at] += self.used.seconds.get((name, thing), 0.0)
        found[:, (limits.basis == HELD) | (limits.basis == REMAINING)] = 0.0
        return np.maximum(found, 0.0)


class _Amounts:
    """How much jobs count for, of what limits name.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs.
    waits : bool[n]
        Which of them wait: where jobs have whole nodes they say how many cores they ask for, and
        the others how many they have.
    cluster : Cluster
        Where they run.
    """

    def __init__(self, jobs: Jobs, waits: NDArray[np.bool_], cluster: Cluster) -> None:
        self._jobs, self._waits, self._cluster = jobs, waits, cluster
        self._names = {CPU: CPU, NODE: NODE, **countable(cluster)}

    @property
    def shares_nodes(self) -> bool:
        """Whether some jobs share nodes with others."""
        return self._cluster.shared

    def __contains__(self, thing: str) -> bool:
        """Return whether it is known how much of something jobs count for."""
        return thing in self._names

    def of(self, thing: str) -> NDArray[np.int64]:
        """Return how much of something each job counts for, int64[n]."""
        jobs, cluster, name = self._jobs, self._cluster, self._names[thing]
        if cluster.shared:
            return most_taken(jobs, cluster, name)
        if thing == BILLING:
            return whole_units(billed(jobs, cluster, self.of))
        if thing == CPU:
            cores = int(cluster.nodes.cores.max(initial=1))
            whole = np.maximum(jobs.size, 1).astype(np.int64) * cores
            return np.where(self._waits | (jobs.cores <= 0), whole, jobs.cores).astype(np.int64)
        return most_taken(jobs, cluster, name)
