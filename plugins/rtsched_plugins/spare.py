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

from rtsched.api import Capabilities, EventKind, Reason, Schedule, State, hookimpl
from rtsched.kernels.edf import NEVER, grid, hyperperiods, periodic_work, reserve
from rtsched_plugins.kernels.spare import Machine, Places, Tasks, place_graph
from rtsched_plugins.spare_form import Batch, Place, Trial, usable_nodes
from rtsched_plugins.spare_gaps import GapForm, gap_planner

if TYPE_CHECKING:
    from rtsched.api import Cluster, Events, Jobs, ReplayPlanner, Snapshot, Verdicts
    from rtsched_plugins.spare_form import Form
    from rtsched_plugins.task_graphs import Graph


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
        batch = Batch(self, jobs, snapshot, self._form(jobs, snapshot, state))
        batch.judge()
        return batch.verdicts()

    def _form(self, jobs: Jobs, snapshot: Snapshot, state: Executed | None) -> Form:
        last = self.config.select == "utilisation-first"
        if self.config.form == "gaps":
            return GapForm(snapshot, jobs, last)
        done: dict[int, float] = {}
        if state is not None:
            boundary = np.ceil(snapshot.now / self.config.slot - 1e-6) * self.config.slot
            running = np.maximum(boundary - state.since, 0.0)
            done = dict(zip(state.job.tolist(), (state.seconds + running).tolist(), strict=True))
        return EdfForm(snapshot, jobs, self.config.slot, last, done)

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
    snapshot : Snapshot
        The state that a batch is judged against.
    jobs : Jobs
        The new jobs.
    slot : float
        Seconds per slot.
    last : bool
        Utilisation-first instead of response-first.
    executed : mapping of job id to seconds
        How long promised jobs that have started have run so far.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        jobs: Jobs,
        slot: float,
        last: bool,
        executed: dict[int, float],
    ) -> None:
        self.snapshot, self.jobs, self.slot, self.last = snapshot, jobs, slot, last
        self._now = math.ceil(snapshot.now / slot - 1e-6)
        held = self._held(executed)
        self._room = len(jobs)
        work = periodic_work(
            snapshot.periodic, len(snapshot.cluster), self._now, slot, 2 * self._room + len(held[0])
        )
        for row, (node, release, deadline, left) in enumerate(np.transpose(held).tolist()):
            reserve(work, node, self._room + row, release, deadline, left)
        self._next = self._room + len(held[0])
        self._machine = Machine(self._now, work, *hyperperiods(work))

    def _held(self, executed: dict[int, float]) -> tuple[NDArray[np.int64], ...]:
        """Return node, release, deadline and slots left of every reservation there is."""
        snapshot = self.snapshot
        kept = np.isin(snapshot.running.id, snapshot.promises.job)
        running = snapshot.allocations.take(np.flatnonzero(kept))
        schedule = Schedule.joined([snapshot.plan, running])
        wall = np.concatenate([snapshot.planned.wall_time, snapshot.running.wall_time[kept]])
        node = schedule.nodes[schedule.indptr[:-1]].astype(np.int64)
        left = grid(wall / snapshot.cluster.pace[node], self.slot, up=True)
        ids = schedule.entries.job.tolist()
        done = np.array([executed.get(job, 0.0) for job in ids], np.float64)
        left = np.maximum(left - grid(done, self.slot, up=False), 0)
        release = grid(schedule.entries.start, self.slot, up=True)
        return node, release, grid(schedule.entries.end, self.slot, up=False), left

    def place(
        self,
        graph: Graph,
        deadline: NDArray[np.float64],
        known: dict[int, Place],
        beyond: bool = False,
    ) -> Trial:
        """Place a graph's tasks by these deadlines, seconds since the epoch; nothing is kept."""
        tasks, places = self._tasks(graph, deadline, known)
        failed, later = place_graph(self._machine, tasks, places, self.last, beyond)
        outer = len(places.node) - len(graph.rows)
        count = len(graph.rows) if failed < 0 else failed
        found = tuple(
            Place(ready * self.slot, finish * self.slot, np.array([node], np.int32))
            for node, ready, finish in zip(
                *(column[outer : outer + count].tolist() for column in places), strict=True
            )
        )
        return Trial(found, failed >= 0, later * self.slot if later < NEVER else np.inf)

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found: each task's deadline becomes its finish."""
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            node = int(place.nodes[0])
            times = round(place.start / self.slot), round(place.end / self.slot)
            cost = int(self._costs(np.array([row]), np.array([node]))[0, 0])
            reserve(self._machine.work, node, self._next, *times, cost)
            self._next += 1

    def _tasks(
        self, graph: Graph, deadline: NDArray[np.float64], known: dict[int, Place]
    ) -> tuple[Tasks, Places]:
        """Return the graph as the kernel wants it; predecessors that have ended are left out."""
        rows, ids = graph.rows.tolist(), self.jobs.id[graph.rows].tolist()
        inner = {job: place for place, job in enumerate(ids)}
        outer = [job for job in dict.fromkeys(graph.before.tolist()) if job in known]
        outer = [job for job in outer if job not in inner]
        at = {job: place for place, job in enumerate(outer)}
        at.update({job: len(outer) + place for job, place in inner.items()})
        waits = np.isin(graph.before, np.array(list(at), np.int64))
        kept = np.concatenate([[0], np.cumsum(waits)])[graph.before_of]
        before = np.array([at[job] for job in graph.before[waits].tolist()], np.int64)
        ready = np.maximum(self.jobs.begin[graph.rows], self._now * self.slot)
        node = np.full(len(outer) + len(rows), -1, np.int64)
        finish = np.full(len(node), self._now, np.int64)
        for place, job in enumerate(outer):
            node[place] = known[job].nodes[0]
            finish[place] = math.ceil(known[job].end / self.slot - 1e-6)
        tasks = Tasks(
            grid(ready, self.slot, up=True),
            np.where(self._usable(rows), self._costs(graph.rows), 0),
            grid(deadline, self.slot, up=False),
            kept,
            before,
            grid(graph.message[waits], self.slot, up=True),
        )
        return tasks, Places(node, np.zeros(len(node), np.int64), finish)

    def _costs(
        self, rows: NDArray[np.int64], nodes: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.int64]:
        """Return the slots that jobs take on nodes, a line per job, at least 1."""
        seconds = self.jobs.wall_time[rows, None] / self.snapshot.cluster.pace[nodes]
        return np.maximum(grid(seconds, self.slot, up=True), 1)

    def _usable(self, rows: list[int]) -> NDArray[np.bool_]:
        """Return which nodes each of these jobs may use; jobs mostly may use the same."""
        columns = (self.jobs.partition, self.jobs.node_request, self.jobs.pinned)
        kinds = zip(*(column[rows].tolist() for column in columns), strict=True)
        known: dict[tuple[int, ...], NDArray[np.bool_]] = {}
        lines = []
        for row, kind in zip(rows, kinds, strict=True):
            if kind not in known:
                known[kind] = usable_nodes(self.jobs, row, self.snapshot)
            lines.append(known[kind])
        return np.array(lines)
