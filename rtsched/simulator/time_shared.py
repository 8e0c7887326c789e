"""A simulated batch system whose nodes run many processes at a time: workstations that are shared.

    system = TimeSharedNodes(jobs, run_time, cluster, TimeSharedSettings())
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)

A job's n processes are fixed when it starts, and all run at the pace of the slowest one
(`rtsched.simulator.time_shared`). The queue is served first come first served; its head holds
up the rest. At one instant jobs end first, one by one in order of their ids, and each end is asked
about; then nodes change; then jobs arrive. Where an answer starts or moves jobs, the system asks
again. Without a plug-in a job takes the size it asked for, on the least delayed nodes.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from rtsched.kernels.delays import delay, migration_pause, slowest, slowness
from rtsched.model.actions import Move, Place
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind
from rtsched.model.table import offsets_of
from rtsched.simulator.event_driven import ENDED, RUNNING, EventDriven
from rtsched.simulator.interface import JobOutcomes, Outcome
from rtsched.simulator.settings import TimeSharedSettings
from rtsched.simulator.setup import NodeSets

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.model.actions import Action
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Placement

    Nodes = NDArray[np.int32]

    Rows = NDArray[np.int64]

    Floats = NDArray[np.float64]


class PlacementRequests:
    """Sizes and node sets of the jobs of a workload.

    Parameters
    ----------
    jobs, cluster
        The workload, and the nodes and partitions.
    static : Placement or None
        Answers given before the run, row by row with the jobs.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster, static: Placement | None) -> None:
        sets = NodeSets(len(cluster))
        self._group = sets.of_jobs(jobs, cluster)
        self._rigid, self._jobs = jobs.kind == Kind.RIGID, jobs
        self._size = np.array(jobs.size)
        if static is not None:
            placed = sets.of_placement(static)
            self._group = np.where(placed >= 0, placed, self._group)
            given = ~self._rigid & (static.size > 0)
            self._size[given] = static.size[given]
        offsets, nodes = sets.arrays()
        self._sets = [nodes[a:b] for a, b in pairwise(offsets.tolist())]
        self._sets.append(np.arange(len(cluster), dtype=np.int32))  # code -1: all nodes
        self._placed: dict[int, tuple[int, Nodes | None]] = {}

    def can_be_met(self, chosen: bool) -> NDArray[np.bool_]:
        """Return bool[n]: who could start on idle nodes; `chosen`: sizes are chosen later."""
        min_size, jobs = self._size, self._jobs
        if chosen:
            min_size = np.where(~self._rigid & (jobs.size_min > 0), jobs.size_min, min_size)
        return np.asarray(min_size <= np.array([len(nodes) for nodes in self._sets])[self._group])

    def place(self, rows: NDArray[np.int64], placement: Placement) -> None:
        """Note an answer about waiting jobs, in place of the last one."""
        some = np.flatnonzero((placement.size > 0) | (placement.node_set >= 0))
        codes = placement.node_set
        self._placed = {
            int(rows[at]): (
                0 if self._rigid[rows[at]] else int(placement.size[at]),
                placement.node_sets[codes[at]] if codes[at] >= 0 else None,
            )
            for at in some.tolist()
        }

    def of(self, row: int) -> tuple[int, Nodes]:
        """Return the size and the node set of a waiting job."""
        size, nodes = self._placed.get(row, (0, None))
        return size or int(self._size[row]), self._sets[
            self._group[row]
        ] if nodes is None else nodes


