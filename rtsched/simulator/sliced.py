"""A simulated grid of servers that give their time in slices; each node is one server.

    system = SlicedServers(jobs, run_time, cluster, SystemSettings("sliced", "ste", quantum=60.0))
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)

A job is one task of one server, whatever its size: one of n nodes needs n times its run time there,
over the speed of the server. It may be suspended at the end of each slice, at no cost. Jobs are
split equally among the nodes that are up; a job's share is that of the account it is charged to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import sliced as kernel
from rtsched.model.accounts import Accounts
from rtsched.model.actions import Action, Admit, Hold, Reject
from rtsched.model.final_state import FinalState
from rtsched.model.jobs import Edges
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.simulator.admission_queue import AdmissionQueue
from rtsched.simulator.given import check_lengths
from rtsched.simulator.interface import (
    DecisionPoint,
    HookCalls,
    JobOutcomes,
    Outcome,
    StaticAnswers,
    StopConditions,
    SystemSettings,
)
from rtsched.simulator.ledger import Ledger
from rtsched.simulator.rows import RowsById
from rtsched.simulator.slice_events import SliceEvents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.cluster import Cluster
    from rtsched.model.events import Events
    from rtsched.model.jobs import Jobs
    from rtsched.simulator.interface import NodeEvent

    Rows = NDArray[np.int64]

LOOPS = {
    "fcfs": kernel.FCFS,
    "round-robin": kernel.ROUND_ROBIN,
    "ste": kernel.SERVICE_ERROR,
    "least-error": kernel.LEAST_ERROR,
}
SLACK = 1e-9
"""Errors that differ by less than this part of the quantum are equal."""


def deal(n: int, servers: int, split: str) -> Rows:
    """Return the server of each of `n` tasks, int64[n]: equal parts, the first ones one larger.

    Lopez and Raja, figure 1, lines 2 to 4; they lose the remainder.
    """
    row = np.arange(n)
    if split == "in-turn":
        return row % servers
    size, more = divmod(n, servers)
    return np.repeat(np.arange(servers), size + (np.arange(servers) < more))


def shares_of(jobs: Jobs, accounts: Accounts) -> NDArray[np.float64]:
    """Return each job's share, float64[n]; one that is charged to nobody has the mean share."""
    charged = jobs.association >= 0
    if not len(accounts) or not charged.any():
        return np.ones(len(jobs))
    share = accounts.share()[jobs.association]
    return np.where(charged, share, share[charged].mean())


