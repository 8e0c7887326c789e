"""Spare capability where tasks can be suspended: nodes of one processor each under EDF.

Times are whole slots of `slot` seconds since the epoch: work is rounded up, deadlines down. A task
is reserved with the slot of its earliest finish as its deadline; the node's EDF then ends it there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Schedule
from rtsched.kernels.edf import NEVER, grid, hyperperiods, periodic_work, reserve
from rtsched_plugins.kernels.spare import Machine, Places, Tasks, place_graph
from rtsched_plugins.spare_form import Place, Trial, usable_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Snapshot
    from rtsched_plugins.task_graphs import Graph


class EdfForm:
    """The nodes' work at the first slot boundary from now on, and what is reserved on them.

    Parameters
    ----------
    snapshot : Snapshot
        The state that a batch is judged against.
    jobs : Jobs
        The new jobs.
    slot : float
        Seconds per slot.
    last : bool
        Utilisation-first instead of response-first.
    executed : mapping of job id to seconds
        How long promised jobs that have started have run so far.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        jobs: Jobs,
        slot: float,
        last: bool,
        executed: dict[int, float],
    ) -> None:
        self.snapshot, self.jobs, self.slot, self.last = snapshot, jobs, slot, last
        self._now = math.ceil(snapshot.now / slot - 1e-6)
        held = self._held(executed)
        self._room = len(jobs)
        work = periodic_work(
            snapshot.periodic, len(snapshot.cluster), self._now, slot, 2 * self._room + len(held[0])
        )
        for row, (node, release, deadline, left) in enumerate(np.transpose(held).tolist()):
            reserve(work, node, self._room + row, release, deadline, left)
        self._next = self._room + len(held[0])
        self._machine = Machine(self._now, work, *hyperperiods(work))

    def _held(self, executed: dict[int, float]) -> tuple[NDArray[np.int64], ...]:
        """Return node, release, deadline and slots left of every reservation there is."""
        snapshot = self.snapshot
        kept = np.isin(snapshot.running.id, snapshot.promises.job)
        running = snapshot.allocations.take(np.flatnonzero(kept))
        schedule = Schedule.joined([snapshot.plan, running])
        wall = np.concatenate([snapshot.planned.wall_time, snapshot.running.wall_time[kept]])
        node = schedule.nodes[schedule.indptr[:-1]].astype(np.int64)
        left = grid(wall / snapshot.cluster.pace[node], self.slot, up=True)
        ids = schedule.entries.job.tolist()
        done = np.array([executed.get(job, 0.0) for job in ids], np.float64)
        left = np.maximum(left - grid(done, self.slot, up=False), 0)
        release = grid(schedule.entries.start, self.slot, up=True)
        return node, release, grid(schedule.entries.end, self.slot, up=False), left

    def place(
        self,
        graph: Graph,
        deadline: NDArray[np.float64],
        known: dict[int, Place],
        beyond: bool = False,
    ) -> Trial:
        """Place a graph's tasks by these deadlines, seconds since the epoch; nothing is kept."""
        tasks, places = self._tasks(graph, deadline, known)
        failed, later = place_graph(self._machine, tasks, places, self.last, beyond)
        outer = len(places.node) - len(graph.rows)
        count = len(graph.rows) if failed < 0 else failed
        found = tuple(
            Place(ready * self.slot, finish * self.slot, np.array([node], np.int32))
            for node, ready, finish in zip(
                *(column[outer : outer + count].tolist() for column in places), strict=True
            )
        )
        return Trial(found, failed >= 0, later * self.slot if later < NEVER else np.inf)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found: each task's deadline becomes its finish."""
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            node = int(place.nodes[0])
            times = round(place.start / self.slot), round(place.end / self.slot)
            cost = int(self._costs(np.array([row]), np.array([node]))[0, 0])
            reserve(self._machine.work, node, self._next, *times, cost)
            self._next += 1

    def _tasks(
        self, graph: Graph, deadline: NDArray[np.float64], known: dict[int, Place]
    ) -> tuple[Tasks, Places]:
        """Return the graph as the kernel wants it; predecessors that have ended are left out."""
        rows, ids = graph.rows.tolist(), self.jobs.id[graph.rows].tolist()
        inner = {job: place for place, job in enumerate(ids)}
        outer = [job for job in dict.fromkeys(graph.before.tolist()) if job in known]
        outer = [job for job in outer if job not in inner]
        at = {job: place for place, job in enumerate(outer)}
        at.update({job: len(outer) + place for job, place in inner.items()})
        waits = np.isin(graph.before, np.array(list(at), np.int64))
        kept = np.concatenate([[0], np.cumsum(waits)])[graph.before_of]
        before = np.array([at[job] for job in graph.before[waits].tolist()], np.int64)
        ready = np.maximum(self.jobs.begin[graph.rows], self._now * self.slot)
        node = np.full(len(outer) + len(rows), -1, np.int64)
        finish = np.full(len(node), self._now, np.int64)
        for place, job in enumerate(outer):
            node[place] = known[job].nodes[0]
            finish[place] = math.ceil(known[job].end / self.slot - 1e-6)
        tasks = Tasks(
            grid(ready, self.slot, up=True),
            np.where(self._usable(rows), self._costs(graph.rows), 0),
            grid(deadline, self.slot, up=False),
            kept,
            before,
            grid(graph.message[waits], self.slot, up=True),
        )
        return tasks, Places(node, np.zeros(len(node), np.int64), finish)

    def _costs(
        self, rows: NDArray[np.int64], nodes: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.int64]:
        """Return the slots that jobs take on nodes, a line per job, at least 1."""
        seconds = self.jobs.wall_time[rows, None] / self.snapshot.cluster.pace[nodes]
        return np.maximum(grid(seconds, self.slot, up=True), 1)

    def _usable(self, rows: list[int]) -> NDArray[np.bool_]:
        """Return which nodes each of these jobs may use; jobs mostly may use the same."""
        columns = (self.jobs.partition, self.jobs.node_request, self.jobs.pinned)
        kinds = zip(*(column[rows].tolist() for column in columns), strict=True)
        known: dict[tuple[int, ...], NDArray[np.bool_]] = {}
        lines = []
        for row, kind in zip(rows, kinds, strict=True):
            if kind not in known:
                known[kind] = usable_nodes(self.jobs, row, self.snapshot)
            lines.append(known[kind])
        return np.array(lines)
