"""Cms, Cps and set-up times from run times of divisible loads on different numbers of nodes.

A load of sigma units takes E(n) = SC + ST (1 + s_n) + sigma (cms + cps) b_n on n nodes, where b_n
and s_n depend on q = cms/(cms + cps) alone (`rtsched.kernels.dlt`). Run times scatter in proportion
to their length, so log E is fitted (Gauss-Newton, the loads eliminated), to the jobs within four
robust standard deviations.

Where sigma is not known, each class of jobs has a load of its own, and only products can be told:
the unit of load is then such that cms + cps = 1 s. The ratio q, ST and SC do not depend on it.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing. Golub and
Pereyra, 1973 (the loads are eliminated). MacKinnon and White, 1985: the estimator HC2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from rtsched.calibrate.intervals import (
    OUTLIER,
    Estimate,
    Refused,
    loss,
    medians,
    rounding,
    scatter,
    t_quantile,
)
from rtsched.kernels.dlt import chain_factors, split_ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]


FEWEST_JOBS = 10
WIDEST_RATIO = 0.5
"""A wider interval of q, which is between 0 and 1, says nothing."""

WIDEST_SETUP = 1.0
"""Half an interval of a set-up time that is wider, in middle run times, says nothing."""

NO_GAIN = 0.9
"""With q up to this the run time hardly depends on the number of nodes."""

MOST_SCATTER = 0.7
"""Jobs that differ by a factor of two from the model are not of one load."""

NOTHING = Estimate(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Loads:
    """What run times on different numbers of nodes say.

    Attributes
    ----------
    cms, cps : Estimate
        Seconds to send and to compute one unit of load.
    ratio : Estimate
        q = cms/(cms + cps).
    setup_link, setup_node : Estimate
        ST and SC, seconds; `NOTHING` if they were taken as 0.
    jobs, classes, outliers : int
        Jobs used, their classes, and how many more were set aside.
    sizes : tuple of int
        The numbers of nodes that occur.
    sigma_known : bool
        Whether a unit is one of the log's sigma; else cms + cps = 1 s.
    scatter : float
        Standard deviation of log(run time) about the model.
    """

    cms: Estimate
    cps: Estimate
    ratio: Estimate
    setup_link: Estimate
    setup_node: Estimate
    jobs: int
    classes: int
    outliers: int
    sizes: tuple[int, ...]
    sigma_known: bool
    scatter: float


def divisible_loads(
    run_time: Floats,
    size: Codes,
    job_class: Codes,
    sigma: Floats | None = None,
    *,
    setup: bool = True,
) -> Loads | Refused:
    """Return cms, cps and the set-up times, or why the log cannot tell them.

    Parameters
    ----------
    run_time : float64[n]
        Seconds, > 0.
    size : int64[n]
        Nodes each job ran on, >= 1.
    job_class : int64[n]
        Jobs of one class have the same load; codes from 0. Not looked at where sigma is known.
    sigma : float64[n], optional
        Units of load, > 0, one and the same unit for all jobs.
    setup : bool
        False: ST and SC are taken as 0.
    """
    if sigma is None:
        width = int(size.max(initial=0)) + 1
        cells = np.unique(job_class * width + size) // width
        keep = (np.bincount(cells, minlength=1) > 1)[job_class]
        run_time, size, job_class = run_time[keep], size[keep], job_class[keep]
    else:
        job_class = np.zeros(len(size), np.int64)
    why = _why_not(size, sigma)
    if why:
        return Refused(why)
    runs = ChainRuns.of(run_time, size, job_class, sigma)
    fitted = fit_chain(runs, setup=setup)
    if isinstance(fitted, str):
        return Refused(f"{fitted}{_HINT if setup else ''}")
    return _loads(fitted, runs, known=sigma is not None, setup=setup)


_TOO_FEW = "the jobs are too few, or scatter too much, to tell sending, computing and set-up apart"
_HINT = "; if there is no set-up to speak of, say --no-setup"


def _why_not(size: Codes, sigma: Floats | None) -> str:
    if sigma is None and not len(size):
        return "no job was repeated on another number of nodes"
    if len(size) < FEWEST_JOBS:
        what = "were repeated on other numbers of nodes" if sigma is None else "have a known load"
        return f"only {len(size)} jobs {what}"
    if len(np.unique(size)) < 2:
        return (
            f"all jobs ran on {int(size[0])} nodes, which shows cms + cps and ST + SC but not how "
            "they divide"
        )
    return ""


def _loads(fitted: Fitted, runs: ChainRuns, *, known: bool, setup: bool) -> Loads | Refused:
    wide = t_quantile(fitted.freedom) * fitted.loss
    ratio, link, node, _ = _estimates(fitted.value, wide * np.sqrt(np.diag(fitted.covariance)))
    why = _inconclusive(
        fitted.scatter, ratio, max(each.high - each.value for each in (link, node)) / runs.unit
    )
    if why:
        return Refused(f"{why}{_HINT if setup and why == _TOO_FEW else ''}")
    cms, cps = ratio, Estimate(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    if known:
        cms, cps = _per_unit(fitted, wide)
    return Loads(
        cms.within(0.0),
        cps.within(0.0),
        ratio.within(0.0, 1.0),
        link.within(0.0),
        node.within(0.0),
        fitted.jobs,
        fitted.classes,
        len(runs.log_time) - fitted.jobs,
        tuple(runs.sizes.tolist()),
        known,
        fitted.scatter,
    )


def _estimates(value: Floats, half: Floats) -> list[Estimate]:
    """Return values with half the width of their intervals."""
    return [Estimate(*each) for each in np.array([value, value - half, value + half]).T.tolist()]


def _inconclusive(scatter: float, ratio: Estimate, setup: float) -> str:
    """Return why a fit says nothing; `setup` is half an interval in middle run times."""
    if scatter > MOST_SCATTER:
        return (
            "the run times differ by a factor of two and more from any such model: jobs of one "
            "name have not one load, or are no divisible loads"
        )
    if ratio.high > NO_GAIN:
        return "the run times do not fall with the number of nodes: no divisible loads"
    if ratio.high - ratio.low > WIDEST_RATIO or setup > WIDEST_SETUP:
        return _TOO_FEW
    return ""


def _per_unit(fitted: Fitted, wide: float) -> list[Estimate]:
    """Return cms and cps from q and log(cms + cps), which are correlated."""
    q, total = float(fitted.value[0]), float(np.exp(fitted.value[3]))
    slope = total * np.array([[1.0, q], [-1.0, 1 - q]])
    variance = np.diag(slope @ fitted.covariance[np.ix_([0, 3], [0, 3])] @ slope.T)
    return _estimates(total * np.array([q, 1 - q]), wide * np.sqrt(variance))


_ROUNDS = 8
_STEPS = 50
_HALVINGS = 12
_ENOUGH = 1e-9
_NUDGE = 1e-4
_ALIKE = 30.0
"""Condition number (columns of length 1) beyond which an interval would be a guess."""

_SINGULAR = 1e10
_TINY = 1e-200
_MOST = 200.0  # a log of seconds or of sigma beyond this is no step to take
_NOT_APART = "the sizes and loads do not tell sending, computing and set-up apart"
_RATIOS = (0.0, 1e-3, 1e-2, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
_SETUPS = (0.0, 0.05)


@dataclass(frozen=True)
class ChainRuns:
    """Jobs to be fitted.

    Attributes
    ----------
    log_time : float64[n]
    sizes : int64[k]
        The numbers of nodes that occur.
    place : int64[n]
        Each job's number of nodes among `sizes`.
    load : int64[n]
        Which load a job has; codes from 0 without gaps.
    log_sigma : float64[n]
        Log of the job's multiple of that load.
    unit : float
        A run time of middle length, seconds.
    """

    log_time: Floats
    sizes: Codes
    place: Codes
    load: Codes
    log_sigma: Floats
    unit: float

    @classmethod
    def of(cls, run_time: Floats, size: Codes, load: Codes, sigma: Floats | None) -> ChainRuns:
        """Return the jobs; without sigma each load is what it is."""
        sizes, place = np.unique(size, return_inverse=True)
        _, load = np.unique(load, return_inverse=True)
        log_sigma = np.zeros(len(size)) if sigma is None else np.log(sigma)
        unit = float(np.median(run_time))
        return cls(np.log(run_time), sizes, place, load, log_sigma, unit)

    def take(self, keep: NDArray[np.bool_]) -> ChainRuns:
        """Return some of the jobs."""
        _, load = np.unique(self.load[keep], return_inverse=True)
        log_time, log_sigma = self.log_time[keep], self.log_sigma[keep]
        return ChainRuns(log_time, self.sizes, self.place[keep], load, log_sigma, self.unit)

    def factors(self, q: float) -> tuple[Floats, Floats]:
        """Return each job's b_n and 1 + s_n."""
        beta = split_ratio(q, 1 - q)
        rows = np.array([chain_factors(n, *beta) for n in self.sizes.tolist()])[self.place]
        return rows[:, 0], 1 + rows[:, 1]


