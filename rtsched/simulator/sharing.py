"""Jobs that share nodes: how loaded each node is, how slowly each job runs, and when it will end.

All n processes of a job run at the pace of the slowest one. The job is paced for its *recorded*
delay D, so it does n/D seconds of work in a second; where the nodes are more loaded than that, it
is as slow as they are. D falls only when the job adapts or moves.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.delays import delay, slowest, slowness
from rtsched.model.cluster import NodeState
from rtsched.model.table import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster

    Floats = NDArray[np.float64]
    Nodes = NDArray[np.int32]
    Rows = NDArray[np.int64]

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
        stands = slowest(np.where(self._state == NodeState.DOWN, 2.0, 1.0), *held[1:]) > 1.0
        stood = self.paused[held.rows] == np.inf
        halted, resumed = held.rows[stands & ~stood], held.rows[stood & ~stands]
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
