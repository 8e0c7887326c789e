"""Cms, Cps and set-up times from run times of divisible loads on different numbers of nodes.

A load of sigma units takes E(n) = SC + ST (1 + s_n) + sigma (cms + cps) b_n on n nodes, where b_n
and s_n depend on q = cms/(cms + cps) alone (`rtsched.kernels.dlt`). Run times scatter in proportion
to their length, so log E is fitted, to the jobs within four robust standard deviations.

Where sigma is not known, each class of jobs has a load of its own, and only products can be told:
the unit of load is then such that cms + cps = 1 s. The ratio q, ST and SC do not depend on it.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing. Golub and
Pereyra, 1973 (the loads are eliminated). MacKinnon and White, 1985: the estimator HC2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.calibrate.chain_fit import ChainRuns, Fitted, fit_chain
from rtsched.calibrate.intervals import Estimate, Refused, t_quantile

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
    why = _says_nothing(
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


def _says_nothing(scatter: float, ratio: Estimate, setup: float) -> str:
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
