"""He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: new task graphs beside periodic jobs.

Only the slides of the talk survive, without numbers. The worked values follow from its definitions;
the table that we compare with is that of an independent implementation with drawings of its own.
Of the figures only the titles are left: ours have the same axes, and the claims are what they lead
to expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta

from rtsched.api import Edges
from rtsched.kernels.edf import NEVER, Work, hyperperiods, run, work_of
from rtsched.reproduce import (
    CHANCE,
    Claim,
    Curve,
    Findings,
    Parameters,
    Part,
    Plot,
    Sheet,
    chance,
)
from rtsched_plugins.kernels.spare import PeriodicNodes, earliest_finish
from rtsched_plugins.spare import EdfForm
from rtsched_plugins.spare_form import place_graph
from rtsched_plugins.task_graphs import graph_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched_plugins.task_graphs import Graph

    Means = dict["JobMix", NDArray[np.float64]]
    Slots = NDArray[np.int64]

SPEEDS = (1.0, 1.2, 1.5, 2.0)
SILENT = np.empty((0, 3), np.int64)


class PeriodicSet(NamedTuple):
    """Periodic jobs of one node, int64 slots each; a feasible set with 0 < C <= d <= T."""

    cost: Slots
    period: Slots
    relative: Slots
    phase: Slots


def demand(jobs: PeriodicSet, at: Slots) -> Slots:
    """Return int64[t], P(d): the slots of all instances whose deadline is at or before `at`."""
    ended = (at[:, None] - jobs.phase - jobs.relative) // jobs.period + 1
    return np.asarray((np.maximum(ended, 0) * jobs.cost).sum(1), np.int64)


def _next_deadlines(jobs: PeriodicSet, at: Slots) -> Slots:
    """Return int64[t, p]: each job's next deadline at or after each instant."""
    first = jobs.phase + jobs.relative
    later = -((first - at[:, None]) // jobs.period)
    return np.asarray(first + np.maximum(later, 0) * jobs.period, np.int64)


def spare_literal(jobs: PeriodicSet, at: Slots) -> Slots:
    """Return int64[t]: the printed form, the least d - P(d) over each job's next deadline only.

    It is too large where a later deadline is tighter, so it is no safe basis for a promise.
    """
    due = _next_deadlines(jobs, at)
    return np.asarray((due - demand(jobs, due.ravel()).reshape(due.shape)).min(1), np.int64)


def spare(jobs: PeriodicSet, at: Slots) -> Slots:
    """Return int64[t], S(t): the least d - P(d) over all deadlines d at or after each instant.

    New work that never takes more than S(t) slots up to any t lets all deadlines hold. A look-ahead
    of the hyper-period, the longest period and the largest phase is enough, because
    S(t + H) = S(t) + (1 - U) H.
    """
    hyper = int(np.lcm.reduce(jobs.period.astype(object)))
    ahead = hyper + int(jobs.period.max()) + int(jobs.phase.max())
    horizon = int(at.max()) + ahead
    first = jobs.phase + jobs.relative
    counts = np.maximum((horizon - first) // jobs.period + 1, 0)
    which = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    due = np.unique(first[which] + number * jobs.period[which])
    least = np.minimum.accumulate((due - demand(jobs, due))[::-1])[::-1]
    return np.asarray(least[np.searchsorted(due, at)], np.int64)


def spare_from(work: Work, node: int, now: int, at: Slots) -> Slots:
    """Return int64[t], S(now, t): slots that new work may take on a node from `now` until each t.

    It is 0 where no slot is free. Instants must not be before `now`.
    """
    due, left = _deadlines(work, node, int(at.max()))
    lax = due - now - np.cumsum(left)
    later = np.append(np.minimum.accumulate(lax[::-1])[::-1], NEVER)
    passed = np.searchsorted(due, at, side="right")
    used = np.append(0, np.cumsum(left))[passed]
    return np.asarray(np.minimum(at - now - used, later[passed]), np.int64)


def _deadlines(work: Work, node: int, latest: int) -> tuple[Slots, Slots]:
    """Return all deadlines that can bind up to `latest`, ascending, and the slots due at each."""
    rows = slice(int(work.first[node]), int(work.first[node + 1]))
    cost, period, upcoming = work.cost[rows], work.period[rows], work.upcoming[rows]
    tasks, row = [], int(work.head[node])
    while row >= 0:
        tasks.append(row)
        row = int(work.after[row])
    due = np.concatenate([work.due[rows], work.deadline[tasks]])
    left = np.concatenate([work.rest[rows], work.left[tasks]])
    if len(cost):
        hyper = int(np.lcm.reduce(period.astype(object)))
        reach = max(latest, int(upcoming.max()), int(due.max())) + hyper + int(period.max())
        first = upcoming + work.relative[rows]
        counts = np.maximum((reach - first) // period + 1, 0)
        which = np.repeat(np.arange(len(cost)), counts)
        number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        due = np.concatenate([due, first[which] + number * period[which]])
        left = np.concatenate([left, cost[which]])
    some = left > 0
    order = np.argsort(due[some], kind="stable")
    return due[some][order], left[some][order]


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


class _Outcome(NamedTuple):
    """What became of a job: machine, ready slot and finish by task; none: it was rejected."""

    job: Job
    places: dict[int, tuple[int, int, int]]


class _Course(NamedTuple):
    """What became of all jobs of a run."""

    outcomes: tuple[_Outcome, ...]
    used: int
    """Slots that new tasks took until the end of the observation."""
    periodic: int
    """Slots that the periodic jobs alone would take until then."""
    missed: int
    """Deadlines missed, of instances and of tasks."""

    def measures(self, slots: int) -> tuple[float, float, float]:
        """Return guarantee ratio, mean response and the part used of `slots` on all machines."""
        responses = [
            max(finish for _, _, finish in outcome.places.values()) - outcome.job.arrival
            for outcome in self.outcomes
            if outcome.places
        ]
        mean = float(np.mean(responses)) if responses else np.nan
        return len(responses) / len(self.outcomes), mean, self.used / (slots - self.periodic)


def machines_of(sets: Sequence[PeriodicSet], tasks: int) -> Work:
    """Return the work of one machine per periodic set at slot 0."""
    node = np.repeat(np.arange(len(sets)), [len(jobs.cost) for jobs in sets])
    columns = (np.concatenate(column) for column in zip(*sets, strict=True))
    return work_of(len(sets), tasks, node, *columns)


def _graph_of_tasks(job: Job, first: int) -> Graph:
    """Return a job's tasks, rows from `first` on, as a graph."""
    key = np.array([task.key for task in job.tasks], np.int64)
    pairs = [(*pair, task.key) for task in job.tasks for pair in task.before]
    before, message, after = zip(*pairs, strict=True) if pairs else ((), (), ())
    edges = Edges.build(len(pairs), before=before, after=after, message_time=message)
    return graph_of(first + np.arange(len(key)), key, edges)


def admit_jobs(sets: Sequence[PeriodicSet], jobs: Sequence[Job], until: int, last: bool) -> _Course:
    """Judge jobs in order of arrival, by response- or utilisation-first, while the machines run."""
    jobs = sorted(jobs, key=lambda entry: (entry.arrival, entry.key))
    costs = np.array([task.cost for job in jobs for task in job.tasks], np.int64)
    work, silent = machines_of(sets, len(costs)), np.full(len(costs), -np.inf)
    hyper, utilisation = hyperperiods(work)
    now, row, used, outcomes = 0, 0, 0, []
    for job in jobs:
        used += _advance(work, now, job.arrival, until)
        now = job.arrival
        form = EdfForm(PeriodicNodes(now, work, hyper, utilisation), 1.0, last, silent, costs)
        graph = _graph_of_tasks(job, row)
        trial = place_graph(form, graph, np.full(len(job.tasks), float(job.deadline)), {})
        row += len(job.tasks)
        places = [] if trial.failed else trial.places
        found: dict[int, tuple[int, int, int]] = {}
        for at, key, place in zip(graph.rows.tolist(), graph.job.tolist(), places, strict=False):
            form.take(at, place)
            found[key] = (int(place.nodes[0]), int(place.start), int(place.end))
        outcomes.append(_Outcome(job, found))
    last_slot = max(until, now, int(work.deadline[:row].max(initial=0))) + 1
    used += _advance(work, now, last_slot, until)
    return _Course(tuple(outcomes), used, _periodic_slots(sets, until), int(work.missed.sum()))


def _advance(work: Work, now: int, then: int, until: int) -> int:
    """Run all machines from one slot to another; return the slots of tasks before `until`."""
    log, used = np.zeros((4096, 3), np.int64), 0
    for node in range(len(work.head)):
        at = now
        while at < then:
            at, _, count = run(work, node, at, then, False, log)
            used += int(np.diff(np.minimum(log[:count, 1:], until)).sum())
    return used


def _periodic_slots(sets: Sequence[PeriodicSet], until: int) -> int:
    """Return the slots that the periodic jobs take on all machines until a slot, on their own."""
    total, alone = 0, machines_of(sets, 0)
    for node, jobs in enumerate(sets):
        run(alone, node, 0, until, False, SILENT)
        rows = slice(int(alone.first[node]), int(alone.first[node + 1]))
        begun = (alone.upcoming[rows] - jobs.phase) // jobs.period
        total += int((begun * jobs.cost - alone.rest[rows]).sum())
    return total


class JobMix(NamedTuple):
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


def study(scene: JobMix, jobs: int, seeds: Sequence[int]) -> NDArray[np.float64]:
    """Return float64[seeds, 2, 4]: per selection ratio, response, use, and deadlines missed."""
    return np.array([_drawn(scene, jobs, seed) for seed in seeds])


def _drawn(scene: JobMix, count: int, seed: int) -> list[tuple[float, ...]]:
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


def _job(rng: np.random.Generator, scene: JobMix, key: int, arrival: int) -> Job:
    tasks = []
    for task in range(int(rng.integers(2, 6))):
        slots = rng.integers(scene.work // 2, scene.work + scene.work // 2 + 1)
        cost = tuple(int(np.ceil(slots / speed)) for speed in scene.speeds)
        chosen = rng.permutation(task)[: int(rng.integers(0, 3))].tolist()
        messages = rng.integers(0, scene.message + 1, len(chosen)).tolist()
        tasks.append(Task(task, cost, tuple(zip(chosen, messages, strict=True))))
    return Job(key, arrival, arrival + int(rng.integers(25, 61)), tuple(tasks))


def _share_that_differs(sets: int, seed: int) -> float:
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
            found += _differs(cost, period)
    return found / sets


def _differs(cost: NDArray[np.int64], period: NDArray[np.int64]) -> bool:
    """Return whether the printed S(t) is too large anywhere in the first hyper-period."""
    jobs = PeriodicSet(cost, period, period, np.zeros_like(period))
    at = np.arange(1, int(np.lcm.reduce(period)) + 1)
    return bool((spare_literal(jobs, at) != spare(jobs, at)).any())


GAPS = (30.0, 15.0, 8.0)
EXPECTED = (
    (1.00, 11.1, 0.17, 0.81, 33.0, 0.20),
    (1.00, 13.1, 0.35, 0.69, 32.8, 0.32),
    (0.97, 17.2, 0.68, 0.72, 35.3, 0.59),
)
"""Ratio, response and use, response-first and utilisation-first, by gap; two seeds."""
HALF_DIGITS = (0.005, 0.05, 0.005, 0.005, 0.05, 0.005)
"""Half a unit of the last digit of the expected values, by column."""
BEHIND = 2
"""Drawings behind each expected value."""
COLUMNS = ("RF ratio", "RF response", "RF use", "UF ratio", "UF response", "UF use")
DRAWN = (
    "neither task lengths, graphs nor messages behind the expected values are given: ours draws 3 "
    "to 9 slots at speed 1, up to two predecessors and messages of 0 to 3 slots"
)
BASE = JobMix(8.0)
MEAN_SPEED = 1.425


class Series(NamedTuple):
    """One figure: what is varied at a gap of 8 slots."""

    name: str
    label: str
    """Of the axis."""
    scenes: dict[float, JobMix]
    """By the place on the axis, in order."""


SERIES = (
    Series(
        "heterogeneity",
        "fastest over slowest machine, same total speed",
        {
            1.0: BASE._replace(speeds=(MEAN_SPEED,) * 4),
            2.0: BASE,
            4.0: BASE._replace(speeds=(0.7, 1.0, 1.2, 2.8)),
            7.0: BASE._replace(speeds=(0.5, 0.7, 1.0, 3.5)),
        },
    ),
    Series("task-size", "mean slots of a task", {w: BASE._replace(work=w) for w in (4, 6, 8, 12)}),
    Series(
        "message-size",
        "most slots of a message",
        {m: BASE._replace(message=m) for m in (0, 3, 6, 12)},
    ),
    Series(
        "periodic-work",
        "part of each machine that periodic jobs take",
        {b: BASE._replace(busy=b) for b in (0.3, 0.5, 0.7)},
    ),
)
SCENES = dict.fromkeys(
    [*map(JobMix, GAPS), *(scene for series in SERIES for scene in series.scenes.values())]
)
"""What is drawn, each once."""


def periodic(*jobs: tuple[int, ...]) -> PeriodicSet:
    """Return synchronous periodic jobs (C, T) or (C, T, d)."""
    rows = np.array([(job[0], job[1], job[-1]) for job in jobs], np.int64).reshape(-1, 3)
    cost, period, relative = rows.T
    return PeriodicSet(cost, period, relative, np.zeros(len(rows), np.int64))


def finish_at(jobs: PeriodicSet, cost: int, now: int = 0) -> int:
    """Return the earliest finish of a task that comes at a slot up to which the jobs alone ran."""
    work = machines_of([jobs], 1)
    hyper, used = hyperperiods(work)
    run(work, 0, 0, now, False, SILENT)
    return int(earliest_finish(work, 0, now, now, cost, NEVER, hyper[0], used[0]))


def worked_values() -> list[tuple[str, float, float]]:
    """Return what is worked by hand: a label, our value and the expected one."""
    first, second = periodic((2, 5), (3, 10)), periodic((5, 10, 8), (2, 6, 3))
    errs = periodic((2, 3), (2, 8))

    def at(slot: int) -> NDArray[np.int64]:
        return np.array([slot])

    graph = (Job(0, 0, 10, (Task(0, (2, 4), ()),)),)
    places = [
        admit_jobs([periodic((1, 2)), periodic()], graph, 40, last).outcomes[0].places[0]
        for last in (False, True)
    ]
    machine = machines_of([first], 0)
    online = spare_from(machine, 0, 0, np.array([1, 10]))
    run(machine, 0, 0, 1, False, SILENT)
    full = periodic((2, 3), (1, 6), (1, 6))  # the sum of the quotients is below 1
    return [
        ("P(5) of (2,5), (3,10)", float(demand(first, at(5))[0]), 2),
        ("P(10)", float(demand(first, at(10))[0]), 7),
        ("S(10)", float(spare(first, at(10))[0]), 3),
        ("S(11)", float(spare(first, at(11))[0]), 6),
        ("S(20)", float(spare(first, at(20))[0]), 6),
        ("slots that the jobs take by 4", _periodic_slots([first], 4), 4),
        ("S(0, 1) on-line", float(online[0]), 1),
        ("S(0, 10) on-line", float(online[1]), 3),
        ("S(1, 5) on-line, a slot of (2,5) done", float(spare_from(machine, 0, 1, at(5))[0]), 3),
        ("finish of 4 slots at 0", finish_at(first, 4), 11),
        ("finish of 3 slots at 0", finish_at(first, 3), 3),
        ("finish of 3 slots at 1", finish_at(first, 3, 1), 4),
        ("finish of 4 slots at 1", finish_at(first, 4, 1), 11),
        ("literal S(1) of (5,10,d=8), (2,6,d=3)", float(spare_literal(second, at(1))[0]), 1),
        ("exact S(1)", float(spare(second, at(1))[0]), 0),
        ("literal S(4) of (2,3), (2,8)", float(spare_literal(errs, at(4))[0]), 2),
        ("exact S(4)", float(spare(errs, at(4))[0]), 1),
        ("finish of 2 slots at 0 beside them", finish_at(errs, 2), 10),
        ("any finish beside (2,3), (1,6), (1,6), a full machine", finish_at(full, 1) < NEVER, 0),
        ("machine of task a, RF", places[0][0], 0),
        ("finish of task a, RF", places[0][2], 3),
        ("machine of task a, UF", places[1][0], 1),
        ("finish of task a, UF", places[1][2], 4),
    ]


def smaller_examples(periods: int) -> list[tuple[int, int, int, int]]:
    """Return pairs (C, T, C', T') with T <= T' < `periods` for which the printed S is too large."""
    found = []
    for second in range(2, periods):
        for first in range(2, second + 1):
            for a in range(1, first):
                for b in range(1, second):
                    fits = a * second + b * first <= first * second
                    if fits and _differs(np.array([a, b]), np.array([first, second])):
                        found.append((a, first, b, second))
    return found


class Spare:
    """Worked values and errata of spare capability, and response- against utilisation-first."""

    class Parameters(Parameters, frozen=True):
        """Settings."""

        seeds: Annotated[int, Meta(ge=2)] = 200
        """Drawings per row of the table."""
        jobs: Annotated[int, Meta(gt=1)] = 18
        """Graphs per drawing."""
        sets: Annotated[int, Meta(gt=0)] = 5000
        """Random periodic sets, for the errata."""

    name: ClassVar[str] = "spare"
    source: ClassVar[str] = (
        "He, Jarvis, Spooner and Nudd, Dynamic scheduling of parallel real-time jobs by modelling "
        "spare capabilities in heterogeneous clusters, IEEE CLUSTER 2003 (slides whose figures are "
        "lost and which print no number: all expected values are ours, and so are the claims but "
        "the first two)"
    )
    full: ClassVar[Parameters] = Parameters()
    reduced: ClassVar[Parameters] = Parameters(seeds=25, sets=600)

    def parts(self, parameters: Parameters) -> list[Part]:
        """Return one part per row of the table and per claim about it, and the small ones."""
        given = {"jobs": parameters.jobs, "seeds": range(parameters.seeds)}
        drawn = [Part(study, {"scene": scene, **given}) for scene in SCENES]
        share = Part(_share_that_differs, {"sets": parameters.sets, "seed": 0})
        return [*drawn, share, Part(worked_values), Part(smaller_examples, {"periods": 8})]

    def findings(self, parameters: Parameters, results: Sequence[Any]) -> Findings:
        """Return the worked values, the table, the claims and the figures."""
        *drawn, share, worked, smaller = results
        found = dict(zip(SCENES, drawn, strict=True))
        mean = {scene: values.mean(0)[:, :3] for scene, values in found.items()}
        claims = [*_of_errata(smaller), *_of_selection(mean), *_of_load(mean), *_of_series(mean)]
        missed = int(sum(values[..., 3].sum() for values in found.values()))
        runs = sum(len(values) for values in found.values()) * 2
        never = Claim(
            "no deadline is missed, of periodic jobs and of admitted tasks",
            missed == 0,
            f"{missed} missed in {runs} runs",
        )
        return Findings(
            (_worked_sheet(worked), _share_sheet(share, parameters.sets), _table(found)),
            (never, *claims),
            (_ratio_plot(mean), *(_series_plot(series, mean) for series in SERIES)),
        )


def _worked_sheet(worked: Sequence[tuple[str, float, float]]) -> Sheet:
    return Sheet(
        "Worked values",
        "expected: our own, by hand from the definitions of the slides, which work no example",
        tuple(row[0] for row in worked),
        ("value",),
        np.array([[row[1]] for row in worked], np.float64),
        np.array([[row[2]] for row in worked], np.float64),
    )


def _share_sheet(share: float, sets: int) -> Sheet:
    rounding = 1 / 8.5 - 1 / 9
    return Sheet(
        "Random synchronous sets for which the printed S(t) is too large",
        "expected: our own, an independent count; two to four jobs, periods up to 12",
        ("share",),
        ("value",),
        np.array([[share]]),
        np.array([[1.0 / 9.0]]),
        3.0 * (share * (1.0 - share) / sets) ** 0.5 + rounding,
        basis=f"three standard errors of a share of {sets} sets; about one in nine: 8.5 to 9.5",
    )


def _table(found: Means) -> Sheet:
    """Compare means of float64[seed, selection, measure] by scene with the expected ones."""
    rows = [f"gap {gap:g}" for gap in GAPS]
    runs = np.array([found[JobMix(gap)][..., :3].reshape(-1, 6) for gap in GAPS])
    return Sheet(
        "Guarantee ratio, mean response (slots) and spare utilisation by mean gap",
        f"expected: our own, of an independent implementation, since the slides print no number; "
        f"four machines of speeds {', '.join(map(str, SPEEDS))}",
        tuple(rows),
        COLUMNS,
        runs.mean(axis=1),
        np.array(EXPECTED),
        np.array([chance(row, BEHIND) for row in runs]) + HALF_DIGITS,
        dict.fromkeys(rows, DRAWN),
        f"{CHANCE}, of the difference from a mean of {BEHIND} runs; half a unit of the last digit",
    )


def _of_errata(smaller: Sequence[tuple[int, int, int, int]]) -> list[Claim]:
    shown = "; ".join(f"({a}, {t}), ({b}, {u})" for a, t, b, u in smaller)
    return [
        Claim(
            "the printed S(t), by each job's next deadline, is safe",
            not _differs(np.array([2, 2]), np.array([3, 8])),
            "(2, 3), (2, 8): printed S(4) = 2, but deadline 9 leaves 1 slot",
            why="a later deadline may be tighter: the least over all later deadlines is needed",
        ),
        Claim(
            "(2, 3), (2, 8) is the smallest example of that",
            not smaller,
            f"with shorter periods: {shown}" if smaller else "no shorter one found",
            why="(2, 4), (3, 6) fills the machine and has periods of at most 6",
        ),
    ]


def _of_selection(mean: Means) -> list[Claim]:
    rows = [mean[JobMix(gap)] for gap in GAPS]
    ratio = np.array([row[:, 0] for row in rows])
    response = np.array([row[:, 1] for row in rows])
    use = np.array([row[:, 2] for row in rows])
    return [
        Claim(
            "response-first has the lower mean response",
            bool((response[:, 0] < response[:, 1]).all()),
            f"RF {_list(response[:, 0])}, UF {_list(response[:, 1])} slots",
        ),
        Claim(
            "utilisation-first has about three times the response at light load",
            bool(2.5 < response[0, 1] / response[0, 0] < 3.5),
            f"{response[0, 1] / response[0, 0]:.1f} times",
        ),
        Claim(
            "with jobs of several tasks response-first has the higher guarantee ratio",
            bool((ratio[:, 0] > ratio[:, 1]).all()),
            f"RF {_list(ratio[:, 0])}, UF {_list(ratio[:, 1])}",
        ),
        Claim(
            "the spare utilisation of utilisation-first is higher only at light load",
            bool(use[0, 1] > use[0, 0] and use[2, 1] < use[2, 0]),
            f"RF {_list(use[:, 0])}, UF {_list(use[:, 1])}",
        ),
    ]


def _of_load(mean: Means) -> list[Claim]:
    ratio = [float(mean[JobMix(gap)][:, 0].mean()) for gap in GAPS]
    use = [float(mean[JobMix(gap)][:, 2].mean()) for gap in GAPS]
    return [
        Claim(
            "the guarantee ratio falls with load",
            _falls(ratio),
            f"{_list(ratio)} at gaps 30, 15, 8, mean of both selections",
        ),
        Claim("the spare utilisation rises with load", _falls(use[::-1]), _list(use)),
    ]


def _of_series(mean: Means) -> list[Claim]:
    """Return what figures of which only the titles are left lead to expect, both selections."""
    found = {
        series.name: np.array([mean[scene].mean(axis=0) for scene in series.scenes.values()]).T
        for series in SERIES
    }
    ratio = {name: values[0] for name, values in found.items()}
    response = {name: values[1] for name, values in found.items()}
    changes = {
        "task-size": "larger tasks",
        "message-size": "larger messages",
        "periodic-work": "more periodic work",
    }
    return [
        *(
            Claim(
                f"{change}: the guarantee ratio falls", _falls(ratio[name]), _list(ratio[name], 3)
            )
            for name, change in changes.items()
        ),
        *(
            Claim(
                f"{changes[name]}: the mean response grows",
                _falls(response[name][::-1]),
                f"{_list(response[name])} slots",
            )
            for name in ("periodic-work", "message-size")
        ),
        Claim(
            "more heterogeneity: the guarantee ratio falls",
            _falls(ratio["heterogeneity"]),
            f"{_list(ratio['heterogeneity'], 3)}, same total speed",
            why="not where the total speed is kept: the fast machine also shortens the longest "
            "path of a graph; the slides do not say what is kept",
        ),
    ]


def _falls(values: Sequence[float] | NDArray[np.float64]) -> bool:
    return bool((np.diff(values) < 0).all())


def _list(values: Sequence[float] | NDArray[np.float64], digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _ratio_plot(mean: Means) -> Plot:
    gaps = np.array(GAPS)
    rows = np.array([mean[JobMix(gap)][:, 0] for gap in GAPS])
    return Plot(
        "spare-ratio",
        "Jobs guaranteed, by how often they come",
        "mean slots between jobs",
        "guarantee ratio",
        (
            Curve("response-first", gaps, rows[:, 0]),
            Curve("utilisation-first", gaps, rows[:, 1]),
        ),
    )


def _series_plot(series: Series, mean: Means) -> Plot:
    """Return one figure: guarantee ratio and spare utilisation of both selections."""
    at, rows = np.array(list(series.scenes)), np.array([mean[s] for s in series.scenes.values()])
    curves = tuple(
        Curve(f"{what}, {which}", at, rows[:, selection, column])
        for column, what in ((0, "guarantee ratio"), (2, "spare utilisation"))
        for selection, which in enumerate(("response-first", "utilisation-first"))
    )
    title = f"Guarantee ratio and spare utilisation by {series.name.replace('-', ' ')}, gap 8"
    return Plot(series.name, title, series.label, "share", curves)
