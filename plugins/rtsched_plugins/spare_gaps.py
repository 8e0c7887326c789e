"""Spare capability in the batch setting: tasks that are never suspended, in gaps between work.

A node has what is left beside running jobs, until their requested ends; beside what is planned and
what reservations set aside; and beside every occurrence of its periodic work, from its release for
as long as it takes. Where jobs have whole nodes, each of these takes all of a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.api import TENANCY, Ragged, demand_of, lacking, occurrences, offsets_of, room_of
from rtsched_plugins.kernels.gaps import SLACK, Rigid, find, nodes_at, reserve
from rtsched_plugins.room import copied, left_beside
from rtsched_plugins.spare_form import Place, Trial, usable_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Schedule, Snapshot
    from rtsched.kernels.room import RoomProfile
    from rtsched_plugins.task_graphs import Graph

PERIODS = 64
"""Behind everything planned the gaps are looked for this many longest periods far at most."""


class Spans(NamedTuple):
    """When `n` things have their nodes."""

    start: NDArray[np.float64]
    """float64[n], seconds from now."""
    end: NDArray[np.float64]
    """float64[n], seconds from now."""
    size: NDArray[np.int64]
    """int64[n]: nodes of each."""
    nodes: NDArray[np.int32]
    """int32[k]: theirs, one after the other."""


class GapForm:
    """What is left of each node, and what a batch takes of it.

    Parameters
    ----------
    snapshot : Snapshot
        The state that a batch is judged against.
    jobs : Jobs
        The new jobs.
    last : bool
        Utilisation-first instead of response-first.
    """

    def __init__(self, snapshot: Snapshot, jobs: Jobs, last: bool) -> None:
        self.snapshot, self.jobs, self.last = snapshot, jobs, last
        cluster = snapshot.cluster
        self._speed = np.asarray(cluster.pace, np.float64)
        self._demand = demand_of(jobs, cluster)
        self._lacks = lacking(jobs, cluster) & cluster.shared
        self._left = self._beside_all()

    def _beside_all(self) -> RoomProfile:
        """Return what is left beside all that runs, is planned or set aside, and recurs."""
        snapshot, cluster, blocked = self.snapshot, self.snapshot.cluster, self.snapshot.blocked
        parts = [self._of(snapshot.allocations), self._of(snapshot.plan)]
        demand = [_whole(sum(len(part.start) for part in parts), self._demand.shape[1])]
        if cluster.shared:
            demand = [demand_of(jobs, cluster) for jobs in (snapshot.running, snapshot.planned)]
        if len(blocked.node):
            set_aside = blocked.start - snapshot.now, blocked.end - snapshot.now
            parts.append(_on_one_node(*set_aside, blocked.node))
            demand.append(blocked.demand(cluster))
        if len(snapshot.periodic):
            recurring, takes = self._recurring(np.concatenate([part.end for part in parts]))
            parts.insert(0, recurring)
            demand.insert(0, takes)
        start, end, size, nodes = (np.concatenate(each) for each in zip(*parts, strict=True))
        return left_beside(
            room_of(cluster),
            start,
            np.maximum(end, 0.0),
            Ragged(offsets_of(size), nodes),
            np.concatenate(demand),
            0.0,
            len(cluster.licenses),
        )

    def _of(self, schedule: Schedule) -> Spans:
        """Return when the jobs of a schedule have their nodes."""
        entries, now = schedule.entries, self.snapshot.now
        size = schedule.ragged.lengths
        return Spans(entries.start - now, entries.end - now, size, schedule.nodes)

    def _recurring(self, end: NDArray[np.float64]) -> tuple[Spans, NDArray[np.int64]]:
        """Return the time for which occurrences are not known, and these, and what each takes.

        The latest first: so each is laid out before what is there already. `end` is when all else
        ends, seconds from now.
        """
        periodic, now, ahead = self.snapshot.periodic, self.snapshot.now, self._look_ahead(end)
        row, begin, _ = occurrences(periodic, now, now + ahead)
        start, over = begin - now, begin - now + periodic.exec_time[row]
        latest, nodes = np.argsort(-start, kind="stable"), np.unique(periodic.node)
        spans = _on_one_node(
            np.concatenate([np.full(len(nodes), ahead), start[latest]]),
            np.concatenate([np.full(len(nodes), np.inf), over[latest]]),
            np.concatenate([nodes, periodic.node[row[latest]]]),
        )
        takes = demand_of(periodic, self.snapshot.cluster)[row[latest]]
        return spans, np.concatenate([_whole(len(nodes), takes.shape[1]), takes])

    def _look_ahead(self, end: NDArray[np.float64]) -> float:
        """Return for how many seconds occurrences count: as far as a job may look for a gap."""
        period = self.snapshot.periodic.period
        due = self.jobs.deadline[np.isfinite(self.jobs.deadline)] - self.snapshot.now
        wall = self.jobs.wall_time[np.isfinite(self.jobs.wall_time)]
        slowest = self._speed.min(initial=1.0)
        planned = end[np.isfinite(end)].max(initial=0.0)
        last = max(due.max(initial=0.0), planned) + wall.sum() / slowest
        multiple = int(np.lcm.reduce(np.maximum(period, 1.0).astype(np.int64).astype(object)))
        longest = float(period.max())
        return float(last + min(float(multiple), PERIODS * longest) + 2 * longest)

    def place(
        self,
        graph: Graph,
        deadline: NDArray[np.float64],
        known: dict[int, Place],
        beyond: bool = False,  # noqa: ARG002 - it costs nothing here
    ) -> Trial:
        """Place a graph's tasks by these deadlines, seconds since the epoch; nothing is kept."""
        known, places = dict(known), []
        later, fits, failed = np.inf, 0, False
        for task, row in enumerate(graph.rows.tolist()):
            job = self._rigid(graph, task, row, float(deadline[task]), known)
            found = find(self._left, job, self.last)
            later = min(later, found.later)
            if not (found.end < np.inf and found.end <= job.deadline + SLACK):
                failed, fits = True, found.fits
                break
            place = self._place(nodes_at(self._left, job, found), found.start, found.end)
            places.append(place)
            known[int(self.jobs.id[row])] = place
            if len(graph.rows) > 1:
                self._take(row, place)
        if len(graph.rows) > 1:
            for row, place in zip(graph.rows.tolist(), places, strict=False):
                self._take(row, place, -1)
        return Trial(tuple(places), failed, later + self.snapshot.now, fits)

    def _place(self, nodes: NDArray[np.int32], start: float, end: float) -> Place:
        now = self.snapshot.now
        return Place(now + start, now + end, nodes)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found."""
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            self._take(row, place)

    def _take(self, row: int, place: Place, sign: int = 1) -> None:
        """Take what a job needs at a place (sign 1), or give it back (-1)."""
        now, demand = self.snapshot.now, self._demand[row : row + 1]
        needed = 2 * (len(place.nodes) + 1)
        if self._left.unused[1] + needed > len(self._left.after):
            self._left = copied(self._left, needed + len(self._left.after))
        reserve(self._left, demand, place.nodes, place.start - now, place.end - now, sign)

    def _rigid(
        self, graph: Graph, task: int, row: int, deadline: float, known: dict[int, Place]
    ) -> Rigid:
        """Return one task as the kernel wants it; predecessors that have ended are left out."""
        jobs, now = self.jobs, self.snapshot.now
        ready = np.full(len(self._speed), max(float(jobs.begin[row]) - now, 0.0))
        span = slice(int(graph.before_of[task]), int(graph.before_of[task + 1]))
        pairs = zip(graph.before[span].tolist(), graph.message[span].tolist(), strict=True)
        for job, message in pairs:
            if job in known:
                place = known[job]
                arrives = np.full(len(ready), place.end - now + message)
                arrives[place.nodes] = place.end - now
                ready = np.maximum(ready, arrives)
        usable = usable_nodes(jobs, row, self.snapshot) & (not self._lacks[row])
        speed, wall = np.where(usable, self._speed, 0.0), float(jobs.wall_time[row])
        demand, width = self._demand[row : row + 1], int(jobs.size[row])
        return Rigid(demand, ready, speed, wall, width, deadline - now)


def _on_one_node(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    node: NDArray[np.integer[Any]],
) -> Spans:
    """Return spans on one node each."""
    return Spans(start, end, np.ones(len(node), np.int64), node.astype(np.int32))


def _whole(count: int, resources: int) -> NDArray[np.int64]:
    """Return what keeps so many nodes for itself, int64[count, resources]."""
    demand = np.zeros((count, resources), np.int64)
    demand[:, -1] = TENANCY
    return demand
