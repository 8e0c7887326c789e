"""Trials of task graphs by spare capability, and batches of jobs judged by them graph by graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from rtsched.api import Finding, Kind, Verdict, Verdicts, allowed_nodes, are_in
from rtsched_plugins.task_graphs import graphs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Edges, Jobs, Reason, Snapshot
    from rtsched_plugins.spare import Spare
    from rtsched_plugins.task_graphs import Graph


class TaskPlace(NamedTuple):
    """Where and when a task or an outer predecessor runs; seconds since the epoch."""

    start: float
    end: float
    nodes: NDArray[np.int32]


class FoundPlace(NamedTuple):
    """What was found for one task."""

    place: TaskPlace | None
    """None: it meets its deadline nowhere."""
    later: float
    """The least end that was too late, seconds since the epoch; inf: none was seen."""
    fits: int = 0
    """Nodes that it could have had together in time."""


class Trial(NamedTuple):
    """What came of placing a graph, task by task."""

    places: list[TaskPlace]
    """Up to the first task that failed."""
    failed: bool
    """Whether one did."""
    later: float
    """The least later deadline, the same for all tasks, at which a choice could be another."""
    fits: int
    """Nodes that the task that failed could have had together in time."""


class Form(Protocol):
    """Where tasks can run beside what is guaranteed already; tasks are rows of jobs."""

    def choose(
        self, row: int, before: list[tuple[TaskPlace, float]], due: float, beyond: bool
    ) -> FoundPlace:
        """Choose the nodes of one task; nothing is kept.

        Parameters
        ----------
        row : int
        before : list
            The places of its predecessors, and the seconds for which their results travel to
            another node.
        due : float
            Seconds since the epoch.
        beyond : bool
            Whether `FoundPlace.later` is wanted; that may take longer.
        """

    def take(self, row: int, place: TaskPlace, sign: int = 1) -> None:
        """Take what a task needs at a place (sign 1), or give it back (-1)."""


def place_graph(
    form: Form,
    graph: Graph,
    deadline: NDArray[np.float64],
    known: dict[int, TaskPlace],
    beyond: bool = False,
) -> Trial:
    """Place a graph's tasks by these deadlines, seconds since the epoch; nothing is kept.

    Predecessors that are not `known`, by job id, have ended.
    """
    known, places, later, fits = dict(known), list[TaskPlace](), np.inf, 0
    rows = graph.rows.tolist()
    for task, row in enumerate(rows):
        if places:
            form.take(rows[task - 1], places[-1])
        span = slice(graph.before_of[task], graph.before_of[task + 1])
        pairs = zip(graph.before[span].tolist(), graph.message[span].tolist(), strict=True)
        before = [(known[job], message) for job, message in pairs if job in known]
        found = form.choose(row, before, float(deadline[task]), beyond)
        later = min(later, found.later)
        if found.place is None:
            fits = found.fits
            break
        places.append(found.place)
        known[int(graph.job[task])] = found.place
    failed = len(places) < len(rows)
    for row, place in zip(rows, places if failed else places[:-1], strict=False):
        form.take(row, place, -1)
    return Trial(places, failed, later, fits)


def known_places(snapshot: Snapshot, *, promised: bool) -> dict[int, TaskPlace]:
    """Return where jobs run or will run of which an end is certain, by job id.

    With `promised` that is so only for those with a promise: others may be pre-empted.
    """
    known = {}
    running = snapshot.allocations
    if promised:
        kept = are_in(running.entries.job, snapshot.promises.job)
        running = running.take(np.flatnonzero(kept))
    for schedule in (running, snapshot.plan):
        entries = schedule.entries
        columns = zip(
            entries.job.tolist(), entries.start.tolist(), entries.end.tolist(), strict=True
        )
        for row, (job, start, end) in enumerate(columns):
            known[job] = TaskPlace(start, end, schedule.nodes_of(row))
    return known


def least_offer(
    form: Form,
    graph: Graph,
    deadline: NDArray[np.float64],
    known: dict[int, TaskPlace],
    tests: int,
    last: bool,
    trial: Trial,
) -> float:
    """Return the least deadline for all tasks of a rejected graph that would be accepted, or inf.

    A task keeps its own deadline where that is later. Response-first chooses the same whatever the
    deadline is, so one trial without deadlines tells when the late tasks end. Utilisation-first
    chooses by the deadline, and accepts a later one less readily than an earlier one at times. But
    its choices stay the same until the deadline reaches the next finish that was too late, so
    those, one after the other, are all that must be tried. `trial` is the one that failed; of a
    graph of one task it may tell the end already.
    """
    if not last and len(graph.rows) == 1 and np.isfinite(trial.later):
        return trial.later
    if not last:
        trial = place_graph(form, graph, np.full(len(deadline), np.inf), known)
        ends = np.array([place.end for place in trial.places])
        if trial.failed:
            return float("inf")
        return float(ends[ends > deadline].max(initial=-np.inf))
    offer = -np.inf
    for _ in range(tests):
        trial = place_graph(form, graph, np.maximum(deadline, offer), known, beyond=True)
        if not trial.failed:
            return offer
        offer = trial.later
        if not np.isfinite(offer):
            break
    return float("inf")


def allowed_sets(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return sets of nodes, bool[s, m], the last but one all and the last none, and each job's."""
    code, masks = allowed_nodes(jobs, cluster)
    m = len(cluster)
    sets = np.array([*masks, np.ones(m, np.bool_), np.zeros(m, np.bool_)])
    return sets, np.where(code >= 0, code, len(masks)).astype(np.int64)


