"""Ideal finishing times: when jobs would end if everybody were served exactly by share.

The usable nodes are handed out among the active accounts, what an account gets among its active
users, and what a user gets among the user's jobs in proportion to their sizes; nobody gets more
than the jobs could occupy (`rtsched.kernels.service_error.fill`). The set of active users is taken
to stay as it is, so the ideal finish of a job is

    now + requested time x nodes that the user's jobs could occupy / ideal nodes of the user

References
----------
Lopez and Raja claim that each task gets what it needs to end by its deadline; it does where only
tasks are let in whose ideal finish is in time, and the error is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Finding, Reason, Verdict, Verdicts
from rtsched.kernels.service_error import fill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Snapshot
    from rtsched_plugins.accounting import Tree


class IdealFinish:
    """The shares at one instant, with the jobs that have been let in.

    Parameters
    ----------
    tree : Tree
        Rows of accounts, 0 for the machine.
    shares : float64[a]
        Of each row of `Accounts`, > 0.
    cluster : Cluster
        Its usable nodes are handed out.
    snapshot : Snapshot
        Who waits and runs.
    """

    def __init__(
        self, tree: Tree, shares: NDArray[np.float64], cluster: Cluster, snapshot: Snapshot
    ) -> None:
        self._parent, self._now = tree.parent, snapshot.now
        self._shares = np.concatenate(([1.0], shares))
        self.capacity = float(cluster.usable.sum())
        self._cap = np.zeros(len(self._shares))
        self._enter(snapshot.queued)
        self._enter(snapshot.running)

    def _enter(self, jobs: Jobs) -> None:
        """Count jobs as active, at every row above the one they are charged to."""
        charged = jobs.association >= 0
        row, size = jobs.association[charged].astype(np.int64) + 1, jobs.size[charged]
        while len(row):
            np.add.at(self._cap, row, size)
            row = self._parent[row]
            size, row = size[row > 0], row[row > 0]

    def nodes_of(self, row: int) -> float:
        """Return how many nodes a row is entitled to: its siblings' part of what is above it."""
        above = int(self._parent[row])
        capacity = self.nodes_of(above) if above else self.capacity
        active = np.flatnonzero((self._parent == above) & (self._cap > 0.0))
        active = active[active > 0]
        rate = np.empty(len(active))
        fill(capacity, self._shares[active], self._cap[active], rate)
        return float(rate[np.searchsorted(active, row)])

    def judge(self, jobs: Jobs, too_late: Reason, endless: Reason, fewer_nodes: Reason) -> Verdicts:
        """Admit or reject jobs with a deadline, in order of (submit, id), each after those let in.

        A rejection carries the ideal finish as counter-offer: the least deadline accepted; and the
        most nodes that would be accepted with the asked one. Jobs without a deadline are let in,
        and of those that are charged to nobody nothing is said.
        """
        n = len(jobs)
        judged = np.isfinite(jobs.deadline) & (jobs.association >= 0)
        nodes, finish = np.zeros(n), np.full(n, np.inf)
        code, fits = np.zeros(n, np.int8), np.zeros(n, np.int32)
        for k in np.lexsort((jobs.id, jobs.submit)).tolist():
            before, job = self._cap.copy(), jobs.take([k])
            self._enter(job)
            if not judged[k]:
                continue
            nodes[k], finish[k] = self._job(int(jobs.association[k]) + 1, job)
            code[k] = Verdict.ADMIT
            if not finish[k] <= jobs.deadline[k]:
                code[k], self._cap = Verdict.REJECT, before
                fits[k] = self._most_nodes(job)
        rejected = code == Verdict.REJECT
        never, late = rejected & ~np.isfinite(finish), np.zeros(n)
        np.subtract(finish, jobs.deadline, out=late, where=rejected & ~never)
        capacity = self.capacity
        findings = (
            Finding.where(rejected & ~never, too_late, nodes=nodes, capacity=capacity, late=late),
            Finding.where(never, endless),
            Finding.where(fits > 0, fewer_nodes, nodes=fits, asked=jobs.size),
        )
        offer = np.where(rejected, finish, np.inf)
        given = tuple(finding for finding in findings if len(finding.rows))
        return Verdicts.build(code, offer=offer, findings=given)

    def _most_nodes(self, job: Jobs) -> int:
        """Return with how many nodes, fewer than asked, it would end in time; 0: with none.

        With fewer nodes it never ends later, since a narrower user is served a greater part.
        """
        before, row = self._cap, int(job.association[0]) + 1
        good, bad = 0, int(job.size[0])
        while bad - good > 1:
            nodes = (good + bad) // 2
            self._cap, narrower = before.copy(), job.replace(size=[nodes])
            self._enter(narrower)
            in_time = self._job(row, narrower)[1] <= job.deadline[0]
            good, bad = (nodes, bad) if in_time else (good, nodes)
        self._cap = before
        return good

    def _job(self, row: int, job: Jobs) -> tuple[float, float]:
        """Return the nodes that a job charged to `row` is entitled to, and its ideal finish."""
        part = self.nodes_of(row) / self._cap[row]
        begin = max(self._now, float(job.begin[0]))
        wall = float(job.wall_time[0])
        return part * float(job.size[0]), begin + wall / part if part > 0.0 else np.inf
