"""Admission by spare capability: new task graphs beside periodic work, with every deadline kept.

A job with a deadline is admitted if it can end in time while every occurrence of the periodic work
and every job admitted before keeps what it was guaranteed. Jobs that depend on each other (one
`dag` key) are admitted or rejected together. Jobs without a deadline are not judged: they are best
effort.

Each task is reserved on its nodes with its finish as its deadline. What is planned stays where it
is; only the periodic work and what has been admitted decide, not the order of admission to come.

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

from rtsched.api import Capabilities, EventKind, Ragged, Reason, Schedule, State, are_in, hookimpl
from rtsched.kernels.edf import NEVER, grid, hyperperiods, periodic_work, reserve, withdraw
from rtsched_plugins.kernels.spare import Machine, choose_node
from rtsched_plugins.spare_form import Batch, Choice, Place, allowed_sets
from rtsched_plugins.spare_gaps import GapForm, gap_planner

if TYPE_CHECKING:
    from rtsched.api import Cluster, Events, Jobs, ReplayPlanner, Snapshot, Verdicts


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
        return gap_planner(self, jobs, cluster)

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
            else GapForm.of(snapshot, jobs, last)
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
    machine : Machine
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
        machine: Machine,
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
            reserve(work, node, row, *reserved)
        sets, code = allowed_sets(jobs, cluster)
        usable = sets[code] & cluster.usable
        usable &= (jobs.pinned[:, None] < 0) | (jobs.pinned[:, None] == np.arange(len(cluster)))
        costs = np.maximum(grid(jobs.wall_time[:, None] / cluster.pace, slot, up=True), 1)
        machine = Machine(now, work, *hyperperiods(work))
        return cls(machine, slot, last, jobs.begin, np.where(usable, costs, 0))

    def choose(
        self, row: int, before: list[tuple[Place, float]], due: float, beyond: bool
    ) -> Choice:
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
            return Choice(None, later)
        return Choice(Place(ready[node] * slot, end * slot, np.array([node], np.int32)), later)

    def take(self, row: int, place: Place, sign: int = 1) -> None:
        """Reserve a place, with its end as the deadline, or withdraw it; as `Form.take`."""
        node, work = int(place.nodes[0]), self._machine.work
        if sign < 0:
            withdraw(work, node, row)
            return
        times = round(place.start / self._slot), round(place.end / self._slot)
        reserve(work, node, row, *times, int(self._costs[row, node]))


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
