"""Calibration: how far estimates of the past were off, and what follows for those of the present.

An estimate's simulations give a median and a spread to either side. Of estimates whose outcome is
known the residual is kept: by how many spreads the outcome was off. The quantiles of past
residuals, of jobs of similar size, take the place of the simulations' own (split conformal
prediction, with normalised residuals). The more recent a residual is, the more it counts (conformal
prediction beyond exchangeability). How fast the past ceases to be like the present is not known, so
that there are several memories; the widest of their intervals count. Estimates that are still open
count as soon as they are late.

References
----------
Lei et al., "Distribution-free predictive inference for regression", JASA 113, 2018, section 5.2.
Barber, Candès, Ramdas and Tibshirani, "Conformal prediction beyond exchangeability", Annals of
Statistics 51, 2023, section 3.
Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.snapshot import are_in
from rtsched.model.units import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

LEVELS = np.array([0.025, 0.05, 0.1, 0.5, 0.9, 0.95, 0.975])
"""The quantiles that are estimated: 95, 90 and 80 % intervals, and the median between them."""

MEDIAN = 3
"""Place of the median in `LEVELS`."""

MEMORIES = np.array([5.0, 20.0, 80.0]) * DAY
"""Seconds in which the weight of a residual decays to 1/e, in each memory."""

EDGES = np.linspace(-9.0, 9.0, 721)
"""Of the bins in which residuals are counted, by their inverse hyperbolic sine: bins are narrow
around 0, and far out each is 2.5 % of the residual wide."""

SIZES = 64
"""Bins of job sizes, by powers of two."""

CLASSES = 3
"""Classes of sizes, each with as many residuals."""

MIDDLE = 0.35, 0.65
"""Quantiles between which draws are averaged for the median: a few draws' own median is rough."""

FEW = 50
"""Where residuals of a class are of fewer jobs, those of all classes count."""

FEW_DAYS = 7
"""Where residuals are of fewer jobs than `FEW`, or of estimates of fewer days, `PRIOR` counts for
those that are missing: many residuals of one job, or of one day, are not much knowledge."""

PRIOR = np.array([-4.0, -3.0, -2.0, 0.0, 2.0, 3.0, 4.0])
"""Residuals at `LEVELS`, in spreads, where little is known: they make wide intervals."""

OPEN_FOR = 30 * DAY
"""Seconds for which an open estimate is remembered."""

MOST_OPEN = 200_000
"""Open estimates that are remembered, the latest ones."""

LEAST_SPREAD = 600.0, 0.2
"""Added to each spread: seconds, and a share of the time from now to the median."""

ERROR_SHARE = 0.25
"""Of the mean error of medians, which is added in place of the seconds of `LEAST_SPREAD` where that
is more: what simulations do not know of does not follow their spread."""


class Spread(NamedTuple):
    """A median and its spread below and above, float64[n] each, seconds from the estimate on."""

    median: NDArray[np.float64]
    below: NDArray[np.float64]
    above: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64], seconds: float = LEAST_SPREAD[0]) -> Spread:
        """Return that of simulations, float64[draws, n], seconds from the estimate on.

        So many `seconds` are added at the least.
        """
        low, high = np.quantile(values, [0.1, 0.9], axis=0)
        median = _middle(values)
        least = max(seconds, LEAST_SPREAD[0]) + LEAST_SPREAD[1] * np.abs(median)
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
    )


class Settled(NamedTuple):
    """Estimates whose outcome has become known, row by row."""

    open: Open
    value: NDArray[np.float64]
    """What came true, seconds from the estimate on."""


