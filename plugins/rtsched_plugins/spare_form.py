"""Trials of task graphs by spare capability, and batches of jobs judged by them graph by graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from rtsched.api import Finding, Kind, Ragged, Schedule, Verdict, Verdicts, allowed_nodes
from rtsched_plugins.task_graphs import graphs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Reason, Snapshot
    from rtsched_plugins.spare import Spare
    from rtsched_plugins.task_graphs import Graph


class Place(NamedTuple):
    """Where and when a task or an outer predecessor runs; seconds since the epoch."""

    start: float
    end: float
    nodes: NDArray[np.int32]


@dataclass(frozen=True)
class Trial:
    """What came of placing a graph, task by task.

    Attributes
    ----------
    places : tuple of Place
        Up to the first task that failed.
    failed : bool
        Whether one did.
    later : float
        The least later deadline, the same for all tasks, at which a choice could be another.
    fits : int
        Nodes that the task that failed could have had together in time.
    """

    places: tuple[Place, ...]
    failed: bool
    later: float = np.inf
    fits: int = 0


class Form(Protocol):
    """Where tasks can run beside what is guaranteed already."""

    def place(
        self,
        graph: Graph,
        deadline: NDArray[np.float64],
        known: dict[int, Place],
        beyond: bool = False,
    ) -> Trial:
        """Place a graph's tasks by these deadlines; nothing is kept."""

    def keep(self, graph: Graph, trial: Trial) -> None:
        """Reserve what a trial has found."""


def known_places(snapshot: Snapshot, *, promised: bool) -> dict[int, Place]:
    """Return where jobs run or will run of which an end is certain, by job id.

    With `promised` that is so only for those with a promise: others may be pre-empted.
    """
    known = {}
    running = snapshot.allocations
    if promised:
        kept = np.isin(running.entries.job, snapshot.promises.job)
        running = running.take(np.flatnonzero(kept))
    for schedule in (running, snapshot.plan):
        entries = schedule.entries
        columns = zip(
            entries.job.tolist(), entries.start.tolist(), entries.end.tolist(), strict=True
        )
        for row, (job, start, end) in enumerate(columns):
            known[job] = Place(start, end, schedule.nodes_of(row))
    return known


def least_offer(
    form: Form,
    graph: Graph,
    deadline: NDArray[np.float64],
    known: dict[int, Place],
    tests: int,
    last: bool,
) -> float:
    """Return the least deadline for all tasks of a rejected graph that would be accepted, or inf.

    A task keeps its own deadline where that is later. Response-first chooses the same whatever the
    deadline is, so one trial without deadlines tells when the late tasks end. Utilisation-first
    chooses by the deadline, and accepts a later one less readily than an earlier one at times. But
    its choices stay the same until the deadline reaches the next finish that was too late, so
    those, one after the other, are all that must be tried.
    """
    if not last:
        trial = form.place(graph, np.full(len(deadline), np.inf), known)
        ends = np.array([place.end for place in trial.places])
        if trial.failed:
            return float("inf")
        return float(ends[ends > deadline].max(initial=-np.inf))
    offer = -np.inf
    for _ in range(tests):
        trial = form.place(graph, np.maximum(deadline, offer), known, beyond=True)
        if not trial.failed:
            return offer
        offer = trial.later
        if not np.isfinite(offer):
            break
    return float("inf")


