"""Check of estimates on a log: what they would have been, from instant to instant.

At each instant only what was known then is used. The first part of the log is there to learn from;
estimates of the rest are judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import InputError
from rtsched.estimates.estimator import Estimator
from rtsched.estimates.record import JOB, MADE_AT, SIZE, Record
from rtsched.estimates.run_times import Predictors
from rtsched.kernels.machine_limits import HELD, REMAINING
from rtsched.logs.hostlist import names_of
from rtsched.model.log import Log
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import offsets_of
from rtsched.simulator.machines import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rtsched.estimates.settings import EstimateSettings
    from rtsched.estimates.tables import Estimates
    from rtsched.model.jobs import Jobs
    from rtsched.model.limits import Limits
    from rtsched.replay.results import Workload
    from rtsched.simulator.settings import ExclusiveSettings

QUARTERS, THIRDS = 4, 3

WINDOW = 4000
"""Jobs of a window, in order of their first judged estimates."""

STEADY_EVERY = 10
"""At every so many instants it is also estimated what the next poll would say."""


@dataclass(frozen=True)
class JobRuns:
    """What happened to the jobs of a workload: when they ran, and where."""

    start: NDArray[np.float64]
    """float64[n]: seconds since the epoch; nan: it did not start."""
    end: NDArray[np.float64]
    indptr: NDArray[np.int64]
    """int64[n + 1]: job `i` ran on `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]

    def allocations(self, rows: NDArray[np.int64], wall: NDArray[np.float64]) -> Schedule:
        """Return where some jobs run."""
        parts = [self.nodes[self.indptr[row] : self.indptr[row + 1]] for row in rows.tolist()]
        nodes = np.concatenate([np.zeros(0, np.int32), *parts])
        offsets = offsets_of([len(part) for part in parts])
        return Schedule.build(rows, self.start[rows], self.start[rows] + wall, offsets, nodes)


@dataclass(frozen=True)
class Checked:
    """What became of the estimates.

    Attributes
    ----------
    rows : float64[n, 19]
        Judged estimates, as `rtsched.estimates.record.judged` returns them, with errors, widths and
        scores by all simple predictors.
    quarters : float64[5]
        Bounds of the quarters of the judged part, seconds since the epoch.
    sizes : float64[2]
        Bounds of the thirds of job sizes.
    steady : float
        Share of the medians that changed by less than their interval's width at the next poll.
    instants : int
        How often all waiting jobs were estimated.
    """

    rows: NDArray[np.float64]
    quarters: NDArray[np.float64]
    sizes: NDArray[np.float64]
    steady: float
    instants: int

    def parts(self) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Yield the judged estimates: all, by quarter of the log, third of sizes, and window.

        Windows are those that are full.
        """
        yield "all", self.rows
        quarter = np.searchsorted(self.quarters[1:-1], self.rows[:, MADE_AT], side="right")
        for number in range(QUARTERS):
            yield f"quarter {number + 1}", self.rows[quarter == number]
        third = np.searchsorted(self.sizes, self.rows[:, SIZE], side="left")
        for number, name in enumerate(("small", "medium", "large")):
            yield f"{name} jobs", self.rows[third == number]
        order = np.argsort(self.rows[:, MADE_AT], kind="stable")
        _, first, job = np.unique(self.rows[order, JOB], return_index=True, return_inverse=True)
        window = np.argsort(np.argsort(first))[job] // WINDOW
        for number in range(len(first) // WINDOW):
            yield f"window {number + 1}", self.rows[order[window == number]]


def recorded(workload: Workload) -> JobRuns:
    """Return what the log says.

    Raises
    ------
    InputError
        If it does not say when jobs started.
    """
    start, end = workload.outcomes.start, workload.outcomes.start + workload.run_time
    if not np.isfinite(start).any():
        raise InputError(
            workload.named, "the log does not say when jobs started; use --starts replayed"
        )
    indptr, nodes = _recorded_nodes(workload, start, end)
    return JobRuns(start, end, indptr, nodes)


def replayed(workload: Workload, system: ExclusiveSettings) -> JobRuns:
    """Return what happens in a replay of the log by the site's scheduler alone."""
    machine = simulate(
        workload.jobs,
        workload.run_time,
        workload.cluster,
        system,
        accounts=workload.accounts,
        edges=workload.edges,
        limits=workload.limits,
        node_events=workload.node_events,
        record_nodes=True,
    )
    while not machine.advance().done:
        pass
    outcomes = machine.job_outcomes()
    return JobRuns(outcomes.start, outcomes.end, *machine.node_rows())


def check(
    workload: Workload,
    course: JobRuns,
    settings: EstimateSettings,
    system: ExclusiveSettings,
    *,
    step: float = 3600.0,
    learn: float = 1 / 3,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Checked:
    """Estimate the starts of all waiting jobs again and again, and judge the estimates.

    Parameters
    ----------
    workload : Workload
        The log.
    course : JobRuns
        When its jobs ran: `recorded` or `replayed`.
    settings : EstimateSettings
        Of the estimates.
    system : ExclusiveSettings
        The site's scheduler, as far as it is simulated.
    step : float
        Seconds between two estimates of all waiting jobs.
    learn : float
        Part of the log's time that passes before estimates are judged.
    seed : int
        Of the simulations.
    progress : callable, optional
        Called now and then with the fraction that is done.

    Raises
    ------
    InputError
        If the log is too short to judge anything.
    """
    jobs, where = workload.jobs, workload.named
    if len(jobs) < 2 or jobs.submit[-1] <= jobs.submit[0]:
        raise InputError(
            where, "the log has too few jobs to judge estimates of their starts; give a longer one"
        )
    first, last = float(jobs.submit[0]), float(jobs.submit[-1])
    judged_from = first + learn * (last - first)
    # what is judged was learnt from estimates before: so they begin earlier
    instants = np.arange(first + learn / 2 * (last - first), last, step)
    past = _Past(workload, course)
    limits = None if workload.limits is None else _PastLimits(workload.limits, course)
    estimator = Estimator(settings, system, seed, answer_within=np.inf, predictors=Predictors())
    estimator.record = record = Record(forever=True)
    steady: list[NDArray[np.bool_]] = []
    made = 0
    for number, now in enumerate(instants.tolist()):
        if progress is not None and number % 16 == 0:
            progress(number / len(instants))
        snapshot = past.at(now)
        if not len(snapshot.queued):
            continue
        estimator.learn(past.ended(now))
        found = estimator.refresh(snapshot, limits=limits)
        made += 1
        if made % STEADY_EVERY == 0 and now >= judged_from:
            later = past.at(now + settings.refresh)
            if len(later.queued):
                steady.append(_is_steady(found, estimator.refresh(later, limits=limits)))
    estimator.learn(past.ended(np.inf))
    rows = record.rows[record.rows[:, MADE_AT] >= judged_from]
    if not len(rows):
        raise InputError(
            where,
            "no job waited in the part of the log that is judged; give a log of busier weeks, or a "
            "smaller --every",
        )
    every = np.concatenate(steady) if steady else np.zeros(0, np.bool_)
    bounds = np.quantile(rows[:, SIZE], np.arange(1, THIRDS) / THIRDS)
    return Checked(
        rows,
        np.linspace(judged_from, last, QUARTERS + 1),
        bounds,
        float(every.mean()) if len(every) else np.nan,
        made,
    )


def _is_steady(before: Estimates, after: Estimates) -> NDArray[np.bool_]:
    """Return of jobs in both estimates whether the median moved less than its interval of 95 %."""
    _, one, two = np.intersect1d(before.job, after.job, return_indices=True)
    with np.errstate(invalid="ignore"):
        moved = np.abs(after.start[two] - before.start[one])
        width = before.start_high_95[one] - before.start_low_95[one]
    return np.asarray((moved < width) | np.isnan(moved) | (moved <= 1.0))


class _Past:
    """What was known at each instant."""

    def __init__(self, workload: Workload, course: JobRuns) -> None:
        self._workload, self._course = workload, course
        ran = np.flatnonzero(np.isfinite(course.end))
        self._by_end = ran[np.argsort(course.end[ran], kind="stable")]
        self._learnt = 0
        waited = np.where(np.isfinite(course.end), course.end, np.inf) - workload.jobs.submit
        self._longest = float(waited.max(initial=0.0))

    def at(self, now: float) -> Snapshot:
        """Return the state at an instant."""
        jobs, course = self._workload.jobs, self._course
        first, last = np.searchsorted(jobs.submit, [now - self._longest, now], side="right")
        rows = np.arange(max(first - 1, 0), last)
        waits = rows[course.start[rows] > now]
        runs = rows[(course.start[rows] <= now) & (course.end[rows] > now)]
        running = jobs.take(runs).with_column("id", runs)
        return Snapshot(
            now,
            self._workload.cluster,
            jobs.take(waits).with_column("id", waits),
            running,
            course.allocations(runs, running.wall_time),
        )

    def ended(self, now: float) -> Log:
        """Return the jobs that have ended since this was last asked."""
        course, workload = self._course, self._workload
        until = int(np.searchsorted(course.end[self._by_end], now, side="right"))
        rows, self._learnt = self._by_end[self._learnt : until], until
        outcomes = workload.outcomes.take(rows).replace(
            start=course.start[rows], end=course.end[rows], run_time=workload.run_time[rows]
        )
        jobs = workload.jobs.take(rows).with_column("id", rows)
        return Log(jobs, outcomes, workload.sources, workload.format)


class _PastLimits:
    """The limits of the log's jobs, whose ids are their rows, and what was used at each instant."""

    def __init__(self, limits: Limits, course: JobRuns) -> None:
        self._limits, self._course = limits, course
        self._counts = not np.isin(limits.basis, [HELD, REMAINING]).all()

    def of(self, jobs: Jobs, snapshot: Snapshot) -> Limits:
        """Return the limits that hold for jobs."""
        found = self._limits.take(jobs.id)
        return found._replace(used=self._used(snapshot.now)) if self._counts else found

    def _used(self, now: float) -> NDArray[np.float64]:
        """Return what each group had used, float64[g, r]: amounts times seconds, decayed."""
        limits, course = self._limits, self._course
        found = np.zeros((len(limits.names), len(limits.things)))
        rows = np.flatnonzero(course.start < now)
        begun, over = now - course.start[rows], now - np.fmin(course.end[rows], now)
        places = limits.groups.places(limits.kind[rows])
        group, at = limits.groups.values[places.values], places.rows()
        decay = np.log(2.0) / limits.half_life[group]
        rate = np.where(decay > 0.0, decay, 1.0)
        decayed = (np.exp(-rate * over[at]) - np.exp(-rate * begun[at])) / rate
        seconds = np.where(decay > 0.0, decayed, begun[at] - over[at])
        np.add.at(found, group, limits.asked[rows][at] * seconds[:, None])
        return found


def _recorded_nodes(
    workload: Workload, start: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return which nodes each job had, offsets and rows; where the log does not say, any."""
    cluster, sizes = workload.cluster, np.maximum(workload.jobs.size, 1)
    sizes = np.minimum(sizes, max(len(cluster), 1))
    indptr = offsets_of(sizes)
    nodes = np.zeros(indptr[-1], np.int32)
    hosts: dict[str, list[int]] = {}
    for row, name in enumerate(cluster.nodes.texts("host")):
        hosts.setdefault(name or cluster.nodes.texts("name")[row] or "", []).append(row)
    free_at = np.full(len(cluster), -np.inf)
    lists = workload.outcomes.texts("nodes")
    for job in np.argsort(start, kind="stable").tolist():
        if not np.isfinite(start[job]):
            break
        own = [row for host in names_of(lists[job] or "") for row in hosts.get(host, ())]
        order = np.argsort(free_at, kind="stable")
        if own:
            mine = np.array(own)
            order = np.concatenate([mine[np.argsort(free_at[mine], kind="stable")], order])
            order = order[np.sort(np.unique(order, return_index=True)[1])]
        chosen = order[: sizes[job]]
        nodes[indptr[job] : indptr[job + 1]] = chosen
        free_at[chosen] = np.maximum(free_at[chosen], end[job])
    return indptr, nodes
