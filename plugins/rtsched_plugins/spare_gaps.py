"""Spare capability in the batch setting: tasks that are never suspended, in gaps between work.

A node is busy with the job that runs there, until its requested end; with what is planned; and with
every occurrence of its periodic work, from its release for as long as it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Ragged, offsets_of
from rtsched_plugins.kernels.gaps import SLACK, Busy, Rigid, find, nodes_at
from rtsched_plugins.spare_form import Place, Trial, usable_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Periodic, Schedule, Snapshot
    from rtsched_plugins.task_graphs import Graph

    Intervals = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]

PERIODS = 64
"""Behind everything planned the gaps are looked for this many longest periods far at most."""


class GapForm:
    """What is kept free on each node, and what a batch adds to it.

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
        self._speed = np.asarray(snapshot.cluster.pace, np.float64)
        busy = _joined([self._of(snapshot.allocations, 0.0), self._of(snapshot.plan, -np.inf)])
        reach = np.full(len(snapshot.cluster), np.inf)
        if len(snapshot.periodic):
            ahead = self._look_ahead(busy)
            reach[snapshot.periodic.node] = ahead
            busy = _joined([busy, occurrences(snapshot.periodic, snapshot.now, ahead)])
        self._busy = _sorted(busy, reach)

    def _of(self, schedule: Schedule, least: float) -> Intervals:
        """Return the intervals of a schedule, each ending at `least` or later."""
        entry = schedule.rows()
        start = (schedule.entries.start - self.snapshot.now)[entry]
        end = np.maximum((schedule.entries.end - self.snapshot.now)[entry], least)
        return schedule.nodes.astype(np.int64), start, end

    def _look_ahead(self, busy: Intervals) -> float:
        """Return for how many seconds occurrences count: as far as a job may look for a gap."""
        period = self.snapshot.periodic.period
        due = self.jobs.deadline[np.isfinite(self.jobs.deadline)] - self.snapshot.now
        ends = busy[2][np.isfinite(busy[2])]
        wall = self.jobs.wall_time[np.isfinite(self.jobs.wall_time)]
        slowest = self._speed.min(initial=1.0)
        last = max(due.max(initial=0.0), ends.max(initial=0.0)) + wall.sum() / slowest
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
        busy, known = self._busy, dict(known)
        places: list[Place] = []
        later = np.inf
        for task, row in enumerate(graph.rows.tolist()):
            job = self._rigid(graph, task, row, float(deadline[task]), known)
            found = find(busy, job, self.last)
            later = min(later, found.later)
            if not (found.end < np.inf and found.end <= job.deadline + SLACK):
                return Trial(tuple(places), True, later + self.snapshot.now, found.fits)
            place = self._place(nodes_at(busy, job, found), found.start, found.end)
            places.append(place)
            known[int(self.jobs.id[row])] = place
            if len(graph.rows) > 1:
                busy = self._with(busy, place)
        return Trial(tuple(places), False, later + self.snapshot.now)

    def _place(self, nodes: NDArray[np.int32], start: float, end: float) -> Place:
        now = self.snapshot.now
        return Place(now + start, now + end, nodes)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found."""
        del graph
        for place in trial.places:
            self._busy = self._with(self._busy, place)

    def _with(self, busy: Busy, place: Place) -> Busy:
        """Return the intervals with one more on each node of a place."""
        start, end = place.start - self.snapshot.now, place.end - self.snapshot.now
        node = np.sort(place.nodes)
        begun = np.concatenate([[0], np.cumsum(busy.start <= start)])
        at = busy.of[node] + begun[busy.of[node + 1]] - begun[busy.of[node]]
        more = offsets_of(np.bincount(node, minlength=len(busy.reach)))
        starts, ends = np.insert(busy.start, at, start), np.insert(busy.end, at, end)
        return Busy(busy.of + more, starts, ends, busy.reach)

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
        speed = np.where(usable_nodes(jobs, row, self.snapshot), self._speed, 0.0)
        return Rigid(ready, speed, float(jobs.wall_time[row]), int(jobs.size[row]), deadline - now)


def _sorted(intervals: Intervals, reach: NDArray[np.float64]) -> Busy:
    node, start, end = intervals
    order = np.lexsort((start, node))
    of = offsets_of(np.bincount(node, minlength=len(reach)))
    return Busy(of, start[order], end[order], reach)


def occurrences(periodic: Periodic, now: float, until: float) -> Intervals:
    """Return node, start and end (seconds from now) of the occurrences that end after now.

    An occurrence begins at its release and is not interrupted. Those that begin within `until`
    seconds from now are given.
    """
    first = np.maximum(np.floor((now - periodic.phase - periodic.exec_time) / periodic.period), -1)
    last = np.floor((now + until - periodic.phase) / periodic.period)
    counts = np.maximum(last - first, 0).astype(np.int64)
    instances = Ragged.counted(counts)
    row = instances.rows()
    number = instances.values + first[row] + 1
    start = periodic.phase[row] + number * periodic.period[row] - now
    return periodic.node[row].astype(np.int64), start, start + periodic.exec_time[row]


def _joined(parts: list[Intervals]) -> Intervals:
    node, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return node, start, end
