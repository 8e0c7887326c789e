"""Estimates of all waiting jobs, kept up as time goes on."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.estimates.ahead import (
    LIMITED,
    Ahead,
    ahead,
    lean,
    next_arrivals,
    on_known_nodes,
)
from rtsched.estimates.calibration import LEVELS, Calibration, Open, Spread
from rtsched.estimates.record import Awaited, Record
from rtsched.estimates.run_times import NAMES, History, draw
from rtsched.estimates.tables import BOUNDS, Accuracy, Estimates, odds_by
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.resources import demand_of, room_of
from rtsched.model.snapshot import are_in
from rtsched.model.units import DAY
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.estimates.ahead import LimitSource
    from rtsched.estimates.run_times import Predictors
    from rtsched.estimates.settings import EstimateSettings
    from rtsched.model.log import Log
    from rtsched.model.snapshot import Snapshot

    Arrivals = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
    """Rows of the jobs that are submitted, when, and how long they run, seconds."""

REMEMBERED_EVERY = 600.0
"""Seconds between two estimates of a job that are judged when it has started."""

REMEMBERED = 1000
"""Jobs of one refresh whose estimates are judged, drawn at random."""

KINDRED = ("user", "name", "account")
"""Columns of jobs by which they are alike."""

FEWEST = 8
"""Simulations at the least, however long they take."""

ASKED = 32
"""Questions about ends whose answers are remembered until the next refresh."""

UNSUBMITTED = -2
"""Id of a job that is not submitted."""

AT_ONCE = 1000
"""Jobs whose odds are worked out at once: of each there are thousands of ends."""

FIRST_COVERED = DAY
"""Seconds from now on whose arrivals are simulated at first. Where a job starts later than that, it
is simulated again with `LONGER` times as many."""

LONGER = 4.0
"""See `FIRST_COVERED`. Jobs that come later do not delay those that have started."""

NO_ARRIVALS = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)


@dataclass(frozen=True)
class Drawn:
    """One refresh: the state, and what each simulation draws.

    Attributes
    ----------
    snapshot, order, limits : Snapshot, float64[n] or None, LimitSource or None
        As they were given.
    past : Jobs
        Those that may be submitted once more.
    state : Ahead
        Who runs and waits.
    run_time : callable
        Returns float64[running + waiting], seconds, for the number of a simulation.
    arrivals : list of Arrivals
        Of each simulation rows of the jobs that are submitted, when, and how long they run.
    asked : deque of (Jobs, Jobs, float64[n, k])
        Jobs whose ends were asked for, those ahead of each, and the answers.
    """

    snapshot: Snapshot
    order: NDArray[np.float64] | None
    limits: LimitSource | None
    past: Jobs
    state: Ahead
    run_time: Callable[[int], NDArray[np.float64]]
    arrivals: list[Arrivals]
    asked: deque[tuple[Jobs, Jobs, NDArray[np.float64]]] = field(
        default_factory=lambda: deque(maxlen=ASKED)
    )


def _do_nothing() -> None:
    pass


def _kindred(snapshot: Snapshot, rows: NDArray[np.int64], *others: Jobs) -> Jobs:
    """Return the jobs that run, some of those that wait, and others, by what they are alike."""
    parts = (snapshot.running, snapshot.queued.take(rows), *others)
    return Jobs.joined([lean(jobs, *KINDRED) for jobs in parts])


class Estimator:
    """Start estimates of one site.

    Parameters
    ----------
    settings : EstimateSettings
        How much work is put into them.
    system : ExclusiveSettings, optional
        The site's own scheduler.
    seed : int
        Of the simulations; the same seed and states make the same estimates.
    answer_within : float
        Seconds that simulations of jobs that are not submitted may take, after the first few.
    predictors : Predictors, optional
        Also estimate by these; missing: by requested times only.
    """

    def __init__(
        self,
        settings: EstimateSettings,
        system: ExclusiveSettings | None = None,
        seed: int = 0,
        answer_within: float = 1.0,
        predictors: Predictors | None = None,
    ) -> None:
        self.settings = settings
        self.system = ExclusiveSettings() if system is None else system
        self.seed, self.answer_within = seed, answer_within
        self._predictors = predictors
        self.history, self.record = History(), Record()
        self._random = np.random.default_rng(seed)
        self._starts, self._ends = Calibration(), Calibration()
        self._simple_starts = [Calibration() for _ in NAMES if predictors is not None]
        """Of starts by the predictors, without arrivals."""
        self._remembered = -np.inf
        self._drawn: Drawn | None = None
        self._awaited = Awaited()
        self._covered = FIRST_COVERED
        """Seconds of arrivals that the first simulation of a refresh takes, by the one before."""
        self._now = 0.0

    def learn(self, log: Log) -> None:
        """Add jobs that have ended to the past; those known already are passed over."""
        self.history.learn(log, self._oldest())
        if self._predictors is not None:
            self._predictors.learn(log.jobs, log.outcomes.run_time)
        if self._now:
            self._settle_ends(log)

    def _oldest(self) -> float:
        """Return since when ended jobs count, seconds since the epoch."""
        return self._now - self.settings.history_days * DAY if self._now else -np.inf

    def refresh(
        self,
        snapshot: Snapshot,
        order: NDArray[np.float64] | None = None,
        between: Callable[[], None] | None = None,
        limits: LimitSource | None = None,
    ) -> Estimates:
        """Return estimates of all waiting jobs, and remember them to judge them later.

        Parameters
        ----------
        snapshot : Snapshot
            The state now.
        order : float64[n], optional
            Of each queued job, its priority; the highest is first. Missing: order of submission.
        between : callable, optional
            Called between two simulations.
        limits : LimitSource, optional
            Of accounts, users and QOS.

        Returns
        -------
        Estimates
            Row by row with `snapshot.queued`; with odds for those that have a deadline.
        """
        between, begun = between or _do_nothing, time.monotonic()
        self._settle(snapshot)
        self._now, snapshot = snapshot.now, on_known_nodes(snapshot)
        self.history.forget(self._oldest(), self._now + DAY)
        past = self.history.on(snapshot.cluster, *(LIMITED if limits is not None else ()))
        state, rows = ahead(snapshot, past, order, limits)
        run_time, arrivals_of = self._draw(snapshot, state, rows)
        self._drawn = drawn = Drawn(snapshot, order, limits, past, state, run_time, arrivals_of)
        if not len(rows):
            return Estimates.build(0)
        starts = np.empty((self.settings.draws, len(rows)))
        covered = self._covered
        for row in range(len(starts)):
            starts[row], covered = self._simulate(
                state, drawn.run_time(row), drawn.arrivals[row], covered
            )
            between()
            if row + 1 >= FEWEST and time.monotonic() - begun > self.settings.longest:
                starts = starts[: row + 1]
                break
        now, first = snapshot.now, state.running
        self._covered = _covering(starts - now)
        until = self.settings.horizon_days * DAY
        delay = np.minimum(starts - now, until)
        ends = delay + [drawn.run_time(row)[first:] for row in range(len(delay))]
        queued = snapshot.queued.take(rows)
        size = sizes(queued, snapshot)
        simple = self._simple(snapshot, state, rows)
        start, end = self._starts.spread(delay), self._ends.spread(ends)
        start_at = self._starts.quantiles(start, size, now)
        end_at = np.maximum(self._ends.quantiles(end, size, now), start_at)
        self._remember(queued, size, simple, (start, start_at), (end, end_at))
        found = _table(queued.id, now, start_at, end_at, until)
        due, odds = np.isfinite(queued.deadline), np.full(len(rows), np.nan)
        if due.any():
            odds[due] = self._odds(delay[:, due], queued.take(due))
        found = found.with_column("odds", odds)
        return found.take(np.argsort(rows, kind="stable"))

    def estimate(self, jobs: Jobs) -> Estimates:
        """Return estimates of jobs that are not submitted, each as if it alone were, now.

        There is none before the first `refresh`.
        """
        if self._drawn is None:
            return Estimates.build(len(jobs), job=jobs.id)
        now = self._now
        start, end, size = self._spreads(self._drawn, jobs)
        return _table(
            jobs.id,
            now,
            self._starts.quantiles(start, size, now),
            self._ends.quantiles(end, size, now),
            self.settings.horizon_days * DAY,
        )

    def ends(
        self, jobs: Jobs, within_s: float = math.inf, since: Jobs = NOBODY
    ) -> NDArray[np.float64]:
        """Return when such jobs, submitted now, may end, each alone; their deadlines do not matter.

        It is each of the simulations with each of the run times that are equally likely. A job
        ends by its requested time after its start, however long jobs like it ran. The same job
        behind the same ones gets the same answer until the next `refresh`, however much time there
        is.

        Parameters
        ----------
        jobs : Jobs
            They are not submitted.
        within_s : float
            Seconds that the simulations may take, after the first few; `answer_within` at most.
        since : Jobs, optional
            Submitted since the last `refresh`, which wait ahead of each; those that it saw are
            passed over.

        Returns
        -------
        float64[n, k]
            Seconds since the epoch, each row ascending; inf: a start beyond what is simulated.
            k is 0 before the first `refresh`.
        """
        drawn = self._drawn
        if drawn is None:
            return np.zeros((len(jobs), 0))
        same = _limited(jobs).replace(
            id=np.full(len(jobs), UNSUBMITTED), submit=self._now, deadline=np.inf, label=-1
        )
        first = _unseen(drawn.snapshot, _limited(since))
        for other, others, ends in drawn.asked:
            if other.equals(same) and others.equals(first):
                return ends
        delay, _ = self._ahead(drawn, same, within_s, first)
        found = np.sort(self._ends_after(delay, same), axis=1)
        drawn.asked.append((same, first, found))
        return found

    def _ends_after(self, delay: NDArray[np.float64], jobs: Jobs) -> NDArray[np.float64]:
        """Return float64[n, k]: ends as in `ends`, in any order, given waits as in `_odds`."""
        start = np.where(delay >= self.settings.horizon_days * DAY, np.inf, self._now + delay)
        run_time = self.history.run_times.distributions(jobs)
        run_time = np.minimum(run_time, jobs.wall_time[:, None])
        return np.asarray(start.T[:, :, None] + run_time[:, None, :]).reshape(len(jobs), -1)

    def odds(self, jobs: Jobs, since: Jobs = NOBODY) -> NDArray[np.float64]:
        """Return the odds that such jobs, submitted now, end by their deadlines, each alone.

        As `odds_by` of their `ends`.
        """
        return odds_by(self.ends(jobs, since=since), jobs.deadline)

    def _odds(self, delay: NDArray[np.float64], jobs: Jobs) -> NDArray[np.float64]:
        """Return odds as in `odds`, given waits, float64[simulations, n] seconds."""
        jobs, rows = _limited(jobs), np.arange(len(jobs))
        parts = (rows[first : first + AT_ONCE] for first in rows[::AT_ONCE])
        found = [
            odds_by(self._ends_after(delay[:, part], jobs.take(part)), jobs.deadline[part])
            for part in parts
        ]
        return np.concatenate([np.zeros(0), *found])

    def __getstate__(self) -> dict[str, Any]:
        """Return what a new process needs: the next refresh draws anew."""
        return {**self.__dict__, "_drawn": None}

    def accuracy(self) -> Accuracy:
        """Return how good the estimates of the last day, week and month were."""
        return self.record.accuracy(self._now)

    # --- simulations ------------------------------------------------------------------------------

    def _draw(
        self, snapshot: Snapshot, state: Ahead, rows: NDArray[np.int64]
    ) -> tuple[Callable[[int], NDArray[np.float64]], list[Arrivals]]:
        """Return run times and arrivals for all simulations of a refresh, as in `Drawn`."""
        count = self.settings.draws
        times, history = self.history.run_times, self.history
        jobs = _kindred(snapshot, rows)
        waiting = np.zeros(len(rows))
        some = partial(
            draw,
            times.distributions(jobs),
            np.concatenate([state.elapsed, waiting]),
            np.concatenate(
                [
                    state.elapsed + state.jobs.wall_time[: state.running],
                    jobs.wall_time[state.running :],
                ]
            ),
            np.concatenate([snapshot.running.id, snapshot.queued.id[rows]]),
            jobs.user,
            seed=self.seed,
        )

        @cache
        def run_time(number: int) -> NDArray[np.float64]:  # there may not be time for all
            return some(draws=[number]).ravel()

        first, until = len(jobs), snapshot.now + self.settings.horizon_days * DAY
        submitted = history.jobs.submit
        drawn = []
        day = int(snapshot.now // DAY)
        for number in range(count):
            random = np.random.default_rng((self.seed, day, number))
            row, at = next_arrivals(submitted, snapshot.now, until, random)
            drawn.append((row + first, at, history.run_time[row]))
        return run_time, drawn

    def _simulate(
        self,
        state: Ahead,
        run_time: NDArray[np.float64],
        arrivals: Arrivals,
        covered: float,
        wanted: int | None = None,
    ) -> tuple[NDArray[np.float64], float]:
        """Return the starts of the waiting jobs, seconds since the epoch, in one simulation.

        And how many seconds of arrivals it took. With `wanted`, the last jobs that wait decide.
        """
        rows, at, runs = arrivals
        longest, now = self.settings.horizon_days * DAY, state.now
        while True:
            covered = min(covered, longest)
            until = now + covered
            some = slice(np.searchsorted(at, until))
            start = state.simulate(
                run_time, rows[some], at[some], runs[some], self.system, until, wanted
            )
            decide = start if wanted is None else start[-wanted:]
            if covered >= longest or (decide <= until).all():
                return start, covered
            covered *= LONGER

    def _simple(
        self, snapshot: Snapshot, state: Ahead, rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return float64[n, p]: when waiting jobs start without arrivals, seconds from now on.

        By requested times, and by further predictors where there are any.
        """
        longest = self.settings.horizon_days * DAY
        wall = np.where(np.isfinite(state.jobs.wall_time), state.jobs.wall_time, longest)
        limits = wall[: state.running + state.waiting].copy()
        limits[: state.running] += state.elapsed - 1.0
        run_times = limits[:, None]
        if self._predictors is not None:
            jobs = _kindred(snapshot, rows)
            elapsed = np.concatenate([state.elapsed, np.zeros(len(rows))])
            others = self._predictors.run_times(jobs, elapsed, longest)[:, 1:]
            run_times = np.column_stack(
                [limits, np.minimum(others, np.maximum(limits, 1.0)[:, None])]
            )
        starts = [
            state.simulate(run_time, *NO_ARRIVALS, self.system, state.now + longest)
            for run_time in np.ascontiguousarray(run_times.T)
        ]
        return np.minimum(np.column_stack(starts) - state.now, longest)

    def _spreads(self, drawn: Drawn, jobs: Jobs) -> tuple[Spread, Spread, NDArray[np.float64]]:
        """Return starts and ends of jobs that are submitted now, and their sizes."""
        delay, own = self._ahead(drawn, jobs)
        size = sizes(jobs, drawn.snapshot)
        return self._starts.spread(delay), self._ends.spread(delay + own), size

    def _run_times_beside(self, drawn: Drawn, jobs: Jobs) -> NDArray[np.float64]:
        """Return run times of jobs that a refresh has not seen, float64[simulations, n] seconds.

        They are alike those of their users' jobs that it has seen.
        """
        if not len(jobs):  # the queue need not be gone through
            return np.zeros((self.settings.draws, 0))
        seen = np.arange(len(drawn.snapshot.queued))
        return draw(
            self.history.run_times.distributions(jobs),
            np.zeros(len(jobs)),
            jobs.wall_time,
            jobs.id,
            _kindred(drawn.snapshot, seen, jobs).user[-len(jobs) :],
            range(self.settings.draws),
            self.seed,
        )

    def _ahead(
        self, drawn: Drawn, jobs: Jobs, within_s: float = math.inf, since: Jobs = NOBODY
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return waits and run times of jobs submitted now, float64[simulations, n] seconds.

        Each waits behind those in `since`.
        """
        count = self.settings.draws
        others = self._run_times_beside(drawn, since)
        distribution = self.history.run_times.distributions(jobs)
        nobody = np.zeros(1, np.int32)
        own = np.column_stack(
            [  # equal jobs draw equal times, so that their odds can be compared
                draw(
                    distribution[[row]],
                    np.zeros(1),
                    jobs.wall_time[[row]],
                    np.full(1, UNSUBMITTED),
                    nobody,
                    range(count),
                    self.seed,
                )
                for row in range(len(jobs))
            ]
        )
        delay, longest = np.full((count, len(jobs)), np.nan), self.settings.horizon_days * DAY
        share = min(self.answer_within, within_s) / max(len(jobs), 1)
        for column in range(len(jobs)):
            begun = time.monotonic()
            state, covered = _with_one(drawn, jobs.take([column]), since), FIRST_COVERED
            for row in range(count):
                run_time = np.concatenate([drawn.run_time(row), others[row], own[row, [column]]])
                arrivals_row, at, runs = drawn.arrivals[row]
                submitted = arrivals_row + len(since) + 1, at, runs
                start, covered = self._simulate(state, run_time, submitted, covered, wanted=1)
                delay[row, column] = min(start[-1] - state.now, longest)
                if delay[row, column] <= 0:  # at once, however long others run
                    delay[:, column] = 0.0
                    break
                if row + 1 >= FEWEST and time.monotonic() - begun > share:
                    break
        rows = np.isfinite(delay).all(axis=1)
        return delay[rows], own[rows]

    # --- outcomes --------------------------------------------------------------------------------

    def _remember(
        self,
        queued: Jobs,
        size: NDArray[np.float64],
        simple: NDArray[np.float64],
        start: tuple[Spread, NDArray[np.float64]],
        end: tuple[Spread, NDArray[np.float64]],
    ) -> None:
        """Remember the estimates of waiting jobs, if it is time to, until they can be judged.

        Parameters
        ----------
        queued : Jobs
            `n` jobs.
        size, simple : float64[n], float64[n, p]
            As `sizes` and `_simple` return them.
        start, end : (Spread, float64[n, 7])
            By the simulations, and what was estimated, seconds from now on.
        """
        now, n = self._now, len(queued)
        if 0 <= now - self._remembered < REMEMBERED_EVERY:
            return
        self._remembered = now
        some = np.arange(n)
        if n > REMEMBERED:
            some = np.sort(self._random.choice(some, REMEMBERED, replace=False))
        job = queued.id.copy()
        job[some] = self._awaited.added(queued.take(some), now)
        at = np.full(n, now)
        limit = np.where(np.isfinite(queued.wall_time), queued.wall_time, 0.0)
        starts = Open(at, job, size, *start, simple)
        self._starts.remember(starts.take(some))
        ends = Open(at, job, size, *end, simple + limit[:, None])
        self._ends.remember(ends.take(some))
        for column, known in enumerate(self._simple_starts):
            spread = known.spread(simple[None, :, column])
            bounds = known.quantiles(spread, size, now)
            known.remember(Open(at, job, size, spread, bounds, simple).take(some))

    def _settle(self, snapshot: Snapshot) -> None:
        """Learn which jobs have started since the last refresh."""
        entries, now = snapshot.allocations.entries, snapshot.now
        self._judge(*self._awaited.started(snapshot.running, entries.start), now)
        waiting = np.union1d(self._starts.remembered(), self._ends.remembered())
        shown = np.union1d(snapshot.queued.id, entries.job)
        gone = self._awaited.keep(waiting, shown, now)
        none = np.zeros(0, np.int64), np.zeros(0)
        for known in (self._starts, self._ends, *self._simple_starts):
            known.settle(*none, gone, now)

    def _judge(self, job: NDArray[np.int64], start: NDArray[np.float64], now: float) -> None:
        """Compare the estimates of jobs with their starts, seconds since the epoch."""
        settled, *simple = (
            known.settle(job, start, np.zeros(0, np.int64), now)
            for known in (self._starts, *self._simple_starts)
        )
        self.record.add(settled, now, simple)

    def _settle_ends(self, log: Log) -> None:
        """Learn when jobs ended of which an estimate is open."""
        job, start, end = self._awaited.ended(log)
        if not len(job):
            return
        ran = np.isfinite(start)
        self._judge(job[ran], start[ran], self._now)
        self._ends.settle(job[ran], end[ran], job[~ran], self._now)


def _covering(delay: NDArray[np.float64]) -> float:
    """Return the seconds of arrivals that a refresh ends up with, where jobs wait so long.

    The next one begins with them, and so makes none of its simulations anew.
    """
    longest, covered = delay[np.isfinite(delay)].max(initial=0.0), FIRST_COVERED
    while covered < longest:
        covered *= LONGER
    return covered


def _unseen(snapshot: Snapshot, jobs: Jobs) -> Jobs:
    """Return those of some jobs that are not in a state."""
    seen = are_in(jobs.id, np.concatenate([snapshot.queued.id, snapshot.running.id]))
    return jobs.take(~seen)


def _with_one(drawn: Drawn, job: Jobs, since: Jobs) -> Ahead:
    """Return the state of a refresh in which more jobs wait, the one behind all others."""
    snapshot, order = drawn.snapshot, drawn.order
    job = job.replace(id=[UNSUBMITTED], submit=[snapshot.now], deadline=[np.inf])
    queued = snapshot.queued.with_rows(since).with_rows(job)
    if order is not None:
        behind = order.min(initial=0.0) - 1.0
        order = np.concatenate([order, np.full(len(since) + 1, behind)])
    return ahead(replace(snapshot, queued=queued), drawn.past, order, drawn.limits)[0]


def sizes(jobs: Jobs, snapshot: Snapshot) -> NDArray[np.float64]:
    """Return how much of the machine each job asks for, float64[n]: of the resource it fills most.

    Where nodes are not shared, its nodes.
    """
    cluster = snapshot.cluster
    if not cluster.shared:
        return jobs.size.astype(np.float64)
    room = np.maximum(room_of(cluster).sum(axis=0), 1)
    part = demand_of(jobs, cluster) * jobs.size[:, None] / room
    return np.asarray(part[:, : len(cluster.nodes.names("capacity"))].max(axis=1, initial=0.0))


def _limited(jobs: Jobs) -> Jobs:
    """Return jobs of which a limit of 0 is none."""
    return jobs.with_column("wall_time", np.where(jobs.wall_time > 0, jobs.wall_time, np.inf))


def _table(
    job: NDArray[np.int64],
    now: float,
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    until: float,
) -> Estimates:
    """Return estimates, given the quantiles of starts and ends in seconds from now on."""
    columns: dict[str, Any] = {}
    for name, delay in (("start", start), ("end", end)):
        at = np.where(delay >= until, np.inf, now + delay)
        places = np.searchsorted(LEVELS, list(BOUNDS.values()))
        columns |= {
            f"{name}{bound}": at[:, place] for bound, place in zip(BOUNDS, places, strict=True)
        }
    return Estimates.build(len(job), job=job, **columns)
