"""Periodic work on the simulated machines: whether it can be done in time, and its nodes.

Each occurrence has its node, or its amounts, at a fixed time. It is a planned start like that of a
promised job, in rows of the machine behind those of the workload. So queued jobs start around it,
and EASY counts with it. Occurrences are laid out as far ahead as the longest job asks for time,
and further, before that is used up. A plan must leave them their time: one that does not delays
them. A rigid job that fits between no two occurrences is turned away on arrival; one whose nodes
never have a gap in common is given up when nothing else happens any more. Times at which nodes are
set aside are laid out in the same way, all at first; where jobs share nodes, those may be of some
CPUs only. A node that is out of service meanwhile does not do its work then, and is set aside again
when it comes back.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ConfigError
from rtsched.kernels import machine as kernel
from rtsched.kernels import machine_loop as loop
from rtsched.kernels.edf import first_miss, hyperperiods, periodic_work
from rtsched.model.blocked import NOTHING_BLOCKED, WHOLE, Blocked
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind, Periodic, occurrences
from rtsched.model.resources import demand_of, room_of
from rtsched.model.schedule import Schedule
from rtsched.model.state import Events
from rtsched.model.verdicts import Finding, Placement, Reason
from rtsched.simulator import views
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import DecisionPoint, JobOutcomes, StaticAnswers, StopConditions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.limits import Limits
    from rtsched.model.preemption import Preemption
    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.interface import NodeEvent

CHECKED = 1 << 20
"""Slots of periodic work that are run off, on each node, to see that no deadline is missed."""
TICKS = 1e6
"""Ticks per second in which periods are compared exactly."""

NO_GAP = Reason(
    "periodic.no-gap",
    "requests {nodes:node} for {seconds:time}; periodic work never leaves more than {fits} free "
    "for so long",
)
STARVED = Reason(
    "periodic.starved",
    "no time was found at which {nodes:node} are free of periodic work together for "
    "{seconds:time}, for it or for a job ahead of it",
)


def utilisation(
    periodic: Periodic, cluster: Cluster, slot: int, seconds: float
) -> NDArray[np.float64]:
    """Return float64[m]: the share of each node that periodic work takes under EDF.

    Parameters
    ----------
    slot : int
        The present slot.
    seconds : float
        Seconds per slot.

    Raises
    ------
    ConfigError
        If a node cannot do its work in time: more than one second of work per second, or a
        deadline missed within two hyper-periods (at most `CHECKED` slots are looked at).
    """
    work = periodic_work(periodic, len(cluster), slot, seconds, 0)
    hyper, used = hyperperiods(work)
    longest = int((work.upcoming - slot + work.period).max(initial=0))
    for node in np.unique(periodic.node).tolist():
        horizon = slot + min(2 * int(hyper[node]) + longest, CHECKED)
        if used[node] > 1.0 or first_miss(work, node, horizon) >= 0:
            raise ConfigError(
                [
                    f"workload.periodic: node {called(cluster, node)} cannot do its periodic work "
                    "in time"
                ]
            )
    return used


def called(cluster: Cluster, node: int) -> str:
    """Return a node's name, and where several rows have that name, or none, the row."""
    code, names = int(cluster.nodes.name[node]), cluster.nodes.names("name")
    if code < 0 or not names:
        return f"{node}"
    alone = np.count_nonzero(cluster.nodes.name == code) == 1
    return names[code] if alone else f"{names[code]} (row {node})"


def check_apart(periodic: Periodic, cluster: Cluster) -> None:
    """Refuse periodic jobs of one node whose occurrences overlap at any time without room for both.

    Occurrences of two jobs with periods T and U meet in every phase that differs by a multiple of
    the greatest common divisor g of T and U. They never overlap if the first fits between the
    phases, modulo g, and the second into what is left of g. A node must have room for each
    together with all that overlap with it.

    Raises
    ------
    ConfigError
        Naming the node, and of two jobs the periods.
    """
    period, cost, phase = (
        np.round(column * TICKS).astype(np.int64)
        for column in (periodic.period, periodic.exec_time, periodic.phase)
    )
    order = np.argsort(periodic.node, kind="stable")
    node, demand = periodic.node[order], demand_of(periodic, cluster)
    room, together = room_of(cluster)[periodic.node], demand.copy()
    for apart in range(1, int(np.bincount(node).max(initial=0))):
        first, second = order[:-apart], order[apart:]
        same = node[:-apart] == node[apart:]
        first, second = first[same], second[same]
        divisor = np.gcd(period[first], period[second])
        gap = (phase[second] - phase[first]) % divisor
        meet = (gap < cost[first]) | (divisor - gap < cost[second])
        clash = meet & (demand[first] + demand[second] > room[first]).any(axis=1)
        if clash.any():
            at = int(np.flatnonzero(clash)[0])
            name = called(cluster, int(periodic.node[first[at]]))
            one, other = periodic.period[first[at]], periodic.period[second[at]]
            raise ConfigError(
                [
                    f"workload.periodic: on node {name} occurrences of two periodic jobs overlap "
                    f"(periods of {one:g} s and {other:g} s); give one another first start or node"
                ]
            )
        np.add.at(together, first[meet], demand[second[meet]])
        np.add.at(together, second[meet], demand[first[meet]])
    over = (together > room).any(axis=1)
    if over.any():
        name = called(cluster, int(periodic.node[np.argmax(over)]))
        raise ConfigError(
            [
                f"workload.periodic: node {name} has no room for all periodic jobs of which "
                "occurrences may overlap; give one another first start or node"
            ]
        )