class Calibration:
    """Residuals of the past, counted."""

    def __init__(self) -> None:
        self._counts = np.zeros((len(MEMORIES), SIZES, len(EDGES) - 1))
        self._counted_at = -np.inf
        """Seconds since the epoch as of which residuals have their weights."""
        self._jobs = np.zeros(SIZES)
        """Jobs whose residuals were counted, in the last memory."""
        self._days = np.zeros(0)
        """Days, since the epoch, on which estimates were made whose outcome is known."""
        self._error = np.zeros(2)
        """Absolute errors of medians, seconds, and of how many; in the second memory."""
        self._open = _nothing()

    def spread(self, values: NDArray[np.float64]) -> Spread:
        """Return that of simulations, float64[draws, n], seconds from the estimate on."""
        error, judged = self._error
        return Spread.of(values, ERROR_SHARE * error / max(judged, 1e-9))

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
        of_bin = self._classes()
        classes = of_bin[_bin_of_size(size)]
        faded = self._faded(now)
        counts, jobs = self._counts * faded + self._late(now), self._jobs * faded[-1, 0]
        days = np.exp(-np.maximum(now - self._days * DAY, 0.0) / MEMORIES[-1]).sum()
        for row in np.unique(classes).tolist():
            some, rows = of_bin == row, classes == row
            if jobs[some].sum() < FEW:
                some = np.ones(SIZES, np.bool_)
            share = min(jobs[some].sum() / FEW, days / FEW_DAYS, 1.0)
            residual = _at_levels(counts[:, some].sum(axis=1), share)
            part = spread.take(rows)
            found[rows] = np.column_stack([part.value(np.full(rows.sum(), r)) for r in residual])
        return np.maximum(found, 0.0)

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
        left = ~there & ~are_in(known.job, gone) & (known.at > now - OPEN_FOR) & (known.at <= now)
        self._open = known.take(left)
        self._learn(settled, outcome, now)
        return Settled(settled, outcome)

    def _learn(self, settled: Open, outcome: NDArray[np.float64], now: float) -> None:
        """Count residuals; a clock that has stepped back makes none count more."""
        if not len(outcome):
            return
        faded = self._faded(now)
        self._counts, self._jobs = self._counts * faded, self._jobs * faded[-1, 0]
        off = np.abs(outcome - settled.spread.median)
        self._error = faded[1, 0] * self._error + [off.sum(), len(off)]
        self._counted_at = max(now, self._counted_at)
        self._counts += _counted(settled, settled.spread.residual(outcome), self._counted_at)
        _, first = np.unique(settled.job, return_index=True)
        np.add.at(self._jobs, _bin_of_size(settled.size[first]), 1.0)
        days = np.union1d(self._days, settled.at // DAY)
        self._days = days[days > (now - 5 * MEMORIES[-1]) // DAY]

    def _faded(self, now: float) -> NDArray[np.float64]:
        """Return what the counts are worth now, float64[memories, 1, 1]."""
        passed = max(now - self._counted_at, 0.0) if len(self._days) else 0.0
        return np.asarray(np.exp(-passed / MEMORIES)[:, None, None])

    def _late(self, now: float) -> NDArray[np.float64]:
        """Return the residuals so far of open estimates that are late, counted."""
        residual = self._open.spread.residual(now - self._open.at)
        late = residual > 0
        return _counted(self._open.take(late), residual[late], max(now, self._counted_at))

    def _classes(self) -> NDArray[np.int64]:
        """Return int64[sizes]: the class of each bin of sizes."""
        known = np.cumsum(self._counts[-1].sum(axis=1))
        parts = np.arange(1, CLASSES) / CLASSES * known[-1]
        last = np.searchsorted(known, parts)
        return np.asarray(np.searchsorted(last, np.arange(SIZES), side="left"))


_PRIOR_BELOW = np.interp(
    EDGES, np.arcsinh([2 * PRIOR[0], *PRIOR, 2 * PRIOR[-1]]), [0.0, *LEVELS, 1.0]
)
"""Share of `PRIOR` below each of `EDGES`."""


def _at_levels(counts: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return float64[7]: the quantiles of residuals, which are so large a share of what counts.

    Parameters
    ----------
    counts : float64[memories, bins]
        Residuals.
    share : float
        0: `PRIOR` alone counts; 1: not at all.
    """
    below = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0)))
    every = below[:, -1:]
    known = np.where(every > 0, below / np.where(every > 0, every, 1.0), _PRIOR_BELOW)
    odds = share * known + (1.0 - share) * _PRIOR_BELOW
    found = np.array([np.interp(LEVELS, each, EDGES) for each in odds])
    widest = np.where(LEVELS < 0.5, found.min(axis=0), found.max(axis=0))
    return np.asarray(np.sinh(np.where(LEVELS == 0.5, found.mean(axis=0), widest)))


def _counted(estimates: Open, residual: NDArray[np.float64], now: float) -> NDArray[np.float64]:
    """Return residuals counted, float64[memories, sizes, bins], by how long ago they were made."""
    shape = SIZES, len(EDGES) - 1
    bins = np.searchsorted(EDGES[1:-1], np.arcsinh(residual))
    place = np.ravel_multi_index((_bin_of_size(estimates.size), bins), shape)
    age = np.maximum(now - estimates.at, 0.0)
    counts = [np.bincount(place, np.exp(-age / memory), shape[0] * shape[1]) for memory in MEMORIES]
    return np.reshape(counts, (len(MEMORIES), *shape))


def _bin_of_size(size: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each size: of whole numbers, or of shares of a machine."""
    return np.asarray(np.clip(np.frexp(size)[1] + SIZES // 2, 0, SIZES - 1), np.int64)


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median of draws, float64[draws, n]: the mean of those in the middle."""
    low, high = (round(share * (len(values) - 1)) for share in MIDDLE)
    return np.asarray(np.sort(values, axis=0)[low : high + 1].mean(axis=0))


STEP = 0.5
"""By how much the log-odds of a threshold rise after a broken promise to which odds of 100 % were
stated."""

_RESERVE = 0.2
"""Share of the broken promises that stated odds allow which the threshold does not aim at."""

_HIGHEST = 0.1
"""The threshold leaves this share of what is between the stated odds and 1."""

_LEAST = 1e-4
"""Odds this near to 0 and 1 are taken for these."""


@dataclass(frozen=True)
class LikelyLevel:
    """The thresholds of all stated odds, so that the stated share of promises is kept.

    Odds of a simulation ahead are not those that turn out, and jobs with at least 95 % have more
    than that on average. So each stated odds have a threshold for the raw ones, which follows the
    outcomes: a broken promise raises it, a kept one lowers it by as much less as promises are to be
    broken less often (adaptive conformal inference). It moves by its log-odds, so that it is as
    steady near 0 and 1 as between them. It aims at somewhat fewer broken promises than stated,
    since they come in bursts, and the share is to hold in each block of some hundreds too. In the
    long run about that share is kept, whatever the raw odds are worth, as long as a threshold
    within its bounds reaches it. That holds for all promises together, not for each job: one that
    is accepted may have lower raw odds than stated.

    Attributes
    ----------
    step : float
        By how much a threshold follows an outcome.
    shifts : mapping of float to float
        By stated odds, 0 to 1, rounded to 0.001: by how much the log-odds of their threshold are
        above their own.
    """

    step: float = STEP
    shifts: Mapping[float, float] = field(default_factory=dict)

    def threshold(self, stated: float) -> float:
        """Return from which raw odds on, 0 to 1, a promise with these stated odds is given.

        Before the first outcome it is the stated odds themselves, which is on the safe side where
        raw odds are right. It stays below 1, for with no promise given there would be no outcome
        to learn from; and above half of what stated odds leave to 1, unless they are lower.
        """
        shift = self.shifts.get(round(stated, 3), 0.0)
        return _odds(_log_odds(stated) + shift) if shift else stated

    def calibrated(self, raw: float, stated: float) -> float:
        """Return raw odds, shifted as the threshold is: at it they are the stated odds."""
        shift = self.shifts.get(round(stated, 3), 0.0)
        return _odds(_log_odds(raw) - shift) if shift else raw

    def learnt(self, outcomes: Iterable[tuple[float, bool]]) -> LikelyLevel:
        """Return this with more outcomes, in the order in which they became known.

        Parameters
        ----------
        outcomes : iterable of (float, bool)
            Odds, 0 to 1, that were stated, and whether the job ended by its deadline.

        Raises
        ------
        ValueError
            If odds are not within 0 and 1.
        """
        shifts = dict(self.shifts)
        for stated, kept in outcomes:
            if not 0 <= stated <= 1:
                raise ValueError(f"odds must be within 0 and 1, not {stated}")
            key, own, left = round(stated, 3), _log_odds(stated), 1.0 - stated
            lowest, highest = _log_odds(left / 2), _log_odds(1.0 - _HIGHEST * left)
            shift = shifts.get(key, 0.0) + self.step * (1.0 - (1.0 - _RESERVE) * left - kept)
            shifts[key] = min(max(shift, min(lowest - own, 0.0)), highest - own)
        return replace(self, shifts=shifts) if shifts else self


def _log_odds(odds: float) -> float:
    within = min(max(odds, _LEAST), 1.0 - _LEAST)
    return math.log(within / (1.0 - within))


def _odds(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-log_odds))