def bounded(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs say how long they run."""
    known = np.isfinite(jobs.wall_time) & (jobs.kind != int(Kind.DIVISIBLE))
    return np.asarray(known, np.bool_)


class Batch:
    """The answer on a batch as it grows; what is admitted is kept in the form.

    Parameters
    ----------
    plugin : Spare
        Whose settings and reasons count.
    jobs : Jobs
        The new jobs.
    form : Form
        Where they can run; its rows are those of `jobs`.
    now : float
        Seconds since the epoch.
    promises, periodic : int
        Promises and periodic jobs that there are.

    Attributes
    ----------
    places : dict of int to Place
        Those of the admitted jobs, by row, in the order of their admission.
    """

    def __init__(
        self, plugin: Spare, jobs: Jobs, form: Form, now: float, promises: int, periodic: int = 0
    ) -> None:
        self.plugin, self.jobs, self.form = plugin, jobs, form
        self.places: dict[int, TaskPlace] = {}
        self._now, self._promises, self._periodic = now, promises, periodic
        self._edf = plugin.config.form == "edf"
        self._last = plugin.config.select == "utilisation-first"
        self._job, self._deadline, self._endless = jobs.id, jobs.deadline, ~bounded(jobs)
        self._array = jobs.kind == int(Kind.ARRAY)
        self._code = np.zeros(len(jobs), np.int8)
        self._promise, self._offer = np.full(len(jobs), np.inf), np.full(len(jobs), np.inf)
        self._findings: list[Finding] = []
        self._known: dict[int, TaskPlace] = {}
        self._uncertain: set[int] = set()

    def follow(self, snapshot: Snapshot) -> None:
        """Let jobs wait for those in a snapshot: only some of these have a certain end."""
        self._known = known_places(snapshot, promised=self._edf)
        there = [*snapshot.queued.id.tolist(), *snapshot.running.id.tolist()]
        self._uncertain = set(there) - self._known.keys()

    def judge(self, edges: Edges) -> None:
        """Judge all graphs in order of (submit, id); without a deadline they are left alone."""
        for graph in graphs_of(self.jobs, edges):
            rows = np.concatenate([graph.rows, graph.stuck])
            own = self._deadline[rows]
            if not np.isfinite(own).any():
                self._uncertain |= set(self._job[rows].tolist())
                continue
            common = own[np.isfinite(own)].max()
            self._judge(graph, rows, np.where(np.isfinite(own), own, common))

    def _judge(self, graph: Graph, rows: NDArray[np.int64], deadline: NDArray[np.float64]) -> None:
        if self._impossible(graph, rows):
            self._reject(rows)
            return
        trial = place_graph(self.form, graph, deadline, self._known)
        if trial.failed:
            self._say_no_room(graph, deadline, trial)
            tests = self.plugin.config.offer_tests
            offer = (
                least_offer(self.form, graph, deadline, self._known, tests, self._last, trial)
                if tests
                else np.inf
            )
            self._offer[rows] = np.maximum(offer, deadline) if np.isfinite(offer) else np.inf
            self._reject(rows)
            return
        self._code[rows], self._promise[rows] = Verdict.ADMIT, deadline
        for row, job, place in zip(
            graph.rows.tolist(), graph.job.tolist(), trial.places, strict=True
        ):
            self.form.take(row, place)
            self._known[job] = self.places[row] = place

    def _reject(self, rows: NDArray[np.int64]) -> None:
        self._code[rows] = Verdict.REJECT
        self._uncertain |= set(self._job[rows].tolist())

    def _impossible(self, graph: Graph, rows: NDArray[np.int64]) -> bool:
        """Say what is wrong with a graph whatever its deadline is; return whether something is."""
        plugin, ids, size = self.plugin, self._job[rows], self.jobs.size[rows]
        endless, arrays = self._endless[rows], self._array[rows]
        outer = self._uncertain.intersection(graph.before.tolist()) - set(ids.tolist())
        if len(graph.stuck):
            self._say(rows, plugin.cyclic, task=self._job[graph.stuck].min())
        elif outer:
            self._say(rows, plugin.waits, task=min(outer))
        elif arrays.any():
            self._say(rows, plugin.array, task=ids[arrays].min())
        elif endless.any():
            self._say(rows, plugin.endless, task=ids[endless].min())
        elif self._edf and size.max() > 1:
            self._say(rows, plugin.wide, nodes=size.max())
        else:
            return False
        return True

    def _say_no_room(self, graph: Graph, deadline: NDArray[np.float64], trial: Trial) -> None:
        task = len(trial.places)
        numbers: dict[str, float] = {
            "task": graph.job[task],
            "left": deadline[task] - self._now,
            "promises": self._promises + len(self.places),
            "periodic": self._periodic,
        }
        if self._edf:
            self._say(graph.rows, self.plugin.no_spare, **numbers)
            return
        numbers |= {"fits": trial.fits, "nodes": self.jobs.size[graph.rows[task]]}
        self._say(graph.rows, self.plugin.no_room, **numbers)

    def _say(self, rows: NDArray[np.int64], reason: Reason, **numbers: float) -> None:
        full = {name: np.full(len(rows), float(value)) for name, value in numbers.items()}
        self._findings.append(Finding(reason, rows.astype(np.int64), full))

    def verdicts(self) -> Verdicts:
        """Return the answer, without a plan."""
        return Verdicts.build(
            self._code, promise=self._promise, offer=self._offer, findings=self._findings
        )
