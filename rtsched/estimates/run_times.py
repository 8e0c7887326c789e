"""Run times by what the users' jobs did before, kept in a `History`, and by simple `Predictors`.

A job's run time is drawn from those of jobs like it that have ended. Likeness has levels, from the
same user, name, account, size and requested time down to everybody. Each level counts by how many
jobs it has, and leaves the rest to the next one (shrinkage). Times scale with the requested time.

The levels are of the same jobs, so where little is known they would leave too little: of `n` jobs
known, or users, the next one is beyond all others with odds of 1 in `n` + 1. So much is left at
least to what is known of nobody: any time up to the requested one is as likely.

`Predictors` are for comparison: each gives one run time per job, and a simulation of the queue with
these, without jobs yet to come, gives the start that somebody would expect who knows no more.

References
----------
D. Tsafrir, Y. Etsion and D. Feitelson, "Backfilling using system-generated predictions rather than
user runtime estimates", IEEE TPDS 18(6), 2007: the mean of the last two, and how a prediction is
corrected that a job has outlived (section 4.2).
"""

from __future__ import annotations

import math
from collections import deque
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.estimates.ahead import lean
from rtsched.kernels.mixtures import Samples, quantiles
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.resources import CPU, MEMORY
from rtsched.model.table import Text, offsets_of
from rtsched.model.units import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Log


POINTS = 64
"""Points of each job's distribution."""

RECENT, BROAD = 60, 600
"""Jobs of one level of a user, or of many users, that are remembered, the latest ones."""

LEVELS_KEPT = 300_000
"""Levels that are remembered, and a tenth more: those of the jobs that ended last."""

FADING = 0.9 ** np.arange(RECENT - 1, -1, -1)
"""How much each of a user's jobs counts, the latest one last."""

HALF = 6.0
"""Jobs of a level that count as much as all further levels together."""

FEW_LEFT = 8
"""Points of a distribution below which too few are left of it for a job that runs."""

TOGETHER = 0.3
"""Odds that a job's run time goes with those of its user's other jobs in the same simulation."""

UNLIMITED = DAY
"""Seconds taken for the requested time of jobs without one, where nothing is known of any."""

LONGEST = 1e10
"""Requested times from these seconds on are none."""


class Kin(NamedTuple):
    """By what jobs are alike, but for their name."""

    user: str | None
    account: str | None
    size: int
    wall_time: float

    def named(self, name: str | None) -> tuple[Hashable, ...] | None:
        """Return the key of the closest level, of the user's jobs of this name; None: it has none.

        It is of its user, as all levels are that do not begin with None.
        """
        if name is None:
            return None
        return ("name", self.user, name, self.account, self.size, self.wall_time)

    def levels(self) -> tuple[tuple[Hashable, ...] | None, ...]:
        """Return the keys of the other levels, the closest first; None: it has none."""
        limited = math.isfinite(self.wall_time)
        return (
            ("size", self.user, self.size, self.wall_time),
            ("time", self.user, self.wall_time),
            ("user", self.user, limited),
            (None, "account", self.account, limited) if self.account is not None else None,
            (None, "time", round(math.log2(max(self.wall_time, 1.0))) if limited else None),
            (None, "all", limited),
        )


OWN, LEVELS = 4, 7
"""Levels of one user, and all of them."""


