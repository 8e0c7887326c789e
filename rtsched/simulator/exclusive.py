"""A simulated batch system with exclusive nodes: each node runs one job at a time.

    system = ExclusiveNodes(jobs, run_time, cluster, ExclusiveSettings(loop="easy"))
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)
    system.job_outcomes().start

It takes the same actions as a live batch system would. Between two questions it runs in compiled
code (`rtsched.kernels.machine_loop`), so a log that asks nothing is one call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels import machine_loop as loop
from rtsched.kernels.compiling import address_of
from rtsched.kernels.machine_loop import DEAL, advance
from rtsched.kernels.machine_negotiation import negotiate, negotiation_pass
from rtsched.kernels.machine_plan import held_until, unstarted_rows
from rtsched.kernels.machine_policy import (
    HOOKS,
    LAID,
    PROMISED,
    REJECTED,
    JudgedJobs,
    KeptPlan,
    Questions,
    policy_loop,
)
from rtsched.kernels.policy import RejectedRows, changing, kernels_of
from rtsched.model import on_disk
from rtsched.model.actions import (
    Admit,
    Cancel,
    Hold,
    Place,
    Reject,
    Release,
    Reserve,
    SetPriority,
)
from rtsched.model.jobs import Kind
from rtsched.model.resources import served
from rtsched.model.schedule import NO_PLAN, PlanRows, Schedule
from rtsched.simulator import views
from rtsched.simulator.array_runs import ArrayRuns
from rtsched.simulator.interface import DecisionPoint, JobOutcomes
from rtsched.simulator.queue import (
    deadline_places,
    never_matched,
    open_stuck_gates,
    released,
    with_claims,
    with_gates,
)
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.setup import (
    NodeSets,
    held_up_by_limits,
    lay_out,
    preempted,
    scaled,
    with_limits,
    with_preemption,
)
from rtsched.simulator.shared_nodes import held_nodes, with_room_for_plan, with_room_for_sizes
from rtsched.simulator.system import System
from rtsched.simulator.views import laid_plan, lay_out_plan, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.model.state import Events
    from rtsched.model.verdicts import Finding

    Rows = NDArray[np.int64]

_NOTHING = np.zeros(0)
_MOST_REJECTED = 4096
"""Rejections that the loop writes down before it stops for somebody to read them."""


class ExclusiveNodes(System):
    """A batch system on exclusive nodes; parameters as `System` takes them."""

    settings: ExclusiveSettings
    usual = ExclusiveSettings()

    def _set_up(self) -> None:
        self._sets = NodeSets(len(self.cluster))
        self._machine = lay_out(
            self.jobs,
            self.run_time,
            self.cluster,
            self.settings,
            self.stop_at,
            self.static,
            self.node_events,
            self._sets,
            self.origin,
            preempts=self.preemption is not None,
        )
        self._running_on = np.zeros(0, np.int64)
        if self.static.reject is not None and self.settings.rejected == "run":
            self._ledger.reject(np.flatnonzero(self.static.reject))
        self._places_by_deadline = None
        if self.settings.order == "deadline_in_place":
            self._places_by_deadline = deadline_places(self.jobs)
        if self._places_by_deadline is not None:
            self.compiled = self._places_by_deadline
            self._machine.more["key"][: len(self.jobs)] = np.arange(len(self.jobs))
        self._machine = with_gates(self._machine, self.jobs, self.edges)
        if self.limits is not None:
            self._machine = with_limits(self._machine, self.limits)
        if self.preemption is not None:
            self._machine = with_preemption(self._machine, self.preemption)
        self._found: tuple[Finding, ...] = ()
        if self.settings.loop == "negotiator":
            self._machine = with_claims(
                self._machine, self.jobs, self.cluster, self.accounts, self.settings.negotiator
            )
            self._found = never_matched(self._machine, self.jobs)
        self._state: Any = kernel.scalars(self._machine)
        if self.preemption is not None and not self._state["extended"]:
            self._extend()
        self._plan_rows, self._plan_order = NO_PLAN, np.zeros(0, np.int64)
        self._codes, self._counts = np.zeros(0, np.int32), np.zeros((len(HOOKS), 4), np.int64)
        self._pause_after = len(self.jobs) + 1
        self._places = np.zeros(0, np.int64)
        if self.cluster.shared:
            self._places = self._machine.jobs["width"].astype(np.int64)
        self._arrays = None if self.task_times is None else ArrayRuns(self.jobs, self.task_times)
        self._prepare_records()

    def _prepare_records(self) -> None:
        state, kernels = self._state, kernels_of(self.compiled)
        observes = kernels.observe is not None
        state["ranking"] = kernels.rank is not None
        state["observing"] = observes and kernels.place is None
        state["keeping"] = self.record_events
        state["recording"] = self.record_events or observes
        state["logging"] = self.record_nodes and not self.cluster.shared
        if state["logging"]:
            self._machine = self._machine._replace(log_at=np.full(len(self.jobs), -1, np.int64))
        if state["ranking"] and len(self._machine.more) != len(self.jobs):
            self._extend()
        if kernels.place is not None:
            self._take_node_sets()
        negotiates = self.settings.loop == "negotiator"
        self._loop: Callable[..., int] = negotiate if negotiates else advance
        self._ask(self.compiled)

    def _take_node_sets(self) -> None:
        """Let the machine know the node sets that a compiled policy may answer.

        Jobs have whole nodes then, wait in the order of their rows, and depend on nothing; nodes
        keep their states, and nobody preempts or plans jobs.
        """
        if not self._state["extended"]:
            self._extend()
        offsets, nodes = self.compiled.node_sets
        bounds = pairwise(offsets.tolist())
        self._codes = np.array([self._sets.code(nodes[a:b]) for a, b in bounds], np.int32)
        group_of, group_nodes = self._sets.arrays()
        self._machine = self._machine._replace(group_of=group_of, group_nodes=group_nodes)

    def _ask(self, policy: Any) -> None:
        """From now on have the loop ask this compiled policy; None: nobody."""
        self._asked = policy
        if policy is not None:
            kind: Any = type(policy)
            self._policy_loop = policy_loop(kind)

    @property
    def resumable(self) -> bool:
        """Return whether nobody is asked, so that the arrays say how the simulation goes on."""
        return not any(self.stop_at) and not self.record_events

    def checkpoint(self) -> Any:
        """Return the machine, and what a compiled policy remembers."""
        return self._machine, [*changing(self.compiled)], self._counts

    def restore(self, state: Any) -> None:
        """Go on from what `checkpoint` of an equal system returned."""
        self._machine, remembered, counts = state
        self._state = kernel.scalars(self._machine)
        for array, values in zip(changing(self.compiled), remembered, strict=True):
            array[...] = values
        self._counts[...] = counts
        self._take_node_states()

    @property
    def _known_jobs(self) -> int:
        """Return how many jobs a compiled policy knows, the first ones."""
        return len(self.jobs)

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + float(self._state["now"])

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        state = self._state
        self._pause_after = len(self.jobs) + 1 if max_arrivals is None else max_arrivals
        state["pause_at"] = state["upcoming"] + self._pause_after
        while True:
            asks = self._run()
            if asks == DEAL:
                negotiation_pass(self._machine)
            elif asks == kernel.FULL:
                self._grow()
            elif asks or not open_stuck_gates(self._machine):
                break
        if state["changed"]:
            self._take_node_states()
        if self._arrays is not None and asks:
            self._see_latest_ends(self._arrays)
        return DecisionPoint(
            time=self.now,
            arrivals=self._machine.asked[: state["asked"]].copy(),
            passes=bool(asks & kernel.ASK_PASS),
            early_end=bool(asks & kernel.ASK_EARLY_END),
            nodes_changed=bool(asks & kernel.ASK_NODES),
            arrived=int(state["upcoming"]),
            done=asks == 0,
        )

    def _run(self) -> int:
        """Run until somebody must do something; return what, as bits."""
        if self._asked is None:
            return self._loop(self._machine)
        asked = self.questions
        laid, promised = asked.lengths[LAID], asked.lengths[PROMISED]
        plan = (*self._plan_rows, self._plan_order)
        kept = KeptPlan._make(np.require(column, requirements=("C", "W")) for column in plan)
        question = self._asked, asked, kept, self._pause_after
        further = address_of(advance, self._machine)
        asks, kept = self._policy_loop(self._machine, further, *question)
        if asked.lengths[LAID] > laid:
            self._plan_rows, self._plan_order = PlanRows(*kept[:-1]), kept.source
            self.__dict__.pop("_plan", None)
            self.version += 1
            new = asked.promised[promised : asked.lengths[PROMISED]]
            if len(new):
                self._ledger.written(new)
        return asks

    def ask_planner(self, policy: Any) -> None:
        """From now on have the loop itself ask a planner's compiled policy; None: nobody.

        It may where the loop asks no other, neither preempts jobs nor runs arrays as one, starts
        promised jobs by plan, and rejected jobs do not run on: at each early end those are asked
        about again.
        """
        if policy is self._asked or self.compiled is not None:
            return
        may = self._loop is advance and self.preemption is None and self._arrays is None
        may = may and not self._queues_promised and self.settings.rejected != "run"
        self._ask(policy if may else None)

    @cached_property
    def questions(self) -> Questions:
        """What the loop needs to ask a compiled policy, and what it wrote down of the answers."""
        jobs, n, m = self.jobs, len(self.jobs), len(self.cluster)
        columns: list[Any] = [jobs.kind, jobs.size, jobs.wall_time, self.run_time, jobs.deadline]
        known = slice(n if self.compiled is None else 0)  # what orders or places judges nobody
        judged = [np.array(column[known]) for column in columns]
        judged += self._ledger.columns() if self.compiled is None else (np.zeros(0), np.zeros(0))
        row, failed, promised, free = np.zeros((4, _MOST_REJECTED), np.int64)
        at, needed, offer = np.zeros((3, _MOST_REJECTED))
        return Questions(
            origin=self.origin,
            n=self._known_jobs,
            m=m,
            counts=self._counts,
            lengths=np.zeros(3, np.int64),
            jobs=JudgedJobs._make(judged),
            promised=np.zeros(n, np.int64),
            rejected=RejectedRows(row, at, failed, promised, free, needed, offer),
            codes=self._codes,
            answers=np.zeros(n, np.int64),
            nodes=np.zeros(m, np.int32),
        )

    def take_rejected(self) -> RejectedRows | None:
        """Return whom the loop rejected since the last time it was asked; None: nobody."""
        asked = self.questions
        count = int(asked.lengths[REJECTED])
        if not count:
            return None
        asked.lengths[REJECTED] = 0
        rejected = RejectedRows._make(column[:count].copy() for column in asked.rejected)
        self._ledger.offer(rejected.row, rejected.offer)
        return rejected

    def _see_latest_ends(self, arrays: ArrayRuns) -> None:
        """Let arrays that run end as soon as the tasks that are left allow, at the latest."""
        rows = self._machine.ends["row"][: self._state["running"]].astype(np.int64)
        for row in rows[arrays.among(rows)].tolist():
            job = self._machine.jobs[row]
            passed, seconds = (float(t - job["start"]) for t in (self._state["now"], job["end"]))
            wall = arrays.latest_end(row, int(job["width"]), seconds, passed)
            if max(wall, seconds) < job["wall"]:
                loop.shorten(self._machine, row, max(wall, seconds))

    def _grow(self) -> None:
        """Make room in the records of events and nodes."""
        room = 16 * len(self.cluster) + len(self._machine.plan_nodes) + 4096
        events, log = self._machine.events, self._machine.log_nodes
        if self.cluster.shared:
            room += len(events)
        if self._state["recording"]:
            events = np.concatenate([events, np.zeros(len(events) + room, events.dtype)])
        if self._state["logging"]:
            log = on_disk.grown(log, 2 * len(log) + room)
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

    def _waiting(self) -> Rows:
        return views.waiting(self._machine)

    def _running(self) -> tuple[Rows, Schedule]:
        return views.allocations(self._machine, self.jobs, self.origin)

    def _alive(self, rows: Rows) -> NDArray[np.bool_]:
        return np.asarray(self._machine.jobs["status"][rows] < kernel.ENDED)

    @cached_property
    def _plan(self) -> Schedule:
        """The plan that was laid out last."""
        row, start, end, indptr, nodes = self._plan_rows
        return Schedule.build(self.jobs.id[row], start, end, indptr, nodes)

    @property
    def _queues_promised(self) -> bool:
        """Return whether promised jobs start in the queue's order, and the plan is not laid out."""
        return self.settings.promised == "queue"

    def _plan_left(self) -> Schedule:
        if self._queues_promised:
            left = self._still_planned()
        elif not self._state["plan_left"]:
            return Schedule.empty()
        else:
            left = np.sort(self._plan_order[views.unstarted(self._machine)])
        return self._plan if len(left) == len(self._plan) else self._plan.take(left)

    def plan_left(self) -> PlanRows:
        """Return the entries of the plan that have not started, as rows of the workload."""
        if self._queues_promised:
            return self._plan_rows.take(self._still_planned())
        return PlanRows(
            *unstarted_rows(laid_plan(self._machine), self._plan_order, *self._plan_rows)
        )

    def _still_planned(self) -> Rows:
        """Return the entries of a plan that only judges whose jobs wait, or are about to."""
        return np.flatnonzero(self._machine.jobs["status"][self._plan_rows.row] <= kernel.PLANNED)

    def open_promises(self) -> int:
        """Return how many promises there are to jobs that have not ended."""
        return len(self._ledger.open(self._alive(self._ledger.open_rows)))

    def held_until(self) -> NDArray[np.float64]:
        """Return float64[m]: until when running jobs hold each node at most, epoch seconds.

        -inf where there is none, inf where the node takes no job.
        """
        nodes = self._machine.nodes[: len(self.cluster)]
        return held_until(nodes, self._machine.jobs, self.origin)

    def settle(
        self, admitted: Rows, rejected: Rows, offers: NDArray[np.float64], plan: PlanRows | None
    ) -> None:
        """Admit jobs with their deadlines promised, by a new plan, and reject others.

        Other jobs that were asked about are admitted without a promise.

        Parameters
        ----------
        admitted, rejected : int64[k], int64[l]
            Jobs that were asked about.
        offers : float64[l]
            Deadlines offered to the rejected ones, seconds since the epoch; inf: none.
        plan : PlanRows or None
            A plan of all promised jobs that have not started, and no others; None: it stands.
        """
        if len(rejected):
            self._ledger.offer(rejected, offers)
            self._turn_away(rejected)
        if len(admitted):
            self.version += self._ledger.promise(admitted, self.jobs.deadline[admitted], self.now)
            self._change(loop.ADMIT if self._queues_promised else loop.PROMISE, admitted)
        if plan is not None:
            self._lay_rows(plan)

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return views.take_events(self._machine, self.jobs, self.origin)

    def has_events(self) -> bool:
        """Return whether there are some."""
        return bool(self._state["events"])

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        outcomes = views.job_outcomes(self._machine, self._ledger, self.origin)
        if self.cluster.shared:
            seconds = outcomes.end - outcomes.start
            service = served(self.jobs, self.cluster, outcomes.size, seconds)
            outcomes = outcomes._replace(service=service)
        found = self._found
        if self.limits is not None:
            found += held_up_by_limits(self._machine, self.limits)
        if self.preemption is not None:
            found += preempted(self._machine)
            outcomes = self._with_preemption(outcomes)
        return outcomes._replace(
            findings=found,
            released=released(self._machine),
            beyond_limits=int(self._state["beyond"]),
        )

    def starts(self) -> NDArray[np.float64]:
        """Return when each job started last, float64[n] seconds since the epoch; nan: not yet."""
        return np.asarray(self._machine.jobs["start"] + self.origin)

    def _with_preemption(self, outcomes: JobOutcomes) -> JobOutcomes:
        """Return the outcomes with how often jobs were preempted, and what that lost."""
        rules = self._machine.preemption
        lost = rules.lost.copy()
        share = served(self.jobs, self.cluster, np.ones(len(lost), np.int32), lost)
        return outcomes._replace(
            preempted=rules.times.copy(), lost=lost if share is None else share
        )

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the nodes of its last start: offsets int64[n + 1], node rows int32[k].

        No job has any unless `record_nodes` was asked for.
        """
        if self.cluster.shared:
            return held_nodes(self._machine)
        return views.node_rows(self._machine)

    def hook_calls(self) -> Mapping[str, list[int]]:
        """Return what a compiled policy was asked; as `System.hook_calls`."""
        asked = zip(HOOKS, self._counts.tolist(), strict=True)
        return {hook: numbers for hook, numbers in asked if any(numbers)}

    def _change(self, what: int, rows: Rows, values: NDArray[np.float64] = _NOTHING) -> int:
        """Do something to jobs and return for how many it could not be done."""
        if not len(rows):
            return 0
        return len(rows) - int(loop.change(self._machine, what, rows, values))

    def _let_in(self, rows: Rows) -> int:
        return self._change(loop.ADMIT, rows)

    def _turn_away(self, rows: Rows) -> int:
        if self.settings.rejected == "run":
            self._ledger.reject(rows)
            self._running_on = np.union1d(self._running_on, rows)
            return self._change(loop.ADMIT, rows)
        return self._set_aside(loop.REJECT, rows)

    def rejected_waiting(self) -> Rows:
        """Return the rejected jobs that run on, wait, and can still end in time.

        The earliest deadline first.
        """
        rows, late = self._waiting_on()
        rows = rows[~late]
        earliest_first = np.argsort(self.jobs.deadline[rows], kind="stable")
        return np.asarray(rows[earliest_first])

    def put_late_last(self) -> None:
        """Have rejected jobs that can no longer end in time wait behind all others with a deadline.

        That is so in a queue in order of deadlines.
        """
        if not self.settings.by_deadline or not len(self._running_on):
            return
        rows, late = self._waiting_on()
        if self._places_by_deadline is not None:
            self._places_by_deadline.due[rows[late]] = np.inf
            return
        new = rows[late & np.isfinite(self._machine.more["key"][rows])]
        if len(new):
            loop.prioritise(self._machine, new, np.full(len(new), -np.inf))

    def _waiting_on(self) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the rejected jobs that run on and wait, and which can no longer end in time."""
        rows, table = self._running_on, self._machine.jobs
        self._running_on = rows = rows[table["status"][rows] < kernel.PLANNED]
        rows = rows[table["status"][rows] == kernel.QUEUED]
        rigid = self.jobs.kind[rows] == Kind.RIGID  # another may be planned with a faster size
        earliest = self.now + np.where(rigid, table["wall"][rows], 0.0)
        return rows, np.asarray(earliest > self.jobs.deadline[rows])

    def _hold(self, action: Hold, rows: Rows) -> int:
        sleepers = self._machine.sleepers
        need = int(self._state["sleeping"]) + len(rows) + len(self.jobs) + 1
        if len(sleepers) < need:
            more = np.zeros(2 * need - len(sleepers), sleepers.dtype)
            self._machine = self._machine._replace(sleepers=np.concatenate([sleepers, more]))
        return self._set_aside(loop.HOLD, rows, action.until - self.origin)

    def _release(self, _: Release, rows: Rows) -> int:
        return self._change(loop.RELEASE, rows)

    def _cancel(self, _: Cancel, rows: Rows) -> int:
        return self._set_aside(loop.CANCEL, rows)

    def _set_aside(self, what: int, rows: Rows, values: NDArray[np.float64] = _NOTHING) -> int:
        """Do something that keeps jobs from starting; planned ones lose their place in the plan."""
        planned = rows[self._machine.jobs["status"][rows] == kernel.PLANNED]
        left = self._change(what, rows, values)
        if len(planned):
            plan = self._plan_left()
            kept = np.flatnonzero(~np.isin(plan.entries.job, self.jobs.id[planned]))
            self._lay_plan(plan.take(kept))
        return left

    def _prioritise(self, action: SetPriority, rows: Rows) -> int | None:
        if self.settings.order != "priority":
            return None
        loop.prioritise(self._machine, rows, np.array(action.value))
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
        new = scaled(self.jobs.take(rows), self.run_time[rows], size)
        changed = (new[0] != table["width"][rows]) | (codes != group[rows])
        table["width"][rows], table["run"][rows], table["wall"][rows] = new
        group[rows] = codes
        group_of, group_nodes = self._sets.arrays()
        self._machine = self._machine._replace(group_of=group_of, group_nodes=group_nodes)
        self._state["node_level"] |= len(self._sets) > 0
        left += self._change(loop.RESIZE, rows[changed])
        if self.cluster.shared:
            self._machine = with_room_for_sizes(self._machine, self._places, rows, new[0])
        return left

    def _reserve(self, action: Reserve, rows: Rows) -> int | None:
        plan = action.plan
        if plan.preemptive or (self.cluster.shared and len(plan.node_start)):
            return None
        waits = self._machine.jobs["status"][rows] <= kernel.PLANNED
        left = int((~waits).sum())
        if left:
            plan, rows = plan.take(np.flatnonzero(waits)), rows[waits]
        before = laid_plan(self._machine)["row"][views.unstarted(self._machine)]
        dropped = np.setdiff1d(before, rows).astype(np.int64)
        self._lay_plan(plan)
        if self._queues_promised:
            return left
        return left + self._change(loop.PLAN, rows) + self._change(loop.UNPLAN, dropped)

    def _lay_plan(self, plan: Schedule) -> None:
        """Put a plan in place of the present one; its jobs' standing is the caller's matter."""
        rows, entries = self._rows.find(plan.entries.job), plan.entries
        columns = PlanRows(
            rows,
            writable(entries.start),
            writable(entries.end),
            writable(plan.indptr),
            writable(plan.nodes),
        )
        self._lay_rows(columns, writable(plan.node_start))
        self._plan = plan

    def _lay_rows(self, plan: PlanRows, node_start: NDArray[np.float64] = _NOTHING) -> None:
        if not self._queues_promised:
            self._lay_out_rows(plan, node_start)
        self._plan_rows = plan
        self.__dict__.pop("_plan", None)
        self.version += 1

    def _lay_out_rows(self, plan: PlanRows, node_start: NDArray[np.float64]) -> None:
        rows = plan.row
        run_time = self.run_time[rows]
        if self._arrays is not None:
            run_time = self._arrays.run_times(rows, np.diff(plan.indptr), run_time)
        self._machine, self._plan_order = lay_out_plan(
            self._machine, plan, node_start, self.jobs, run_time, self.origin
        )
        if self.cluster.shared:
            self._machine = with_room_for_plan(self._machine, self._places)
        if self.preemption is not None:
            self._machine.preemption.promised[rows] = True

    handlers: ClassVar = {
        Admit: System._admit,
        Reject: System._reject,
        Hold: _hold,
        Release: _release,
        Cancel: _cancel,
        SetPriority: _prioritise,
        Place: _place,
        Reserve: _reserve,
    }
