"""The batch workload model of Lublin and Feitelson: sizes, run times and arrivals.

Run times are hyper-gamma in their logarithm, and wide jobs run longer; sizes are serial, powers of
two or anything between, from two uniform stages in their logarithm; arrivals follow a daily cycle.
Parameters are those of the model's published program; logarithms are natural for times and to base
2 for sizes.

References
----------
Lublin and Feitelson, 2003: The workload on parallel supercomputers: modeling the characteristics
of rigid jobs. Journal of Parallel and Distributed Computing 63(11).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

BUCKETS = 48
"""Half hours of a day, over which the rate of arrivals varies."""

DAY_START = 11
"""The half hour at which the gamma distribution of arrivals over a day begins."""

LONGEST_LOG_RUN, LONGEST_LOG_GAP = 12.0, 13.0
"""Logarithms of seconds above which a run time (45 h) or a gap (5 d) is drawn again."""


class Model(NamedTuple):
    """Parameters of one kind of job, fitted for a machine of 128 nodes.

    Attributes
    ----------
    serial, power_of_two : float
        Share of jobs of one node, of jobs whose size is a power of two.
    size_low, size_middle, size_high, size_first : float
        Base 2 logarithms between which the two uniform stages lie; share of the first.
    run_first, run_second : (float, float)
        Shape and scale of the two gamma distributions of ln(run time).
    mix_slope, mix_start : float
        Share of the first gamma: mix_slope * size + mix_start, within [0, 1].
    gap : (float, float)
        Shape and scale of the gamma distribution of ln(gap) in rush hours.
    cycle : (float, float)
        Shape and scale of the gamma distribution of arrivals over the half hours of a day.
    all_day : float
        Factor on the shape of `gap` that makes it one for all hours.
    """

    serial: float
    power_of_two: float
    size_low: float
    size_middle: float
    size_high: float
    size_first: float
    run_first: tuple[float, float]
    run_second: tuple[float, float]
    mix_slope: float
    mix_start: float
    gap: tuple[float, float]
    cycle: tuple[float, float]
    all_day: float


BATCH = Model(
    serial=0.2927,
    power_of_two=0.6686,
    size_low=1.2,
    size_middle=5.0,
    size_high=7.0,
    size_first=0.875,
    run_first=(6.57, 0.823),
    run_second=(639.1, 0.0156),
    mix_slope=-0.003,
    mix_start=0.6986,
    gap=(6.0415, 0.8531),
    cycle=(6.1271, 5.2740),
    all_day=1.0519,
)
INTERACTIVE = Model(
    serial=0.1541,
    power_of_two=0.625,
    size_low=1.0,
    size_middle=3.0,
    size_high=5.5,
    size_first=0.705,
    run_first=(3.8351, 0.6605),
    run_second=(7.073, 0.6856),
    mix_slope=-0.0118,
    mix_start=0.9156,
    gap=(6.5510, 0.6621),
    cycle=(8.9186, 3.6680),
    all_day=0.9797,
)
ALL = Model(
    serial=0.244,
    power_of_two=0.576,
    size_low=0.8,
    size_middle=4.5,
    size_high=7.0,
    size_first=0.86,
    run_first=(4.2, 0.94),
    run_second=(312.0, 0.03),
    mix_slope=-0.0054,
    mix_start=0.78,
    gap=(10.2303, 0.4871),
    cycle=(8.1737, 3.9631),
    all_day=1.0225,
)
MODELS = {"batch": BATCH, "interactive": INTERACTIVE, "all": ALL}


def sizes(model: Model, n: int, nodes: int, random: np.random.Generator) -> NDArray[np.int32]:
    """Return int32[n]: nodes of each job.

    On a machine of other than 128 nodes the upper stages move with its logarithm, as the model's
    authors advise.
    """
    shift = math.log2(nodes) - 7.0
    high = max(model.size_high + shift, 0.0)
    middle = max(model.size_middle + shift, 0.0)
    low = min(model.size_low, middle)
    first = random.random(n) < model.size_first
    share = random.random(n)
    exponent = np.where(first, low + share * (middle - low), middle + share * (high - middle))
    kind = random.random(n)
    rounded = kind < model.serial + model.power_of_two
    exponent = np.where(rounded, np.floor(exponent + 0.5), exponent)
    size = np.floor(np.exp2(exponent) + 0.5)
    return np.where(kind < model.serial, 1, np.clip(size, 1, nodes)).astype(np.int32)


def run_times(model: Model, size: NDArray[np.int32], random: np.random.Generator) -> Floats:
    """Return float64[n]: whole seconds that jobs of these sizes run."""
    mix = np.clip(model.mix_slope * size + model.mix_start, 0.0, 1.0)
    logs = np.full(len(size), np.inf)
    while len(rows := np.flatnonzero(logs > LONGEST_LOG_RUN)):
        first = random.random(len(rows)) < mix[rows]
        shape, scale = (
            np.where(first, a, b) for a, b in zip(model.run_first, model.run_second, strict=True)
        )
        logs[rows] = random.gamma(shape, scale)
    return np.asarray(np.maximum(np.floor(np.exp(logs)), 1.0))


def arrivals(model: Model, n: int, random: np.random.Generator) -> Floats:
    """Return float64[n]: seconds after midnight of the first day, ascending.

    A gap is drawn for hours of average rate; time then passes through it faster where the daily
    cycle has more arrivals.
    """
    shape, scale = model.gap[0] * model.all_day, model.gap[1]
    logs = np.full(n, np.inf)
    while len(rows := np.flatnonzero(logs > LONGEST_LOG_GAP)):
        logs[rows] = random.gamma(shape, scale, len(rows))
    width = 86400.0 / BUCKETS
    passed = np.cumsum(np.exp(logs) / width)
    days, rest = np.divmod(passed, BUCKETS)
    edges = np.concatenate([[0.0], np.cumsum(daily_cycle(model))])
    edges[-1] = BUCKETS
    return np.asarray((days * BUCKETS + np.interp(rest, edges, np.arange(BUCKETS + 1.0))) * width)


def daily_cycle(model: Model) -> Floats:
    """Return float64[48]: the rate of arrivals in each half hour of a day; the mean is 1."""
    marks = np.arange(DAY_START, BUCKETS + DAY_START + 1) - 0.5
    shares = np.diff([_gamma_cdf(mark, *model.cycle) for mark in marks])
    rates = np.empty(BUCKETS)
    rates[(np.arange(DAY_START, BUCKETS + DAY_START) - 1) % BUCKETS] = shares
    return np.asarray(rates / rates.mean())


def _gamma_cdf(x: float, shape: float, scale: float) -> float:
    """Return the gamma distribution's cumulative function by its power series, for x > 0."""
    x = x / scale
    term = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0))
    total, k = 0.0, 0
    while term > total * 1e-17:
        total += term
        k += 1
        term *= x / (shape + k)
    return total
