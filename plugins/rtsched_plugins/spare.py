"""Admission by spare capability: new task graphs beside periodic work, with every deadline kept.

A job with a deadline is admitted if it can end in time while every occurrence of the periodic work
and every job admitted before keeps what it was guaranteed. Jobs that depend on each other (one
`dag` key) are admitted or rejected together. Jobs without a deadline are not judged: they are best
effort.

Each task is reserved on its nodes with its finish as its deadline. What is planned stays where it
is; only the periodic work and what has been admitted decide, not the order of admission to come.

In the batch setting tasks are never suspended, and go to gaps between other work. A node has what
is left beside running jobs, until their requested ends; beside what is planned and what
reservations set aside; and beside every occurrence of its periodic work, from its release for as
long as it takes. Where jobs have whole nodes, each of these takes all of a node. The short form of
this, for replays on whole nodes without periodic work or graphs, makes the same choices, from the
rows of a workload in place of a snapshot's tables.

References
----------
He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: Dynamic scheduling of parallel real-time jobs by
modelling spare capabilities in heterogeneous clusters.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import (
    TENANCY,
    Capabilities,
    Edges,
    EventKind,
    Kind,
    PlanRows,
    Ragged,
    Reason,
    Schedule,
    State,
    Verdicts,
    are_in,
    demand_of,
    hookimpl,
    lacking,
    occurrences,
    offsets_of,
    room_of,
)
from rtsched.kernels.edf import NEVER, grid, hyperperiods, periodic_work, withdraw
from rtsched.kernels.edf import reserve as reserve_task
from rtsched_plugins.kernels.gaps import (
    GapRows,
    gap_for,
    keep_row,
    left_by_rows,
    plan_of_rows,
    reserve,
)
from rtsched_plugins.kernels.resource_plan import copied, left_beside
from rtsched_plugins.kernels.spare import PeriodicNodes, choose_node
from rtsched_plugins.spare_form import Batch, FoundPlace, TaskPlace, allowed_sets, bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.api import Cluster, Events, Jobs, RejectedRows, ReplayPlanner, Snapshot
    from rtsched.kernels.room import RoomProfile

    Rows = NDArray[np.int64]
    Times = NDArray[np.float64]

_NO_EDGES = Edges.build(0)

_PERIODS = 64
"""Behind everything planned the gaps are looked for this many longest periods far at most."""


class _GapForm:
    """What is left of each node, and what a batch takes of it.

    Parameters
    ----------
    gaps : GapRows
        Jobs and nodes.
    left : RoomProfile
        What is left of the nodes, from now on; changed.
    now : float
        Seconds since the epoch.
    closed : bool[m]
        The nodes that take no job.
    rows : int64[n]
        The new jobs' rows of `gaps`.
    """

    def __init__(
        self,
        gaps: GapRows,
        left: RoomProfile,
        now: float,
        closed: NDArray[np.bool_],
        rows: Rows,
    ) -> None:
        self._gaps, self._left, self._now, self._closed = gaps, left, now, closed
        self._rows = rows.tolist()

    @classmethod
    def of(cls, snapshot: Snapshot, jobs: Jobs, last: bool) -> _GapForm:
        """Return the form for new jobs; `last`: utilisation-first instead of response-first."""
        gaps = _gap_rows(jobs, snapshot.cluster, last)
        closed = ~np.asarray(snapshot.cluster.usable, np.bool_)
        return cls(gaps, _beside_all(snapshot, jobs), snapshot.now, closed, np.arange(len(jobs)))

    def choose(
        self,
        row: int,
        before: list[tuple[TaskPlace, float]],
        due: float,
        beyond: bool,  # noqa: ARG002 - it costs nothing here
    ) -> FoundPlace:
        """Choose the nodes of one task; as `Form.choose`."""
        now, row = self._now, self._rows[row]
        ready = np.where(self._closed, np.inf, max(float(self._gaps.begin[row]) - now, 0.0))
        for place, message in before:
            arrives = np.full(len(ready), place.end - now + message)
            arrives[place.nodes] = place.end - now
            ready = np.maximum(ready, arrives)
        found, nodes = gap_for(self._gaps, self._left, row, ready, due - now)
        at = TaskPlace(now + found.start, now + found.end, nodes) if len(nodes) else None
        return FoundPlace(at, now + found.later, found.fits)

    def take(self, row: int, place: TaskPlace, sign: int = 1) -> None:
        """Take what a task needs at a place (sign 1), or give it back (-1)."""
        now, row = self._now, self._rows[row]
        needed = 2 * (len(place.nodes) + 1)
        if self._left.unused[1] + needed > len(self._left.after):
            self._left = copied(self._left, needed + len(self._left.after))
        demand = self._gaps.demand[row : row + 1]
        reserve(self._left, demand, place.nodes, place.start - now, place.end - now, sign)


def _beside_all(snapshot: Snapshot, jobs: Jobs) -> RoomProfile:
    """Return what is left beside all that runs, is planned or set aside, and recurs.

    Nothing is left of a node with recurring work where its occurrences are not known any more.
    """
    cluster, blocked, now = snapshot.cluster, snapshot.blocked, snapshot.now
    held = Schedule.joined([snapshot.allocations, snapshot.plan, blocked.schedule()])
    start, end = held.entries.start - now, held.entries.end - now
    size, nodes = held.ragged.lengths, held.nodes
    demand = [demand_of(some, cluster) for some in (snapshot.running, snapshot.planned)]
    demand.append(blocked.demand(cluster))
    if len(snapshot.periodic):
        periodic, ahead = snapshot.periodic, _look_ahead(snapshot, jobs, end)
        row, begin, _ = occurrences(periodic, now, now + ahead)
        over, unknown = begin - now + periodic.exec_time[row], np.unique(periodic.node)
        start = np.concatenate([start, begin - now, np.full(len(unknown), ahead)])
        end = np.concatenate([end, over, np.full(len(unknown), np.inf)])
        size = np.concatenate([size, np.ones(len(row) + len(unknown), np.int64)])
        nodes = np.concatenate([nodes, periodic.node[row], unknown])
        whole = np.zeros((len(unknown), demand[0].shape[1]), np.int64)
        whole[:, -1] = TENANCY
        demand += [demand_of(periodic, cluster)[row], whole]
    spans = start, np.maximum(end, 0.0), Ragged(offsets_of(size), nodes)
    return left_beside(room_of(cluster), *spans, np.concatenate(demand), 0.0, len(cluster.licenses))


def _look_ahead(snapshot: Snapshot, jobs: Jobs, end: Times) -> float:
    """Return for how many seconds occurrences count: as far as a job may look for a gap.

    `end` is when all else ends, seconds from now.
    """
    period = snapshot.periodic.period
    due = jobs.deadline[np.isfinite(jobs.deadline)] - snapshot.now
    wall = jobs.wall_time[np.isfinite(jobs.wall_time)]
    slowest = snapshot.cluster.pace.min(initial=1.0)
    planned = end[np.isfinite(end)].max(initial=0.0)
    last = max(due.max(initial=0.0), planned) + wall.sum() / slowest
    multiple = int(np.lcm.reduce(np.maximum(period, 1.0).astype(np.int64).astype(object)))
    longest = float(period.max())
    return float(last + min(float(multiple), _PERIODS * longest) + 2 * longest)


_MOST_NODES = 1 << 27
"""Nodes of all jobs together, at most."""


def _gap_rows(jobs: Jobs, cluster: Cluster, last: bool) -> GapRows:
    """Return jobs and nodes as the kernels want them; none is planned, nor is there room for it."""
    allowed, code = allowed_sets(jobs, cluster)
    never = np.full(len(jobs), np.nan)
    return GapRows(
        room=room_of(cluster),
        pace=np.array(cluster.pace, np.float64),
        allowed=allowed,
        code=np.where(lacking(jobs, cluster) & cluster.shared, len(allowed) - 1, code),
        pinned=jobs.pinned.astype(np.int64),
        size=jobs.size.astype(np.int64),
        demand=demand_of(jobs, cluster),
        wall=np.array(jobs.wall_time, np.float64),
        begin=np.array(jobs.begin, np.float64),
        deadline=np.array(jobs.deadline, np.float64),
        last=last,
        judged=np.zeros(0, np.bool_),
        start=never,
        end=never.copy(),
        at=np.zeros(len(jobs), np.int64),
        nodes=np.empty(0, np.int32),
    )


def _gap_planner(plugin: Spare, jobs: Jobs, cluster: Cluster) -> RowsInGaps | None:
    """Return the short form for these jobs; None where nodes are shared, or there are graphs."""
    size = jobs.size.astype(np.int64)
    if cluster.shared or len(cluster.licenses) or (jobs.dag >= 0).any():
        return None
    if int(size.sum()) > _MOST_NODES or (size < 1).any():
        return None
    return RowsInGaps(plugin, jobs, cluster)


class RowsInGaps:
    """Answers about the jobs of one workload (`rtsched.api.ReplayPlanner`).

    Parameters
    ----------
    plugin : Spare
        Whose short form it is.
    jobs : Jobs
        The workload, `n` rows.
    cluster : Cluster
        Its nodes.
    """

    def __init__(self, plugin: Spare, jobs: Jobs, cluster: Cluster) -> None:
        self.plugin, self.jobs = plugin, jobs
        judged = np.isfinite(jobs.deadline) & (jobs.kind != Kind.ARRAY)
        self.answers: NDArray[np.bool_] = judged & bounded(jobs)
        gaps = _gap_rows(jobs, cluster, plugin.config.select == "utilisation-first")
        at = offsets_of(gaps.size)
        listed = np.zeros(int(at[-1]), np.int32)
        self.gaps = gaps._replace(judged=self.answers, at=at[:-1], nodes=listed)

    def judge(
        self,
        rows: Rows,
        now: float,
        held_until: Times,
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        closed = held_until == np.inf
        for entry, row in enumerate(plan.row.tolist()):
            if self.gaps.start[row] != plan.start[entry]:
                nodes = plan.nodes[plan.indptr[entry] : plan.indptr[entry + 1]]
                keep_row(self.gaps, row, plan.start[entry], plan.end[entry], nodes)
        left = left_by_rows(self.gaps, plan.row, now, held_until)
        form = _GapForm(self.gaps, left, now, closed, rows)
        batch = Batch(self.plugin, self.jobs.take(rows), form, now, promises())
        batch.judge(_NO_EDGES)
        new = rows[list(batch.places)]
        if not len(new):
            return batch.verdicts(), None
        for row, place in zip(new.tolist(), batch.places.values(), strict=True):
            keep_row(self.gaps, row, *place)
        all_rows = np.concatenate([plan.row, new])
        anew = PlanRows(all_rows, *plan_of_rows(self.gaps, all_rows)[1:5])
        return batch.verdicts() if len(new) < len(rows) else None, anew

    def improve(self, now: float, held_until: Times, plan: PlanRows) -> None:  # noqa: ARG002
        """Return that there is no better plan: what is planned stays where it is."""
        return

    def compiled_policy(self) -> GapRows:
        """Return its compiled form; as `rtsched.api.ReplayPlanner.compiled_policy`."""
        return self.gaps

    def verdicts(self, rejected: RejectedRows) -> Verdicts:
        """Return why it rejected jobs: the compiled form leaves that to `judge`."""
        return Verdicts.abstain(len(rejected.row))


class Executed(State, frozen=True):
    """How long jobs have run that have a deadline, or are part of a graph, and have not ended.

    `seconds` up to `since`, the start of the piece that runs now; `since` is inf while the job is
    suspended.
    """

    job: NDArray[np.int64]
    seconds: NDArray[np.float64]
    since: NDArray[np.float64]


class Spare:
    """Admit task graphs with a deadline into the capacity that periodic work leaves."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        form: Literal["gaps", "edf"] = "gaps"
        """`gaps`: jobs are not suspended; each uses one gap between fixed work, on whole nodes or
        beside others on nodes that they share. `edf`: every job can be suspended; single-processor
        nodes run the work with the earliest deadline (machine `preemptive`)."""
        select: Literal["response-first", "utilisation-first"] = "response-first"
        """Among the nodes on which a task meets its deadline, choose the one where it ends first,
        or the one where it ends last."""
        slot: Annotated[float, Meta(gt=0)] = 1.0
        """Form `edf`: seconds per slot, as the machine's setting says."""
        offer_tests: Annotated[int, Meta(ge=0)] = 64
        """Maximum number of admission tests per counter-offer; 0: no counter-offer.
        Utilisation-first offers none where they do not suffice."""

    no_room = Reason(
        "spare.no-room",
        "task {task} cannot meet its deadline in {left:time} beside {promises:promise} and "
        "{periodic:periodic job}; {fits} of {nodes:node} would be free together in time",
    )
    no_spare = Reason(
        "spare.no-capability",
        "task {task} cannot meet its deadline in {left:time} on any node beside {promises:promise} "
        "and {periodic:periodic job}",
    )
    endless = Reason(
        "spare.endless", "job {task} states no run time, so its end cannot be predicted"
    )
    array = Reason("spare.array", "job {task} is an array; this planner gives arrays no promise")
    cyclic = Reason("spare.cyclic", "job {task} depends on itself")
    waits = Reason("spare.waits", "waits for job {task}, whose end cannot be predicted")
    wide = Reason(
        "spare.wide",
        "requests {nodes:node}; where tasks are suspended each runs on one node",
    )

    capabilities = Capabilities(
        keeps_periodic=True,
        follows_dependencies=True,
        judges_only_deadlines=True,
        plans_resources=True,
    )

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        if self.config.form == "edf":
            every = self.config.slot
            self.capabilities = replace(
                self.capabilities, suspends_every=every, plans_resources=False
            )
        else:
            self.capabilities = replace(self.capabilities, replay_planner=self.replay_planner)
            self.rtsched_observe = None  # type: ignore[method-assign, assignment]  # not told

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:
        """Return its short form for a replay of these jobs; None: it has none."""
        return _gap_planner(self, jobs, cluster)

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, state: Executed | None
    ) -> Verdicts | None:
        """Judge graph by graph in order of (submit, id), each against all admitted before it."""
        if not np.isfinite(jobs.deadline).any():
            return None
        edf, last = self.config.form == "edf", self.config.select == "utilisation-first"
        form = (
            EdfForm.of(snapshot, jobs, self.config.slot, last, state)
            if edf
            else _GapForm.of(snapshot, jobs, last)
        )
        counts = len(snapshot.promises), len(snapshot.periodic)
        batch = Batch(self, jobs, form, snapshot.now, *counts)
        if len(snapshot.edges):
            batch.follow(snapshot)
        batch.judge(snapshot.edges)
        if not batch.places:
            return batch.verdicts()
        start, end, nodes = zip(*batch.places.values(), strict=True)
        added = Schedule.build(jobs.id[list(batch.places)], start, end, *Ragged.of(nodes))
        plan = Schedule.joined([snapshot.plan, replace(added, preemptive=edf)])
        return replace(batch.verdicts(), plan=plan)

    @hookimpl
    def rtsched_observe(self, events: Events, state: Executed | None) -> Executed | None:
        """Add up how long jobs have run that may have a promise; only form `edf` needs it."""
        kinds = (EventKind.STARTED, EventKind.SUSPENDED, EventKind.RESUMED, EventKind.ENDED)
        announced = np.isfinite(events.jobs.deadline) | (events.jobs.dag >= 0)
        announced &= np.isin(events.rows.kind, kinds)
        if not announced.any():
            return None
        table: dict[int, tuple[float, float]] = {}
        if state is not None:
            pairs = zip(state.seconds.tolist(), state.since.tolist(), strict=True)
            table = dict(zip(state.job.tolist(), pairs, strict=True))
        columns = (
            events.jobs.id[announced],
            events.rows.kind[announced],
            events.rows.time[announced],
        )
        for job, kind, time in zip(*(column.tolist() for column in columns), strict=True):
            seconds, since = table.pop(job, (0.0, np.inf))
            if kind != EventKind.ENDED:
                goes_on = kind in {EventKind.STARTED, EventKind.RESUMED}
                seconds += max(time - since, 0.0)
                table[job] = (seconds, time if goes_on else np.inf)
        values = np.array([(job, *pair) for job, pair in sorted(table.items())]).reshape(-1, 3)
        return Executed(values[:, 0].astype(np.int64), values[:, 1].copy(), values[:, 2].copy())