class TimeSharedNodes(EventDriven):
    """A batch system on shared nodes.

    Of its parameters (see `System`) `stop_at.passes` also asks when nobody waits, since running
    jobs may move; `compiled` is not used: no plug-in orders the queue. Node events also change the
    foreign load of nodes. A job with a process on a node that is down stands still until the node
    is back or the job moves.

    Attributes
    ----------
    upgrades, migrations : int32[n]
        How often each job adapted to a lower load, and moved to other nodes.
    """

    settings: TimeSharedSettings
    usual = TimeSharedSettings()

    def _set_up(self) -> None:
        jobs, cluster, n = self.jobs, self.cluster, len(self.jobs)
        fastest = float(cluster.nodes.speed.max()) if len(cluster) else 1.0
        self._sharing = Sharing(cluster, self.run_time * jobs.size / fastest, jobs.id)
        self._spare_work = (jobs.wall_time - self.run_time) * jobs.size / fastest
        self._requests = PlacementRequests(jobs, cluster, self.static.placement)
        self._open(self._requests.can_be_met(self.stop_at.passes))
        self._start, self._end = np.full(n, np.nan), np.full(n, np.nan)
        self._size, self._first = np.zeros(n, np.int32), np.full(n, -1, np.int32)
        self.upgrades, self.migrations = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self._last_nodes: dict[int, Nodes] = {}
        self._stirred = self._asked = False

    def _resume(self) -> None:
        self._note_head(self._arrivals.head, self._arrivals.answered)
        if self._asked:
            self._start_jobs()

    def _serve_queue(self) -> bool:
        if self._stirred:
            self._stirred = False
            if not self.stop_at.passes:
                self._start_jobs()
            elif self._arrivals.queue or len(self._sharing):
                self._asked = True
                return True
        return False

    def _note_head(self, before: int, then: Callable[[float], object]) -> None:
        """Do something to the queue; a new head is asked about."""
        then(self._now)
        self._stirred |= self._arrivals.head not in (before, -1)

    def _next(self) -> bool:
        ends, comes = self._sharing.next_end(), self._arrivals.next_time()
        changes = self.node_events[0].time - self.origin if self.node_events else np.inf
        others = min(changes, comes)
        if min(ends, others) == np.inf:
            return False
        if ends <= others + SLACK:
            self._now = max(self._now, ends)
            self._finish(self._sharing.next_to_end())
        else:
            self._now = max(self._now, others)
            self._change_nodes()
            self._note_head(self._arrivals.head, self._arrivals.take)
        return True

    def _finish(self, row: int) -> None:
        self._end[row] = self._now
        self._arrivals.status[row] = ENDED
        self._sharing.finish(row, self._now)
        self._event_log.add(self._now, EventKind.ENDED, row, int(self._size[row]))
        self._stirred = True

    def _change_nodes(self) -> None:
        """Let the node events of this instant happen."""
        changed = False
        while self.node_events and self.node_events[0].time - self.origin <= self._now:
            event = self.node_events.pop(0)
            halted, resumed = self._sharing.change_node(
                event.node, event.state, event.foreign_load, self._now
            )
            for kind, rows in ((EventKind.SUSPENDED, halted), (EventKind.RESUMED, resumed)):
                for row in rows.tolist():
                    self._event_log.add(self._now, kind, row, int(self._size[row]))
            self._event_log.add(self._now, EventKind.NODE_CHANGED, -1, 0, event.node)
            changed = True
        if changed:
            state, foreign = self._sharing.nodes()
            nodes = self.cluster.nodes.replace(state=state, foreign_load=foreign)
            self.cluster = replace(self.cluster, nodes=nodes, version=self.cluster.version + 1)
            self._stirred = True

    def _start_jobs(self) -> None:
        """Start jobs, head first, as they were placed, until one must wait."""
        self._asked, arrivals = False, self._arrivals
        while arrivals.queue:
            size, wanted = self._requests.of(arrivals.head)
            nodes = self._sharing.choose(wanted, size)
            if nodes is None:
                break
            self._begin(arrivals.start(), nodes)

    def _begin(self, row: int, nodes: Nodes) -> None:
        self._start[row], self._size[row] = self._now, len(nodes)
        self._sharing.start(row, nodes, self._now)
        self._event_log.add(self._now, EventKind.STARTED, row, len(nodes))
        self._stirred = True
        self._note_nodes(row, nodes)

    def _note_nodes(self, row: int, nodes: Nodes) -> None:
        self._first[row] = nodes.min()
        if self.record_nodes:
            self._last_nodes[row] = nodes

    def _waiting(self) -> Rows:
        return self._arrivals.waiting()

    def _running(self) -> tuple[Rows, Schedule]:
        rows, indptr, nodes = self._sharing.held
        start, end = self._start[rows], self._sharing.overdue(self._spare_work)
        return rows, Schedule.build(
            self.jobs.id[rows], start + self.origin, end + self.origin, indptr, nodes
        )

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        return JobOutcomes(
            start=self._start + self.origin,
            end=self._end + self.origin,
            size=self._size.copy(),
            fate=self._final_states(),
            first_node=self._first.copy(),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            service=np.where(np.isnan(self._start), np.nan, self._sharing.served),
        )

    def node_rows(self) -> tuple[NDArray[np.int64], Nodes]:
        """Return per job the nodes it ran on last: offsets int64[n + 1], node rows int32[k].

        No job has any unless `record_nodes` was asked for.
        """
        parts = self._last_nodes
        sizes = [len(parts[row]) if row in parts else 0 for row in range(len(self.jobs))]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = [parts[row] for row in sorted(parts)]
        return offsets, np.concatenate(rows) if rows else np.zeros(0, np.int32)

    def _apply(self, action: Action) -> Outcome:
        head = self._arrivals.head
        outcome = super()._apply(action)
        self._stirred |= self._arrivals.head not in (head, -1)
        return outcome

    def _place(self, action: Place, rows: Rows) -> int:
        """Note sizes and node sets of waiting jobs, and start those that can."""
        late = int((self._arrivals.status[rows] >= RUNNING).sum())
        self._requests.place(rows, action.placement)
        self._start_jobs()
        return late

    def _move(self, action: Move, rows: Rows) -> int:
        """Move jobs, one after the other; return for how many that cannot be done.

        A job keeps its number of processes, and none goes to a node that takes no jobs.
        """
        moves, left = action.moves, 0
        usable = self.cluster.usable
        for at, row in enumerate(rows.tolist()):
            nodes = moves.nodes_of(at)
            if row not in self._sharing or len(nodes) != self._size[row]:
                left += 1
                continue
            moved = int(np.count_nonzero(~np.isin(nodes, self._sharing.nodes_of(row))))
            if moved == 0:
                self._adapt(row)
            elif usable[nodes].all():
                self._migrate(row, nodes, moved)
            else:
                left += 1
        return left

    def _adapt(self, row: int) -> None:
        fell = self._sharing.adapt(row, self._now)
        if fell != 0:
            self.upgrades[row] += fell > 0
            self._event_log.add(self._now, EventKind.MOVED, row, int(self._size[row]))
            self._stirred = True

    def _migrate(self, row: int, nodes: Nodes, moved: int) -> None:
        stood = self._sharing.paused[row] == np.inf
        size, of_process = int(self._size[row]), int(self.jobs.process_bytes[row])
        pause = migration_pause(self.settings.migration_cost, moved, of_process)
        self._sharing.move(row, nodes, self._now, pause)
        self.migrations[row] += 1
        self._note_nodes(row, nodes)
        self._event_log.add(self._now, EventKind.MOVED, row, size)
        if stood:
            self._event_log.add(self._now, EventKind.RESUMED, row, size)
        self._stirred = True

    handlers: ClassVar = {**EventDriven.handlers, Place: _place, Move: _move}