def without_gap(jobs: Jobs, periodic: Periodic, cluster: Cluster) -> tuple[Finding, ...]:
    """Return which rigid jobs fit between no two occurrences on enough nodes, ever.

    A node is left alone for `period - exec_time` of its tightest periodic job at the most, or until
    the first occurrence. Work beside which others may run does not count. Jobs that pass may still
    find no gap that their nodes have in common.
    """
    periodic = periodic.take(np.flatnonzero(periodic.exclusive | (not cluster.shared)))
    if not len(jobs) or not len(periodic):
        return ()
    gap = np.maximum(periodic.period - periodic.exec_time, periodic.phase - jobs.submit[0])
    longest = np.where(cluster.usable, np.inf, 0.0)
    np.minimum.at(longest, periodic.node, gap)
    holds = np.sort(longest * cluster.nodes.speed)
    fits = len(holds) - np.searchsorted(holds, jobs.wall_time, "left")
    bound = (jobs.kind == Kind.RIGID) & np.isfinite(jobs.wall_time)
    never = bound & (fits < jobs.size) & (jobs.size <= int(cluster.usable.sum()))
    if not never.any():
        return ()
    return (Finding.where(never, NO_GAP, nodes=jobs.size, seconds=jobs.wall_time, fits=fits),)


PATIENCE = 64
"""Layouts with no job that runs or is to come, after which those that wait never start."""