class SlicedServers:
    """A grid of sliced servers in simulation, from the first submission to the last end.

    Parameters
    ----------
    jobs, run_time, cluster, settings, accounts, edges, stop_at, static, record_events
        As `ExclusiveNodes` takes them.
    compiled : mapping
        Not used: no plug-in orders the queues.
    node_events : sequence of NodeEvent
        Must be empty: no node of this machine fails.
    record_nodes : bool
        Not used: a job runs on one node.

    Raises
    ------
    ShapeError
        If arrays differ in length, or there are node events.
    """

    supports: ClassVar[frozenset[type[Action]]] = frozenset({Admit, Hold, Reject})
    """The actions that `apply` carries out."""

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings = SystemSettings("sliced", "ste"),  # noqa: B008 - immutable
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
        compiled: Mapping[str, CompiledHook] | None = None,  # noqa: ARG002 - as all machines
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,  # noqa: ARG002 - as all machines
    ) -> None:
        check_lengths(jobs, {"run times": run_time})
        if len(node_events):
            raise ShapeError("the nodes of machine 'sliced' cannot change their state")
        self.jobs, self.cluster, self.settings = jobs, cluster, settings
        self.accounts = Accounts.build(0) if accounts is None else accounts
        self.edges = Edges.build(0) if edges is None else edges
        self.origin = self._now = self._until = float(jobs.submit[0]) if len(jobs) else 0.0
        self._nodes = np.flatnonzero(cluster.usable)
        self._rows, self._ledger = RowsById(jobs.id), Ledger(jobs.id)
        self._servers = self._lay_out(run_time, record_events)
        self._rejected = np.zeros(len(jobs), np.bool_)
        if static.reject is not None:
            self._rejected |= static.reject
        self._servers.away[:] = self._rejected | (len(self._nodes) == 0)
        heard = self._rejected if stop_at.arrivals else np.ones(len(jobs), np.bool_)
        self._admission_queue = AdmissionQueue(jobs.submit, heard)
        self._asked = np.zeros(0, np.int64)
        self._arrived = self.version = 0
        self._slices = SliceEvents(jobs, self._server, self.origin)

    def _lay_out(self, run_time: NDArray[np.float64], record: bool) -> kernel.Servers:
        """Return the servers before the first instant, times relative to the origin."""
        jobs, count = self.jobs, max(len(self._nodes), 1)
        self._server = deal(len(jobs), count, self.settings.split)
        speed = self.cluster.nodes.speed[self._nodes] if len(self._nodes) else np.ones(1)
        return kernel.lay_out(
            shares_of(jobs, self.accounts),
            np.maximum(jobs.submit, jobs.begin) - self.origin,
            run_time * jobs.size / speed[self._server],
            self._server,
            count,
            jobs.id,
            slices=4 * count + 1024 if record else 0,
        )

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        submit, judging = self.jobs.submit, self._admission_queue.next_time
        pause = len(submit) if max_arrivals is None else self._arrived + max_arrivals
        time = min(judging, float(submit[pause]) if pause < len(submit) else np.inf)
        self._asked = self._admission_queue.take() if time == judging < np.inf else self._asked[:0]
        self._run(time)
        self._until, self._now = time, time if time < np.inf else self._last_end()
        self._arrived = int(np.searchsorted(submit, self._now, "right"))
        return DecisionPoint(
            self._now, self._asked, False, False, False, self._arrived, time == np.inf
        )

    def _run(self, until: float) -> None:
        """Simulate what happens before `until`."""
        settings, quantum = self.settings, self.settings.quantum
        loop, slack = LOOPS[settings.loop], SLACK * quantum
        while not kernel.run(self._servers, loop, quantum, slack, until - self.origin):
            self._servers = kernel.with_room(self._servers)

    def _last_end(self) -> float:
        ended = self._servers.end[np.isfinite(self._servers.end)]
        return max(self._now, self.origin + float(ended.max(initial=0.0)))

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now; a suspended job waits."""
        servers, now = self._servers, self._now - self.origin
        running = np.sort(servers.current[servers.current >= 0])
        inside = (servers.arrival < now) & ~servers.away & np.isnan(servers.end)
        inside[running] = False
        return Snapshot(
            now=self._now,
            cluster=self.cluster,
            queued=self.jobs.take(np.flatnonzero(inside)),
            running=self.jobs.take(running),
            allocations=self._allocations(running),
            accounts=self.accounts,
            promises=self._ledger.open(np.isnan(servers.end)[self._ledger.open_rows]),
            edges=self.edges,
            states=states or {},
            version=self.version,
        )

    def _allocations(self, rows: Rows) -> Schedule:
        """Return nodes and starts of running jobs, and their ends if none were suspended again."""
        if not len(rows):
            return Schedule.empty()
        servers, nodes = self._servers, self._nodes[self._server[rows]]
        wanted = self.jobs.wall_time[rows] * self.jobs.size[rows] / self.cluster.nodes.speed[nodes]
        left = np.maximum(wanted - servers.got[rows], 0.0)
        end = np.where(np.isfinite(left), self._now + left, self._now)
        start = servers.start[rows] + self.origin
        indptr = np.arange(len(rows) + 1)
        return Schedule.build(self.jobs.id[rows], start, end, indptr, nodes.astype(np.int32))

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return self._slices.take(self._servers, self._now, self._until, self._rejected)

    def apply(self, actions: Sequence[Action]) -> tuple[Outcome, ...]:
        """Carry out actions in order and return an outcome for each.

        Raises
        ------
        AdapterError
            For a job id that is not in the workload.
        """
        return tuple(self._apply(action) for action in actions)

    def _apply(self, action: Action) -> Outcome:
        if type(action) not in self.supports:
            return Outcome.UNSUPPORTED
        rows = self._rows.find(action.job)
        asked = np.isin(rows, self._asked)
        if isinstance(action, Admit):
            self.version += self._ledger.promise(rows, action.promise, self._now)
        elif isinstance(action, Reject):
            self._ledger.offer(rows, action.offer)
            self._rejected[rows[asked]] = self._servers.away[rows[asked]] = True
        elif isinstance(action, Hold):
            self._put_off(rows[asked], action.until[asked])
        return Outcome.DONE if asked.all() else Outcome.PARTLY

    def _put_off(self, rows: Rows, until: NDArray[np.float64]) -> None:
        """Let jobs arrive when they are judged again, if they are let in then."""
        servers = self._servers
        again = self._admission_queue.put_off(rows, until, self._now)
        servers.arrival[rows] = np.maximum(again, self.jobs.begin[rows]) - self.origin
        for server in np.unique(self._server[rows]).tolist():
            piece = slice(servers.upcoming[server], servers.last[server])
            left = servers.order[piece]
            by = np.lexsort((self.jobs.id[left], -servers.share[left], servers.arrival[left]))
            servers.order[piece] = left[by]

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        servers = self._servers
        started, ended = np.isfinite(servers.start), np.isfinite(servers.end)
        node = self._nodes[self._server] if len(self._nodes) else self._server
        return JobOutcomes(
            start=servers.start + self.origin,
            end=servers.end + self.origin,
            size=started.astype(np.int32),
            fate=np.select(
                [self._rejected, ended],
                [FinalState.REJECTED, FinalState.FINISHED],
                FinalState.UNFINISHED,
            ).astype(np.int8),
            first_node=np.where(started, node, -1).astype(np.int32),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            restarts=np.zeros(len(started), np.int32),
            service=np.where(started, servers.got, np.nan),
        )

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the node it ran on: offsets int64[n + 1], node rows int32[k]."""
        node = self.job_outcomes().first_node
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(node >= 0)])
        return offsets, node[node >= 0]

    def hook_calls(self) -> HookCalls:
        """Return zeros: no compiled hook is called."""
        return HookCalls(0, 0, 0, 0, 0)
