"""Calibration: how far estimates of the past were off, and what follows for those of the present.

An estimate's simulations give a median and a spread to either side. Of estimates whose outcome is
known the residual is kept: by how many spreads the outcome was off. The quantiles of the latest
residuals, of jobs of similar size, take the place of the simulations' own (split conformal
prediction, with normalised residuals). The levels at which they are read are corrected for how few
outcomes there are, and follow the coverage (adaptive conformal inference). Estimates that are still
open count as soon as they are late.

References
----------
Lei et al., "Distribution-free predictive inference for regression", JASA 113, 2018, section 5.2.
Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.units import DAY

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = np.array([0.025, 0.05, 0.1, 0.5, 0.9, 0.95, 0.975])
"""The quantiles that are estimated: 95, 90 and 80 % intervals, and the median between them."""

MEDIAN = 3
"""Place of the median in `LEVELS`."""

LATEST = 100_000
"""Residuals of a class of sizes that count, the latest ones."""

MIDDLE = 0.35, 0.65
"""Quantiles between which draws are averaged for the median: a few draws' own median is rough."""

FEW = 50
"""Where residuals of a class are of fewer jobs, those of all classes count; where these are of
fewer jobs, too, `PRIOR` counts for the jobs that are missing."""

PRIOR = np.array([-4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0])
"""Residuals at `LEVELS`, in spreads, where little is known: they make wide intervals. Many
residuals of one job that waits long are not much knowledge."""

MANY = 5_000
"""Residuals whose jobs are counted first, the latest ones: all others only if these are of fewer
jobs than `FEW`."""

STEP = 0.015
"""By how much the levels of a class follow the misses of the estimates of an hour."""

BEYOND = 0.1
"""How far beyond 0 and 1 residuals are read, where none was far enough off."""

STRETCH = 5.0
"""By how many times itself the most extreme residual grows for each whole level beyond 0 or 1."""

FARTHEST = 0.2
"""How far levels may go beyond 0 and 1, to make up for misses."""

FORGOTTEN = 5 * DAY
"""Seconds in which what levels have followed decays to 1/e. Coverage is known late, when jobs have
started: without the decay, intervals that were too narrow for days would then be far too wide for
weeks."""

LEAST_LEVELS = np.where(LEVELS < 0.5, -FARTHEST, 0.5)
MOST_LEVELS = np.where(LEVELS > 0.5, 1.0 + FARTHEST, 0.5)

OPEN_FOR = 30 * DAY
"""Seconds for which an open estimate is remembered."""

MOST_OPEN = 200_000
"""Open estimates that are remembered, the latest ones."""

LEAST_SPREAD = 600.0, 0.2
"""Added to each spread: seconds, and a share of the time from now to the median."""

FADES = 0.9999
"""How much of what was known of the two medians counts after an estimate more."""

WORTH = 0.05
"""By which share the median of the residuals must have been better to take the place of the
simulations' own: where these go wrong in the same way again and again."""

CLASSES = 3
"""Classes of sizes, each with as many jobs."""


