"""A simulated batch system whose nodes run many processes at a time: workstations that are shared.

    system = TimeSharedNodes(jobs, run_time, cluster, SystemSettings("time-shared", "fcfs"))
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)

A job's n processes are fixed when it starts, and all run at the pace of the slowest one
(`rtsched.simulator.sharing`). The queue is served first come first served; its head holds
up the rest. At one instant jobs end first, one by one in order of their ids, and each end is asked
about; then nodes change; then jobs arrive. Where an answer starts or moves jobs, the system asks
again. Without a plug-in a job takes the size it asked for, on the least delayed nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.kernels.delays import migration_pause
from rtsched.model.accounts import Accounts
from rtsched.model.actions import Action, Admit, Cancel, Hold, Move, Place, Reject, Release
from rtsched.model.events import EventKind
from rtsched.model.final_state import FinalState
from rtsched.model.jobs import Edges
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.simulator.arrivals import ENDED, GONE, REJECTED, RUNNING, Arrivals
from rtsched.simulator.event_log import EventLog
from rtsched.simulator.given import check_lengths, check_node_events, check_order
from rtsched.simulator.interface import (
    DecisionPoint,
    HookCalls,
    JobOutcomes,
    NodeEvent,
    Outcome,
    StaticAnswers,
    StopConditions,
    SystemSettings,
)
from rtsched.simulator.ledger import Ledger
from rtsched.simulator.placement_requests import PlacementRequests
from rtsched.simulator.rows import RowsById
from rtsched.simulator.sharing import SLACK, Sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.cluster import Cluster
    from rtsched.model.events import Events
    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]
    Nodes = NDArray[np.int32]


class TimeSharedNodes:
    """A batch system on shared nodes in simulation, from the first submission to the last end.

    Parameters
    ----------
    jobs, run_time, cluster, settings, accounts, edges, stop_at, static
        As `ExclusiveNodes` takes them; `stop_at.passes` also asks when nobody waits, since running
        jobs may move.
    compiled : mapping
        Not used: no plug-in orders the queue.
    node_events : sequence of NodeEvent
        Nodes that change their state or their foreign load. A job with a process on a node that
        is down stands still until the node is back or the job moves.
    record_events, record_nodes : bool
        Whether `events` and `node_rows` are wanted.

    Attributes
    ----------
    upgrades, migrations : int32[n]
        How often each job adapted to a lower load, and moved to other nodes.

    Raises
    ------
    ShapeError
        If arrays differ in length, jobs are not in order of (submit, id), or a node event names a
        node that does not exist.
    """

    supports: ClassVar[frozenset[type[Action]]] = frozenset(
        {Admit, Cancel, Hold, Move, Place, Reject, Release}
    )
    """The actions that `apply` carries out."""
    shares_nodes: ClassVar[bool] = True
    """A node runs processes of several jobs at a time."""

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings = SystemSettings("time-shared", "fcfs"),  # noqa: B008 - immutable
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
        compiled: Mapping[str, CompiledHook] | None = None,  # noqa: ARG002 - one signature for all
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,
    ) -> None:
        check_lengths(jobs, {"run times": run_time})
        check_order(jobs)
        check_node_events(node_events, len(cluster))
        self.jobs, self.cluster, self.settings, self._stop_at = jobs, cluster, settings, stop_at
        self.accounts = Accounts.build(0) if accounts is None else accounts
        self.edges = Edges.build(0) if edges is None else edges
        self.origin = float(jobs.submit[0]) if len(jobs) else 0.0
        self.version, self._now = 0, 0.0
        n, fastest = len(jobs), float(cluster.nodes.speed.max()) if len(cluster) else 1.0
        self._sharing = Sharing(cluster, run_time * jobs.size / fastest, jobs.id)
        self._spare_work = (jobs.wall_time - run_time) * jobs.size / fastest
        self._rows, self._ledger = RowsById(jobs.id), Ledger(jobs.id)
        self._event_log = EventLog(jobs, self.origin, record_events)
        rejected = np.zeros(n, np.bool_) if static.reject is None else static.reject
        self._requests = PlacementRequests(jobs, cluster, static.placement)
        fits = self._requests.can_be_met(stop_at.passes)
        self._arrivals = Arrivals(jobs, self._event_log, rejected, fits, stop_at.arrivals)
        self._node_events = sorted(node_events, key=lambda event: event.time)
        self._start, self._end = np.full(n, np.nan), np.full(n, np.nan)
        self._size, self._first = np.zeros(n, np.int32), np.full(n, -1, np.int32)
        self.upgrades, self.migrations = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self._last_nodes: dict[int, Nodes] | None = {} if record_nodes else None
        self._stirred = self._open = False

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + self._now

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        arrivals = self._arrivals
        pause = len(self.jobs) + 1 if max_arrivals is None else arrivals.arrived + max_arrivals
        self._note_head(arrivals.head, arrivals.answered)
        if self._open:
            self._serve()
        while True:
            if self._stirred:
                self._stirred = False
                if not self._stop_at.passes:
                    self._serve()
                elif arrivals.queue or len(self._sharing):
                    self._open = True
                    return self._instant(passes=True)
            if arrivals.arrived >= pause:
                return self._instant()
            if not self._next():
                return self._instant(done=True)
            if len(arrivals.asked):
                return self._instant()

    def _instant(self, passes: bool = False, done: bool = False) -> DecisionPoint:
        arrivals = self._arrivals
        return DecisionPoint(self.now, arrivals.asked, passes, False, False, arrivals.arrived, done)

    def _note_head(self, before: int, then: Callable[[float], object]) -> None:
        """Do something to the queue; a new head is asked about."""
        then(self._now)
        self._stirred |= self._arrivals.head not in (before, -1)

    def _next(self) -> bool:
        """Let happen what happens next; return whether anything did."""
        ends, comes = self._sharing.next_end(), self._arrivals.next_time()
        changes = self._node_events[0].time - self.origin if self._node_events else np.inf
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
        while self._node_events and self._node_events[0].time - self.origin <= self._now:
            event = self._node_events.pop(0)
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

    def _serve(self) -> None:
        """Start jobs, head first, as they were placed, until one must wait."""
        self._open, arrivals = False, self._arrivals
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
        if self._last_nodes is not None:
            self._last_nodes[row] = nodes

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now. Jobs just asked about, and held ones, are not in it."""
        rows, indptr, nodes = self._sharing.held
        start, end = self._start[rows], self._sharing.overdue(self._spare_work)
        held = Schedule.build(
            self.jobs.id[rows], start + self.origin, end + self.origin, indptr, nodes
        )
        alive = self._arrivals.status[self._ledger.open_rows] < ENDED
        return Snapshot(
            now=self.now,
            cluster=self.cluster,
            queued=self.jobs.take(self._arrivals.waiting()),
            running=self.jobs.take(rows),
            allocations=held,
            accounts=self.accounts,
            promises=self._ledger.open(alive),
            edges=self.edges,
            states=states or {},
            version=self.version,
        )

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return self._event_log.take()

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        fate = np.full(len(self.jobs), FinalState.UNFINISHED, np.int8)
        fate[self._arrivals.status == ENDED] = FinalState.FINISHED
        fate[self._arrivals.status == REJECTED] = FinalState.REJECTED
        return JobOutcomes(
            start=self._start + self.origin,
            end=self._end + self.origin,
            size=self._size.copy(),
            fate=fate,
            first_node=self._first.copy(),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            restarts=np.zeros(len(self.jobs), np.int32),
            service=np.where(np.isnan(self._start), np.nan, self._sharing.served),
        )

    def node_rows(self) -> tuple[NDArray[np.int64], Nodes]:
        """Return per job the nodes it ran on last: offsets int64[n + 1], node rows int32[k]."""
        parts = self._last_nodes or {}
        sizes = [len(parts[row]) if row in parts else 0 for row in range(len(self.jobs))]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = [parts[row] for row in sorted(parts)]
        return offsets, np.concatenate(rows) if rows else np.zeros(0, np.int32)

    def hook_calls(self) -> HookCalls:
        """Return zeros: this machine calls no compiled hook."""
        return HookCalls(0, 0, 0, 0, 0)

    def apply(self, actions: Sequence[Action]) -> tuple[Outcome, ...]:
        """Carry out actions in order and return an outcome for each.

        Raises
        ------
        AdapterError
            For a job id that is not in the workload.
        """
        return tuple(self._apply(action) for action in actions)

    def _apply(self, action: Action) -> Outcome:
        handlers: dict[type[Action], Callable[[Any, Rows], int]] = {
            Admit: self._admit,
            Reject: self._reject,
            Hold: lambda hold, rows: self._arrivals.hold(rows, hold.until - self.origin, self._now),
            Release: lambda _, rows: self._arrivals.release(rows, self._now),
            Cancel: lambda _, rows: len(rows) - len(self._arrivals.remove(rows, GONE)),
            Place: self._place,
            Move: self._move,
        }
        handler = handlers.get(type(action))
        if handler is None:
            return Outcome.UNSUPPORTED
        rows, head = self._rows.find(action.job), self._arrivals.head
        left = handler(action, rows)
        self._stirred |= self._arrivals.head not in (head, -1)
        return Outcome.PARTLY if left else Outcome.DONE

    def _admit(self, action: Admit, rows: Rows) -> int:
        self.version += self._ledger.promise(rows, action.promise, self.now)
        return self._arrivals.admit(rows, self._now)

    def _reject(self, action: Reject, rows: Rows) -> int:
        self._ledger.offer(rows, action.offer)
        return self._arrivals.reject(rows, self._now)

    def _place(self, action: Place, rows: Rows) -> int:
        """Note sizes and node sets of waiting jobs, and start those that can."""
        late = int((self._arrivals.status[rows] >= RUNNING).sum())
        self._requests.place(rows, action.placement)
        self._serve()
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