def usable_nodes(jobs: Jobs, row: int, snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return bool[m]: the nodes that take new jobs and that this job may use."""
    cluster = snapshot.cluster
    usable: NDArray[np.bool_] = np.array(cluster.usable, np.bool_)
    (code,), masks = allowed_nodes(jobs.take([row]), cluster)
    if code >= 0:
        usable &= masks[code]
    if jobs.pinned[row] >= 0:
        usable &= np.arange(len(cluster)) == jobs.pinned[row]
    return usable


def bounded(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs say how long they run."""
    known = np.isfinite(jobs.wall_time) & (jobs.kind != Kind.DIVISIBLE)
    return np.asarray(known, np.bool_)


class Batch:
    """The answer on a batch as it grows; what is admitted is kept in the form."""

    def __init__(self, plugin: Spare, jobs: Jobs, snapshot: Snapshot, form: Form) -> None:
        self.plugin, self.jobs, self.snapshot, self.form = plugin, jobs, snapshot, form
        self._edf = plugin.config.form == "edf"
        self._last = plugin.config.select == "utilisation-first"
        self._code = np.zeros(len(jobs), np.int8)
        self._promise, self._offer = np.full(len(jobs), np.inf), np.full(len(jobs), np.inf)
        self._findings: list[Finding] = []
        self._known: dict[int, Place] = {}
        self._uncertain: set[int] = set()
        if len(snapshot.edges):
            self._known = known_places(snapshot, promised=self._edf)
            there = [*snapshot.queued.id.tolist(), *snapshot.running.id.tolist()]
            self._uncertain = set(there) - self._known.keys()
        self._new: dict[int, Place] = {}

    def judge(self) -> None:
        """Judge all graphs in order of (submit, id); without a deadline they are left alone."""
        for graph in graphs_of(self.jobs, self.snapshot.edges):
            rows = np.concatenate([graph.rows, graph.stuck])
            own = self.jobs.deadline[rows]
            if not np.isfinite(own).any():
                self._uncertain |= set(self.jobs.id[rows].tolist())
                continue
            common = own[np.isfinite(own)].max()
            self._judge(graph, rows, np.where(np.isfinite(own), own, common))

    def _judge(self, graph: Graph, rows: NDArray[np.int64], deadline: NDArray[np.float64]) -> None:
        if self._impossible(graph, rows):
            self._reject(rows)
            return
        trial = self.form.place(graph, deadline, self._known)
        if trial.failed:
            self._say_no_room(graph, deadline, len(trial.places), trial.fits)
            tests = self.plugin.config.offer_tests
            offer = (
                least_offer(self.form, graph, deadline, self._known, tests, self._last)
                if tests
                else np.inf
            )
            self._offer[rows] = np.maximum(offer, deadline) if np.isfinite(offer) else np.inf
            self._reject(rows)
            return
        self.form.keep(graph, trial)
        self._code[rows], self._promise[rows] = Verdict.ADMIT, deadline
        for row, place in zip(graph.rows.tolist(), trial.places, strict=True):
            job = int(self.jobs.id[row])
            self._known[job] = self._new[job] = place

    def _reject(self, rows: NDArray[np.int64]) -> None:
        self._code[rows] = Verdict.REJECT
        self._uncertain |= set(self.jobs.id[rows].tolist())

    def _impossible(self, graph: Graph, rows: NDArray[np.int64]) -> bool:
        """Say what is wrong with a graph whatever its deadline is; return whether something is."""
        jobs, plugin = self.jobs, self.plugin
        ids = set(jobs.id[rows].tolist())
        outer = [job for job in graph.before.tolist() if job in self._uncertain - ids]
        wide = self._edf and jobs.size[rows].max() > 1
        endless, arrays = ~bounded(jobs)[rows], jobs.kind[rows] == Kind.ARRAY
        if len(graph.stuck):
            self._say(rows, plugin.cyclic, task=jobs.id[graph.stuck].min())
        elif outer:
            self._say(rows, plugin.waits, task=min(outer))
        elif arrays.any():
            self._say(rows, plugin.array, task=jobs.id[rows[arrays]].min())
        elif endless.any():
            self._say(rows, plugin.endless, task=jobs.id[rows[endless]].min())
        elif wide:
            self._say(rows, plugin.wide, nodes=jobs.size[rows].max())
        else:
            return False
        return True

    def _say_no_room(
        self, graph: Graph, deadline: NDArray[np.float64], task: int, fits: int
    ) -> None:
        numbers: dict[str, float] = {
            "task": self.jobs.id[graph.rows[task]],
            "left": deadline[task] - self.snapshot.now,
            "promises": len(self.snapshot.promises) + len(self._new),
            "periodic": len(self.snapshot.periodic),
        }
        if self._edf:
            self._say(graph.rows, self.plugin.no_spare, **numbers)
            return
        numbers |= {"fits": fits, "nodes": int(self.jobs.size[graph.rows[task]])}
        self._say(graph.rows, self.plugin.no_room, **numbers)

    def _say(self, rows: NDArray[np.int64], reason: Reason, **numbers: float) -> None:
        full = {name: np.full(len(rows), float(value)) for name, value in numbers.items()}
        self._findings.append(Finding(reason, rows.astype(np.int64), full))

    def verdicts(self) -> Verdicts:
        """Return the answer, with the whole plan where something was admitted."""
        plan = None
        if self._new:
            places = list(self._new.values())
            added = Schedule.build(
                list(self._new),
                [place.start for place in places],
                [place.end for place in places],
                *Ragged.of([place.nodes for place in places]),
            )
            plan = Schedule.joined([self.snapshot.plan, replace(added, preemptive=self._edf)])
        retry_at = np.full(len(self.jobs), -np.inf)
        return Verdicts(
            self._code, retry_at, self._promise, self._offer, tuple(self._findings), plan
        )
