"""Trials of a task graph, and records of others', for both forms of spare capability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from rtsched.api import Kind, allowed_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Jobs, Snapshot
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
