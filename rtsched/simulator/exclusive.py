"""A simulated batch system with exclusive nodes: each node runs one job at a time.

    system = ExclusiveNodes(jobs, run_time, cluster, SystemSettings(loop="easy"))
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)
    system.job_outcomes().start

It takes the same actions as a live batch system would. Between two questions it runs in compiled
code (`rtsched.kernels.machine_scheduler`), so a log that asks nothing is one call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels import machine_commands as command
from rtsched.kernels.hooks import job_arrays
from rtsched.kernels.machine_negotiation import negotiate, negotiation_pass
from rtsched.kernels.machine_scheduler import DEAL, NO_OBSERVER, NO_PRIORITY, advance, hooked_loop
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
from rtsched.model.events import Events
from rtsched.model.jobs import Edges
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.simulator import sizes, views
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
from rtsched.simulator.nodesets import NodeSets
from rtsched.simulator.plan import lay_out_plan
from rtsched.simulator.rows import RowsById
from rtsched.simulator.setup import lay_out
from rtsched.simulator.submitters import never_matched, with_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.cluster import Cluster
    from rtsched.model.events import Events
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Finding

    Rows = NDArray[np.int64]

__all__ = [
    "DecisionPoint",
    "ExclusiveNodes",
    "HookCalls",
    "JobOutcomes",
    "NodeEvent",
    "Outcome",
    "StaticAnswers",
    "StopConditions",
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
    stop_at : StopConditions
        At which occasions to stop.
    static : StaticAnswers
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
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
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
        self._machine = lay_out(
            jobs, run_time, cluster, settings, stop_at, static, node_events, self._sets, self.origin
        )
        self._found: tuple[Finding, ...] = ()
        if settings.loop == "negotiator":
            self._machine = with_claims(
                self._machine, jobs, cluster, self.accounts, settings.negotiator
            )
            self._found = never_matched(self._machine, jobs)
        self._state: Any = kernel.scalars(self._machine)
        self._plan, self._plan_order = Schedule.empty(), np.zeros(0, np.int64)
        self._ledger = Ledger(jobs.id)
        self._prepare_records(record_events, record_nodes, compiled or {})

    def _prepare_records(
        self, events: bool, nodes: bool, hooks: Mapping[str, CompiledHook]
    ) -> None:
        state = self._state
        state["ranking"], state["observing"] = "fair_share" in hooks, "observe" in hooks
        state["keeping"], state["recording"] = events, events or state["observing"]
        state["logging"] = nodes
        if nodes:
            self._machine = self._machine._replace(log_at=np.full(len(self.jobs), -1, np.int64))
        if state["ranking"] and len(self._machine.more) != len(self.jobs):
            self._extend()
        negotiates = self.settings.loop == "negotiator"
        self._loop: Callable[..., int] = negotiate if negotiates else advance
        self._hooks: tuple[Any, ...] = ()
        if hooks:
            self._loop = hooked_loop(self._machine)
            columns = job_arrays(self.jobs, self.origin)
            self._hooks = (
                *hooks.get("fair_share", NO_PRIORITY),
                *hooks.get("observe", NO_OBSERVER),
                *columns._replace(submit=self._machine.jobs["submit"]),
            )

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + float(self._state["now"])

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        state = self._state
        state["pause_at"] = (
            len(self.jobs) + 1 if max_arrivals is None else state["upcoming"] + max_arrivals
        )
        while (asks := self._loop(self._machine, *self._hooks)) in (kernel.FULL, DEAL):
            if asks == DEAL:
                negotiation_pass(self._machine)
            else:
                self._grow()
        if state["changed"]:
            self._take_node_states()
        return DecisionPoint(
            time=self.now,
            arrivals=self._machine.asked[: state["asked"]].copy(),
            passes=bool(asks & kernel.ASK_PASS),
            early_end=bool(asks & kernel.ASK_EARLY_END),
            nodes_changed=bool(asks & kernel.ASK_NODES),
            arrived=int(state["upcoming"]),
            done=asks == 0,
        )

    def _grow(self) -> None:
        """Make room in the records of events and nodes."""
        room = 16 * len(self.cluster) + len(self._machine.plan_nodes) + 4096
        events, log = self._machine.events, self._machine.log_nodes
        if self._state["recording"]:
            events = np.concatenate([events, np.zeros(len(events) + room, events.dtype)])
        if self._state["logging"]:
            log = np.concatenate([log, np.zeros(len(log) + room, log.dtype)])
        self._machine = self._machine._replace(events=events, log_nodes=log)

    def _extend(self) -> None:
        """Keep for each job what only some runs need: key, begin time, node set, restarts."""
        more = np.zeros(len(self.jobs), kernel.MORE)
        more["begin"], more["group"] = self.jobs.begin - self.origin, -1
        self._machine = self._machine._replace(more=more)
        self._state["extended"] = 1

    def _take_node_states(self) -> None:
        """Let the cluster in snapshots show the nodes' present states."""
        states = self._machine.nodes["state"][: len(self.cluster)].copy()
        if (states != self.cluster.nodes.state).any():
            nodes = self.cluster.nodes.replace(state=states)
            self.cluster = replace(self.cluster, nodes=nodes, version=self.cluster.version + 1)

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now. Jobs just asked about, and held ones, are not in it."""
        running, allocations = views.allocations(self._machine, self.jobs, self.origin)
        alive = self._machine.jobs["status"][self._ledger.open_rows] < kernel.ENDED
        return Snapshot(
            now=self.now,
            cluster=self.cluster,
            queued=self.jobs.take(views.waiting(self._machine)),
            running=self.jobs.take(running),
            allocations=allocations,
            accounts=self.accounts,
            promises=self._ledger.open(alive),
            plan=self._plan_left(),
            edges=self.edges,
            states=states or {},
            version=self.version,
        )

    def _plan_left(self) -> Schedule:
        """Return the entries of the plan that have not started."""
        if not self._state["plan_left"]:
            return Schedule.empty()
        left = np.sort(self._plan_order[views.unstarted(self._machine)])
        return self._plan if len(left) == len(self._plan) else self._plan.take(left)

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return views.take_events(self._machine, self.jobs, self.origin)

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        return views.job_outcomes(self._machine, self._ledger, self.origin)._replace(
            findings=self._found
        )

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the nodes of its last start: offsets int64[n + 1], node rows int32[k].

        No job has any unless `record_nodes` was asked for.
        """
        return views.node_rows(self._machine)

    def hook_calls(self) -> HookCalls:
        """Return how often the compiled hooks were called."""
        return views.hook_calls(self._machine)

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
            Cancel: lambda _, rows: self._set_aside(command.CANCEL, rows),
            SetPriority: self._prioritise,
            Place: self._place,
            Reserve: self._reserve,
        }
        handler = handlers.get(type(action))
        if handler is None:
            return Outcome.UNSUPPORTED
        rows = self._rows.find(action.job)
        left = handler(action, rows)
        if left < 0:
            return Outcome.UNSUPPORTED
        return Outcome.PARTLY if left else Outcome.DONE

    def _change(self, what: int, rows: Rows, values: NDArray[np.float64] = _NOTHING) -> int:
        """Do something to jobs and return for how many it could not be done."""
        return len(rows) - int(command.change(self._machine, what, rows, values))

    def _admit(self, action: Admit, rows: Rows) -> int:
        self.version += self._ledger.promise(rows, action.promise, self.now)
        return self._change(command.ADMIT, rows)

    def _reject(self, action: Reject, rows: Rows) -> int:
        self._ledger.offer(rows, action.offer)
        return self._set_aside(command.REJECT, rows)

    def _hold(self, action: Hold, rows: Rows) -> int:
        sleepers = self._machine.sleepers
        need = int(self._state["sleeping"]) + len(rows) + len(self.jobs) + 1
        if len(sleepers) < need:
            more = np.zeros(2 * need - len(sleepers), sleepers.dtype)
            self._machine = self._machine._replace(sleepers=np.concatenate([sleepers, more]))
        return self._set_aside(command.HOLD, rows, action.until - self.origin)

    def _set_aside(self, what: int, rows: Rows, values: NDArray[np.float64] = _NOTHING) -> int:
        """Do something that keeps jobs from starting; planned ones lose their place in the plan."""
        planned = rows[self._machine.jobs["status"][rows] == kernel.PLANNED]
        left = self._change(what, rows, values)
        if len(planned):
            plan = self._plan_left()
            kept = np.flatnonzero(~np.isin(plan.entries.job, self.jobs.id[planned]))
            self._lay_plan(plan.take(kept))
        return left

    def _prioritise(self, action: SetPriority, rows: Rows) -> int:
        if self.settings.order != "priority":
            return -1
        command.prioritise(self._machine, rows, np.array(action.value))
        return 0

    def _place(self, action: Place, rows: Rows) -> int:
        """Give waiting jobs sizes and node sets; those that the plan owns keep theirs."""
        codes = self._sets.of_placement(action.placement)
        some = (action.placement.size > 0) | (codes >= 0)
        free = some & (self._machine.jobs["status"][rows] < kernel.PLANNED)
        left = int((some & ~free).sum())
        rows, codes, size = rows[free], codes[free], action.placement.size[free]
        if not len(rows):
            return left
        if not self._state["extended"]:
            self._extend()
        table, group = self._machine.jobs, self._machine.more["group"]
        size = np.where(size > 0, size, table["width"][rows])
        codes = np.where(codes >= 0, codes, group[rows])
        new = sizes.scaled(self.jobs.take(rows), self._run_time[rows], size)
        changed = (new[0] != table["width"][rows]) | (codes != group[rows])
        table["width"][rows], table["run"][rows], table["wall"][rows] = new
        group[rows] = codes
        group_of, group_nodes = self._sets.arrays()
        self._machine = self._machine._replace(group_of=group_of, group_nodes=group_nodes)
        self._state["node_level"] |= len(self._sets) > 0
        return left + self._change(command.RESIZE, rows[changed])

    def _reserve(self, action: Reserve, _: Rows) -> int:
        plan = action.plan
        if plan.preemptive:
            return -1
        rows = self._rows.find(plan.entries.job)
        waits = self._machine.jobs["status"][rows] <= kernel.PLANNED
        left = int((~waits).sum())
        if left:
            plan, rows = plan.take(np.flatnonzero(waits)), rows[waits]
        before = self._machine.plan["row"][views.unstarted(self._machine)]
        dropped = np.setdiff1d(before, rows).astype(np.int64)
        self._lay_plan(plan)
        return left + self._change(command.PLAN, rows) + self._change(command.UNPLAN, dropped)

    def _lay_plan(self, plan: Schedule) -> None:
        """Put a plan in place of the present one; its jobs' standing is the caller's matter."""
        rows = self._rows.find(plan.entries.job)
        self._machine, self._plan_order = lay_out_plan(
            self._machine, rows, plan, self.jobs.take(rows), self._run_time[rows], self.origin
        )
        self._plan = plan
        self.version += 1
