"""A simulated batch system of nodes with one processor each, pre-emptive EDF at slot boundaries.

    system = PreemptiveNodes(jobs, run_time, cluster, SystemSettings("preemptive", "edf"))
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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels.edf import (
    NEVER,
    grid,
    periodic_work,
    reserve,
    run_nodes,
    withdraw,
)
from rtsched.model.accounts import Accounts
from rtsched.model.actions import Action, Admit, Cancel, Hold, Reject, Release, Reserve
from rtsched.model.final_state import FinalState
from rtsched.model.jobs import Edges, Periodic
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Finding, Reason
from rtsched.simulator.arrivals import ENDED, GONE, REJECTED, RUNNING, Arrivals
from rtsched.simulator.event_log import EventLog
from rtsched.simulator.given import check_lengths, check_order
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
from rtsched.simulator.recurring import utilisation
from rtsched.simulator.rows import RowsById
from rtsched.simulator.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.cluster import Cluster
    from rtsched.model.events import Events
    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]

NO_NODE = Reason(
    "preemptive.no-node",
    "requests {nodes:node}; each job runs on one node here, and its partition must have one",
)


class PreemptiveNodes:
    """A batch system on pre-emptive nodes in simulation, from the first submission to the last end.

    Parameters
    ----------
    jobs, run_time, cluster, settings, accounts, edges, stop_at, static
        As `ExclusiveNodes` takes them; `passes` and `early_ends` of `stop_at` make no difference.
    periodic : Periodic, optional
        Recurring work, which every node does by EDF.
    compiled : mapping
        Not used: no plug-in orders the queue.
    node_events : sequence of NodeEvent
        None: the nodes of this machine do not change.
    record_events, record_nodes : bool
        Whether `events` and `node_rows` are wanted.

    Raises
    ------
    ShapeError
        If arrays differ in length, jobs are not in order of (submit, id), or nodes would change.
    ConfigError
        If a node cannot do its periodic work in time.
    """

    supports: ClassVar[frozenset[type[Action]]] = frozenset(
        {Admit, Cancel, Hold, Reject, Release, Reserve}
    )
    """The actions that `apply` carries out."""
    suspends: ClassVar[bool] = True
    """Planned jobs may be suspended, at slot boundaries."""

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings = SystemSettings("preemptive", "edf"),  # noqa: B008 - immutable
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        periodic: Periodic | None = None,
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
        compiled: Mapping[str, CompiledHook] | None = None,  # noqa: ARG002 - one signature for all
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,
    ) -> None:
        n = len(jobs)
        check_lengths(jobs, {"run times": run_time})
        check_order(jobs)
        if node_events:
            raise ShapeError("nodes of machine 'preemptive' cannot change their state")
        self.jobs, self.cluster, self.settings = jobs, cluster, settings
        self.accounts = Accounts.build(0) if accounts is None else accounts
        self.edges = Edges.build(0) if edges is None else edges
        self.periodic = Periodic.build(0) if periodic is None else periodic
        self.origin = float(jobs.submit[0]) if n else 0.0
        self.version, self._now = 0, 0.0
        self._run_time, self._record_nodes = np.minimum(run_time, jobs.wall_time), record_nodes
        self._rows, self._ledger = RowsById(jobs.id), Ledger(jobs.id)
        self._event_log = EventLog(jobs, self.origin, record_events)
        rejected = np.zeros(n, np.bool_) if static.reject is None else static.reject
        self._allowed = _allowed(jobs, cluster)
        somewhere = np.any(self._allowed, axis=1, keepdims=True)[:, 0]
        fits = np.equal(jobs.size, 1) & somewhere[_kind_of(jobs)]
        self._fits = fits
        self._arrivals = Arrivals(jobs, self._event_log, rejected, fits, stop_at.arrivals)
        slot = self._slot_at(0.0)
        self._work = periodic_work(self.periodic, len(cluster), slot, settings.slot, n)
        self._utilisation = utilisation(self.periodic, cluster, slot, settings.slot)
        self._reached = np.full(len(cluster), slot, np.int64)
        self._node = np.full(n, -1, np.int32)
        self._planned = np.zeros(n, np.bool_)
        self._plan, self._until = Schedule.empty(), np.full(n, np.inf)
        self._segments = Segments(n, self._event_log, settings.slot, self.origin)

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + self._now

    def _slot_at(self, time: float) -> int:
        """Return the first slot boundary at or after a time."""
        return math.ceil((self.origin + time) / self.settings.slot - 1e-6)

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        arrivals = self._arrivals
        pause = len(self.jobs) + 1 if max_arrivals is None else arrivals.arrived + max_arrivals
        arrivals.answered(self._now)
        while True:
            self._to_background()
            if arrivals.arrived >= pause:
                return self._instant()
            time = arrivals.next_time()
            if time == np.inf:
                self._run_out()
                return self._instant(done=True)
            self._now = max(self._now, time)
            self._run(self._slot_at(self._now))
            arrivals.take(self._now)
            if len(arrivals.asked):
                return self._instant()

    def _instant(self, done: bool = False) -> DecisionPoint:
        arrivals = self._arrivals
        return DecisionPoint(self.now, arrivals.asked, False, False, False, arrivals.arrived, done)

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

    def _to_background(self) -> None:
        """Give a node to every job that was let in and is in no plan."""
        arrivals = self._arrivals
        while arrivals.queue:
            self._send_back(arrivals.start())

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

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now. Jobs just asked about, and held ones, are not in it.

        A running job may be suspended. What the instances of periodic work still need is given as
        it will be at the next slot boundary.
        """
        status, begun = self._arrivals.status, np.isfinite(self._segments.start)
        running = np.flatnonzero((status == RUNNING) & begun)
        waiting = np.flatnonzero((status == RUNNING) & ~begun)
        held = Schedule.build(
            self.jobs.id[running],
            self._segments.start[running],
            self._until[running],
            np.arange(len(running) + 1),
            self._node[running],
        )
        alive = status[self._ledger.open_rows] < ENDED
        return Snapshot(
            now=self.now,
            cluster=self.cluster,
            queued=self.jobs.take(np.sort(np.concatenate([waiting, self._arrivals.waiting()]))),
            running=self.jobs.take(running),
            allocations=held,
            accounts=self.accounts,
            promises=self._ledger.open(alive),
            plan=self._plan_left(),
            edges=self.edges,
            periodic=self._periodic_now(),
            states=states or {},
            version=self.version,
        )

    def _periodic_now(self) -> Periodic:
        left = np.empty(len(self.periodic))
        left[np.argsort(self.periodic.node, kind="stable")] = self._work.rest * self.settings.slot
        return self.periodic.replace(left=left) if len(left) else self.periodic

    def _plan_left(self) -> Schedule:
        """Return the entries of the plan that have not started."""
        rows = self._rows.find(self._plan.entries.job)
        waits = self._planned[rows] & ~np.isfinite(self._segments.start[rows])
        return self._plan if waits.all() else self._plan.take(np.flatnonzero(waits))

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return self._event_log.take()

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        status, begun = self._arrivals.status, np.isfinite(self._segments.start)
        fate = np.select(
            [status == ENDED, status == REJECTED],
            [FinalState.FINISHED, FinalState.REJECTED],
            FinalState.UNFINISHED,
        ).astype(np.int8)
        return JobOutcomes(
            start=self._segments.start.copy(),
            end=self._segments.end.copy(),
            size=begun.astype(np.int32),
            fate=fate,
            first_node=np.where(begun, self._node, -1).astype(np.int32),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            restarts=np.zeros(len(self.jobs), np.int32),
            findings=self._findings() if (status == GONE).any() else (),
        )

    def _findings(self) -> tuple[Finding, ...]:
        """Return which jobs were let in and never start, because no node runs such a job."""
        never = (self._arrivals.status == GONE) & ~self._fits
        return (Finding.where(never, NO_NODE, nodes=self.jobs.size),)

    @property
    def missed(self) -> int:
        """Return how many deadlines of periodic work and of planned tasks were missed so far."""
        return int(self._work.missed.sum())

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the node it ran on: offsets int64[n + 1], node rows int32[k]."""
        begun = np.isfinite(self._segments.start) & self._record_nodes
        return np.concatenate([[0], np.cumsum(begun)]).astype(np.int64), self._node[begun]

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
        arrivals = self._arrivals
        handlers: dict[type[Action], Callable[[Any, Rows], int]] = {
            Admit: self._admit,
            Reject: self._reject,
            Hold: lambda hold, rows: arrivals.hold(rows, hold.until - self.origin, self._now),
            Release: lambda _, rows: arrivals.release(rows, self._now),
            Cancel: lambda _, rows: len(rows) - len(arrivals.remove(rows, GONE)),
            Reserve: self._reserve,
        }
        handler = handlers.get(type(action))
        if handler is None:
            return Outcome.UNSUPPORTED
        left = handler(action, self._rows.find(action.job))
        return Outcome.PARTLY if left else Outcome.DONE

    def _admit(self, action: Admit, rows: Rows) -> int:
        self.version += self._ledger.promise(rows, action.promise, self.now)
        return self._arrivals.admit(rows, self._now)

    def _reject(self, action: Reject, rows: Rows) -> int:
        self._ledger.offer(rows, action.offer)
        return self._arrivals.reject(rows, self._now)

    def _reserve(self, action: Reserve, rows: Rows) -> int:
        """Put a plan in place of the present one; jobs that it leaves out go to the background."""
        plan, slot = action.plan, self.settings.slot
        waits = ~np.isfinite(self._segments.start[rows]) & (np.diff(plan.indptr) == 1)
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