class EdfForm:
    """The nodes' work at the first slot boundary from now on, and what is reserved on them.

    Parameters
    ----------
    machine : PeriodicNodes
        The nodes; its `work` has a row for each new job.
    slot : float
        Seconds per slot.
    last : bool
        Utilisation-first instead of response-first.
    begin : float64[n]
        Before that the new jobs must not run, seconds since the epoch.
    costs : int64[n, m]
        Slots that they take on each node; 0: they cannot run there.
    """

    def __init__(
        self,
        machine: PeriodicNodes,
        slot: float,
        last: bool,
        begin: NDArray[np.float64],
        costs: NDArray[np.int64],
    ) -> None:
        self._machine, self._slot, self._last = machine, slot, last
        self._ready, self._costs = np.maximum(grid(begin, slot, up=True), machine.now), costs

    @classmethod
    def of(
        cls, snapshot: Snapshot, jobs: Jobs, slot: float, last: bool, state: Executed | None = None
    ) -> EdfForm:
        """Return the form for new jobs; `state` says how long promised ones have run so far."""
        now, cluster = math.ceil(snapshot.now / slot - 1e-6), snapshot.cluster
        held = _held(snapshot, slot, state)
        count = len(jobs) + len(held[0])
        work = periodic_work(snapshot.periodic, len(cluster), now, slot, count)
        for row, (node, *reserved) in enumerate(np.transpose(held).tolist(), len(jobs)):
            reserve_task(work, node, row, *reserved)
        sets, code = allowed_sets(jobs, cluster)
        usable = sets[code] & cluster.usable
        usable &= (jobs.pinned[:, None] < 0) | (jobs.pinned[:, None] == np.arange(len(cluster)))
        costs = np.maximum(grid(jobs.wall_time[:, None] / cluster.pace, slot, up=True), 1)
        machine = PeriodicNodes(now, work, *hyperperiods(work))
        return cls(machine, slot, last, jobs.begin, np.where(usable, costs, 0))

    def choose(
        self, row: int, before: list[tuple[TaskPlace, float]], due: float, beyond: bool
    ) -> FoundPlace:
        """Choose the node of one task; as `Form.choose`."""
        slot, costs = self._slot, self._costs[row]
        ready = np.full(len(costs), self._ready[row])
        for place, message in before:
            ends, travels = grid(np.array([place.end, message]), slot, up=True).tolist()
            arrives = np.full(len(ready), ends + travels)
            arrives[place.nodes] = ends
            ready = np.maximum(ready, arrives)
        deadline = int(grid(np.array(due), slot, up=False))
        node, end, late = choose_node(self._machine, ready, costs, deadline, self._last, beyond)
        later = late * slot if late < NEVER else np.inf
        if node < 0:
            return FoundPlace(None, later)
        at = TaskPlace(ready[node] * slot, end * slot, np.array([node], np.int32))
        return FoundPlace(at, later)

    def take(self, row: int, place: TaskPlace, sign: int = 1) -> None:
        """Reserve a place, with its end as the deadline, or withdraw it; as `Form.take`."""
        node, work = int(place.nodes[0]), self._machine.work
        if sign < 0:
            withdraw(work, node, row)
            return
        times = round(place.start / self._slot), round(place.end / self._slot)
        reserve_task(work, node, row, *times, int(self._costs[row, node]))


def _held(snapshot: Snapshot, slot: float, state: Executed | None) -> tuple[NDArray[np.int64], ...]:
    """Return node, release, deadline and slots left of every reservation there is."""
    done: dict[int, float] = {}
    if state is not None:
        boundary = np.ceil(snapshot.now / slot - 1e-6) * slot
        running = np.maximum(boundary - state.since, 0.0)
        done = dict(zip(state.job.tolist(), (state.seconds + running).tolist(), strict=True))
    kept = are_in(snapshot.running.id, snapshot.promises.job)
    started = snapshot.allocations.take(np.flatnonzero(kept))
    schedule = Schedule.joined([snapshot.plan, started])
    wall = np.concatenate([snapshot.planned.wall_time, snapshot.running.wall_time[kept]])
    node = schedule.nodes[schedule.indptr[:-1]].astype(np.int64)
    left = grid(wall / snapshot.cluster.pace[node], slot, up=True)
    executed = np.array([done.get(job, 0.0) for job in schedule.entries.job.tolist()], np.float64)
    left = np.maximum(left - grid(executed, slot, up=False), 0)
    release = grid(schedule.entries.start, slot, up=True)
    return node, release, grid(schedule.entries.end, slot, up=False), left