class RunTimes:
    """The run times of the past, and distributions of those to come."""

    def __init__(self) -> None:
        self._past: dict[Hashable, deque[float]] = {}
        self._users: dict[bool, deque[str | None]] = {}
        """Whose the latest jobs are, of those with and those without a requested time."""

    def learn(self, jobs: Jobs, run_time: NDArray[np.float64]) -> None:
        """Add jobs that have ended, in order of their ends; those that did not run do not count."""
        known = self._past
        for (kin, name), seconds in zip(_kin(jobs), run_time.tolist(), strict=True):
            if not 0 < seconds < math.inf:
                continue
            limited = math.isfinite(kin.wall_time)
            share = seconds / kin.wall_time if limited else seconds
            self._users.setdefault(limited, deque(maxlen=BROAD)).append(kin.user)
            for key in filter(None, (kin.named(name), *kin.levels())):
                most = BROAD if key[0] is None else RECENT
                past = known.pop(key, None) or deque(maxlen=most)
                past.append(share)
                known[key] = past
            if len(known) > 1.1 * LEVELS_KEPT:
                known = dict(islice(known.items(), len(known) - LEVELS_KEPT, None))
        self._past = known

    def distributions(self, jobs: Jobs) -> NDArray[np.float64]:
        """Return float64[n, POINTS]: ascending run times, seconds, that are equally likely."""
        kin = list(_kin(jobs))
        keys: dict[tuple[Hashable, ...], int] = {}

        def place(key: tuple[Hashable, ...] | None) -> int:
            return keys.setdefault(key, len(keys)) if key is not None and key in self._past else -1

        @cache
        def others(one: Kin) -> tuple[int, ...]:
            return *map(place, one.levels()), math.isfinite(one.wall_time)

        alike: dict[tuple[int, ...], int] = {}
        row = [
            alike.setdefault((place(one.named(name)), *others(one)), len(alike))
            for one, name in kin
        ]
        *places, limited = np.array(list(alike), np.int64).reshape(-1, LEVELS + 1).T
        share = quantiles(
            self._samples(keys),
            np.column_stack(places),
            OWN,
            HALF,
            np.where(limited[:, None], self._known(limited=True), self._known(limited=False)),
            len(keys) + np.where(limited, 0, 1),
            POINTS,
        )
        wall = np.array([one.wall_time for one, _ in kin])
        found = share[row] * np.where(np.isfinite(wall), wall, 1.0)[:, None]
        return np.asarray(np.maximum(found, 1.0, out=found))

    def _known(self, limited: bool) -> tuple[float, float]:
        """Return how many of the latest jobs are known, and of how many users; one more of each."""
        users = self._users.get(limited, deque())
        return len(users) + 1.0, _count_users(users) + 1.0

    def _samples(self, keys: Mapping[tuple[Hashable, ...], int]) -> Samples:
        """Return what is known of some levels, then of nobody: with and without a requested time.

        Values are shares of the requested time, or seconds where there is none.
        """
        past = [np.array(self._past[key]) for key in keys]
        weights = [
            np.ones(len(each)) if key[0] is None else FADING[-len(each) :]
            for key, each in zip(keys, past, strict=True)
        ]
        anything = (np.arange(POINTS) + 0.5) / POINTS
        past += [anything, anything * UNLIMITED]
        weights += [np.ones(POINTS)] * 2
        orders = [np.argsort(each, kind="stable") for each in past]
        return Samples(
            np.concatenate([each[order] for each, order in zip(past, orders, strict=True)]),
            np.concatenate([each[order] for each, order in zip(weights, orders, strict=True)]),
            offsets_of([len(each) for each in past]),
            np.array([each.sum() for each in weights]),
        )


def draw(
    distribution: NDArray[np.float64],
    elapsed: NDArray[np.float64],
    latest: NDArray[np.float64],
    job: NDArray[np.int64],
    user: NDArray[np.int32],
    draws: Sequence[int],
    seed: int,
) -> NDArray[np.float64]:
    """Return float64[draws, n]: run times, seconds, of which every one is above `elapsed`.

    The same job draws by the same chances at each refresh, so that estimates are steady.

    Parameters
    ----------
    distribution : float64[n, POINTS]
        From `RunTimes.distributions`.
    elapsed : float64[n]
        Seconds for which each job has run; 0: it waits.
    latest : float64[n]
        Requested times, seconds: a job that has run longer than any before may take up to this.
    job : int64[n]
        Job ids.
    user : int32[n]
        Users' codes, from -1.
    draws : sequence of int
        The numbers of the simulations.
    seed : int
        Source of chance.
    """
    n = len(distribution)
    own = chances(job, draws, seed)
    users = chances(-2 - user.astype(np.int64), draws, seed)
    together = chances(job, draws, seed + 1) < TOGETHER
    chance = np.where(together, users, own)
    passed = (distribution <= elapsed[:, None]).sum(axis=1)
    # where few have run as long, it is longer than all of them as likely as any one of them is
    place = passed + chance * (POINTS - passed + (passed > POINTS - FEW_LEFT)) - 0.5
    low = np.clip(np.floor(place).astype(np.int64), np.minimum(passed, POINTS - 1), POINTS - 1)
    high = np.minimum(low + 1, POINTS - 1)
    rows = np.arange(n)
    share = np.clip(place - low, 0.0, 1.0)
    drawn = distribution[rows, low] * (1 - share) + distribution[rows, high] * share
    over = place + 0.5 - POINTS
    known = np.maximum(elapsed, distribution[:, -1])
    beyond = known + over * np.maximum(
        np.where(np.isfinite(latest), latest, 2 * elapsed) - known, 0.05 * elapsed
    )
    return np.asarray(np.maximum(np.where(over < 0, drawn, beyond), elapsed + 1.0))


def _count_users(known: deque[str | None]) -> int:
    """Return of how many users jobs are; those of unknown users are of one each."""
    unknown = known.count(None)
    return len(set(known)) - (unknown > 0) + unknown