@dataclass(frozen=True)
class Fitted:
    """What the fit finds.

    Attributes
    ----------
    value : float64[4]
        q, ST, SC in seconds, and the log of the first load (with sigma: of cms + cps).
    covariance : float64[4, 4]
    freedom, jobs, classes : int
        Degrees of freedom, jobs used, loads.
    loss : float
        See `rtsched.calibrate.intervals.loss`.
    scatter : float
        Standard deviation of log(run time) about the model.
    """

    value: Floats
    covariance: Floats
    freedom: int
    jobs: int
    classes: int
    loss: float
    scatter: float


@dataclass(frozen=True)
class _Model:
    """E(n) at `theta` = (q, ST, SC), set-up in units of `ChainRuns.unit`, and log loads."""

    theta: Floats
    loads: Floats

    def parts(self, runs: ChainRuns, q: float) -> tuple[Floats, Floats]:
        """Return the time of each job that grows with its load, and 1 + s_n."""
        b, s = runs.factors(q)
        return np.exp(self.loads[runs.load] + runs.log_sigma) * b, s

    def time(self, runs: ChainRuns, q: float) -> Floats:
        """Return E(n) of each job with another q."""
        work, s = self.parts(runs, q)
        found: Floats = work + runs.unit * (self.theta[1] * s + self.theta[2])
        return found

    def residual(self, runs: ChainRuns) -> Floats | None:
        """Return log run times less those of the model; None where that is no time."""
        q = float(self.theta[0])
        if not -1 / runs.sizes[-1] < q < 1 - 1e-6 or not (np.abs(self.loads) < _MOST).all():
            return None
        time = self.time(runs, q)
        return runs.log_time - np.log(time) if time.min() > 0 else None

    def slopes(self, runs: ChainRuns) -> tuple[Floats, Floats]:
        """Return the derivatives of log E by theta, float64[n, 3], and by the log load."""
        q = float(self.theta[0])
        step = _NUDGE * min(max(abs(q), 1 / float(runs.sizes[-1])), 1 - q)
        by_q = (self.time(runs, q + step) - self.time(runs, q - step)) / (2 * step)
        work, s = self.parts(runs, q)
        time = self.time(runs, q)
        return np.array([by_q, runs.unit * s, np.full(len(s), runs.unit)]).T / time[:, None], (
            work / time
        )


