"""A simulated batch system with exclusive nodes: each node runs one job at a time.

    system = ExclusiveNodes(jobs, run_time, cluster, SystemSettings(loop="easy"))
    while not (instant := system.advance()).done:
        ...  # answer what the instant asks: system.apply(actions)
    system.course().start

It takes the same actions as a live batch system would. Between two questions it runs in compiled
code (`rtsched.kernels.pool_loop`), so a log that asks nothing is one call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.adapters.simulated import plan as planning
from rtsched.adapters.simulated import sizes
from rtsched.adapters.simulated.interface import (
    Asks,
    Course,
    HookCalls,
    Instant,
    NodeEvent,
    Outcome,
    Settled,
    SystemSettings,
)
from rtsched.adapters.simulated.nodesets import NodeSets
from rtsched.adapters.simulated.rows import RowsById
from rtsched.adapters.simulated.setup import lay_out
from rtsched.kernels import pool as kernel
from rtsched.kernels import pool_commands as command
from rtsched.kernels.hooks import job_columns
from rtsched.kernels.pool_loop import NO_OBSERVER, NO_PRIORITY, loop_for
from rtsched.model.accounts import Accounts
from rtsched.model.actions import (
    Action,
    Admit,
    Cancel,
    Hold,
    Place,
    Reject,
    Release,
    Reserve,
    SetPriority,
)
from rtsched.model.events import EventRows, Events
from rtsched.model.jobs import Edges
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]

__all__ = [
    "Asks",
    "Course",
    "ExclusiveNodes",
    "HookCalls",
    "Instant",
    "NodeEvent",
    "Outcome",
    "Settled",
    "SystemSettings",
]

_NOTHING = np.zeros(0)


class ExclusiveNodes:
    """A batch system in simulation, from the first submission to the last end.

    Parameters
    ----------
    jobs : Jobs
        The workload, `n` rows in order of (submit, id).
    run_time : float64[n]
        Seconds each job takes at `jobs.size` on nodes of speed 1.
    cluster : Cluster
        The machine, with the nodes' states at the start.
    settings : SystemSettings
        Its own loop.
    accounts, edges : Accounts, Edges, optional
        Passed on in snapshots.
    asks : Asks
        At which occasions to stop.
    settled : Settled
        Answers known before the run.
    compiled : mapping of hook name to CompiledHook
        `fair_share` and `observe`, called from within the loop.
    node_events : sequence of NodeEvent
        Nodes that go down, are drained or come back.
    record_events, record_nodes : bool
        Whether `events` and `node_rows` are wanted.

    Raises
    ------
    ShapeError
        If arrays differ in length, jobs are not in order of (submit, id), or a node that does not
        exist is named.
    """

    supports: ClassVar[frozenset[type[Action]]] = frozenset(
        {Admit, Cancel, Hold, Place, Reject, Release, Reserve, SetPriority}
    )
    """The actions that `apply` carries out."""

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings = SystemSettings(),  # noqa: B008 - immutable
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        asks: Asks = Asks(),  # noqa: B008 - immutable
        settled: Settled = Settled(),  # noqa: B008 - immutable
        compiled: Mapping[str, CompiledHook] | None = None,
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,
    ) -> None:
        self.jobs, self.cluster, self.settings = jobs, cluster, settings
        self.accounts = Accounts.build(0) if accounts is None else accounts
        self.edges = Edges.build(0) if edges is None else edges
        self.origin = float(jobs.submit[0]) if len(jobs) else 0.0
        self.version = 0
        self._run_time, self._rows = run_time, RowsById(jobs.id)
        self._sets = NodeSets(len(cluster))
        self._pool = lay_out(
            jobs, run_time, cluster, settings, asks, settled, node_events, self._sets, self.origin
        )
        self._state: Any = self._pool.state[0]
        self._plan, self._plan_order = Schedule.empty(), np.zeros(0, np.int64)
        self._promise, self._made_at, self._offer = _NOTHING, _NOTHING, _NOTHING
        self._promised: Rows = np.zeros(0, np.int64)
        self._prepare_records(record_events, record_nodes, compiled or {})

    def _prepare_records(
        self, events: bool, nodes: bool, hooks: Mapping[str, CompiledHook]
    ) -> None:
        state = self._state
        state.ranking, state.observing = "fair_share" in hooks, "observe" in hooks
        state.keeping, state.recording = events, events or state.observing
        state.logging = nodes
        if nodes:
            self._pool = self._pool._replace(log_at=np.full(len(self.jobs), -1, np.int64))
        if state.ranking and len(self._pool.more) != len(self.jobs):
            self._extend()
        self._loop = loop_for(self._pool)
        seen = self.jobs if hooks else self.jobs.take(np.zeros(0, np.int64))
        self._hooks = (
            *hooks.get("fair_share", NO_PRIORITY),
            *hooks.get("observe", NO_OBSERVER),
            *job_columns(seen, self.origin),
        )

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + float(self._state.now)

    def advance(self, most: int | None = None) -> Instant:
        """Run until something must be answered, or after about `most` more arrivals."""
        state = self._state
        state.pause_at = len(self.jobs) + 1 if most is None else state.upcoming + most
        while (asks := self._loop(self._pool, *self._hooks)) == kernel.FULL:
            self._grow()
        if state.changed:
            self._take_node_states()
        return Instant(
            time=self.now,
            arrivals=self._pool.asked[: state.asked].copy(),
            passes=bool(asks & kernel.ASK_PASS),
            early_end=bool(asks & kernel.ASK_EARLY_END),
            nodes_changed=bool(asks & kernel.ASK_NODES),
            arrived=int(state.upcoming),
            done=asks == 0,
        )

    def _grow(self) -> None:
        """Make room in the records of events and nodes."""
        room = 16 * len(self.cluster) + 4096
        events, log = self._pool.events, self._pool.log_nodes
        if self._state.recording:
            events = np.concatenate([events, np.zeros(len(events) + room, events.dtype)])
        if self._state.logging:
            log = np.concatenate([log, np.zeros(len(log) + room, log.dtype)])
        self._pool = self._pool._replace(events=events, log_nodes=log)

    def _extend(self) -> None:
        """Keep for each job what only some runs need: key, begin time, node set, restarts."""
        more = np.zeros(len(self.jobs), kernel.MORE)
        more["begin"], more["group"] = self.jobs.begin - self.origin, -1
        self._pool = self._pool._replace(more=more)
        self._state.extended = 1

    def _take_node_states(self) -> None:
        """Let the cluster in snapshots show the nodes' present states."""
        states = self._pool.nodes["state"][: len(self.cluster)].copy()
        if (states != self.cluster.nodes.state).any():
            nodes = self.cluster.nodes.replace(state=states)
            self.cluster = replace(self.cluster, nodes=nodes, version=self.cluster.version + 1)

    # What it tells

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now. Jobs just asked about, and held ones, are not in it."""
        promises = self._promises()
        waiting = self._waiting()
        running, allocations = self._allocations()
        return Snapshot(
            now=self.now,
            cluster=self.cluster,
            queued=self.jobs.take(waiting),
            running=self.jobs.take(running),
            allocations=allocations,
            accounts=self.accounts,
            promises=promises,
            plan=self._plan_left(),
            edges=self.edges,
            states=states or {},
            version=self.version,
        )

    def _waiting(self) -> Rows:
        out = self._pool.rows
        state = self._state
        count = command.waiting_rows(self._pool, out) if state.waiting or state.plan_left else 0
        if state.sleeping and not count:
            count = command.waiting_rows(self._pool, out)
        return np.unique(out[:count])

    def _allocations(self) -> tuple[Rows, Schedule]:
        """Return the running jobs' rows in order, and their nodes."""
        count = int(self._state.running)
        rows = np.sort(self._pool.ends["row"][:count]).astype(np.int64)
        if not count:
            return rows, Schedule.empty()
        entries = self._pool.jobs[rows]
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(entries["size"], out=offsets[1:])
        nodes = np.empty(offsets[-1], np.int32)
        command.list_nodes(self._pool, rows, nodes)
        start = entries["start"] + self.origin
        end = entries["start"] + entries["wall"] + self.origin
        return rows, Schedule.build(self.jobs.id[rows], start, end, offsets, nodes)

    def _plan_left(self) -> Schedule:
        """Return the entries of the plan that have not started."""
        left = int(self._state.plan_left)
        if left == len(self._plan):
            return self._plan
        if left == 0:
            return Schedule.empty()
        return self._plan.take(np.sort(self._plan_order[self._pool.plan["row"] >= 0]))

    def _promises(self) -> Promises:
        """Return the promises that are not fulfilled."""
        rows = self._promised
        if not len(rows):
            return Promises.build(0)
        status = self._pool.jobs["status"][rows]
        rows = self._promised = rows[(status < kernel.ENDED)]
        return Promises.build(
            len(rows),
            job=self.jobs.id[rows],
            deadline=self._promise[rows],
            made_at=self._made_at[rows],
        )

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        state = self._state
        count = int(state.told if state.observing else state.events)
        table = self._pool.events[:count].copy()
        left = int(state.events) - count
        self._pool.events[:left] = self._pool.events[count : count + left]
        state.events, state.told = left, 0
        rows = EventRows.build(
            count,
            time=table["time"] + self.origin,
            kind=table["kind"],
            size=table["size"],
            node=table["node"],
        )
        return Events(rows, self.jobs.take(np.maximum(table["row"], 0)))

    def course(self) -> Course:
        """Return what happened to each job so far."""
        table, n = self._pool.jobs, len(self.jobs)
        status = table["status"]
        fate = np.full(n, 2, np.int8)
        fate[status == kernel.ENDED] = 0
        fate[status == kernel.REJECTED] = 1
        ended = (status == kernel.ENDED) | (status == kernel.LOST)
        none = np.full(n, np.inf)
        return Course(
            start=table["start"] + self.origin,
            end=np.where(ended, table["end"], np.nan) + self.origin,
            size=np.where(np.isfinite(table["start"]), table["size"], 0).astype(np.int32),
            fate=fate,
            first_node=table["first"].copy(),
            promise=self._promise.copy() if len(self._promise) else none,
            offer=self._offer.copy() if len(self._offer) else none,
            restarts=self._restarts(),
        )

    def _restarts(self) -> NDArray[np.int32]:
        if len(self._pool.more) != len(self.jobs):
            return np.zeros(len(self.jobs), np.int32)
        return self._pool.more["restarts"].astype(np.int32)

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the nodes of its last start: offsets int64[n + 1], node rows int32[k].

        Both are as for jobs without nodes unless `record_nodes` was asked for.
        """
        n = len(self.jobs)
        at = self._pool.log_at
        size = self._pool.jobs["size"]
        size = np.where(at >= 0, size, 0) if len(at) else np.zeros(n, np.int32)
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(size, out=offsets[1:])
        if not len(at):
            return offsets, np.zeros(0, np.int32)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], size)
        return offsets, self._pool.log_nodes[np.repeat(at, size) + within]

    def hook_calls(self) -> HookCalls:
        """Return how often the compiled hooks were called."""
        state = self._state
        return HookCalls(
            int(state.calls),
            int(state.judged),
            int(state.moved),
            int(state.abstained),
            int(state.observed),
        )

    # What it is told

    def apply(self, actions: Sequence[Action]) -> tuple[Outcome, ...]:
        """Carry out actions in order and return an outcome for each.

        Raises
        ------
        AdapterError
            For a job id that is not in the workload.
        ShapeError
            For a plan or node set that names a node which does not exist.
        """
        return tuple(self._apply(action) for action in actions)

    def _apply(self, action: Action) -> Outcome:
        handlers: dict[type[Action], Callable[[Any, Rows], int]] = {
            Admit: self._admit,
            Reject: self._reject,
            Hold: self._hold,
            Release: lambda _, rows: self._change(command.RELEASE, rows),
            Cancel: lambda _, rows: self._change(command.CANCEL, rows),
            SetPriority: self._prioritise,
            Place: self._place,
            Reserve: self._reserve,
        }
        handler = handlers.get(type(action))
        if handler is None:
            return Outcome.UNSUPPORTED
        rows = self._rows.find(action.job)
        done = handler(action, rows)
        if done < 0:
            return Outcome.UNSUPPORTED
        return Outcome.DONE if done == len(rows) else Outcome.PARTLY

    def _change(self, what: int, rows: Rows, values: NDArray[np.float64] = _NOTHING) -> int:
        return int(command.change(self._pool, what, rows, values))

    def _admit(self, action: Admit, rows: Rows) -> int:
        promised = np.isfinite(action.promise)
        if promised.any():
            if not len(self._promise):
                self._promise = np.full(len(self.jobs), np.inf)
                self._made_at = np.full(len(self.jobs), np.nan)
            kept = rows[promised]
            self._promise[kept] = action.promise[promised]
            self._made_at[kept] = self.now
            self._promised = np.union1d(self._promised, kept)
            self.version += 1
        return self._change(command.ADMIT, rows)

    def _reject(self, action: Reject, rows: Rows) -> int:
        if np.isfinite(action.offer).any():
            if not len(self._offer):
                self._offer = np.full(len(self.jobs), np.inf)
            self._offer[rows] = action.offer
        return self._change(command.REJECT, rows)

    def _hold(self, action: Hold, rows: Rows) -> int:
        need = int(self._state.sleeping) + len(rows) + len(self.jobs) + 1
        sleepers = self._pool.sleepers
        if len(sleepers) < need:
            more = np.zeros(2 * need - len(sleepers), sleepers.dtype)
            self._pool = self._pool._replace(sleepers=np.concatenate([sleepers, more]))
        return self._change(command.HOLD, rows, np.asarray(action.until - self.origin))

    def _prioritise(self, action: SetPriority, rows: Rows) -> int:
        if self.settings.order != "priority":
            return -1
        self._state.moved += command.prioritise(self._pool, rows, np.array(action.value))
        return len(rows)

    def _place(self, action: Place, rows: Rows) -> int:
        placement, pool = action.placement, self._pool
        codes = self._sets.of_placement(placement)
        some = (placement.size > 0) | (codes >= 0)
        open_ = np.isin(pool.jobs["status"][rows], (*range(kernel.PLANNED),))
        chosen, codes = rows[some & open_], codes[some & open_]
        if not len(chosen):
            return len(rows) - int((some & ~open_).sum())
        if len(pool.more) != len(self.jobs):
            self._extend()
        jobs = self.jobs.take(chosen)
        size = placement.size[some & open_]
        kept = np.where(size > 0, size, pool.jobs["size"][chosen])
        new = sizes.scaled(jobs, self._run_time[chosen], kept)
        same = pool.jobs["size"][chosen] == new[0]
        table = self._pool.more["group"]
        changed = ~same | ((codes >= 0) & (table[chosen] != codes))
        for name, values in zip(("size", "run", "wall"), new, strict=True):
            column = pool.jobs[name]
            column[chosen] = np.where(same, column[chosen], values)
        table[chosen] = np.where(codes >= 0, codes, table[chosen])
        group_of, group_nodes = self._sets.arrays()
        self._pool = self._pool._replace(group_of=group_of, group_nodes=group_nodes)
        self._state.node_level = 1
        self._change(command.RESIZE, chosen[changed])
        return len(rows) - int((some & ~open_).sum())

    def _reserve(self, action: Reserve, _rows: Rows) -> int:
        plan = action.plan
        rows = self._rows.find(plan.entries.job)
        open_ = self._pool.jobs["status"][rows] <= kernel.PLANNED
        if not open_.all():
            plan, rows = plan.take(np.flatnonzero(open_)), rows[open_]
        waited = self._pool.plan["row"]
        waited = waited[waited >= 0].astype(np.int64)
        jobs = self.jobs.take(rows)
        run, wall = planning.planned_times(jobs, self._run_time[rows], plan)
        start = plan.entries.start - self.origin
        self._pool, self._plan_order = planning.lay_out_plan(
            self._pool, rows, plan, start, run, wall
        )
        self._plan = plan
        self._change(command.PLAN, rows)
        dropped = waited[~np.isin(waited, rows)]
        if len(dropped):
            self._change(command.UNPLAN, dropped)
        self.version += 1
        return len(rows) - int((~open_).sum()) if len(_rows) == len(rows) else len(_rows)