def _kin(jobs: Jobs) -> Iterator[tuple[Kin, str | None]]:
    user, account, name = (jobs.texts(name) for name in ("user", "account", "name"))
    wall = np.where(jobs.wall_time < LONGEST, np.maximum(jobs.wall_time, 1.0), math.inf)
    return zip(map(Kin, user, account, jobs.size.tolist(), wall.tolist()), name, strict=True)


def chances(key: NDArray[np.int64], draws: Sequence[int], seed: int) -> NDArray[np.float64]:
    """Return float64[draws, n]: even chances in [0, 1), by draw, key and seed alone.

    References
    ----------
    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
    (SplitMix64).
    """
    number = np.array(draws, np.uint64)[:, None]
    with np.errstate(over="ignore"):
        state = key.astype(np.uint64)[None, :] * np.uint64(0x9E3779B97F4A7C15)
        state = state + number * np.uint64(0xD1B54A32D192ED03) + np.uint64(seed) * np.uint64(7919)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
        state = state ^ (state >> np.uint64(31))
    return np.asarray((state >> np.uint64(11)).astype(np.float64) / 2.0**53)


MOST = 200_000
"""Jobs that are remembered, those that ended last."""

KEPT = ("id", "submit", "user", "name", "account", "qos", "cores", "memory")
"""What is kept of them beside what the simulation needs."""


class History:
    """The jobs of the past, in order of their submissions."""

    def __init__(self) -> None:
        self.jobs = NOBODY
        self.run_time, self.end = np.zeros(0), np.zeros(0)
        """float64[n]: seconds, and seconds since the epoch."""
        self._full_until = -np.inf
        """Since too many were known, those that ended until then are left out."""
        self._known: set[tuple[str | None, float]] = set()
        self._run_times: RunTimes | None = RunTimes()

    def learn(self, log: Log, since: float) -> None:
        """Add the jobs of a log that have ended; known ones, and those before a time, do not count.

        Jobs without a submission, or that ran for no time or for more than ten times as long as
        they might, are left out: their clock was wrong.
        """
        out, jobs = log.outcomes, log.jobs
        with np.errstate(invalid="ignore"):
            run_time = np.where(np.isfinite(out.run_time), out.run_time, out.end - out.start)
            good = (run_time > 0) & np.isfinite(out.end) & (out.end > since)
            good &= np.isfinite(jobs.submit) & (jobs.submit <= out.end)
            good &= run_time <= 10.0 * np.maximum(jobs.wall_time, 3600.0)
            good &= (jobs.size > 0) & (out.end > self._full_until)
        names = zip(jobs.labels(), out.end.tolist(), strict=True)
        fresh = []
        for row, key in enumerate(names):
            if good[row] and key not in self._known:
                self._known.add(key)
                fresh.append(row)
        if not fresh:
            return
        rows = np.array(fresh)
        rows = rows[np.argsort(out.end[rows], kind="stable")]
        new = lean(jobs.take(rows), *KEPT)
        if self._run_times is not None and out.end[rows[0]] >= self.end.max(initial=-np.inf):
            self._run_times.learn(new, run_time[rows])
        else:  # older jobs came later
            self._run_times = None
        self._add(new, run_time[rows], out.end[rows], since)

    def _add(
        self, jobs: Jobs, run_time: NDArray[np.float64], end: NDArray[np.float64], since: float
    ) -> None:
        whole = Jobs.joined([self.jobs, jobs])
        ran, ends = np.concatenate([self.run_time, run_time]), np.concatenate([self.end, end])
        kept = np.flatnonzero(ends > since)
        if len(kept) > MOST:
            latest = np.argsort(ends[kept], kind="stable")
            self._full_until = float(ends[kept[latest[-MOST - 1]]])
            kept = np.sort(kept[latest[-MOST:]])
        order = kept[np.argsort(whole.submit[kept], kind="stable")]
        if len(order) < len(ends):
            oldest = max(since, self._full_until)
            self._known = {key for key in self._known if key[1] > oldest}
        self.jobs, self.run_time, self.end = whole.take(order).replace(), ran[order], ends[order]

    def forget(self, since: float, until: float) -> None:
        """Drop the jobs that ended before a time, or after another: their clock was wrong.

        Where most ended after it, it is the present clock that is wrong.
        """
        late = self.end > until
        if 2 * late.sum() >= len(late):
            late, until = np.zeros(len(late), np.bool_), np.inf
        kept = (self.end > since) & ~late
        if kept.all():
            return
        if late.any():
            self._run_times, self._full_until = None, -np.inf
        self._known = {key for key in self._known if since < key[1] <= until}
        rows = np.flatnonzero(kept)
        self.jobs = self.jobs.take(rows).replace()
        self.run_time, self.end = self.run_time[rows], self.end[rows]

    @property
    def run_times(self) -> RunTimes:
        """Return the run times, learnt in order of the ends."""
        if self._run_times is None:
            self._run_times = RunTimes()
            order = np.argsort(self.end, kind="stable")
            self._run_times.learn(self.jobs.take(order), self.run_time[order])
        return self._run_times

    def on(self, cluster: Cluster, *more: str) -> Jobs:
        """Return the jobs as they would be submitted to a machine, row by row.

        Where jobs share nodes and the log does not say what they took, they take their cores and
        memory. `more`: further columns.
        """
        jobs = lean(self.jobs, *more)
        resources = cluster.nodes.names("capacity")
        if not cluster.shared or self.jobs.names("demand"):
            return jobs
        amounts = np.zeros((len(jobs), len(resources)), np.int64)
        cores, memory = self.jobs.cores, self.jobs.memory
        for column, name in enumerate(resources):
            if name == CPU:
                amounts[:, column] = -(-np.maximum(cores, 1) // np.maximum(jobs.size, 1))
            elif name == MEMORY:
                amounts[:, column] = np.maximum(memory, 0)
        kept = Jobs.columns()
        named = ("partition", *(name for name in more if isinstance(kept[name], Text)))
        plain = (name for name in more if name not in named)
        texts = {name: jobs.names(name) for name in named}
        columns = ("wall_time", "size", "exclusive", *named, *plain)
        return Jobs.build(
            len(jobs),
            names={"demand": resources, **texts},
            demand=amounts,
            **{name: jobs.column(name) for name in columns},
        )


NAMES = ("requested times", "median ratio", "last two")
"""The predictors: what is requested; that times the median share of it that the user's jobs ran;
the mean of what the user's last two jobs ran."""

REMEMBERED = 60
"""Jobs of a user whose shares of the requested time count, the latest ones."""

LAST = 2

CORRECTIONS = (
    *(minutes * MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 5, 10, 20, 50, 100)),
)
"""Seconds that are added to a prediction that a job has outlived: the first that suffice."""


