"""Runs behind the study of spare capability: graphs that come to machines with periodic work."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import Edges
from rtsched.kernels.edf import Work, hyperperiods, run, work_of
from rtsched_plugins.kernels.spare import Machine, PeriodicSet, spare, spare_literal
from rtsched_plugins.spare import EdfForm
from rtsched_plugins.spare_form import place_graph
from rtsched_plugins.task_graphs import graph_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched_plugins.task_graphs import Graph

SPEEDS = (1.0, 1.2, 1.5, 2.0)
SILENT = np.empty((0, 3), np.int64)


class Task(NamedTuple):
    """A task: its slots on each machine, and (task, message slots) of its predecessors."""

    key: int
    cost: tuple[int, ...]
    before: tuple[tuple[int, int], ...]


class Job(NamedTuple):
    """A graph of tasks that come at one slot and must end by another."""

    key: int
    arrival: int
    deadline: int
    tasks: tuple[Task, ...]


class Said(NamedTuple):
    """What became of a job: machine, ready slot and finish by task; none: it was rejected."""

    job: Job
    places: dict[int, tuple[int, int, int]]


class Course(NamedTuple):
    """What became of all jobs of a run."""

    said: tuple[Said, ...]
    used: int
    """Slots that new tasks took until the end of the observation."""
    periodic: int
    """Slots that the periodic jobs alone would take until then."""
    missed: int
    """Deadlines missed, of instances and of tasks."""

    def measures(self, slots: int) -> tuple[float, float, float]:
        """Return guarantee ratio, mean response and the part used of `slots` on all machines."""
        responses = [
            max(finish for _, _, finish in said.places.values()) - said.job.arrival
            for said in self.said
            if said.places
        ]
        mean = float(np.mean(responses)) if responses else np.nan
        return len(responses) / len(self.said), mean, self.used / (slots - self.periodic)


def machines_of(sets: Sequence[PeriodicSet], tasks: int) -> Work:
    """Return the work of one machine per periodic set at slot 0."""
    node = np.repeat(np.arange(len(sets)), [len(jobs.cost) for jobs in sets])
    columns = (np.concatenate(column) for column in zip(*sets, strict=True))
    return work_of(len(sets), tasks, node, *columns)


def graph_of_tasks(job: Job, first: int) -> Graph:
    """Return a job's tasks, rows from `first` on, as a graph."""
    key = np.array([task.key for task in job.tasks], np.int64)
    pairs = [(*pair, task.key) for task in job.tasks for pair in task.before]
    before, message, after = zip(*pairs, strict=True) if pairs else ((), (), ())
    edges = Edges.build(len(pairs), before=before, after=after, message_time=message)
    return graph_of(first + np.arange(len(key)), key, edges)


def admit_jobs(sets: Sequence[PeriodicSet], jobs: Sequence[Job], until: int, last: bool) -> Course:
    """Judge jobs in order of arrival, by response- or utilisation-first, while the machines run."""
    jobs = sorted(jobs, key=lambda entry: (entry.arrival, entry.key))
    costs = np.array([task.cost for job in jobs for task in job.tasks], np.int64)
    work, silent = machines_of(sets, len(costs)), np.full(len(costs), -np.inf)
    hyper, utilisation = hyperperiods(work)
    now, row, used, said = 0, 0, 0, []
    for job in jobs:
        used += _advance(work, now, job.arrival, until)
        now = job.arrival
        form = EdfForm(Machine(now, work, hyper, utilisation), 1.0, last, silent, costs)
        graph = graph_of_tasks(job, row)
        trial = place_graph(form, graph, np.full(len(job.tasks), float(job.deadline)), {})
        row += len(job.tasks)
        places = [] if trial.failed else trial.places
        found: dict[int, tuple[int, int, int]] = {}
        for at, key, place in zip(graph.rows.tolist(), graph.job.tolist(), places, strict=False):
            form.take(at, place)
            found[key] = (int(place.nodes[0]), int(place.start), int(place.end))
        said.append(Said(job, found))
    last_slot = max(until, now, int(work.deadline[:row].max(initial=0))) + 1
    used += _advance(work, now, last_slot, until)
    return Course(tuple(said), used, periodic_slots(sets, until), int(work.missed.sum()))