class Spread(NamedTuple):
    """A median and its spread below and above, float64[n] each, seconds from the estimate on."""

    median: NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Spread:
        """Return that of simulations, float64[draws, n], seconds from the estimate on."""
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        median = _middle(values)
        least = LEAST_SPREAD[0] + LEAST_SPREAD[1] * np.abs(median)
        return cls(median, median - low + least, high - median + least)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Spread:
        """Return some rows."""
        return Spread(*(column[rows] for column in self))

    def residual(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return by how many spreads a value lies above the median, or, negative, below."""
        off = value - self.median
        return np.asarray(off / np.where(off >= 0, self.above, self.below))

    def value(self, residual: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the value with such a residual; the inverse of `residual`."""
        return np.asarray(self.median + residual * np.where(residual >= 0, self.above, self.below))


class Open(NamedTuple):
    """Estimates whose outcome is not known, row by row."""

    at: NDArray[np.float64]
    """Seconds since the epoch of the estimate."""
    job: NDArray[np.int64]
    size: NDArray[np.float64]
    spread: Spread
    quantiles: NDArray[np.float64]
    """float64[n, 7]: what was estimated, `LEVELS`, seconds from the estimate on."""
    simple: NDArray[np.float64]
    """float64[n, p]: estimates by simple predictors, by requested times first, without arrivals,
    seconds from the estimate on."""
    passed: NDArray[np.bool_]
    """bool[n, 7]: which of the quantiles are known to have been too early."""
    weight: NDArray[np.float64]
    """How much each counts for the levels: all of one time and class together once an hour."""

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Open:
        """Return some rows."""
        spread = self.spread.take(rows)
        return Open(spread=spread, **{name: getattr(self, name)[rows] for name in _OWN_COLUMNS})

    def joined(self, more: Open) -> Open:
        """Return these rows and more behind them."""
        if not len(self.at):
            return more
        spread = Spread(*map(np.concatenate, zip(self.spread, more.spread, strict=True)))
        columns = {
            name: np.concatenate([getattr(self, name), getattr(more, name)])
            for name in _OWN_COLUMNS
        }
        return Open(spread=spread, **columns)


_OWN_COLUMNS = tuple(name for name in Open._fields if name != "spread")


def _nothing() -> Open:
    none, levels = np.zeros(0), (0, len(LEVELS))
    return Open(
        at=none,
        job=np.zeros(0, np.int64),
        size=none,
        spread=Spread(none, none, none),
        quantiles=np.zeros(levels),
        simple=np.zeros((0, 1)),
        passed=np.zeros(levels, np.bool_),
        weight=none,
    )


class Settled(NamedTuple):
    """Estimates whose outcome has become known, row by row."""

    open: Open
    value: NDArray[np.float64]
    """What came true, seconds from the estimate on."""


class Calibration:
    """Residuals of the past, and the levels at which they are read."""

    def __init__(self) -> None:
        self._residual, self._size = np.zeros(0), np.zeros(0)
        self._job = np.zeros(0, np.int64)
        self._days: set[float] = set()
        """Days, since the epoch, on which estimates were made whose outcome is known."""
        self._shift = np.zeros((CLASSES, len(LEVELS)))
        """How far the levels of each class have followed the coverage."""
        self._forgot_at = np.nan
        self._off = np.zeros((2, CLASSES))
        """By how much the medians of the simulations and of the residuals were off, seconds."""
        self._open = _nothing()

    def quantiles(
        self, spread: Spread, size: NDArray[np.float64], now: float
    ) -> NDArray[np.float64]:
        """Return float64[n, 7]: the quantiles at `LEVELS`, seconds from now on, ascending.

        Parameters
        ----------
        spread : Spread
            Of the simulations, `n` rows.
        size : float64[n]
            Of the jobs.
        now : float
            Seconds since the epoch.
        """
        found = np.empty((len(size), len(LEVELS)))
        classes = self._class_of(size)
        for row in np.unique(classes).tolist():
            rows = classes == row
            residual = _at_levels(self._residuals(row, now), self.levels(row))
            own, other = self._off[:, row]
            if other >= (1.0 - WORTH) * own:
                residual[MEDIAN] = 0.0
            part = spread.take(rows)
            found[rows] = np.column_stack([part.value(np.full(rows.sum(), r)) for r in residual])
        found[:, MEDIAN:] = np.maximum.accumulate(found[:, MEDIAN:], axis=1)
        found[:, MEDIAN::-1] = np.minimum.accumulate(found[:, MEDIAN::-1], axis=1)
        return np.maximum(found, 0.0)

    def levels(self, row: int) -> NDArray[np.float64]:
        """Return float64[7]: the levels at which residuals of a class of sizes are read.

        What makes one start late makes others of the same day late, so there are as many outcomes
        as days on which estimates were made; levels are corrected for so few of them (Lei et al.,
        section 2.2).
        """
        few = np.where(LEVELS < 0.5, LEVELS - 1.0, LEVELS) / max(len(self._days), 1)
        return np.asarray(
            np.clip(LEVELS + few + self._shift[row], LEAST_LEVELS, MOST_LEVELS), np.float64
        )

    def remember(self, estimates: Open) -> None:
        """Keep estimates until their outcome is known."""
        self._open = self._open.joined(estimates)
        if len(self._open.at) > MOST_OPEN:
            self._open = self._open.take(
                np.arange(len(self._open.at) - MOST_OPEN, len(self._open.at))
            )

    def remembered(self) -> NDArray[np.int64]:
        """Return the ids of jobs of which an estimate is open."""
        return np.unique(self._open.job)

    def settle(
        self,
        job: NDArray[np.int64],
        value: NDArray[np.float64],
        gone: NDArray[np.int64],
        now: float,
    ) -> Settled:
        """Learn from outcomes, and return the estimates that they settle.

        Parameters
        ----------
        job, value : int64[k], float64[k]
            What has come true of which jobs, seconds since the epoch.
        gone : int64[l]
            Jobs of which no outcome will be known, such as cancelled ones.
        now : float
            Seconds since the epoch.
        """
        known = self._open
        order = np.argsort(job)
        place = np.minimum(np.searchsorted(job[order], known.job), max(len(job) - 1, 0))
        there = job[order][place] == known.job if len(job) else np.zeros(len(known.job), np.bool_)
        settled = known.take(there)
        outcome = value[order][place[there]] - settled.at if len(job) else np.zeros(0)
        left = ~there & ~np.isin(known.job, gone) & (known.at > now - OPEN_FOR) & (known.at <= now)
        self._open = known.take(left)
        self._forget(now)
        self._learn(settled, outcome)
        self._count_late(now)
        return Settled(settled, outcome)

    def _forget(self, now: float) -> None:
        """Let the levels go back towards those that outcomes of the same kind would need."""
        if now > self._forgot_at:
            self._shift *= np.exp((self._forgot_at - now) / FORGOTTEN)
        self._forgot_at = now

    def _learn(self, settled: Open, outcome: NDArray[np.float64]) -> None:
        if not len(outcome):
            return
        classes = self._class_of(settled.size)
        for row in np.unique(classes).tolist():
            rows = classes == row
            below = outcome[rows, None] < settled.quantiles[rows] - 1.0
            self._follow(row, settled.weight[rows], below, ~settled.passed[rows])
            self._compare_medians(row, settled.spread.take(rows), outcome[rows])
        self._days.update(np.unique(settled.at // DAY).tolist())
        self._residual = np.concatenate([self._residual, settled.spread.residual(outcome)])
        self._size = np.concatenate([self._size, settled.size])
        self._job = np.concatenate([self._job, settled.job])
        self._residual = self._residual[-CLASSES * LATEST :]
        self._size = self._size[-CLASSES * LATEST :]
        self._job = self._job[-CLASSES * LATEST :]

    def _count_late(self, now: float) -> None:
        """Let the levels follow what open estimates show: which quantiles have passed by now."""
        late = ((now - self._open.at)[:, None] > self._open.quantiles) & ~self._open.passed
        rows = np.flatnonzero(late.any(axis=1))
        if not len(rows):
            return
        classes = self._class_of(self._open.size[rows])
        for row in np.unique(classes).tolist():
            some = rows[classes == row]
            self._follow(row, self._open.weight[some], np.zeros_like(late[some]), late[some])
        self._open.passed[rows] |= late[rows]

    def _follow(
        self,
        row: int,
        weight: NDArray[np.float64],
        below: NDArray[np.bool_],
        counts: NDArray[np.bool_],
    ) -> None:
        """Move the levels of a class by outcomes below quantiles or not, where they count."""
        moved = (STEP * weight) @ (counts * (LEVELS - below))
        least, most = LEAST_LEVELS - LEVELS, MOST_LEVELS - LEVELS
        self._shift[row] = np.clip(self._shift[row] + moved, least, most)

    def _compare_medians(self, row: int, spread: Spread, outcome: NDArray[np.float64]) -> None:
        """Note by how much the medians of the simulations and of the residuals were off."""
        known = self._residual[self._class_of(self._size) == row][-LATEST:]
        if len(known) >= FEW:
            other = spread.value(np.full(len(outcome), np.median(known)))
            off = [np.abs(outcome - median).sum() for median in (spread.median, other)]
            self._off[:, row] = self._off[:, row] * FADES ** len(outcome) + off

    def _class_of(self, size: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class of each size; jobs of equal size are in one."""
        if len(self._size) < FEW:
            return np.zeros(len(size), np.int64)
        parts = np.arange(1, CLASSES) / CLASSES
        return np.searchsorted(np.quantile(self._size, parts), size, side="left")

    def _residuals(self, row: int, now: float) -> NDArray[np.float64]:
        """Return the residuals of a class, those of open estimates that are late among them."""
        rows = np.flatnonzero(self._class_of(self._size) == row)[-LATEST:]
        if _distinct(self._job[rows]) < FEW:
            rows = np.arange(len(self._residual))[-LATEST:]
        late = self._open.spread.residual(now - self._open.at)
        over = (late > 0) & (self._class_of(self._open.size) == row)
        known = np.concatenate([self._residual[rows], late[over]])
        jobs = _distinct(np.concatenate([self._open.job[over], self._job[rows]]))
        if jobs < FEW:  # a point for each job, and for each that is missing
            own, other = (np.linspace(0.0, 1.0, points) for points in (jobs, FEW - jobs))
            own = np.quantile(known, own) if jobs else known
            known = np.concatenate([own, np.interp(other, LEVELS, PRIOR)])
        return known


def _distinct(job: NDArray[np.int64]) -> int:
    """Return how many jobs there are; where there are enough among the last ones, of these."""
    some = len(np.unique(job[-MANY:]))
    return some if some >= FEW else len(np.unique(job))


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of draws, float64[draws, n]: the mean of those in the middle."""
    low, high = (round(share * (len(values) - 1)) for share in MIDDLE)
    return np.asarray(np.sort(values, axis=0)[low : high + 1].mean(axis=0))


def _at_levels(residual: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quantiles of residuals at levels, which may lie beyond 0 and 1."""
    within = np.clip(levels, 0.0, 1.0)
    levels = np.clip(levels, -BEYOND, 1.0 + BEYOND)
    found = np.quantile(residual, within)
    return np.asarray(found + np.abs(found) * STRETCH * (levels - within))