class RecurringNodes(ExclusiveNodes):
    """A batch system with periodic work on its nodes, or with nodes set aside at times.

    Where nodes are set aside they do no periodic work. Parameters are as `System` takes them.

    Raises
    ------
    ConfigError
        If occurrences on one node overlap without room for both.
    """

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        *given: Any,
        periodic: Periodic | None = None,
        blocked: Blocked = NOTHING_BLOCKED,
        limits: Limits | None = None,
        preemption: Preemption | None = None,
        stop_at: StopConditions = StopConditions(),  # noqa: B008 - immutable
        static: StaticAnswers = StaticAnswers(),  # noqa: B008 - immutable
        node_events: Sequence[NodeEvent] = (),
        **others: Any,
    ) -> None:
        periodic = Periodic.build(0) if periodic is None else periodic
        check_apart(periodic, cluster)
        self._out, self._asks_nodes = _out_of_service(cluster, node_events), stop_at.nodes
        self._spans = blocked
        back = [event.node for event in node_events if event.state == NodeState.UP]
        works = cluster.usable[periodic.node] | np.isin(periodic.node, back)
        self._work = periodic.take(np.flatnonzero(works))
        self._count = n = len(jobs)
        wall = jobs.wall_time[np.isfinite(jobs.wall_time)]
        self._ahead = float(wall.max(initial=0.0)) / float(cluster.nodes.speed.min(initial=1.0))
        self._stretch = max(self._ahead, 4.0 * float(self._work.period.max(initial=0.0)), 1.0)
        if len(jobs):
            last = float(self._spans.end.max(initial=-np.inf))
            self._stretch = max(self._stretch, last - float(jobs.submit[0]))
        period = self._work.period
        room = int(np.ceil((self._ahead + self._stretch) / period + 2.0).sum()) + len(period) + 1
        room += 2 * len(self._spans.node) + len(node_events)
        self._laid = Schedule.empty()
        self._until, self._still = -np.inf, 0
        self._findings = () if node_events else without_gap(jobs, self._work, cluster)
        super().__init__(
            _extended(jobs, room if n else 0),
            np.concatenate([run_time, np.full(room if n else 0, np.inf)]),
            cluster,
            *given,
            periodic=periodic,
            blocked=blocked,
            limits=None if limits is None else limits.with_rows(room if n else 0),
            preemption=None if preemption is None else preemption.with_rows(room if n else 0),
            stop_at=stop_at._replace(nodes=stop_at.nodes or len(node_events) > 0),
            static=_static(static, self._findings, n, room if n else 0),
            node_events=node_events,
            **others,
        )
        if n:
            self._machine.jobs["submit"][n:] = np.inf
            self._lay_out(self.origin)

    @property
    def _known_jobs(self) -> int:
        """Return how many jobs a compiled policy knows: nothing of occurrences."""
        return self._count

    def _lay_out(self, now: float) -> None:
        """Lay out the occurrences of the next stretch, and have the loop stop before its end."""
        tick, status = self._count, self._machine.jobs["status"]
        until = now + self._ahead + self._stretch
        begun = self._until if np.isfinite(self._until) else now - self._stretch
        row, start, end = occurrences(self._work, begun, until)
        node = self._work.node[row].astype(np.int64)
        work = Blocked(node, start, end, np.full(len(node), WHOLE))
        row, work = row[start >= self._until], work.take(start >= self._until)
        given = self._spans.within(begun, until)
        given = given.take(given.start >= self._until)
        apart, of_work = work.cut(self._spans)
        spans, part = Blocked.joined([apart, given]).cut(self._out)
        spans, part = spans.take(spans.end > now), part[spans.end > now]
        spans = spans._replace(start=np.maximum(spans.start, now))
        waits = status[self._rows.find(self._laid.entries.job)] == kernel.FUTURE
        kept = self._laid.take(np.flatnonzero(waits))
        used = np.zeros(len(status), np.bool_)
        used[: tick + 1] = True
        used[self._rows.find(kept.entries.job)] = True
        used |= status == kernel.RUNNING
        rows = np.flatnonzero(~used)[: len(spans.node)]
        status[rows] = kernel.FUTURE
        if self.cluster.shared:
            demand = demand_of(self._work, self.cluster)[row[of_work]]
            taken = np.concatenate([demand, given.demand(self.cluster)])
            self._machine.demand[rows] = taken[part]
        added = spans.schedule(self.jobs.id[rows])
        self._laid, self._until = Schedule.joined([kept, added]), until
        self._lay_plan(self._plan_left())
        status[tick] = kernel.FUTURE
        if self._goes_on(status[:tick]):
            wake = np.array([until - self._ahead - self.origin])
            self._change(loop.HOLD, np.array([tick]), wake)

    def _goes_on(self, status: NDArray[np.int8]) -> bool:
        """Return whether some job may still start."""
        state = self._state
        more = state["upcoming"] < self._count or state["node_event"] < len(self.node_events)
        if more or (status == kernel.RUNNING).any():
            self._still = 0
        else:
            self._still += 1
        if self._still == PATIENCE:
            self._give_up(np.flatnonzero(status < kernel.ENDED))
        return bool((status < kernel.ENDED).any())

    def _give_up(self, rows: NDArray[np.int64]) -> None:
        """Cancel jobs that would wait forever, and say so of them."""
        self._change(loop.CANCEL, rows)
        numbers: dict[str, NDArray[Any]] = {
            "nodes": self.jobs.size[rows],
            "seconds": self.jobs.wall_time[rows],
        }
        columns = {name: values.astype(np.float64) for name, values in numbers.items()}
        self._findings += (Finding(STARVED, rows.astype(np.int64), columns),)

    def _lay_plan(self, plan: Schedule) -> None:
        """Put a plan in place of the present one, beside the occurrences to come."""
        waits = (
            self._machine.jobs["status"][self._rows.find(self._laid.entries.job)] == kernel.FUTURE
        )
        self._laid = self._laid.take(np.flatnonzero(waits))
        super()._lay_plan(Schedule.joined([self._of_jobs(plan), self._laid]))

    def _of_jobs(self, plan: Schedule) -> Schedule:
        rows = self._rows.find(plan.entries.job)
        return plan.take(np.flatnonzero(rows < self._count))

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        while True:
            point = super().advance(max_arrivals)
            ticks = point.arrivals == self._count
            ours = ticks.any() or (point.nodes_changed and not self._asks_nodes)
            if ticks.any():
                self._lay_out(self.now)
            if point.nodes_changed:
                self._end_killed()
            asks_nodes = point.nodes_changed and self._asks_nodes
            point = point._replace(arrivals=point.arrivals[~ticks], nodes_changed=asks_nodes)
            asks = len(point.arrivals) or point.passes or point.early_end or asks_nodes
            if asks or not ours:
                break
        early = point.early_end and len(self._of_jobs(self._plan_left())) > 0
        return point._replace(early_end=early, arrived=min(point.arrived, self._count))

    def _end_killed(self) -> None:
        """Let occurrences that began late, and whose node died since, not wait for another one."""
        rows = views.waiting(self._machine)
        queued = self._machine.jobs["status"][rows] == kernel.QUEUED
        if len(rows := rows[queued & (rows > self._count)]):
            self._change(loop.CANCEL, rows)

    def snapshot(self, states: Mapping[str, Any] | None = None) -> Snapshot:
        """Return what policies may see now; occurrences are in `periodic` alone."""
        seen = super().snapshot(states)
        queued = self._rows.find(seen.queued.id) < self._count
        running = self._rows.find(seen.running.id) < self._count
        return replace(
            seen,
            queued=seen.queued.take(np.flatnonzero(queued)),
            running=seen.running.take(np.flatnonzero(running)),
            allocations=seen.allocations.take(np.flatnonzero(running)),
            plan=self._of_jobs(seen.plan),
        )

    def events(self) -> Events:
        """Return what happened to jobs since the last time it was asked."""
        events = super().events()
        rows = np.flatnonzero(self._rows.find(events.jobs.id) < self._count)
        return Events(events.rows.take(rows), events.jobs.take(rows))

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        outcomes = super().job_outcomes()
        mine: dict[str, Any] = {
            name: every[: self._count] if isinstance(every, np.ndarray) else every
            for name, every in outcomes._asdict().items()
        }
        return JobOutcomes(**mine)._replace(findings=self._findings + outcomes.findings)

    def node_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return per job the nodes of its last start: offsets int64[n + 1], node rows int32[k]."""
        offsets, nodes = super().node_rows()
        offsets = offsets[: self._count + 1]
        return offsets, nodes[: int(offsets[-1])]

    def occupied(self) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
        """Return node, start and end of the occurrences that hold their nodes or did so last."""
        table = self._machine.jobs[self._count + 1 :]
        known = np.isfinite(table["start"])
        start = table["start"][known] + self.origin
        return table["first"][known].copy(), start, table["end"][known] + self.origin


def _out_of_service(cluster: Cluster, node_events: Sequence[NodeEvent]) -> Blocked:
    """Return when each node takes no jobs."""
    out: list[tuple[int, float, float, int]] = []
    since = dict.fromkeys(np.flatnonzero(~cluster.usable).tolist(), -math.inf)
    for event in sorted(node_events, key=lambda event: event.time):
        if event.state != NodeState.UP:
            since.setdefault(event.node, event.time)
        elif event.node in since:
            out.append((event.node, since.pop(event.node), event.time, WHOLE))
    return Blocked.of([*out, *((node, begin, math.inf, WHOLE) for node, begin in since.items())])


def _extended(jobs: Jobs, room: int) -> Jobs:
    """Return the jobs and, behind them, rows for occurrences and for the stops to lay them out."""
    if not room:
        return jobs
    rows = np.concatenate([np.arange(len(jobs)), np.full(room, len(jobs) - 1)])
    behind = np.arange(1, room + 1)
    last = math.ceil(float(jobs.submit[-1])) + 1.0
    return jobs.take(rows).replace(
        id=np.concatenate([jobs.id, jobs.id.max() + behind]),
        submit=np.concatenate([jobs.submit, last + behind]),
        begin=np.concatenate([jobs.begin, np.full(room, -np.inf)]),
        wall_time=np.concatenate([jobs.wall_time, np.full(room, np.inf)]),
        deadline=np.concatenate([jobs.deadline, np.full(room, np.inf)]),
        size=np.concatenate([jobs.size, np.ones(room, np.int32)]),
        kind=np.concatenate([jobs.kind, np.zeros(room, np.int8)]),
        memory=np.concatenate([jobs.memory, np.full(room, -1, np.int64)]),
        association=np.concatenate([jobs.association, np.full(room, -1, np.int32)]),
    )


def _static(
    static: StaticAnswers, refused: tuple[Finding, ...], n: int, room: int
) -> StaticAnswers:
    """Return static answers that also turn away `refused`, with no opinion on `room` more rows."""
    reject, priority, placement = static
    if reject is not None or refused:
        full = np.zeros(n + room, np.bool_)
        full[:n] = False if reject is None else reject
        for finding in refused:
            full[finding.rows] = True
        reject = full
    if priority is not None:
        priority = np.concatenate([priority, np.zeros(room)])
    if placement is not None:
        placement = Placement(
            np.concatenate([placement.size, np.zeros(room, np.int32)]),
            np.concatenate([placement.node_set, np.full(room, -1, np.int32)]),
            placement.node_sets,
            placement.fractions,
        )
    return StaticAnswers(reject, priority, placement)