def _advance(work: Work, now: int, then: int, until: int) -> int:
    """Run all machines from one slot to another; return the slots of tasks before `until`."""
    log, used = np.zeros((4096, 3), np.int64), 0
    for node in range(len(work.head)):
        at = now
        while at < then:
            at, _, count = run(work, node, at, then, False, log)
            used += int(np.diff(np.minimum(log[:count, 1:], until)).sum())
    return used


def periodic_slots(sets: Sequence[PeriodicSet], until: int) -> int:
    """Return the slots that the periodic jobs take on all machines until a slot, on their own."""
    total, alone = 0, machines_of(sets, 0)
    for node, jobs in enumerate(sets):
        run(alone, node, 0, until, False, SILENT)
        rows = slice(int(alone.first[node]), int(alone.first[node + 1]))
        begun = (alone.upcoming[rows] - jobs.phase) // jobs.period
        total += int((begun * jobs.cost - alone.rest[rows]).sum())
    return total


class Scene(NamedTuple):
    """What the drawn jobs of a study are like."""

    gap: float
    """Mean slots between arrivals."""
    speeds: tuple[float, ...] = SPEEDS
    work: int = 6
    """Mean slots of a task at speed 1."""
    message: int = 3
    """Most slots of a message."""
    busy: float = 0.5
    """Part of each machine that its two periodic jobs take."""


def study(scene: Scene, jobs: int, seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return float64[seeds, 2, 4]: per selection ratio, response, use, and deadlines missed."""
    return np.array([_drawn(scene, jobs, seed) for seed in seeds])


def _drawn(scene: Scene, count: int, seed: int) -> list[tuple[float, ...]]:
    rng = np.random.default_rng([seed, 7])
    sets = [_periodic(rng, scene.busy) for _ in scene.speeds]
    arrival = np.floor(np.cumsum(rng.exponential(scene.gap, count))).astype(int).tolist()
    jobs = [_job(rng, scene, key, at) for key, at in enumerate(arrival)]
    until = max(job.deadline for job in jobs)
    found: list[tuple[float, ...]] = []
    for last in (False, True):
        course = admit_jobs(sets, jobs, until, last)
        found.append((*course.measures(until * len(sets)), course.missed))
    return found


def _periodic(rng: np.random.Generator, busy: float) -> PeriodicSet:
    """Return two periodic jobs that take about `busy` of a machine together."""
    period = rng.choice([8, 10, 12, 16, 20], 2).astype(np.int64)
    cost = np.maximum(np.round(period * rng.uniform(0.4 * busy, 0.6 * busy, 2)), 1).astype(np.int64)
    return PeriodicSet(cost, period, period, np.zeros(2, np.int64))


def _job(rng: np.random.Generator, scene: Scene, key: int, arrival: int) -> Job:
    tasks = []
    for task in range(int(rng.integers(2, 6))):
        slots = rng.integers(scene.work // 2, scene.work + scene.work // 2 + 1)
        cost = tuple(int(np.ceil(slots / speed)) for speed in scene.speeds)
        chosen = rng.permutation(task)[: int(rng.integers(0, 3))].tolist()
        messages = rng.integers(0, scene.message + 1, len(chosen)).tolist()
        tasks.append(Task(task, cost, tuple(zip(chosen, messages, strict=True))))
    return Job(key, arrival, arrival + int(rng.integers(25, 61)), tuple(tasks))


def share_that_differs(sets: int, seed: int) -> float:
    """Return the share of random synchronous sets for which the printed S(t) is too large.

    Two to four jobs with periods of 2 to 12 slots, up to half of it work, deadlines at the next
    release; sets of more than one machine's work are drawn again.
    """
    rng, found, count = np.random.default_rng([seed, 11]), 0, 0
    while count < sets:
        period = rng.integers(2, 13, rng.integers(2, 5))
        cost = rng.integers(1, np.maximum(period // 2, 1) + 1)
        if (cost / period).sum() <= 1.0:
            count += 1
            found += differs(cost, period)
    return found / sets


def differs(cost: NDArray[np.int64], period: NDArray[np.int64]) -> bool:
    """Return whether the printed S(t) is too large anywhere in the first hyper-period."""
    jobs = PeriodicSet(cost, period, period, np.zeros_like(period))
    at = np.arange(1, int(np.lcm.reduce(period)) + 1)
    return bool((spare_literal(jobs, at) != spare(jobs, at)).any())
