"""Times at which nodes are set aside, by reservations of the batch system."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.jobs import occurrences
from rtsched.model.resources import CPU, TENANCY
from rtsched.model.schedule import Schedule
from rtsched.model.table import read_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Periodic

WHOLE = -1
"""All of a node, in place of a number of its CPUs."""

RECURS_AHEAD = 15 * 86400.0
"""Seconds for which occurrences of recurring work are laid out at the most, and ..."""
OCCURRENCES = 1024
"""... how many of them on a node, of the work with the shortest period."""
STEPS = 15
"""They are the same spans for such a part of that time."""


class Blocked(NamedTuple):
    """Spans of time during which a node is set aside; those of one node do not overlap."""

    node: NDArray[np.int64]
    """int64[k]: rows of `Cluster.nodes`."""
    start: NDArray[np.float64]
    """float64[k]: seconds since the epoch."""
    end: NDArray[np.float64]
    """float64[k]: seconds since the epoch."""
    cpus: NDArray[np.int64]
    """int64[k]: how many of its CPUs, where jobs share nodes; `WHOLE`: all of the node."""

    @classmethod
    def of(cls, spans: Sequence[tuple[int, float, float, int]]) -> Blocked:
        """Return spans given one by one, as node, start, end and CPUs."""
        node, start, end, cpus = zip(*spans, strict=True) if spans else ((), (), (), ())
        return cls(
            read_only(np.array(node, np.int64)),
            read_only(np.array(start, np.float64)),
            read_only(np.array(end, np.float64)),
            read_only(np.array(cpus, np.int64)),
        )

    @classmethod
    def merged(
        cls, node: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]
    ) -> Blocked:
        """Return when whole nodes are set aside, by node and start; given spans may overlap.

        Parameters
        ----------
        node, start, end : int64[n], float64[n], float64[n]
            In any order.
        """
        order = np.lexsort((start, node))
        node, start, end = node[order], start[order], end[order]
        by_end = np.argsort(end, kind="stable")
        rank = np.empty(len(node), np.int64)
        rank[by_end] = np.arange(len(node))
        highest = np.maximum.accumulate(node * len(node) + rank) - node * len(node)
        reach = end[by_end[highest]]
        """Until when each node is set aside by its spans so far."""
        first = np.ones(len(node), np.bool_)
        first[1:] = (node[1:] != node[:-1]) | (start[1:] > reach[:-1])
        last = np.append(first[1:], True)[: len(node)]
        whole = np.full(int(first.sum()), WHOLE, np.int64)
        columns = (node[first].astype(np.int64), start[first], reach[last], whole)
        return cls(*(read_only(column) for column in columns))

    def equals(self, other: Blocked) -> bool:
        """Return whether these are the same spans in the same order."""
        return all(np.array_equal(mine, its) for mine, its in zip(self, other, strict=True))

    def take(self, which: NDArray[np.bool_]) -> Blocked:
        """Return the spans where `which` (bool[k]) is true."""
        return Blocked(self.node[which], self.start[which], self.end[which], self.cpus[which])

    def cut(self, out: Blocked) -> tuple[Blocked, NDArray[np.int64]]:
        """Return the spans without the spans `out`, and of which span each is a part, int64[k]."""
        meets = np.isin(self.node, out.node)
        if not meets.any():
            return self, np.arange(len(self.node))
        order = np.lexsort((out.start, out.node))
        away: dict[int, list[tuple[float, float]]] = {}
        columns = (column[order].tolist() for column in out[:3])
        for node, start, end in zip(*columns, strict=True):
            away.setdefault(node, []).append((start, end))
        left: list[tuple[int, float, float, int]] = []
        part: list[int] = []
        rows = (column[meets].tolist() for column in (np.arange(len(meets)), *self))
        for row, node, start, end, cpus in zip(*rows, strict=True):
            for begin, over in away[node]:
                if begin > start:
                    left.append((node, start, min(begin, end), cpus))
                start = max(start, over)
                if start >= end:
                    break
            if start < end:
                left.append((node, start, end, cpus))
            part += [row] * (len(left) - len(part))
        whole = np.concatenate([np.flatnonzero(~meets), np.array(part, np.int64)])
        return Blocked.joined([self.take(~meets), Blocked.of(left)]), whole

    @classmethod
    def joined(cls, parts: Sequence[Blocked]) -> Blocked:
        """Return the spans of several, one after the other."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def within(self, begin: float, end: float) -> Blocked:
        """Return the spans that are partly in [begin, end)."""
        return self.take((self.start < end) & (self.end > begin))

    def schedule(self, job: ArrayLike = -1) -> Schedule:
        """Return the spans as entries on one node each, of these job ids if there are such."""
        indptr = np.arange(len(self.node) + 1)
        return Schedule.build(job, self.start, self.end, indptr, self.node.astype(np.int32))

    def demand(self, cluster: Cluster) -> NDArray[np.int64]:
        """Return what each span takes of its node, as `rtsched.model.resources.demand_of` of jobs.

        int64[k, r + l + 1]; a whole node is one with nobody else on it.
        """
        names, whole = cluster.nodes.names("capacity"), self.cpus == WHOLE
        demand = np.zeros((len(self.node), len(names) + len(cluster.licenses) + 1), np.int64)
        if CPU in names:
            demand[:, names.index(CPU)] = np.where(whole, 0, self.cpus)
        demand[:, -1] = np.where(whole, TENANCY, 1)
        return demand


def with_recurring(blocked: Blocked, periodic: Periodic, now: float) -> Blocked:
    """Return spans that keep planned jobs from recurring work, too.

    They reach only so far (`RECURS_AHEAD`); after that its nodes are set aside for good. A planner
    that knows nothing of recurring work plans around it so.

    Parameters
    ----------
    blocked : Blocked
        Spans of whole nodes.
    periodic : Periodic
        The recurring work.
    now : float
        Seconds since the epoch.
    """
    ahead = min(RECURS_AHEAD, OCCURRENCES * float(periodic.period.min(initial=np.inf)))
    begin = now - now % (ahead / STEPS)
    row, start, end = occurrences(periodic, begin, begin + ahead)
    node = periodic.node[row].astype(np.int64)
    always = np.unique(periodic.node).astype(np.int64)
    return Blocked.merged(
        np.concatenate([blocked.node, node, always]),
        np.concatenate([blocked.start, start, np.full(len(always), begin + ahead)]),
        np.concatenate([blocked.end, end, np.full(len(always), np.inf)]),
    )


NOTHING_BLOCKED = Blocked.of(())
"""No node is set aside at any time."""