SLACK = 1e-9
"""Ends that differ by fewer seconds are at one instant."""


class Held(NamedTuple):
    """Who holds which nodes."""

    rows: Rows
    """The running jobs, ascending."""
    indptr: Rows
    nodes: Nodes


class Sharing:
    """The running jobs of a workload on nodes that they share. Times are seconds from the origin.

    Parameters
    ----------
    cluster : Cluster
        The nodes as they are at the start.
    work : float64[n]
        Seconds that each job takes on one of the fastest nodes.
    ids : int64[n]
        Of jobs that end at one instant the one with the least id is first.

    Attributes
    ----------
    delay : float64[n]
        How slowly each job runs (paper: D); of jobs that do not run: without meaning.
    paused : float64[n]
        Until when each stands still; inf: until a node is back or it moves.
    end : float64[n]
        When each will end, as things are.
    served : float64[n]
        Node-seconds that each got: one of n processes at delay D on a node of slowness α keeps it
        busy for α/D of the time.
    """

    def __init__(self, cluster: Cluster, work: Floats, ids: Rows) -> None:
        n = len(work)
        self._alpha, self._ids = slowness(cluster.nodes.speed), ids
        self._state, self._foreign = cluster.nodes.state.copy(), cluster.nodes.foreign_load.copy()
        self._processes = np.zeros(len(cluster))
        self._left, self._since = work.astype(np.float64), np.zeros(n)
        self._recorded = np.ones(n)
        self.delay, self.paused, self.end = np.ones(n), np.full(n, -np.inf), np.full(n, np.inf)
        self.served = np.zeros(n)
        self._nodes: dict[int, Nodes] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._held: Held | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, row: int) -> bool:
        return row in self._nodes

    def nodes_of(self, row: int) -> Nodes:
        """Return the nodes of a running job."""
        return self._nodes[row]

    @property
    def held(self) -> Held:
        """Return who holds which nodes."""
        if self._held is None:
            rows = np.array(sorted(self._nodes), np.int64)
            parts = [self._nodes[row] for row in rows.tolist()]
            indptr = offsets_of([len(part) for part in parts])
            nodes = np.concatenate(parts) if parts else np.empty(0, np.int32)
            self._held = Held(rows, indptr, nodes)
        return self._held

    def choose(self, wanted: Nodes, size: int) -> Nodes | None:
        """Return the `size` least delayed of the wanted nodes; None: fewer of them are up."""
        up = wanted[self._state[wanted] == NodeState.UP]
        if len(up) <= size:
            return up if len(up) == size else None
        delays = delay(self._alpha[up], 1.0 + self._load(up))
        return np.asarray(up[np.argsort(delays, kind="stable")[:size]], np.int32)

    def start(self, row: int, nodes: Nodes, now: float) -> None:
        """Have a job run on nodes from now on."""
        self._occupy(row, nodes)
        self._since[row] = now
        self._recorded[row] = self.delay[row] = self._present(nodes)
        self._schedule(row, now)
        self._slow_others(nodes, now)

    def finish(self, row: int, now: float) -> None:
        """Take a job away."""
        self._settle(row, now)
        nodes = self._nodes.pop(row)
        self._processes[nodes] -= 1.0
        self._held = None
        self._refresh(now)

    def adapt(self, row: int, now: float) -> float:
        """Record the delay that the present load makes; return by how much it fell."""
        before = float(self.delay[row])
        self._recorded[row] = self._present(self._nodes[row])
        self._set_delay(row, float(self._recorded[row]), now)
        return before - float(self.delay[row])

    def move(self, row: int, nodes: Nodes, now: float, pause: float) -> None:
        """Have a job run on other nodes, after a pause."""
        self._settle(row, now)
        self._processes[self._nodes[row]] -= 1.0
        self._occupy(row, nodes)
        waits = self.paused[row] if self.paused[row] < np.inf else now
        self.paused[row] = max(waits, now) + pause
        self._recorded[row] = self.delay[row] = self._present(nodes)
        self._schedule(row, now)
        self._refresh(now)

    def change_node(self, node: int, state: int, foreign: float, now: float) -> tuple[Rows, Rows]:
        """Change a node; return the rows of the jobs that stand still or go on because of that."""
        self._state[node] = state
        self._foreign[node] = self._foreign[node] if np.isnan(foreign) else foreign
        held = self.held
        halts = slowest(np.where(self._state == NodeState.DOWN, 2.0, 1.0), *held[1:]) > 1.0
        halted_before = self.paused[held.rows] == np.inf
        halted, resumed = held.rows[halts & ~halted_before], held.rows[halted_before & ~halts]
        for row in [*halted.tolist(), *resumed.tolist()]:
            self._settle(row, now)
        self.paused[halted], self.paused[resumed] = np.inf, now
        for row in [*halted.tolist(), *resumed.tolist()]:
            self._schedule(row, now)
        self._refresh(now)
        return halted, resumed

    def nodes(self) -> tuple[NDArray[np.int8], Floats]:
        """Return the state and the foreign load of each node."""
        return self._state.copy(), self._foreign.copy()

    def next_end(self) -> float:
        """Return when the next job ends, inf if none does."""
        while self._ends and not self._is_due(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else np.inf

    def next_to_end(self) -> int:
        """Return the row of the job that ends next: of those at one instant the least id."""
        until, entries = self.next_end() * (1 + 1e-15) + SLACK, []
        while self._ends and self._ends[0][0] <= until:
            entry = heapq.heappop(self._ends)
            if self._is_due(entry):
                entries.append(entry)
        first = min(entries, key=lambda entry: entry[1])
        for entry in entries:
            heapq.heappush(self._ends, entry)
        return first[2]

    def overdue(self, allowed: Floats) -> Floats:
        """Return float64[r]: when the running jobs end at the latest, if they may do this work.

        Parameters
        ----------
        allowed : float64[n]
            Seconds on one of the fastest nodes beyond what a job really takes.
        """
        rows, indptr, _ = self.held
        more = allowed[rows] * self.delay[rows] / np.maximum(np.diff(indptr), 1)
        return np.asarray(self.end[rows] + more)

    def _is_due(self, entry: tuple[float, int, int]) -> bool:
        return entry[2] in self._nodes and self.end[entry[2]] == entry[0]

    def _load(self, nodes: Nodes) -> Floats:
        return np.asarray(self._processes[nodes] + self._foreign[nodes])

    def _present(self, nodes: Nodes) -> float:
        return float(delay(self._alpha[nodes], self._load(nodes)).max())

    def _occupy(self, row: int, nodes: Nodes) -> None:
        self._nodes[row] = nodes
        self._processes[nodes] += 1.0
        self._held = None

    def _settle(self, row: int, now: float) -> None:
        """Take off the work that was done until now."""
        ran = now - max(self._since[row], self.paused[row])
        if ran > 0:
            nodes, done = self._nodes[row], ran / self.delay[row]
            self._left[row] = max(self._left[row] - done * len(nodes), 0.0)
            self.served[row] += done * self._alpha[nodes].sum()
        self._since[row] = now

    def _schedule(self, row: int, now: float) -> None:
        """Work out when a job ends, after its work was settled."""
        rest = self._left[row] * self.delay[row] / len(self._nodes[row])
        self.end[row] = max(now, self.paused[row]) + rest
        if self.end[row] < np.inf:
            entry = (float(self.end[row]), int(self._ids[row]), row)
            heapq.heappush(self._ends, entry)

    def _set_delay(self, row: int, value: float, now: float) -> None:
        if value != self.delay[row]:
            self._settle(row, now)
            self.delay[row] = value
            self._schedule(row, now)

    def _slow_others(self, nodes: Nodes, now: float) -> None:
        """Slow the jobs on nodes that a process has come to; on idle nodes there are none."""
        if (self._processes[nodes] > 1.0).any():
            self._refresh(now)

    def _refresh(self, now: float) -> None:
        """Let every job run as slowly as it was recorded, or as its nodes are loaded."""
        held = self.held
        if not len(held.rows):
            return
        everywhere = delay(self._alpha, self._processes + self._foreign)
        present = np.maximum(self._recorded[held.rows], slowest(everywhere, *held[1:]))
        for at in np.flatnonzero(present != self.delay[held.rows]).tolist():
            self._set_delay(int(held.rows[at]), float(present[at]), now)
