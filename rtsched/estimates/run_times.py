"""Run times by what the users' jobs did before.

A job's run time is drawn from those of jobs like it that have ended. Likeness has levels, from the
same user, name, account, size and requested time down to everybody. Each level counts by how many
jobs it has, and leaves the rest to the next one (shrinkage). Times scale with the requested time.

The levels are of the same jobs, so where little is known they would leave too little: of `n` jobs
known, or users, the next one is beyond all others with odds of 1 in `n` + 1. So much is left at
least to what is known of nobody: any time up to the requested one is as likely.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.units import DAY

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

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
    """By what jobs are alike."""

    user: str | None
    name: str | None
    account: str | None
    size: int
    wall_time: float

    def levels(self) -> Iterator[tuple[Hashable, ...]]:
        """Yield the keys of the levels, the closest first; those of many users begin with None."""
        limited = math.isfinite(self.wall_time)
        if self.name is not None:
            yield ("name", *self)
        yield "size", self.user, self.size, self.wall_time
        yield "time", self.user, self.wall_time
        yield "user", self.user, limited
        if self.account is not None:
            yield None, "account", self.account, limited
        yield None, "time", round(math.log2(max(self.wall_time, 1.0))) if limited else None
        yield None, "all", limited


class _Level(NamedTuple):
    """The past of one level: shares of the requested time, ascending, and how much each counts.

    Several of them are put in order quickly, as those that each are in order already.
    """

    share: NDArray[np.float64]
    fading: NDArray[np.float64]
    total: float


class RunTimes:
    """The run times of the past, and distributions of those to come."""

    def __init__(self) -> None:
        self._past: dict[Hashable, deque[float]] = {}
        self._users: dict[bool, deque[str | None]] = {}
        """Whose the latest jobs are, of those with and those without a requested time."""

    def learn(self, jobs: Jobs, run_time: NDArray[np.float64]) -> None:
        """Add jobs that have ended, in order of their ends; those that did not run do not count."""
        known = self._past
        for kin, seconds in zip(_kin(jobs), run_time.tolist(), strict=True):
            if not 0 < seconds < math.inf:
                continue
            limited = math.isfinite(kin.wall_time)
            share = seconds / kin.wall_time if limited else seconds
            self._users.setdefault(limited, deque(maxlen=BROAD)).append(kin.user)
            for key in kin.levels():
                most = BROAD if key[0] is None else RECENT
                past = known.pop(key, None) or deque(maxlen=most)
                past.append(share)
                known[key] = past
            if len(known) > 1.1 * LEVELS_KEPT:
                known = dict(islice(known.items(), len(known) - LEVELS_KEPT, None))
        self._past = known

    def distributions(self, jobs: Jobs) -> NDArray[np.float64]:
        """Return float64[n, POINTS]: ascending run times, seconds, that are equally likely."""
        known: dict[Kin, int] = {}
        place = [known.setdefault(kin, len(known)) for kin in _kin(jobs)]
        counts = {limited: (len(of), _count_users(of)) for limited, of in self._users.items()}
        levels: dict[Hashable, _Level | None] = {}
        rows = [
            self._distribution(kin, levels, *counts.get(math.isfinite(kin.wall_time), (0, 0)))
            for kin in known
        ]
        return np.array(rows).reshape(len(rows), POINTS)[place]

    def _level(self, key: tuple[Hashable, ...]) -> _Level | None:
        """Return what is known of one level; None: nothing."""
        past = self._past.get(key)
        if not past:
            return None
        share = np.array(past)
        fading = np.ones(len(past)) if key[0] is None else FADING[-len(past) :]
        order = np.argsort(share, kind="stable")
        return _Level(share[order], np.asarray(fading[order]), float(fading.sum()))

    def _distribution(
        self, kin: Kin, levels: dict[Hashable, _Level | None], jobs: int, users: int
    ) -> NDArray[np.float64]:
        """Return the run times of one kin, where so many jobs of so many users are known.

        `levels` holds those that were looked up.
        """
        limited = math.isfinite(kin.wall_time)
        values, weights, left, others = [], [], 1.0, 1.0
        for key in kin.levels():
            if key not in levels:
                levels[key] = self._level(key)
            if (level := levels[key]) is not None:
                weight = left * level.total / (level.total + HALF)
                values.append(level.share)
                weights.append(level.fading * (weight / level.total))
                left -= weight
            if key[0] is not None:
                others = left
        least = max(others / (users + 1), 1.0 / (jobs + 1))
        if left < least:
            weights = [each * ((1.0 - least) / (1.0 - left)) for each in weights]
            left = least
        any_share = (np.arange(POINTS) + 0.5) / POINTS
        values.append(any_share if limited else any_share * UNLIMITED)
        weights.append(np.full(POINTS, left / POINTS))
        value, weight_of = np.concatenate(values), np.concatenate(weights)
        order = np.argsort(value, kind="stable")
        upto = np.cumsum(weight_of[order])
        shares = value[order][np.searchsorted(upto, any_share * upto[-1])]
        return np.asarray(np.maximum(shares * kin.wall_time if limited else shares, 1.0))


def draw(
    distribution: NDArray[np.float64],
    elapsed: NDArray[np.float64],
    latest: NDArray[np.float64],
    job: NDArray[np.int64],
    user: NDArray[np.int32],
    count: int,
    seed: int,
) -> NDArray[np.float64]:
    """Return float64[count, n]: run times, seconds, of which every one is above `elapsed`.

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
    count : int
        Simulations.
    seed : int
        Source of chance.
    """
    n = len(distribution)
    own = chances(job, count, seed)
    users = chances(-2 - user.astype(np.int64), count, seed)
    together = chances(job, count, seed + 1) < TOGETHER
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


def _kin(jobs: Jobs) -> Iterator[Kin]:
    columns = (jobs.texts(name) for name in ("user", "name", "account"))
    wall = np.where(jobs.wall_time < LONGEST, np.maximum(jobs.wall_time, 1.0), math.inf)
    return map(Kin, *columns, jobs.size.tolist(), wall.tolist())


def chances(key: NDArray[np.int64], count: int, seed: int) -> NDArray[np.float64]:
    """Return float64[count, n]: even chances in [0, 1), which depend on keys and seed alone.

    References
    ----------
    Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
    (SplitMix64).
    """
    draws = np.arange(count, dtype=np.uint64)[:, None]
    with np.errstate(over="ignore"):
        state = key.astype(np.uint64)[None, :] * np.uint64(0x9E3779B97F4A7C15)
        state = state + draws * np.uint64(0xD1B54A32D192ED03) + np.uint64(seed) * np.uint64(7919)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
        state = state ^ (state >> np.uint64(31))
    return np.asarray((state >> np.uint64(11)).astype(np.float64) / 2.0**53)
