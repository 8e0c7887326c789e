"""A simulated batch system of nodes with one processor each, pre-emptive EDF at slot boundaries.

    system = PreemptiveNodes(jobs, run_time, cluster, PreemptiveSettings())
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)

On each node the periodic work and the planned tasks run by earliest deadline: a planned task may
run from its planned start on, and its planned end is its deadline. A job without a plan runs in the
background, when nothing else does: it goes to the node with the fewest such jobs that have not
ended (of equals the lowest), and they run there in order of submission. Jobs run on one node; wider
ones never start. A job that ends early frees its slots at once, so nobody is asked about that.

Slots are `settings.slot` seconds, counted from the epoch. Run times are rounded up to slots.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtsched.kernels.edf import (
    NEVER,
    grid,
    periodic_work,
    reserve,
    run_nodes,
    withdraw,
)
from rtsched.model.actions import Reserve
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind
from rtsched.model.verdicts import Finding, Reason
from rtsched.simulator.event_driven import ENDED, GONE, RUNNING, EventDriven
from rtsched.simulator.interface import JobOutcomes
from rtsched.simulator.recurring import utilisation
from rtsched.simulator.settings import PreemptiveSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs, Periodic
    from rtsched.simulator.event_driven import EventLog

    Rows = NDArray[np.int64]


ROOM = 4096


class Segments:
    """What the nodes' log says of `n` jobs. Times are seconds since the epoch.

    Attributes
    ----------
    log : int64[l, 3]
        Filled by `rtsched.kernels.edf.run_nodes`: job, first slot and end of each segment.
    start, end : float64[n]
        When each job began and ended; nan: not yet.
    """

    def __init__(self, n: int, event_log: EventLog, slot: float, origin: float) -> None:
        self.log = np.zeros((ROOM, 3), np.int64)
        self.start, self.end = np.full(n, np.nan), np.full(n, np.nan)
        self._event_log, self._slot, self._origin = event_log, slot, origin
        self._reached: dict[int, int] = {}
        self._found: list[tuple[int, int, int]] = []

    def take(self, count: int, left: NDArray[np.int64]) -> None:
        """Take in the first `count` rows of the log; `left` is what each job still needs."""
        for row, begin, end in self.log[:count].tolist():
            before = self._reached.pop(row, None)
            if np.isnan(self.start[row]):
                self.start[row] = begin * self._slot
                self._found.append((begin, int(EventKind.STARTED), row))
            elif before is None:
                self._found.append((begin, int(EventKind.RESUMED), row))
            elif before < begin:
                self._found.append((before, int(EventKind.SUSPENDED), row))
                self._found.append((begin, int(EventKind.RESUMED), row))
            self._reached[row] = end
        rows, last = self.log[:count, 0], self.log[:count, 2]
        ended = np.zeros(len(left), np.int64)
        np.maximum.at(ended, rows, last)
        for row in np.unique(rows[left[rows] == 0]).tolist():
            if self._reached[row] == ended[row]:
                self.end[row] = ended[row] * self._slot
                del self._reached[row]
                self._found.append((int(ended[row]), int(EventKind.ENDED), row))

    def pause(self, until: int, left: NDArray[np.int64]) -> None:
        """Tell, in order of time, what happened up to a slot boundary that all nodes reached."""
        for row, end in list(self._reached.items()):
            if end < until and left[row] > 0:
                self._found.append((end, int(EventKind.SUSPENDED), row))
                del self._reached[row]
        for slot, kind, row in sorted(self._found, key=lambda event: event[0]):
            self._event_log.add(slot * self._slot - self._origin, kind, row, 1)
        self._found = []


NO_NODE = Reason(
    "preemptive.no-node",
    "requests {nodes:node}; each job runs on one node here, and its partition must have one",
)


class PreemptiveNodes(EventDriven):
    """A batch system on pre-emptive nodes.

    Of its parameters (see `System`) `passes` and `early_ends` of `stop_at` make no difference, nor
    does `compiled`: no plug-in orders the queue. Every node does its periodic work by EDF.

    Raises
    ------
    ConfigError
        If a node cannot do its periodic work in time.
    """

    settings: PreemptiveSettings
    usual = PreemptiveSettings()

    def _set_up(self) -> None:
        jobs, cluster, n = self.jobs, self.cluster, len(self.jobs)
        self._run_time = np.minimum(self.run_time, jobs.wall_time)
        self._allowed = _allowed(jobs, cluster)
        somewhere = np.any(self._allowed, axis=1, keepdims=True)[:, 0]
        self._fits = np.equal(jobs.size, 1) & somewhere[_kind_of(jobs)]
        self._open(self._fits)
        slot, seconds = self._slot_at(0.0), self.settings.slot
        self._work = periodic_work(self.periodic, len(cluster), slot, seconds, n)
        self._utilisation = utilisation(self.periodic, cluster, slot, seconds)
        self._reached = np.full(len(cluster), slot, np.int64)
        self._node = np.full(n, -1, np.int32)
        self._planned = np.zeros(n, np.bool_)
        self._plan, self._until = Schedule.empty(), np.full(n, np.inf)
        self._segments = Segments(n, self._event_log, seconds, self.origin)

    def _slot_at(self, time: float) -> int:
        """Return the first slot boundary at or after a time."""
        return math.ceil((self.origin + time) / self.settings.slot - 1e-6)

    def _serve_queue(self) -> bool:
        """Give a node to every job that was let in and is in no plan."""
        while self._arrivals.queue:
            self._send_back(self._arrivals.start())
        return False

    def _next(self) -> bool:
        time = self._arrivals.next_time()
        if time == np.inf:
            self._run_out()
            return False
        self._now = max(self._now, time)
        self._run(self._slot_at(self._now))
        self._arrivals.take(self._now)
        return True

    def _run(self, until: int) -> None:
        """Run all nodes up to a slot boundary."""
        log, full = self._segments.log, True
        while full:
            count, full = run_nodes(self._work, self._reached, until, log)
            self._segments.take(count, self._work.left)
        self._segments.pause(until, self._work.left)
        done = np.isfinite(self._segments.end) & (self._arrivals.status == RUNNING)
        self._arrivals.status[done] = ENDED

    def _run_out(self) -> None:
        """Run until every job has ended that ever will."""
        work, open_rows = self._work, np.flatnonzero(self._arrivals.status == RUNNING)
        node, left = self._node[open_rows], self._work.left[open_rows]
        if not len(open_rows):
            return
        load = np.bincount(node, left, len(self.cluster))
        extra = np.bincount(
            np.repeat(np.arange(len(self.cluster)), np.diff(work.first)),
            work.cost + work.period,
            len(self.cluster),
        )
        idle = 1.0 - self._utilisation
        planned = work.deadline[open_rows][self._planned[open_rows]]
        last = max(int(work.release[open_rows].max()), int(planned.max(initial=0)))
        spare = np.divide(load + extra, idle, out=np.zeros(len(idle)), where=idle > 1e-9)
        self._run(max(last, int(self._reached.max())) + math.ceil(spare.max()) + 1)
        self._now = max(self._now, float(np.nanmax(self._segments.end)) - self.origin)

    def _send_back(self, row: int) -> None:
        """Let a job run in the background of the node that has the fewest such jobs."""
        waits = (self._arrivals.status == RUNNING) & ~self._planned & (self._node >= 0)
        count = np.bincount(self._node[waits], minlength=len(self.cluster)).astype(np.float64)
        count[~self._allowed[_kind_of(self.jobs)[row]]] = np.inf
        self._set(row, int(count.argmin()), self._slot_at(self._now), NEVER + row)

    def _set(self, row: int, node: int, release: int, deadline: int) -> None:
        speed = self.cluster.nodes.speed[node]
        cost = grid(np.array([self._run_time[row] / speed]), self.settings.slot, up=True)[0]
        self._node[row] = node
        reserve(self._work, node, row, release, deadline, max(int(cost), 1))

    @property
    def _begun(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self._segments.start))

    def _waiting(self) -> Rows:
        waits = np.flatnonzero((self._arrivals.status == RUNNING) & ~self._begun)
        return np.sort(np.concatenate([waits, self._arrivals.waiting()]))

    def _running(self) -> tuple[Rows, Schedule]:
        """Return the jobs that have begun, which may be suspended."""
        rows = np.flatnonzero((self._arrivals.status == RUNNING) & self._begun)
        return rows, Schedule.build(
            self.jobs.id[rows],
            self._segments.start[rows],
            self._until[rows],
            np.arange(len(rows) + 1),
            self._node[rows],
        )

    def _periodic_now(self) -> Periodic:
        """Return the periodic work with what it still needs at the next slot boundary."""
        left = np.empty(len(self.periodic))
        left[np.argsort(self.periodic.node, kind="stable")] = self._work.rest * self.settings.slot
        return self.periodic.replace(left=left) if len(left) else self.periodic

    def _plan_left(self) -> Schedule:
        rows = self._rows.find(self._plan.entries.job)
        waits = self._planned[rows] & ~self._begun[rows]
        return self._plan if waits.all() else self._plan.take(np.flatnonzero(waits))

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        begun = self._begun
        return JobOutcomes(
            start=self._segments.start.copy(),
            end=self._segments.end.copy(),
            size=begun.astype(np.int32),
            fate=self._final_states(),
            first_node=np.where(begun, self._node, -1).astype(np.int32),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            findings=self._findings() if (self._arrivals.status == GONE).any() else (),
        )

    def _findings(self) -> tuple[Finding, ...]:
        """Return which jobs were let in and never start, because no node runs such a job."""
        never = (self._arrivals.status == GONE) & ~self._fits
        return (Finding.where(never, NO_NODE, nodes=self.jobs.size),)

    @property
    def missed(self) -> int:
        """Return how many deadlines of periodic work and of planned tasks were missed so far."""
        return int(self._work.missed.sum())

    def _reserve(self, action: Reserve, rows: Rows) -> int:
        """Put a plan in place of the present one; jobs that it leaves out go to the background."""
        plan, slot = action.plan, self.settings.slot
        waits = ~self._begun[rows] & (np.diff(plan.indptr) == 1)
        waits &= self._arrivals.status[rows] <= RUNNING
        plan, rows = plan.take(np.flatnonzero(waits)), rows[waits]
        old = self._plan_left()
        kept = set(_lines(old)) & set(_lines(plan))
        dropped = self._rows.find(old.entries.job)
        for row, line in zip(dropped.tolist(), _lines(old), strict=True):
            if line not in kept:
                withdraw(self._work, self._node[row], row)
                self._planned[row], self._node[row], self._until[row] = False, -1, np.inf
        start = grid(plan.entries.start, slot, up=True)
        end = grid(plan.entries.end, slot, up=False)
        for entry, (row, line) in enumerate(zip(rows.tolist(), _lines(plan), strict=True)):
            if line not in kept:
                self._take_from_queue(row)
                self._planned[row], self._until[row] = True, plan.entries.end[entry]
                self._set(row, int(plan.nodes[entry]), int(start[entry]), int(end[entry]))
        for row in np.setdiff1d(dropped, rows).tolist():
            self._send_back(row)
        self._plan = plan
        self.version += 1
        return int((~waits).sum())

    def _take_from_queue(self, row: int) -> None:
        if self._node[row] >= 0:
            withdraw(self._work, self._node[row], row)
        if row in self._arrivals.queue:
            self._arrivals.queue.remove(row)
        self._arrivals.status[row] = RUNNING

    handlers: ClassVar = {**EventDriven.handlers, Reserve: _reserve}


def _lines(plan: Schedule) -> list[tuple[int, float, float, int]]:
    """Return the entries of a plan of one node each as values that can be compared."""
    entries = plan.entries
    columns = (entries.job, entries.start, entries.end, plan.nodes)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _kind_of(jobs: Jobs) -> NDArray[np.int64]:
    """Return for each job which row of `_allowed` is about it: its partition, none being last."""
    return np.where(jobs.partition < 0, len(jobs.names("partition")), jobs.partition)


def _allowed(jobs: Jobs, cluster: Cluster) -> NDArray[np.bool_]:
    """Return bool[k + 1, m]: which usable nodes each partition of the jobs may use."""
    names = jobs.names("partition")
    rows = [cluster.partitions.get(name, cluster.usable) & cluster.usable for name in names]
    return np.array([*rows, cluster.usable])