class Predictors:
    """What the simple predictors know."""

    def __init__(self) -> None:
        self._shares: dict[str | None, deque[float]] = {}
        self._last: dict[str | None, deque[float]] = {}

    def learn(self, jobs: Jobs, run_time: NDArray[np.float64]) -> None:
        """Add jobs that have ended, in order of their ends, and what they ran, seconds."""
        users, wall = jobs.texts("user"), jobs.wall_time.tolist()
        for user, limit, seconds in zip(users, wall, run_time.tolist(), strict=True):
            if not 0 < seconds < math.inf:
                continue
            self._last.setdefault(user, deque(maxlen=LAST)).append(seconds)
            if 0 < limit < math.inf:
                share = self._shares.setdefault(user, deque(maxlen=REMEMBERED))
                share.append(seconds / limit)

    def run_times(
        self, jobs: Jobs, elapsed: NDArray[np.float64], longest: float
    ) -> NDArray[np.float64]:
        """Return float64[n, 3]: run times by `NAMES`, seconds, above `elapsed`.

        Parameters
        ----------
        jobs : Jobs
            `n` jobs; one of unknown limit has one of `longest` seconds.
        elapsed : float64[n]
            Seconds for which each has run; 0: it waits.
        """
        wall = np.where(np.isfinite(jobs.wall_time), jobs.wall_time, longest)
        users = jobs.texts("user")
        found = {user: (self._share(user), self._mean(user)) for user in set(users)}
        share, mean = np.array([found[user] for user in users]).reshape(len(jobs), 2).T
        last = np.where(np.isfinite(mean), mean, wall)
        predicted = np.column_stack([wall, np.minimum(wall * share, wall), np.minimum(last, wall)])
        grown = predicted[:, :, None] + np.array([0.0, *CORRECTIONS])
        beyond = grown > elapsed[:, None, None]
        place = np.argmax(beyond, axis=2)
        chosen = np.take_along_axis(grown, place[:, :, None], axis=2)[:, :, 0]
        chosen = np.where(beyond.any(axis=2), chosen, np.inf)
        return np.asarray(np.maximum(np.minimum(chosen, wall[:, None]), elapsed[:, None] + 1.0))

    def _share(self, user: str | None) -> float:
        known = self._shares.get(user)
        return float(np.median(known)) if known else 1.0

    def _mean(self, user: str | None) -> float:
        known = self._last.get(user)
        return sum(known) / len(known) if known else math.nan