def fit_chain(runs: ChainRuns, *, setup: bool) -> Fitted | str:
    """Return the fit, or in a sentence's start why there is none."""
    free = [0, 1, 2] if setup else [0]
    model, keep = _start(runs, setup=setup)
    few = runs
    found: _Solved | str = _NOT_APART
    for _ in range(_ROUNDS):
        few = runs.take(keep)
        if len(few.log_time) <= few.load.max() + 1 + len(free):
            return f"there are only {len(few.log_time)} jobs for {few.load.max() + 1} loads"
        known = np.unique(runs.load[keep])
        found = _solve(_Model(model.theta, model.loads[known]), few, free)
        if isinstance(found, str):
            return found
        loads = np.full(int(runs.load.max()) + 1, np.nan)
        loads[known] = found.model.loads
        model = _Model(found.model.theta, loads)
        again = _near(model, runs, keep, found)
        if (again == keep).all():
            break
        keep = again
    if isinstance(found, str) or found.condition > _ALIKE:
        return _NOT_APART
    return found.fitted(few, free)


def _start(runs: ChainRuns, *, setup: bool) -> tuple[_Model, NDArray[np.bool_]]:
    """Return the best of some models by medians, and which jobs are near it."""
    setups = _SETUPS if setup else (0.0,)
    best = None
    for q, link, node in product(_RATIOS, setups, setups):
        b, s = runs.factors(q)
        work = np.exp(runs.log_time) - runs.unit * (link * s + node)
        if np.median(work) <= 0:
            continue
        each = np.log(np.maximum(work, 1e-3 * np.exp(runs.log_time)) / b) - runs.log_sigma
        model = _Model(np.array([q, link, node]), medians(each, runs.load))
        off = runs.log_time - np.log(model.time(runs, q))
        found = scatter(off, len(model.loads))
        if best is None or found < best[0]:
            best = found, model, off
    assert best is not None  # noqa: S101  without set-up every model is possible
    width = max(best[0], rounding(runs.log_time))
    return best[1], np.abs(best[2]) <= OUTLIER * width


