"""Promises that survive the loss of nodes: what a plan keeps free so that it can be restored.

Of the nodes of a partition, k may be lost while a promise is open, each at any instant and for
good, and the promise is kept. For that

* a promised job has its nodes for k + 1 runs, one after the other: each loss may cost it one run,
  and it begins again from its first second;
* at each instant, promised jobs have all but k of the nodes;
* k times the time that it takes to notice a loss and to queue a job again is left before the
  deadline.

Then the starts of a plan can be kept on the nodes that are left, each put off by that time at most:
at each instant promised jobs want no more nodes than there are, and whoever began again ends within
the time for which its nodes were kept. (Nodes of equal worth can be dealt out in order of the
starts: that is the colouring of an interval graph; `rtsched.core.plan_repair` does it.) A loss uses
up what was insured: the plan that is made then need not survive another k.

The nodes that are kept free take best-effort jobs, which give way if they may be requeued. A
primary and a backup copy of a task at different times on different nodes are the classic way to
the same end. Backups may overlap there, since few fail at once; here a job takes all of its nodes
again, so that one which is as wide as the machine but k is insured too.

References
----------
Ghosh, Melhem, Mosse, 1997: Fault-tolerance through scheduling of aperiodic tasks in hard real-time
multiprocessor systems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import are_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from rtsched.api import Snapshot
    from rtsched_plugins.kernels.admission import Tasks


class Insurance(NamedTuple):
    """How many lost nodes promises survive.

    Attributes
    ----------
    everywhere : int
        Nodes that any partition may lose.
    partitions : mapping of str to int
        By partition, where that is another number.
    recovery : float
        Seconds from the loss of a node until a job that ran there may start again.
    """

    everywhere: int = 0
    partitions: Mapping[str, int] = {}
    recovery: float = 0.0

    @property
    def max_nodes(self) -> int:
        """The largest number of any partition."""
        return max(self.everywhere, *self.partitions.values(), 0)

    def at_most(self, nodes: int) -> Insurance:
        """Return the insurance against the loss of so many nodes, or fewer where it is fewer."""
        fewer = {name: min(nodes, many) for name, many in self.partitions.items()}
        return Insurance(min(nodes, self.everywhere), fewer, self.recovery)

    def of(self, names: Iterable[str]) -> int:
        """Return how many nodes a set of nodes may lose that is a partition by these names."""
        many = [self.partitions.get(name, self.everywhere) for name in names]
        return max(many, default=self.everywhere)


NOTHING = Insurance()
"""Promises hold as long as no node is lost that the plan needs."""


def insured(tasks: Tasks, spare: int, recovery: float) -> Tasks:
    """Return tasks as they are planned where `spare` nodes may be lost: so many runs longer.

    Parameters
    ----------
    tasks : Tasks
        Times relative to a common instant.
    spare : int
        Nodes that may be lost, each at the cost of a run.
    recovery : float
        Seconds before the deadline that each loss costs.
    """
    if not spare:
        return tasks
    runs = 1.0 + spare
    longer = ("wall", "cms", "cps", "setup_link", "setup_node")
    return tasks._replace(
        deadline=tasks.deadline - spare * recovery,
        **{name: getattr(tasks, name) * runs for name in longer},
    )


def without_spares(free: NDArray[np.float64], spare: int) -> NDArray[np.float64]:
    """Return when each node is free, inf for the `spare` ones that are free first.

    They are the ones to be kept free: promised jobs have the others only when they are free, and by
    then these are.
    """
    if not spare:
        return free
    up = np.flatnonzero(np.isfinite(free))
    first = up[np.argsort(free[up], kind="stable")[:spare]]
    kept = free.copy()
    kept[first] = np.inf
    return kept


def held_longer(
    snapshot: Snapshot, free: NDArray[np.float64], spare: NDArray[np.int64], origin: float
) -> NDArray[np.float64]:
    """Return when each node is free if promised jobs that run may have to run again.

    Parameters
    ----------
    snapshot : Snapshot
        Its running jobs.
    free : float64[m]
        When each node is free of running jobs, seconds after `origin`.
    spare : int64[m]
        Nodes that may be lost, by the node.
    origin : float
        Seconds since the epoch.
    """
    runs = snapshot.allocations
    promised = are_in(runs.entries.job, snapshot.promises.job)
    if not promised.any() or not spare.any():
        return free
    some = runs.take(np.flatnonzero(promised))
    of = some.rows()
    losses = np.zeros(len(some), np.int64)
    np.maximum.at(losses, of, spare[some.nodes])
    ends = some.entries.end + losses * (some.entries.end - some.entries.start) - origin
    free = free.copy()
    np.maximum.at(free, some.nodes, ends[of])
    return free


def one_run(
    start: NDArray[np.float64], end: NDArray[np.float64], spare: int
) -> NDArray[np.float64]:
    """Return when entries end that are planned for several runs, if the first one succeeds."""
    return end if not spare else start + (end - start) / (1.0 + spare)