@dataclass(frozen=True)
class _Solved:
    """A model at its least squares, and what its linear form there says."""

    model: _Model
    residual: Floats
    slopes: Floats  # float64[n, free], the loads eliminated
    back: Floats  # float64[loads, free]: how the loads follow
    own: Floats  # each job's derivative by its load, over the root of `norm`
    norm: Floats  # float64[loads]: sums of those derivatives' squares
    inverse: Floats
    condition: float

    @property
    def free(self) -> Floats:
        """Return 1 less the leverage of each job."""
        by_theta = np.einsum("nk,kl,nl->n", self.slopes, self.inverse, self.slopes)
        found: Floats = np.maximum(1 - by_theta - self.own**2, 1e-6)
        return found

    def width(self, log_time: Floats) -> float:
        """Return the standard deviation of one job."""
        return max(scatter(self.residual / np.sqrt(self.free)), rounding(log_time))

    def fitted(self, runs: ChainRuns, free: list[int]) -> Fitted:
        """Return values and covariance."""
        norm = self.norm
        influence = np.zeros((len(runs.load), 4))
        influence[:, free] = self.slopes @ self.inverse
        first = runs.load == 0
        influence[:, 3] = first * self.own / np.sqrt(norm[0])
        influence[:, 3] -= influence[:, free] @ self.back[0]
        weight = self.residual**2 / self.free
        scale = np.array([1.0, runs.unit, runs.unit, 1.0])
        width = self.width(runs.log_time)
        return Fitted(
            np.append(self.model.theta, self.model.loads[0]) * scale,
            influence.T @ (influence * weight[:, None]) * np.outer(scale, scale),
            len(runs.load) - len(norm) - len(free),
            len(runs.load),
            len(norm),
            loss(np.abs(self.residual) / np.sqrt(self.free) / width),
            width,
        )


def _solve(model: _Model, runs: ChainRuns, free: list[int]) -> _Solved | str:
    """Return the least squares near a model, or why there are none."""
    residual = model.residual(runs)
    assert residual is not None  # noqa: S101  the model before was possible
    for _ in range(_STEPS):
        solved = _linear(model, runs, residual, free)
        if solved is None:
            return _NOT_APART
        move = solved.inverse @ (solved.slopes.T @ residual)
        own = np.bincount(runs.load, residual * solved.own) / np.sqrt(solved.norm)
        after = _descend(model, runs, residual, move, own - solved.back @ move, free)
        if after is None:
            return solved
        gain = 1 - float(after[1] @ after[1]) / float(residual @ residual)
        model, residual = after
        if gain < _ENOUGH:
            break
    return _linear(model, runs, residual, free) or _NOT_APART


def _linear(model: _Model, runs: ChainRuns, residual: Floats, free: list[int]) -> _Solved | None:
    by_theta, by_load = model.slopes(runs)
    by_theta = by_theta[:, free]
    norm = np.maximum(np.bincount(runs.load, by_load**2), _TINY)
    back = np.array([np.bincount(runs.load, by_load * each) for each in by_theta.T]).T
    back /= norm[:, None]
    slopes = by_theta - by_load[:, None] * back[runs.load]
    size = np.sqrt((slopes**2).sum(axis=0))
    condition = float(np.linalg.cond(slopes / size)) if (size > 0).all() else np.inf
    if condition > _SINGULAR:
        return None
    inverse = np.linalg.inv(slopes.T @ slopes)
    own = by_load / np.sqrt(norm[runs.load])
    return _Solved(model, residual, slopes, back, own, norm, inverse, condition)


def _descend(
    model: _Model, runs: ChainRuns, before: Floats, move: Floats, by_load: Floats, free: list[int]
) -> tuple[_Model, Floats] | None:
    """Return the model after a step that makes the squares less, halved as need be; None: none."""
    for halving in range(_HALVINGS):
        theta = model.theta.copy()
        theta[free] += move * 0.5**halving
        after = _Model(theta, model.loads + by_load * 0.5**halving)
        residual = after.residual(runs)
        if residual is not None and residual @ residual < before @ before:
            return after, residual
    return None


def _near(
    model: _Model, runs: ChainRuns, keep: NDArray[np.bool_], found: _Solved
) -> NDArray[np.bool_]:
    """Return which jobs are near the model; those of loads that it does not know are not."""
    few = runs.take(keep)
    time = model.time(runs, float(model.theta[0]))
    off = np.abs(runs.log_time - np.log(np.where(time > 0, time, np.nan)))
    off[keep] /= np.sqrt(found.free)
    return off <= OUTLIER * found.width(few.log_time)
